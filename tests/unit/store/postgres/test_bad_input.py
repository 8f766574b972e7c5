"""Wrong servers, addresses and roles, on a real server: an error with the next action, and nothing half done."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from urllib.parse import urlsplit

import psycopg
import pytest

from pledger import errors
from pledger.client import connect
from pledger.engine.port.answers import Reply, Started
from pledger.store.postgres import open_postgres
from pledger.store.postgres.address import parse_url
from pledger.store.postgres.schema import _lock_key
from pledger.testing.postgres import PostgresServer, postgres_server
from tests import servers
from tests.conformance.harness import append, open_session, owned_run, start, write
from tests.servers import admin

#: ada has a password; bob may have no connection at all; carol may not come from here.
HBA = """
host all ada 127.0.0.1/32 scram-sha-256
host all carol 127.0.0.1/32 reject
host all,replication all 127.0.0.1/32 trust
"""
ROLES = """
CREATE ROLE ada LOGIN PASSWORD 'right'; CREATE ROLE bob LOGIN CONNECTION LIMIT 0; CREATE ROLE carol LOGIN;
CREATE ROLE dan NOLOGIN
"""


@pytest.fixture(scope="module")
def strict() -> Iterator[PostgresServer]:
    """A server that does not take everybody."""
    with servers.directory() as place:
        hba = place / "hba.conf"
        hba.write_text(HBA)
        hba.chmod(0o644)
        with postgres_server(place / "server", fsync="off", hba_file=str(hba), max_connections="12") as server:
            admin(ROLES, server.url)
            yield server


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What may pass is told at once."""
    monkeypatch.setattr("pledger.store.postgres.store.OPENING_PATIENCE_S", 0.0)


def has_schema(url: str) -> bool:
    return admin(f"SELECT to_regnamespace('{parse_url(url).schema}')") != [(None,)]


async def refused(url: str, kind: type[errors.PledgerError], *words: str) -> None:
    """To open the ledger fails so, says so, and shows no password."""
    with pytest.raises(errors.PledgerError) as caught:
        await open_postgres(url)
    assert type(caught.value) is kind, caught.value
    for word in words:
        assert word in str(caught.value)
    assert "right" not in str(caught.value)
    assert "wrong" not in str(caught.value)


# Who may come ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("user", "password", "kind", "words"),
    [
        ("ada", "wrong", errors.StoreError, ('password authentication failed for user "ada"', "correct the URL")),
        ("ada", None, errors.StoreError, ("no password supplied", "correct the URL")),
        ("bob", None, errors.StoreUnavailableError, ('too many connections for role "bob"', "the limit of the role")),
        ("carol", None, errors.StoreError, ("pg_hba.conf rejects connection", "or the server's pg_hba.conf")),
        ("dan", None, errors.StoreError, ('role "dan" is not permitted to log in', "correct the URL")),
    ],
)
async def test_a_user_that_the_server_does_not_take(
    strict: PostgresServer, user: str, password: str | None, kind: type[errors.StoreError], words: tuple[str, ...]
) -> None:
    await refused(servers.changed(strict.url, user=user, password=password), kind, *words)


async def test_the_right_password(strict: PostgresServer) -> None:
    admin("GRANT CREATE ON DATABASE postgres TO ada", strict.url)
    store = await open_postgres(servers.changed(strict.url, user="ada", password="right", schema="of_ada"))
    assert await store.now_ms() > 0
    await store.close()


@pytest.mark.parametrize(
    ("more", "kind", "words"),
    [
        ("?sslmode=require", errors.StoreError, ("does not support SSL", "sslmode")),
        ("?sslmode=sometimes", errors.UsageError, ('invalid sslmode value: "sometimes"', "Correct the URL")),
        ("?connect_timeout=soon", errors.UsageError, ("connect_timeout: 'soon'", "Correct the URL")),
        ("?conect_timeout=5", errors.UsageError, ("conect_timeout= in the", "Correct its name")),
        ("?options=-cnonsense%3D1", errors.StoreError, ("unrecognized configuration parameter", "correct the URL")),
        ("?target_session_attrs=standby", errors.UsageError, ("not in hot standby", "Correct the URL")),
        (
            "?options=-cdefault_transaction_read_only%3Don",
            errors.StoreUnavailableError,
            ("takes no writes", "target_session_attrs=read-write"),
        ),
    ],
)
async def test_a_parameter_that_cannot_be(
    strict: PostgresServer, more: str, kind: type[errors.PledgerError], words: tuple[str, ...]
) -> None:
    await refused(strict.url + more, kind, *words)


@pytest.mark.parametrize(
    ("place", "kind", "words"),
    [
        ("127.0.0.1:99999", errors.UsageError, ('invalid port number: "99999"', "Correct the URL")),
        ("no-such-host.invalid", errors.StoreUnavailableError, ("failed to resolve host", "the name of the host")),
        ("127.0.0.1:1", errors.StoreUnavailableError, ("Connection refused", "Check that it runs")),
    ],
)
async def test_a_place_where_no_server_is(place: str, kind: type[errors.PledgerError], words: tuple[str, ...]) -> None:
    await refused(f"postgresql://ada:wrong@{place}/shop", kind, *words)


async def test_a_server_without_a_free_connection_is_waited_for(
    strict: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = strict.url + "?schema=crowded"
    with contextlib.ExitStack() as crowd:
        with contextlib.suppress(psycopg.OperationalError):  # until there is no room for one more
            while True:
                crowd.enter_context(psycopg.connect(strict.url))
        await refused(url, errors.StoreUnavailableError, "no connection left", "max_connections")
        # Somebody leaves meanwhile.
        monkeypatch.setattr("pledger.store.postgres.store.OPENING_PATIENCE_S", 30.0)
        monkeypatch.setattr("pledger.store.postgres.links.logger.warning", lambda *_: crowd.close())
        store = await open_postgres(url)
    assert await store.now_ms() > 0
    await store.close()


# What a server is -----------------------------------------------------------------------------------------------------


async def test_an_old_server_gets_no_table(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pledger.store.postgres.links.SERVER_MIN", 99)
    await refused(url, errors.UsageError, "the server is PostgreSQL", "Pledger needs 99 or later")
    assert not has_schema(url)


async def test_a_replica_takes_no_writes_until_it_is_promoted(strict: PostgresServer) -> None:
    with servers.directory() as place, contextlib.ExitStack() as running:
        replica = PostgresServer(place / "replica", of=strict, fsync="off")
        replica.start()
        running.callback(replica.stop)
        url = replica.url + "?schema=promoted"
        await refused(url, errors.StoreUnavailableError, "this server is a replica", "Name the primary")
        both = urlsplit(url)._replace(netloc=f"postgres@127.0.0.1:1,{urlsplit(replica.url).netloc.partition('@')[2]}")
        await refused(
            both.geturl() + "&target_session_attrs=read-write",
            errors.StoreUnavailableError,
            "None of the hosts takes writes",
        )
        replica.promote()
        store = await open_postgres(both.geturl() + "&target_session_attrs=read-write")
        assert isinstance(await write(store, start()), Started)
        await store.close()


# What a role may ------------------------------------------------------------------------------------------------------


async def test_a_schema_that_belongs_to_somebody_else_stays_empty(url: str) -> None:
    name = parse_url(url).schema
    with servers.role(name) as as_them:
        admin(f"CREATE SCHEMA {name}; GRANT USAGE ON SCHEMA {name} TO {name}")
        await refused(as_them(url), errors.StoreError, f"permission denied for schema {name}", "must own the schema")
        assert admin(f"SELECT relname FROM pg_class WHERE relnamespace = '{name}'::regnamespace") == []


async def test_a_privilege_that_is_taken_away_is_told_and_blames_no_run(url: str) -> None:
    name = parse_url(url).schema
    with servers.role(name) as as_them:
        store = await open_postgres(url)
        run = await owned_run(store, await open_session(store))
        admin(f"GRANT USAGE ON SCHEMA {name} TO {name}; GRANT ALL ON ALL TABLES IN SCHEMA {name} TO {name}")
        admin(f"REVOKE INSERT ON {name}.history FROM {name}")
        theirs = await open_postgres(as_them(url))
        with pytest.raises(
            errors.StoreUnavailableError, match=r"a privilege is missing .*permission denied for table history"
        ):
            await theirs.commit([append(run)])
        admin(f"GRANT INSERT ON {name}.history TO {name}")
        assert await write(theirs, append(run)) is Reply.WON
        for each in (theirs, store):
            await each.close()


# A disk, a lock, another ledger ---------------------------------------------------------------------------------------


async def test_a_full_disk_writes_nothing_of_a_batch_and_blames_none_of_it(url: str) -> None:
    store = await open_postgres(url)
    name = store.address.schema
    run = await owned_run(store, await open_session(store))
    admin(
        f"CREATE FUNCTION {name}.no_room() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'could not extend file' "
        f"USING ERRCODE = '53100'; END $$; CREATE TRIGGER no_room BEFORE INSERT ON {name}.history "
        f"EXECUTE FUNCTION {name}.no_room()"
    )
    for batch in ([append(run)], [start("order-2"), append(run)]):  # in one statement, and in two round trips
        with pytest.raises(errors.StoreUnavailableError, match=r"disk is full \(could not extend file\); nothing was"):
            await store.commit(batch)
    admin(f"DROP TRIGGER no_room ON {name}.history")
    assert await store.find_run("default", "order-2") is None
    assert await write(store, append(run)) is Reply.WON
    await store.close()


async def test_a_full_disk_leaves_no_half_of_a_migration(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    full = "DO $$ BEGIN RAISE 'could not extend file' USING ERRCODE = '53100'; END $$"
    name = parse_url(url).schema
    steps = [f"CREATE TABLE {name}.meta (name text PRIMARY KEY, value text)", full]
    monkeypatch.setattr("pledger.store.postgres.schema.load_steps", lambda _: steps)
    await refused(url, errors.StoreUnavailableError, "disk is full", "nothing was written")
    assert not has_schema(url)


async def test_a_lock_of_a_session_that_is_dead_is_named(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its client is gone, and the server does not know: nothing but its session is left."""
    with psycopg.connect(servers.url(), application_name="a dead one", autocommit=True) as holder:
        holder.execute("SELECT pg_advisory_lock(%s)", [_lock_key(parse_url(url).schema)])
        pid = holder.info.backend_pid
        [(place,)] = admin(f"SELECT coalesce(host(client_addr), 'local') FROM pg_stat_activity WHERE pid = {pid}")
        words = f"pid {pid} (a dead one, {place}, idle)", "pg_terminate_backend"
        with monkeypatch.context() as patch:
            patch.setattr("pledger.store.postgres.schema._WAIT_S", 0.05)
            await refused(url, errors.StoreUnavailableError, *words)
        assert not has_schema(url)
        admin(f"SELECT pg_terminate_backend({pid}, 5000)")
    store = await open_postgres(url)
    await store.close()


async def test_two_deployments_with_namespaces_of_their_own_in_one_schema_do_not_meet(url: str) -> None:
    """Namespaces divide a ledger. Who asks in the wrong one is told where it looked."""
    async with connect(url, namespace="staging") as staging, connect(url, namespace="production") as production:
        await staging.start_workflow("fulfil", id="order-1")
        with pytest.raises(errors.WorkflowNotFoundError, match=r"'order-1'.*namespace 'production'"):
            await production.handle("order-1").describe()
        await production.start_workflow("fulfil", id="order-1")
        assert [each.workflow_id async for each in production.list()] == ["order-1"]
        assert await staging.count("") == 1
