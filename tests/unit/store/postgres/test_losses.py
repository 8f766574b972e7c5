"""A ledger that has gone back, and one that has not: what a new connection compares, and with what."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg

from pledger.store.postgres import PostgresStore, open_postgres
from tests.conformance.harness import open_session, owned_run, signal, write
from tests.engine.harness import until

#: Of PostgreSQL's advisory locks: what holds up an answer.
_LATE = 0x6C617465


@asynccontextmanager
async def answered_late(store: PostgresStore, name: str) -> AsyncIterator[asyncio.Task[object]]:
    """A new connection of `store` has asked that, and the answer, which is as of now, comes after the block."""
    await store._reader.close()
    place = store.address.conninfo
    with psycopg.connect(place, autocommit=True) as holder, psycopg.connect(place, autocommit=True) as watch:
        holder.execute("SELECT pg_advisory_lock(%s)", [_LATE])
        asked = store._sql
        late = f"WITH late AS MATERIALIZED (SELECT pg_advisory_xact_lock({_LATE}))"
        store._sql = {**asked, name: f"{late} SELECT found.* FROM ({asked[name].rstrip(';')}) AS found, late"}
        reading = asyncio.create_task(store.read_statuses([]))
        waits = "SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objid = %s"
        await until(lambda: watch.execute(waits, [_LATE]).fetchall())
        store._sql = asked
        yield reading
        holder.execute("SELECT pg_advisory_unlock(%s)", [_LATE])
        await reading


async def test_what_is_acknowledged_while_a_connection_asks_is_not_missed_in_the_answer(url: str) -> None:
    """The busiest moment of a healthy ledger must not be taken for a loss: that would end all sessions."""
    store = await open_postgres(url)
    session = await open_session(store)
    run = await owned_run(store, session)
    async with answered_late(store, "read_mark"):
        await write(store, signal(run))
    assert [row.session_key for row in await store.read_sessions("default")] == [session]
    assert await store.read_losses([run.run_key]) == {}
    await store.close()


async def test_a_loss_that_is_declared_while_a_connection_asks_is_known(url: str) -> None:
    store = await open_postgres(url)
    run = await owned_run(store, await open_session(store))
    async with answered_late(store, "has_losses"):
        await store.declare_loss()
    assert await store.read_losses([run.run_key]) == {run.run_key: True}
    await store.close()
