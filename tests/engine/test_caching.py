"""Runs that leave the worker's memory: everything goes on as if they had not, and the histories are the same."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from pledger import Client, RetryPolicy, activity, workflow
from pledger.errors import ApplicationError, RunClosedError
from pledger.history import events
from tests.engine.harness import Ledger, until

CACHES = pytest.mark.parametrize("cached", [1, 1_000], ids=["cache off", "cache on"])


@activity.defn(retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=1)))
async def step(name: str) -> str:
    if activity.info().attempt == 1 and name.startswith("flaky"):
        raise ApplicationError("once more")
    return name


@workflow.defn
class Order:
    """Does a bit of everything, and is at rest several times while others are at work."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    @workflow.run
    async def run(self, number: int) -> list[str]:
        ids = [workflow.uuid4().hex]
        first = await step(f"first {number}")
        await asyncio.sleep(0.01)
        both = await asyncio.gather(step(f"flaky {number}"), step(f"plain {number}"))
        await workflow.wait_condition(lambda: len(self.notes) == 2)
        ids.append(workflow.uuid4().hex)
        await asyncio.sleep(0.01)
        assert len(set(ids)) == 2
        return [first, *both, *self.notes]

    @workflow.signal
    async def note(self, text: str) -> None:
        self.notes.append(await step(text))

    @workflow.query
    def noted(self) -> list[str]:
        return self.notes


def shape(history: Any) -> list[list[str]]:
    """Every transition's commands by kind and name, without what chance and the clock bring in."""
    shown = []
    for transition in history.transitions:
        commands = [
            f"{type(each).__name__} {each.activity_type if isinstance(each, events.ScheduleActivity) else ''}"
            for each in transition.commands
        ]
        shown.append(commands)
    return shown


async def run_all(client: Client, count: int) -> list[Any]:
    handles = [await client.start_workflow(Order, n, id=f"order-{n}") for n in range(count)]
    for handle in handles:
        await handle.signal(Order.note, "a")
        await handle.signal(Order.note, "b")
    for n, handle in enumerate(handles):
        assert await handle.result() == [f"first {n}", f"flaky {n}", f"plain {n}", "a", "b"]
    return handles


@CACHES
async def test_everything_works_with_the_cache_on_and_off(ledger: Ledger, cached: int) -> None:
    async with ledger.connect() as client, ledger.worker(client, Order, step, max_cached_runs=cached):
        await run_all(client, 12)


async def test_the_cache_leaves_no_trace_in_the_history(ledger: Ledger) -> None:
    """One run, with messages at the same places: transition by transition it asks for the same."""
    shapes = []
    for cached in (1, 1_000):
        async with ledger.connect() as client, ledger.worker(client, Order, step, max_cached_runs=cached):
            others = [await client.start_workflow(Order, n, id=f"other-{cached}-{n}") for n in range(3)]
            shapes.append(await shape_of_one(client, f"order-{cached}"))
            for other in others:
                await other.terminate()
    assert shapes[0] == shapes[1]


async def shape_of_one(client: Client, workflow_id: str) -> list[str]:
    handle = await client.start_workflow(Order, 7, id=workflow_id)
    for text in "ab":
        await until(lambda: _waits(handle))
        await handle.signal(Order.note, text)
        await until(functools.partial(_noted, handle, text))
    await handle.result()
    return sorted(map(str, shape(await handle.history())))


async def _waits(handle: Any) -> bool:
    state = (await handle.describe()).state
    return bool(state.activities_done >= 3 and not state.activities)


async def _noted(handle: Any, text: str) -> bool:
    try:
        return text in await handle.query(Order.noted)
    except RunClosedError:
        return True  # it had all that it waited for


async def test_evicted_runs_leave_memory_and_come_back_when_they_are_due(ledger: Ledger) -> None:
    @workflow.defn
    async def sleeps(number: int) -> int:
        await asyncio.sleep(0.15)
        return number

    async with ledger.connect() as client, ledger.worker(client, sleeps, max_cached_runs=2):
        handles = [await client.start_workflow(sleeps, n, id=f"order-{n}") for n in range(20)]
        (engine,) = client.internals.engines
        await until(lambda: len(engine.runs.active) <= 2)
        assert [await handle.result() for handle in handles] == list(range(20))


async def test_a_query_brings_an_evicted_run_back(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, Order, step, max_cached_runs=1):
        handles = [await client.start_workflow(Order, n, id=f"order-{n}") for n in range(5)]
        for _ in range(3):
            for handle in handles:
                assert await handle.query(Order.noted) == []
        for handle in handles:
            await handle.terminate()


async def test_a_run_with_an_activity_at_work_stays_with_it(ledger: Ledger) -> None:
    began, released = asyncio.Event(), asyncio.Event()
    made: list[int] = []

    @activity.defn
    async def holds() -> str:
        made.append(activity.info().attempt)
        began.set()
        await released.wait()
        return "held"

    @workflow.defn
    async def waits() -> str:
        return await holds()

    @workflow.defn
    async def quick(number: int) -> int:
        await asyncio.sleep(0.001)
        return number

    async with ledger.connect() as client, ledger.worker(client, waits, quick, holds, max_cached_runs=1):
        handle = await client.start_workflow(waits, id="order-1")
        await began.wait()
        for n in range(10):
            assert await client.execute_workflow(quick, n, id=f"quick-{n}") == n
        released.set()
        assert await handle.result() == "held"
    assert made == [1]


async def test_clean_up_code_of_an_evicted_run_acts_on_nothing(ledger: Ledger) -> None:
    acted: list[str] = []

    @activity.defn
    async def refund() -> None:
        acted.append("refunded")

    @workflow.defn
    class Holds:
        go = False

        @workflow.run
        async def run(self) -> str:
            try:
                await workflow.wait_condition(lambda: self.go)
            except BaseException:
                await refund()
                raise
            finally:
                if not self.go:
                    await refund()
            return "kept"

        @workflow.signal
        def finish(self) -> None:
            self.go = True

    async with ledger.connect() as client, ledger.worker(client, Holds, refund, max_cached_runs=1):
        handles = [await client.start_workflow(Holds, id=f"order-{n}") for n in range(4)]
        (engine,) = client.internals.engines
        await until(lambda: len(engine.runs.active) <= 1)
        for handle in handles:
            await handle.signal(Holds.finish)
            assert await handle.result() == "kept"
    assert acted == []


def test_shapes_tell_histories_apart() -> None:
    """The comparison above must be able to fail."""
    kinds: list[Callable[[], Any]] = [lambda: events.StartTimer(1, 2), lambda: events.CompleteRun(b"1")]
    histories = [type("H", (), {"transitions": [type("T", (), {"commands": [make()]})]}) for make in kinds]
    assert shape(histories[0]) != shape(histories[1])
