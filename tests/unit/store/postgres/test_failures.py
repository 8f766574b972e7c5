"""What can be wrong with a server, an address or a role: a clear error with the next action, and nothing half done."""

from __future__ import annotations

import asyncio

import psycopg
import pytest
from psycopg import errors as pg

from pledger.engine.port.answers import Reply
from pledger.errors import SchemaVersionError, StoreError, StoreUnavailableError, UsageError
from pledger.store.postgres import open_postgres
from pledger.store.postgres.address import parse_url
from pledger.store.postgres.failures import store_failure
from pledger.store.postgres.links import check_server
from tests import servers
from tests.conformance.harness import append, open_session, owned_run

ADDRESS = parse_url("postgresql://ada:secret@db.example/shop")


async def test_a_database_that_is_not_there(url: str) -> None:
    nowhere = servers.changed(url, dbname="nowhere")
    with pytest.raises(StoreError, match=r'database "nowhere" does not exist\. Create the database, or correct'):
        await open_postgres(nowhere)


async def test_a_user_that_is_not_there(url: str) -> None:
    """A server that asks for passwords does not say whether it knows the user."""
    said = r'role "nobody_at_all" does not exist|password authentication failed for user "nobody_at_all"'
    with pytest.raises(StoreError, match=rf"({said}).*\. The server refused this user"):
        await open_postgres(servers.changed(url, user="nobody_at_all", password="none"))


@pytest.mark.parametrize(
    ("said", "kind", "advice"),
    [
        ('FATAL:  password authentication failed for user "ada"', StoreError, "correct the URL"),
        ('FATAL:  no pg_hba.conf entry for host "10.0.0.1"', StoreError, "pg_hba.conf"),
        ("FATAL:  sorry, too many clients already", StoreUnavailableError, "max_connections"),
        ("Connection refused", StoreUnavailableError, "the host and port"),
    ],
)
def test_a_connection_that_is_refused(said: str, kind: type[StoreError], advice: str) -> None:
    error = psycopg.OperationalError(f'connection failed: connection to server at "10.0.0.2", port 5432 failed: {said}')
    failure = store_failure(error, ADDRESS)
    assert type(failure) is kind
    assert advice in str(failure)
    assert "secret" not in str(failure)


@pytest.mark.parametrize(
    ("error", "kind", "advice"),
    [
        (pg.ReadOnlySqlTransaction("cannot execute INSERT"), StoreUnavailableError, "target_session_attrs=read-write"),
        (pg.DiskFull("could not extend file"), StoreUnavailableError, "Free some space"),
        (pg.LockNotAvailable("lock timeout"), StoreUnavailableError, "pg_stat_activity"),
        (pg.QueryCanceled("statement timeout"), StoreUnavailableError, "nothing was written"),
        (pg.InsufficientPrivilege("permission denied"), StoreError, "must own the schema"),
        (pg.UndefinedTable("relation does not exist"), StoreError, "dropped or changed"),
        (pg.AdminShutdown("terminating connection"), StoreUnavailableError, "was lost"),
        (psycopg.InterfaceError("odd"), StoreUnavailableError, "InterfaceError: odd"),
    ],
)
def test_what_a_server_refuses(error: psycopg.Error, kind: type[StoreError], advice: str) -> None:
    failure = store_failure(error, ADDRESS)
    assert type(failure) is kind
    assert advice in str(failure)


@pytest.mark.parametrize(
    "said",
    [
        'connection to server at "10.0.0.2" failed: FATAL:  server login has been failing, try again later',
        'connection to server at "10.0.0.2" failed: FATAL:  password authentication failed for user "ada"',
        'certificate file "/etc/client.crt" does not exist',
    ],
)
def test_what_is_refused_once_the_ledger_was_open_may_pass(said: str) -> None:
    """By a pooler whose server fails over, or while passwords and certificates are replaced: no run is blocked."""
    error = psycopg.OperationalError(f"connection failed: {said}")
    failure = store_failure(error, ADDRESS, opened=True)
    assert type(failure) is StoreUnavailableError
    assert str(failure) == str(store_failure(error, ADDRESS))


async def test_a_role_that_may_not_log_in_for_a_moment(url: str) -> None:
    name = parse_url(url).schema
    with servers.role(name) as as_owner:
        servers.admin(f"CREATE SCHEMA {name} AUTHORIZATION {name}")
        store = await open_postgres(as_owner(url))
        session = await open_session(store)
        run = await owned_run(store, session)
        for link in (store._reader, store._writer):
            await link.close()
        store._heart.close()
        servers.admin(f"ALTER ROLE {name} NOLOGIN")
        for work in (
            store.read_history(run.run_key),
            store.bury_sessions("default"),
            store.commit([append(run)]),
            asyncio.to_thread(store.renew_session, session, 1000),
        ):
            with pytest.raises(StoreUnavailableError, match="not permitted to log in"):
                await work
        servers.admin(f"ALTER ROLE {name} LOGIN")
        assert await store.commit([append(run)]) == [Reply.WON]
        assert len(await store.read_history(run.run_key)) == 2
        await store.close()


def test_a_server_that_is_too_old_or_a_replica() -> None:
    with pytest.raises(UsageError, match="the server is PostgreSQL 13; Pledger needs 14 or later"):
        check_server((130_004, False), ADDRESS)
    with pytest.raises(StoreUnavailableError, match=r"this server is a replica and takes no writes\. Name the primary"):
        check_server((180_000, True), ADDRESS)
    check_server((140_000, False), ADDRESS)


async def test_a_role_that_may_make_nothing_leaves_nothing(url: str) -> None:
    name = parse_url(url).schema
    said = r"a privilege is missing .*permission denied for database"
    with servers.role(f"{name}_guest") as as_guest, pytest.raises(StoreError, match=said):
        await open_postgres(as_guest(url))
    assert servers.admin(f"SELECT to_regnamespace('{name}')") == [(None,)]


async def test_a_role_needs_its_own_schema_and_no_more(url: str) -> None:
    name = parse_url(url).schema
    with servers.role(name) as as_owner:
        servers.admin(f"CREATE SCHEMA {name} AUTHORIZATION {name}")
        store = await open_postgres(as_owner(url))
        assert await store.now_ms() > 0
        await store.close()


async def test_a_schema_of_a_newer_pledger_is_refused(url: str) -> None:
    store = await open_postgres(url)
    await store.close()
    servers.admin(
        f"UPDATE {store.address.schema}.meta SET value = '99' WHERE name IN ('schema_version', 'compatible_from')"
    )
    with pytest.raises(SchemaVersionError, match="has schema version 99; this Pledger knows versions up to "):
        await open_postgres(url)


def test_damage_does_not_pass() -> None:
    """Whatever else an open ledger is refused may; a run that cannot be read must be parked, and not tried for ever."""
    damage = store_failure(pg.DataCorrupted("missing chunk number 0 for toast value 16999"), ADDRESS, opened=True)
    assert type(damage) is StoreError
    refused = store_failure(pg.InvalidPassword("password authentication failed"), ADDRESS, opened=True)
    assert isinstance(refused, StoreUnavailableError)
