"""Whoever locks rows locks them in one order: batches over the same runs wait for each other, and never in a circle."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from pledger.engine.port.answers import Reply
from pledger.engine.port.operations import FinishTask, Operation
from pledger.engine.port.records import RunRow, TaskRow
from pledger.engine.port.verbs import Store
from pledger.store.postgres import open_postgres
from tests import servers
from tests.conformance.harness import append, claim_tasks, open_session, owned_run, signal, task

RUNS = 6


@pytest.fixture
def database() -> Iterator[str]:
    """The URL of a database of its own: the server counts deadlocks for each, and other tests may force some."""
    name = f"lock_order_{os.getpid()}"
    with psycopg.connect(servers.url(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        try:
            host, _, _ = servers.url().rpartition("/")
            yield f"{host}/{name}"
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def deadlocks(url: str) -> int:
    with psycopg.connect(make_conninfo(url), autocommit=True) as connection:
        if connection.info.server_version >= 150_000:
            connection.execute("SELECT pg_stat_force_next_flush()")
        [found] = connection.execute(
            "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        ).fetchall()
        return int(found[0])


@pytest.mark.parametrize("table", ["run", "task"])
async def test_two_processes_that_write_the_same_runs_in_opposite_orders(database: str, table: str) -> None:
    """Transitions, messages and outcomes, in the order of the keys here and against it there. Somebody else has a row
    in the middle until both wait: had they begun at opposite ends, each would then have what the other one needs."""
    one, other = await open_postgres(database), await open_postgres(database)
    session = await open_session(one)
    for number in range(RUNS):
        await owned_run(one, session, f"order-{number}")
    runs, rows = await _with_started_tasks(one, session)
    async with await psycopg.AsyncConnection.connect(database) as blocker:
        middle = (runs[RUNS // 2].run_key,)
        await blocker.execute(f"SELECT FROM {one.address.quoted}.{table} WHERE run_key = %s FOR UPDATE", middle)
        writes = [
            asyncio.ensure_future(one.commit(_batch(table, runs, rows, "one"))),
            asyncio.ensure_future(other.commit(_batch(table, runs[::-1], rows[::-1], "other"))),
        ]
        async with asyncio.timeout(2), await psycopg.AsyncConnection.connect(database, autocommit=True) as looker:
            while await _waiting(looker) < 2:  # noqa: ASYNC110 - the server says it to nobody
                await asyncio.sleep(0.005)
        await blocker.rollback()
    answers = await asyncio.gather(*writes)
    # The same transitions are there for the second one, too; of the outcomes of one attempt the first one counts.
    won = [sum(each is Reply.WON for each in some[:RUNS]) for some in answers]
    assert sorted(won) == ([0, RUNS] if table == "task" else [RUNS, RUNS])
    for store in (one, other):
        await store.close()
    assert deadlocks(database) == 0


async def _waiting(looker: psycopg.AsyncConnection[Any]) -> int:
    """How many wait for a lock."""
    found = await looker.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    [(count,)] = await found.fetchall()
    return int(count)


async def _with_started_tasks(store: Store, session: int) -> tuple[list[RunRow], list[TaskRow]]:
    """The runs as they are now, each with an activity that the session has claimed."""
    runs = await _as_they_are(store, session)
    await store.commit([append(run, tasks=[task(run, run.last_event + 1)]) for run in runs])
    rows = await claim_tasks(store, session)
    assert len(rows) == RUNS
    return await _as_they_are(store, session), rows


async def _as_they_are(store: Store, session: int) -> list[RunRow]:
    return sorted(await store.owned_runs(session), key=lambda run: run.run_key)


def _batch(table: str, runs: list[RunRow], rows: list[TaskRow], name: str) -> list[Operation]:
    """Outcomes by themselves lock no run."""
    if table == "task":
        return [FinishTask(row.run_key, row.event_id, row.attempt, row.owner or 0, b"result") for row in rows]
    return [*(append(run) for run in runs), *(signal(run, name) for run in runs)]
