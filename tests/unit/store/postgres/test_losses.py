"""A ledger that has gone back, and one that has not: what a new connection compares, and with what."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
import pytest

from pledger.engine.port.answers import Reply, Sent
from pledger.engine.port.records import RunRow
from pledger.store.postgres import PostgresStore, open_postgres
from tests.conformance.harness import append, open_session, owned_run, signal, write
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
    await write(store, signal(run))  # leaves a mark, which a start does not
    async with answered_late(store, "lacks_mark"):
        await write(store, signal(run, "another"))
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


async def no_timeline(_: object) -> None: ...


async def reconnect(store: PostgresStore) -> None:
    """As after a restart of the server: its next connection compares."""
    await store._reader.close()
    await store.read_statuses([])


async def change(store: PostgresStore, sql: str) -> None:
    """Behind its back. {}: the schema."""
    with psycopg.connect(store.address.conninfo, autocommit=True) as connection:
        connection.execute(sql.format(store.address.quoted))  # type: ignore[arg-type] # the tests' own text


async def marked_run(store: PostgresStore, workflow_id: str) -> None:
    """With a message for it, which leaves a mark as a start does not."""
    run = await owned_run(store, await open_session(store), workflow_id)
    assert await write(store, signal(run)) == Sent(run.owner)


async def test_what_was_lost_is_declared_once_though_its_server_is_restarted_later(url: str) -> None:
    """Two processes have written to the part that is gone. Who comes second finds that the loss has been declared; and
    it does not declare what it lacks anew when it comes again, long after."""
    first, second = await open_postgres(url), await open_postgres(url)
    for store in (first, second):
        await open_session(store)
        await marked_run(store, str(id(store)))
    await change(first, "DELETE FROM {}.mark")
    await reconnect(first)
    assert await first.read_sessions("default") == []
    session = await open_session(first)
    # The server was started after that, long ago by now.
    await change(first, "UPDATE {}.meta SET value = '1' WHERE name = 'declared_ms'")
    for _ in range(2):
        await reconnect(second)
        assert [row.session_key for row in await first.read_sessions("default")] == [session]
    await first.close()
    await second.close()


@pytest.mark.parametrize("tells", [True, False], ids=["timeline", "no timeline"])
async def test_what_is_lost_after_a_loss_is_declared_too(
    url: str, monkeypatch: pytest.MonkeyPatch, tells: bool
) -> None:
    """tells: whether the server shows its timeline; those of some clouds do not."""
    if not tells:
        for module in ("links", "store"):
            monkeypatch.setattr(f"pledger.store.postgres.{module}.timeline", no_timeline)
    store = await open_postgres(url)
    for workflow_id in ("before", "after"):
        await marked_run(store, workflow_id)
        await reconnect(store)
        assert len(await store.read_sessions("default")) == 1
        await change(store, "DELETE FROM {}.mark")
        await reconnect(store)
        assert await store.read_sessions("default") == []
    await store.close()


@pytest.mark.parametrize("of", ["a day ago", "now"])
async def test_a_mark_that_was_dropped_for_its_age_is_not_taken_for_lost(url: str, of: str) -> None:
    """A machine was suspended for days, and its clock with it; or the server's clock was a day ahead for a moment.
    Others have dropped its mark meanwhile."""
    store, other = await open_postgres(url), await open_postgres(url)
    await marked_run(store, "order-1")
    if of == "now":
        clock = "CREATE OR REPLACE FUNCTION {}.now_ms() RETURNS bigint LANGUAGE sql VOLATILE AS "
        now = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
        await change(other, f"{clock} 'SELECT {now} + 90000000'")
        await other.close_session(await open_session(other))
        await change(other, f"{clock} 'SELECT {now}'")
    else:
        store._committer.acknowledged_ms -= 90_000_000
        await change(other, "UPDATE {}.mark SET written_ms = written_ms - 90000000")
        await other.close_session(await open_session(other))
    [(marks,)] = await store._read_sql(store._lists, f"SELECT count(*) FROM {store.address.quoted}.mark", [])
    assert marks == 0
    await reconnect(store)
    assert len(await store.read_sessions("default")) == 1
    # What it writes now is missed again.
    await marked_run(store, "later")
    await change(store, "DELETE FROM {}.mark")
    await reconnect(store)
    assert await store.read_sessions("default") == []
    await store.close()
    await other.close()


# What leaves no mark --------------------------------------------------------------------------------------------------


async def two_steps(store: PostgresStore) -> RunRow:
    """A run that has gone on by plain steps alone since the newest mark."""
    run = await owned_run(store, await open_session(store))
    for _ in range(2):
        assert await write(store, append(run)) is Reply.WON
        run = await store.read_run(run.run_key)
    return run


@pytest.mark.parametrize("gone", ["steps", "the run", "all but its number"])
async def test_a_copy_that_lacks_nothing_but_plain_steps_is_found_out(url: str, gone: str) -> None:
    """As of before the last step: of the whole run, if another process has started it; or another one has gone on."""
    store = await open_postgres(url)
    run = await two_steps(store)
    await reconnect(store)
    assert len(await store.read_sessions("default")) == 1
    last = f"run_key = {run.run_key} AND first_event_id = {run.last_event - 1}"
    match gone:
        case "steps":
            await change(store, f"DELETE FROM {{}}.history WHERE {last}")
            await change(store, f"UPDATE {{}}.run SET last_event = {run.last_event - 2}")
        case "the run":
            await change(store, "DELETE FROM {}.history")
            await change(store, "DELETE FROM {}.run")
        case _:
            await change(store, f"UPDATE {{}}.history SET checksum = 'another' WHERE {last}")
    await reconnect(store)
    assert await store.read_sessions("default") == []
    session = await open_session(store)
    await reconnect(store)
    assert [row.session_key for row in await store.read_sessions("default")] == [session], "it is declared once"
    await store.close()


@pytest.mark.parametrize("since", ["another step", "closed", "forgotten"])
async def test_a_run_that_has_gone_on_since_is_not_taken_for_lost(url: str, since: str) -> None:
    store, other = await open_postgres(url), await open_postgres(url)
    run = await two_steps(store)
    if since == "another step":
        assert await write(other, append(run)) is Reply.WON
    else:
        assert await write(other, append(run, closed="completed")) is Reply.WON
    if since == "forgotten":
        await asyncio.sleep(0.002)  # real: it has to have closed in an earlier millisecond of the server's clock
        assert await other.forget_chains([run.chain_key], 0) == 1
        await other.drop_leftovers(100)
    await reconnect(store)
    assert len(await store.read_sessions("default")) == 1
    await store.close()
    await other.close()
