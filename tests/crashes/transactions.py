"""Kills between every pair of statements of a user's transaction in which a run starts, and of a step's transaction.

Lives are real processes on a real file or server, forked from one that has no ledger open. Each is killed at a point
further on, until one is not hit any more; at the end one process more finishes what they have left. Then a row of the
user's is there exactly if its run is, and the row of a step once, by the attempt that the history has.

    python -m tests.crashes.transactions sqlite:///DIRECTORY/ledger.db
    python -m tests.crashes.transactions 'postgresql://...?schema=...' TABLE

With `apart` behind, the result is recorded by a transaction of its own: the sweep has to find that.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import sys
import traceback
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

import apsw
import psycopg

import pledger
from pledger import Client, RetryPolicy, Worker, activity, workflow
from pledger.history.events import ActivityCompleted
from pledger.store.postgres.address import parse_url
from tests.crashes.planted import record_apart
from tests.crashes.statements import Points, watch_postgres, watch_sqlite

LEASE: Final = timedelta(milliseconds=200)
#: Of the last process, whose many workers must not lose theirs on a busy machine.
LONG_LEASE: Final = timedelta(seconds=10)
#: Longer than any life takes; only one that hangs gets there.
PATIENCE_S: Final = 60.0
QUICK: Final = RetryPolicy(initial_interval=timedelta(milliseconds=1))

points = Points()


@dataclass
class Place:
    """A ledger, and beside it the user's table sold (trial, attempt), which lets everything in twice."""

    url: str
    table: str = "sold"
    kills: dict[str, int] = field(default_factory=dict)

    @property
    def is_postgres(self) -> bool:
        return self.url.startswith("postgresql")

    @property
    def conninfo(self) -> str:
        return parse_url(self.url).conninfo

    def insert(self) -> str:
        marks = "%s, %s" if self.is_postgres else "?, ?"
        return f"INSERT INTO {self.table} VALUES ({marks})"

    def make_table(self) -> None:
        sql = f"CREATE TABLE {self.table} (trial text, attempt int)"
        if self.is_postgres:
            with psycopg.connect(self.conninfo) as connection:
                connection.execute(sql)
        else:
            with contextlib.closing(apsw.Connection(self.url.removeprefix("sqlite:///"))) as made:
                made.execute(sql)

    @contextlib.asynccontextmanager
    async def transaction(self, client: Client) -> AsyncIterator[Any]:
        if not self.is_postgres:
            async with client.connection() as connection:
                yield connection
            return
        async with await psycopg.AsyncConnection.connect(self.conninfo) as connection, connection.transaction():
            points.count(connection)
            yield connection


place: Place


# What lives ask for ---------------------------------------------------------------------------------------------------


@activity.defn(transaction="shop", retry_policy=QUICK)
async def sell(trial: str) -> int:
    connection, attempt = activity.connection(), activity.info().attempt
    await connection.execute(f"SELECT count(*) FROM {place.table}")
    await connection.execute(place.insert(), (trial, attempt))
    return attempt


@activity.defn(transaction="shop", retry_policy=QUICK)
def sell_plainly(trial: str) -> int:
    connection, attempt = activity.connection(), activity.info().attempt
    connection.execute(f"SELECT count(*) FROM {place.table}")
    connection.execute(place.insert(), (trial, attempt))
    return attempt


@workflow.defn
async def sells(trial: str) -> int:
    return await sell(trial)


@workflow.defn
async def sells_plainly(trial: str) -> int:
    return await sell_plainly(trial)


@workflow.defn
async def nothing(trial: str) -> str:
    return trial


def works(client: Client, queue: str, lease: timedelta = LEASE) -> Worker:
    return Worker(
        client,
        workflows=[sells, sells_plainly, nothing],
        activities=[sell, sell_plainly],
        transactions={"shop": None},
        task_queue=queue,
        lease=lease,
    )


async def start(trial: str) -> None:
    async with pledger.connect(place.url) as client:
        async with place.transaction(client) as connection:
            await connection.execute(place.insert(), (trial, 0))
            await client.start_workflow(nothing, trial, id=trial, task_queue=trial, connection=connection)
            await connection.execute(place.insert(), (trial, 0))
        points.pass_one()  # it is committed, and the process knows


async def step(trial: str) -> None:
    async with pledger.connect(place.url) as client, works(client, trial):
        await client.execute_workflow(sells, trial, id=trial, task_queue=trial)


async def step_in_a_thread(trial: str) -> None:
    async with pledger.connect(place.url) as client, works(client, trial):
        await client.execute_workflow(sells_plainly, trial, id=trial, task_queue=trial)


KINDS: Final[dict[str, Callable[[str], Coroutine[Any, Any, None]]]] = {
    "start": start,
    "step": step,
    "thread": step_in_a_thread,
}


# Lives ----------------------------------------------------------------------------------------------------------------


def sweep() -> dict[str, int]:
    """How many points each kind has. Raises AssertionError for a life that ends in another way than by its kill."""
    for kind, live in KINDS.items():
        for number in itertools.count(1):
            trial = f"{kind}-{number}"
            how = in_child(lambda live=live, trial=trial: live(trial), number)  # type: ignore[misc]
            if how == 0:
                break
            assert os.WIFSIGNALED(how), f"{trial} ended with {how}"
            assert os.WTERMSIG(how) == signal.SIGKILL, f"{trial} ended by signal {os.WTERMSIG(how)}"
            place.kills[kind] = number
    assert in_child(judge, 0) == 0, "the two sides differ: see above"
    return place.kills


def in_child(live: Callable[[], Coroutine[Any, Any, None]], number: int) -> int:
    """Live in a child of this process that is killed at its point `number`; its wait status."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            points.deadly = number
            (watch_postgres if place.is_postgres else watch_sqlite)(points)
            asyncio.run(asyncio.wait_for(live(), PATIENCE_S))
            status = 0
        except BaseException:  # noqa: BLE001 - the parent knows by the status
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    _, how = os.waitpid(child, 0)
    return how


async def judge() -> None:
    """Finish what the lives have left, and hold the two sides against each other."""
    async with pledger.connect(place.url) as client, contextlib.AsyncExitStack() as stack:
        runs = [run async for run in client.list()]
        for run in runs:
            await stack.enter_async_context(works(client, run.task_queue, LONG_LEASE))
        results = {run.workflow_id: await client.handle(run.workflow_id).result() for run in runs}
        rows = await read_rows(client)
        for kind, kills in place.kills.items():
            for trial in (f"{kind}-{number}" for number in range(1, kills + 2)):
                found = rows.get(trial, [])
                if kind == "start":
                    assert found == ([0, 0] if trial in results else []), f"{trial}: {found}, {results.get(trial)}"
                elif trial in results:
                    history = await client.handle(trial).history()
                    completed = [each.event for each in history.events if isinstance(each.event, ActivityCompleted)]
                    assert found == [each.attempt for each in completed] == [results[trial]], f"{trial}: {found}"
                else:
                    assert not found, f"{trial}: {found}, and there is no run"


async def read_rows(client: Client) -> dict[str, list[int]]:
    rows: dict[str, list[int]] = {}
    async with client.connection() as connection:
        cursor = await connection.execute(f"SELECT trial, attempt FROM {place.table} ORDER BY trial, attempt")
        for trial, attempt in await cursor.fetchall():
            rows.setdefault(trial, []).append(attempt)
    return rows


async def _make_ledger() -> None:
    async with pledger.connect(place.url):
        pass


if __name__ == "__main__":
    if sys.argv[-1] == "apart":
        sys.argv.pop()
        record_apart()
    place = Place(*sys.argv[1:])
    assert in_child(_make_ledger, 0) == 0
    place.make_table()
    print(json.dumps(sweep()))  # noqa: T201 - what it is for
