"""Migrations on a server: once, all or nothing, and while others work."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from pledger.engine.port.answers import Reply, Started
from pledger.engine.port.filters import EVERY
from pledger.errors import StoreUnavailableError
from pledger.store.postgres import PostgresStore, open_postgres
from pledger.store.postgres.address import Address, parse_url
from pledger.store.postgres.schema import migrate, schema_version
from pledger.store.postgres.statements import load_steps
from tests import servers
from tests.conformance.harness import append, open_session, owned_run, signal, start, write
from tests.conformance.later import POSTGRES, go_on, leave_a_run


async def connected(address: Address, name: str = "migrates") -> psycopg.AsyncConnection[tuple[object, ...]]:
    return await psycopg.AsyncConnection.connect(
        address.conninfo, autocommit=True, cursor_factory=psycopg.AsyncRawCursor, application_name=name
    )


def later_steps(address: Address, *more: str) -> list[str]:
    return [*load_steps(address.schema), POSTGRES.format(schema=address.schema), *more]


async def test_a_migration_is_done_once_however_many_come_at_once(url: str) -> None:
    stores = await asyncio.gather(*(open_postgres(url) for _ in range(5)))
    assert {(await store.describe())["schema_version"] for store in stores} == {len(load_steps("any"))}
    for store in stores:
        await store.close()


async def test_a_migration_that_fails_half_way_leaves_nothing(url: str) -> None:
    address = parse_url(url)
    connection = await psycopg.AsyncConnection.connect(
        address.conninfo, autocommit=True, cursor_factory=psycopg.AsyncRawCursor
    )
    steps = [f"CREATE TABLE {address.schema}.meta (name text PRIMARY KEY, value text)", "CREATE TABLE nonsense ("]
    with pytest.raises(psycopg.errors.SyntaxError):
        await migrate(connection, address, steps)
    found = await (await connection.execute("SELECT to_regnamespace($1)", [address.schema])).fetchall()
    assert found == [(None,)]
    await connection.close()


async def test_who_is_at_work_goes_on_while_a_newer_version_migrates(url: str) -> None:
    """Its statements are prepared, and nothing that it asked for has changed."""
    store = await open_postgres(url)
    session = await open_session(store)
    run = await owned_run(store, session)
    assert await write(store, append(run)) is Reply.WON
    await write(store, signal(run))
    async with await connected(store.address) as newer:
        steps = later_steps(store.address)
        assert await migrate(newer, store.address, steps) == len(steps)
    run = await store.read_run(run.run_key)
    assert await write(store, append(run)) is Reply.WON
    assert isinstance(await write(store, start("order-2")), Started)
    await write(store, signal(run, "another"))
    assert len(await store.read_inbox(run.chain_key)) == 2
    assert len(await store.list_runs("default", EVERY, 10)) == 2
    late = await open_postgres(url)  # an old process may also come later: rolled back to, or just restarted
    told = await late.describe()
    assert told["schema_version"] == told["schema_version_known"] + 1
    assert (await late.read_run(run.run_key)).last_event > run.last_event
    for each in (store, late):
        await each.close()


async def test_a_ledger_of_an_earlier_schema_goes_on(url: str) -> None:
    """Of some; SQLite's are all tried."""
    newest = await open_postgres(url)
    await leave_a_run(newest)
    steps = load_steps(f"{newest.address.schema}_earlier")
    earlier = parse_url(servers.changed(url, schema=f"{newest.address.schema}_earlier"))
    for version in {1, len(steps) // 2, len(steps) - 1}:
        async with await connected(earlier) as connection:
            assert await migrate(connection, earlier, steps[:version]) == version
            columns = (
                "SELECT relname, string_agg(quote_ident(attname), ', ') FROM pg_class JOIN pg_attribute ON attrelid = "
                "pg_class.oid WHERE relnamespace = $1::regnamespace AND relkind = 'r' AND relname <> 'meta' AND "
                "attnum > 0 AND NOT attisdropped GROUP BY pg_class.oid, relname ORDER BY pg_class.oid"
            )
            for table, names in await (await connection.execute(columns, [earlier.schema])).fetchall():
                await connection.execute(
                    f"INSERT INTO {earlier.schema}.{table} ({names}) OVERRIDING SYSTEM VALUE "  # type: ignore[arg-type]
                    # What a migration has put in by itself is there already.
                    f"SELECT {names} FROM {newest.address.schema}.{table} ON CONFLICT DO NOTHING"
                )
        store = await open_postgres(servers.changed(url, schema=earlier.schema))
        await go_on(store)
        await store.close()
        servers.admin(f"DROP SCHEMA {earlier.schema} CASCADE")
    await newest.close()


async def test_a_migration_gives_way_to_who_holds_a_table(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It must not wait in the lock's queue for long: everybody else would wait behind it."""
    monkeypatch.setattr("pledger.store.postgres.schema._STEP_LOCK_MS", 50)
    store = await open_postgres(url)
    run = await owned_run(store, await open_session(store))
    name = store.address.schema
    async with await connected(store.address) as newer:
        with psycopg.connect(servers.url()) as reader:
            reader.execute(f"SELECT count(*) FROM {name}.run")  # type: ignore[call-overload] # and thinks about it
            steps = later_steps(store.address)
            migrating = asyncio.create_task(migrate(newer, store.address, steps))
            for _ in range(3):
                assert await write(store, append(run)) is Reply.WON
                run = await store.read_run(run.run_key)
            assert not migrating.done()
        assert await migrating == len(steps)
    await store.close()


async def test_a_table_that_nobody_gives_up_is_told(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pledger.store.postgres.schema._STEP_LOCK_MS", 20)
    monkeypatch.setattr("pledger.store.postgres.schema._WAIT_S", 0.1)
    store = await open_postgres(url)
    async with await connected(store.address) as newer:
        with psycopg.connect(servers.url()) as reader:
            reader.execute(f"SELECT count(*) FROM {store.address.schema}.run")  # type: ignore[call-overload]
            with pytest.raises(StoreUnavailableError, match=r"somebody held a lock .*, so nothing was changed"):
                await migrate(newer, store.address, later_steps(store.address))
        assert await schema_version(newer, store.address) == len(load_steps(store.address.schema))
    await store.close()


async def test_a_migration_that_is_killed_leaves_nothing_and_the_next_one_does_it(url: str) -> None:
    """At its last step, of which nothing ends: the first ones were done, and the lock was held."""
    address = parse_url(url)
    steps = [*load_steps(address.schema), "SELECT pg_sleep(600)"]
    dying = await connected(address, f"dies {address.schema}")
    migrating = asyncio.create_task(migrate(dying, address, steps))
    async with await connected(address) as other:
        ended = (
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = $1 AND query LIKE $2"
        )
        while not (await other.execute(ended, [f"dies {address.schema}", "SELECT pg_sleep%"])).rowcount:
            await other.execute("SELECT pg_sleep(0.01)")  # until it has come so far
        with pytest.raises(psycopg.OperationalError):
            await migrating
        assert await schema_version(other, address) == 0
        found = await other.execute("SELECT to_regnamespace($1)", [address.schema])
        assert await found.fetchall() == [(None,)]
    await dying.close()
    store = await open_postgres(url)
    assert isinstance(store, PostgresStore)
    assert isinstance(await write(store, start()), Started)
    await store.close()
