"""Two claims whose transactions are open at the same time: only one of them takes the last slot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from pledger.engine.port.lanes import Bounds, Claim, Served
from pledger.engine.port.operations import FinishTask
from pledger.history.placement import LimitRule
from pledger.store.postgres import PostgresStore, news, open_postgres
from pledger.store.postgres.queues import _Try
from pledger.store.queue_rows import NEXT_LANES_MS
from tests.conformance.harness import API, NOW, append, open_session, owned_run, placed, task, write
from tests.engine.harness import until

HOUR_MS = 3_600_000
ONE = Bounds({"api": LimitRule(concurrency=1)}, {})
RATE = Bounds({"api": LimitRule(rate=1, per_ms=HOUR_MS)}, {})
FREE = Bounds({}, {})


class Claimers:
    """Two processes, each with a row that only it can take; both rows count for one limit."""

    def __init__(self, first: PostgresStore, second: PostgresStore, sessions: tuple[int, int]) -> None:
        self.first, self.second = first, second
        self.sessions = sessions

    def ask(self, store: PostgresStore, bounds: Bounds) -> _Try:
        number = 0 if store is self.first else 1
        served = Served("default", "default", [("charge", "refund")[number]])
        return _Try(store, self.sessions[number], NOW, served, bounds, 5)

    async def claim(self, store: PostgresStore, bounds: Bounds, activity_type: str | None = None) -> Claim:
        """activity_type: in place of its own."""
        ask = self.ask(store, bounds)
        served = ask._served if activity_type is None else replace(ask._served, activity_types=[activity_type])
        return await store.claim_queued(ask._session_key, NOW, served, 5, bounds)

    async def until_second_waits(self) -> None:
        """For a lock that the first one holds: its own connection, and nobody else's on a server that many share."""
        first, second = (store._writer._connection for store in (self.first, self.second))
        assert first is not None
        assert second is not None
        sql = "SELECT $1::integer = ANY (pg_blocking_pids($2::integer))"
        pids = [first.info.backend_pid, second.info.backend_pid]

        async def waits() -> bool:
            return await self.first._read_sql(self.first._reader, sql, pids) == [(True,)]

        await until(waits)


@asynccontextmanager
async def claimers(url: str) -> AsyncIterator[Claimers]:
    first, second = await open_postgres(url), await open_postgres(url)
    try:
        sessions = (await open_session(first), await open_session(second))
        run = await owned_run(first, sessions[0])
        await write(first, append(run, tasks=[task(run, 3, **API), task(run, 4, activity_type="refund", **API)]))
        yield Claimers(first, second, sessions)
    finally:
        await first.close()
        await second.close()


async def interleaved(both: Claimers, bounds: Bounds, *, commit: bool) -> tuple[Claim, Claim]:
    """The second one claims while the first one's claim is written and not committed."""
    taken: list[Claim] = []
    async with both.first._writer.use() as connection:
        await connection.execute("BEGIN")
        taken.append(await both.ask(both.first, bounds).claim(connection))
        second = asyncio.create_task(both.claim(both.second, bounds))
        await both.until_second_waits()
        await connection.execute("COMMIT" if commit else "ROLLBACK")
    return taken[0], await second


@pytest.mark.parametrize("bounds", [ONE, RATE], ids=["concurrency", "rate"])
async def test_the_last_slot_is_taken_by_one(url: str, bounds: Bounds) -> None:
    async with claimers(url) as both:
        first, second = await interleaved(both, bounds, commit=True)
        assert (len(first.tasks), len(second.tasks)) == (1, 0)


@pytest.mark.parametrize("bounds", [ONE, RATE], ids=["concurrency", "rate"])
async def test_what_is_rolled_back_is_the_others(url: str, bounds: Bounds) -> None:
    async with claimers(url) as both:
        first, second = await interleaved(both, bounds, commit=False)
        assert (len(first.tasks), len(second.tasks)) == (1, 1)


async def test_a_slot_whose_attempt_is_over_is_taken_over_by_one(url: str) -> None:
    """Both have seen it free. Whether its attempt runs is not what decides: the snapshot of who waits is too old."""
    async with claimers(url) as both:
        [earlier] = (await both.claim(both.first, ONE)).tasks
        assert earlier.owner is not None
        ended = FinishTask(earlier.run_key, earlier.event_id, earlier.attempt, earlier.owner, b"result")
        await write(both.first, ended)
        run = await both.first.read_run(earlier.run_key)
        await write(both.first, append(run, tasks=[task(run, 5, **API)]))
        first, second = await interleaved(both, ONE, commit=True)
        assert ([row.event_id for row in first.tasks], second.tasks) == ([5], [])
        assert await rows_of(both.first, "SELECT event_id FROM {}.slot") == [(5,)]


async def test_what_somebody_else_was_faster_to_take_costs_nothing(url: str) -> None:
    """Neither a token nor a turn."""
    bounds = Bounds({"api": LimitRule(concurrency=1), "own": LimitRule(rate=2, per_ms=HOUR_MS)}, {})
    async with claimers(url) as both:
        run = await both.first.find_run("default", "order-1")
        assert run is not None
        contested, free = placed(3, "k", 1.0, ("api", ""), ("own", "")), placed(3, "k", 1.0, ("own", ""))
        rows = [task(run, n, activity_type="refund", **place) for n, place in ((5, contested), (6, free))]
        await write(both.first, append(run, dropped=[4], tasks=rows))
        _, second = await interleaved(both, bounds, commit=True)
        assert [row.event_id for row in second.tasks] == [6]
        [(full_ms,)] = await rows_of(both.second, "SELECT full_ms FROM {}.bucket WHERE limit_name = 'own'")
        assert full_ms - await both.second.now_ms() <= HOUR_MS / 2
        assert await rows_of(both.second, "SELECT pass FROM {}.turn WHERE share = '=k'") == [(1.0,)]


async def test_a_claim_of_other_activities_leaves_the_interest_in_slots(url: str) -> None:
    """A worker claims for each kind of activity apart: async ones, threads, transactions."""
    async with claimers(url) as both:
        [held] = (await both.claim(both.first, ONE)).tasks
        assert held.owner is not None
        assert (await both.claim(both.second, ONE)).waits
        others = Served("default", "default", ["pack"])
        assert not (await both.second.claim_queued(both.sessions[1], NOW, others, 5, ONE)).waits
        [freed] = both.first._interest.signed([news.for_limits("default")])
        assert both.second._interest.concerns(freed)
        await write(both.first, FinishTask(held.run_key, held.event_id, held.attempt, held.owner, b"result"))
        assert len((await both.claim(both.second, ONE)).tasks) == 1
        assert not both.second._interest.concerns(freed)


async def rows_of(store: PostgresStore, sql: str) -> list[Any]:
    return await store._read_sql(store._reader, sql.format(store.address.quoted), [])


@pytest.mark.parametrize("bounds", [ONE, RATE, FREE], ids=["concurrency", "rate", "no limit"])
async def test_what_has_a_later_attempt_by_now_is_not_started(
    url: str, monkeypatch: pytest.MonkeyPatch, bounds: Bounds
) -> None:
    """It was chosen for the one before; the next one waits for its time, and takes a slot and a token of its own."""
    async with claimers(url) as both:
        lock = _Try._lock

        async def late(self: _Try, *args: Any) -> Any:
            monkeypatch.setattr(_Try, "_lock", lock)
            [row] = (await both.claim(both.second, FREE, "charge")).tasks
            assert row.owner is not None
            again = replace(row, state="queued", attempt=2, due_ms=NOW + 60_000, owner=None, started_ms=None)
            await write(both.second, FinishTask(row.run_key, row.event_id, 1, row.owner, None, requeue=again))
            return await lock(self, *args)

        monkeypatch.setattr(_Try, "_lock", late)
        assert (await both.claim(both.first, bounds)).tasks == []


async def test_who_is_always_overtaken_looks_again_soon(url: str) -> None:
    """What others hold may be free again at once, and nobody says so."""
    async with claimers(url) as both, both.first._writer.use() as connection, connection.transaction():
        await connection.execute(f"SELECT FROM {both.first.address.quoted}.task FOR UPDATE")
        claim = await both.claim(both.second, ONE)
    assert (claim.tasks, claim.waits, claim.due_ms) == ([], True, NOW + NEXT_LANES_MS)


async def test_a_bucket_that_is_swept_away_before_it_is_locked_is_made_again(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is full says no more than none: so a claim may forget it that has just ended."""
    async with claimers(url) as both:
        await rows_of(both.first, "INSERT INTO {}.bucket VALUES ('default', 'api', '', 0) RETURNING 1")
        run = _Try._run

        async def swept(self: _Try, connection: Any, *statements: Any, **ends: bool) -> Any:
            names = [name for name, _ in statements]
            if "lock_buckets" not in names:
                return await run(self, connection, *statements, **ends)
            monkeypatch.setattr(_Try, "_run", run)
            made = await run(self, connection, *statements[: names.index("lock_buckets")])
            await rows_of(both.second, "DELETE FROM {}.bucket RETURNING 1")
            return made + await run(self, connection, *statements[names.index("lock_buckets") :])

        monkeypatch.setattr(_Try, "_run", swept)
        async with both.first._writer.use() as connection, connection.transaction():
            found = await both.ask(both.first, RATE)._find(connection)
            assert found is not None
            assert found.full_ms == {("api", ""): 0.0}


async def test_a_claim_by_turns_takes_three_round_trips(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has just come waits for them. The first claim of a key asks for its turn in one more."""
    trips: list[list[str]] = []
    run = _Try._run

    async def counted(self: _Try, connection: Any, *statements: Any, **ends: bool) -> Any:
        trips.append([*(name for name, _ in statements), *ends])
        return await run(self, connection, *statements, **ends)

    async def none_besides(*_: Any) -> None:
        raise AssertionError("a claim is a transaction by itself")

    monkeypatch.setattr(_Try, "_run", counted)
    monkeypatch.setattr(PostgresStore, "_transact", none_besides)
    async with claimers(url) as both:
        session = both.sessions[0]
        owned = await owned_run(both.first, session, "fair")
        fair = placed(3, "quiet")
        await write(both.first, append(owned, tasks=[task(owned, event, **fair) for event in (3, 4, 5)]))
        served = Served("default", "default", ["charge"])
        assert len((await both.first.claim_queued(session, NOW, served, 1, FREE)).tasks) == 1
        assert len(trips) == 4
        trips.clear()
        assert len((await both.first.claim_queued(session, NOW, served, 1, FREE)).tasks) == 1
        assert [trip[-1] for trip in trips] == ["begins", "lock_queued", "commits"]
