"""Workers under load, each as its own process to the server, and what the outside saw of them."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta

import psycopg

from pledger import Client, RetryPolicy, Worker, activity, connect, workflow
from pledger.errors import ActivityError, WorkerLostError
from pledger.testing import replay
from tests.engine.harness import until

RUNS, STEPS = 20, 10

#: What the outside saw of each step.
effects: Counter[str] = Counter()


@activity.defn(start_to_close_timeout=timedelta(seconds=10))
async def step(name: str) -> str:
    await asyncio.sleep(0.002)  # somewhere else
    effects[name] += 1
    return name


@activity.defn(start_to_close_timeout=timedelta(seconds=10), retry_policy=RetryPolicy(maximum_attempts=1))
async def charge(name: str) -> str:
    """At most once, whatever happens. It takes a while, so that much is under way when it does."""
    await asyncio.sleep(0.05)
    effects[name] += 1
    return name


@workflow.defn
async def charges(name: str) -> list[str]:
    """What came of each; "unknown" of one that nobody can tell."""
    outcomes = []
    for number in range(STEPS):
        try:
            outcomes.append(await charge(f"{name}/{number}"))
        except ActivityError as error:
            outcomes.append("unknown" if isinstance(error.__cause__, WorkerLostError) else "failed")
    return outcomes


@workflow.defn
async def steps(name: str) -> list[str]:
    return [await step(f"{name}/{number}") for number in range(STEPS)]


@contextlib.asynccontextmanager
async def fleet(url: str, workers: int = 2) -> AsyncIterator[list[Client]]:
    """Clients with a worker on each, which tell the server apart by the names of their connections."""
    async with contextlib.AsyncExitStack() as stack:
        clients = []
        for number in range(workers):
            client = await stack.enter_async_context(connect(f"{url}&application_name=process-{number}"))
            clients.append(client)
            options = {"workflows": [steps, charges], "activities": [step, charge], "lease": timedelta(seconds=2)}
            await stack.enter_async_context(Worker(client, **options, identity=f"process-{number}"))
        yield clients


async def load(client: Client, *, first: int = 0) -> None:
    """All of it comes to its end, as it should."""
    names = [f"order-{first + number}" for number in range(RUNS)]
    handles = await asyncio.gather(*(client.start_workflow(steps, name, id=name) for name in names))
    for name, handle in zip(names, handles, strict=True):
        assert await handle.result() == [f"{name}/{number}" for number in range(STEPS)]
        history = await handle.history()
        assert replay(history, steps) == len(history.events)


async def half_way() -> None:
    await until(lambda: sum(effects.values()) >= RUNS * STEPS / 2)


def count_connections(url: str) -> Counter[str]:
    with psycopg.connect(url) as connection:
        rows = connection.execute(
            "SELECT application_name, count(*) FROM pg_stat_activity WHERE application_name LIKE 'process-%' GROUP BY 1"
        )
        return Counter(dict(rows.fetchall()))


def end_connections(url: str, *, listening: bool = False) -> None:
    """Those of all processes, or those that listen."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE application_name LIKE 'process-%%' AND (NOT %s OR query LIKE 'LISTEN%%')",
            [listening],
        )
