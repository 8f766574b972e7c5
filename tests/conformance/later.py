"""Ledgers as a later Pledger will leave them: with what an additive migration may add, on every table.

Code that knows none of it must work on them as on its own.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import apsw

from pledger.engine.port.answers import Existing, Reply, Started
from pledger.engine.port.operations import Release
from pledger.engine.port.verbs import Store
from pledger.store.postgres import PostgresStore
from pledger.store.postgres.address import parse_url
from pledger.store.postgres.schema import migrate as migrate_postgres
from pledger.store.postgres.statements import load_steps
from pledger.store.sqlfiles import load_migrations
from pledger.store.sqlite import open_sqlite
from pledger.store.sqlite.schema import migrate as migrate_sqlite
from tests import servers
from tests.conformance.harness import (
    NOW,
    TABLES,
    Clock,
    Ledger,
    append,
    claim,
    claim_tasks,
    emptied,
    open_session,
    owned_run,
    signal,
    start,
    task,
    write,
)

#: To every table: a column that may be NULL, one with a constant default, an index; and a table beside them.
SQLITE = "\n".join(
    f"ALTER TABLE pledger_{table} ADD COLUMN later_a TEXT;"
    f"ALTER TABLE pledger_{table} ADD COLUMN later_b INTEGER NOT NULL DEFAULT 7;"
    f"CREATE INDEX pledger_{table}_later ON pledger_{table} (later_b);"
    for table in (*TABLES, "token_key")
    if table != "mark"
)
SQLITE = f"-- compatible-from: 1\n{SQLITE}\nCREATE TABLE pledger_later (x INTEGER PRIMARY KEY) STRICT;"
POSTGRES = """-- compatible-from: 1
DO $$ DECLARE found record; BEGIN
    FOR found IN SELECT relname, relnamespace::regnamespace AS place FROM pg_class
        WHERE relnamespace = '{schema}'::regnamespace AND relkind = 'r'
    LOOP
        EXECUTE format('ALTER TABLE %s.%I ADD COLUMN later_a text', found.place, found.relname);
        EXECUTE format('ALTER TABLE %s.%I ADD COLUMN later_b bigint NOT NULL DEFAULT 7', found.place, found.relname);
        EXECUTE format('CREATE INDEX ON %s.%I (later_b)', found.place, found.relname);
    END LOOP;
END $$;
CREATE TABLE {schema}.later (run_key bigint PRIMARY KEY REFERENCES {schema}.run ON DELETE CASCADE);
"""


# And as an earlier one has left them ----------------------------------------------------------------------------------


async def leave_a_run(store: Store) -> None:
    """With a step, a message and an activity that waits; its worker has gone."""
    session = await open_session(store)
    run = await owned_run(store, session)
    assert await write(store, append(run, tasks=[task(run, 3)])) is Reply.WON
    await write(store, signal(run))
    await write(store, Release(run.run_key, run.fence, NOW))
    await store.close_session(session)


async def go_on(store: Store) -> None:
    """With what `leave_a_run` has left: nothing is lost, and everything is as usual."""
    session = await open_session(store)
    [run] = await claim(store, session)
    assert (run.workflow_id, run.last_event, len(await store.read_history(run.run_key))) == ("order-1", 4, 2)
    assert [each.message_id for each in await store.read_inbox(run.chain_key)] == ["m-1"]
    assert [each.event_id for each in await claim_tasks(store, session)] == [3]
    assert await write(store, append(run)) is Reply.WON
    assert isinstance(await write(store, start("order-2")), Started)
    assert isinstance(await write(store, start()), Existing)


def later_sqlite(directory: Path) -> Ledger:
    clock = Clock()
    path = directory / "ledger.db"
    connection = apsw.Connection(str(path))
    connection.pragma("journal_mode", "wal")
    migrate_sqlite(connection, str(path), [*load_migrations("pledger.store.sqlite"), SQLITE])
    connection.close()
    return Ledger(clock, lambda: open_sqlite(path, clock=clock))


def later_postgres(_: Path) -> Ledger:
    clock = Clock()
    address = parse_url(servers.changed(servers.url(), schema=f"later_{os.getpid()}"))
    asyncio.run(_migrate(PostgresStore(address)))
    return Ledger(clock, lambda: PostgresStore(address, clock=clock))


async def _migrate(store: PostgresStore) -> None:
    address = store.address
    steps = [*load_steps(address.schema), POSTGRES.format(schema=address.schema)]
    try:
        async with store._writer.use() as connection:
            assert await migrate_postgres(connection, address, steps) == len(steps)
        await emptied(store)
    finally:
        await store.close()


LATER = {"sqlite": later_sqlite, "postgres": later_postgres}
