"""Where activities run: on the loop, in threads, in processes, in other workers."""

from __future__ import annotations

import asyncio
import os
import threading
from datetime import timedelta

import pytest

from pledger import RetryPolicy, activity, workflow
from tests.engine.harness import PATIENCE_S, Ledger, worker_process
from tests.engine.steps import ONCE, result_of


async def test_plain_activities_run_in_threads_and_side_by_side(ledger: Ledger) -> None:
    together = threading.Barrier(4)

    @activity.defn
    def meet() -> str:
        together.wait()
        return threading.current_thread().name

    @workflow.defn
    async def fulfil() -> list[str]:
        return list(await asyncio.gather(*(meet() for _ in range(4))))

    names = await result_of(ledger, fulfil, meet)
    assert len(set(names)) == 4
    assert all(name.startswith("pledger-activity") for name in names)


async def test_no_more_activities_run_at_a_time_than_allowed(ledger: Ledger) -> None:
    running, most = 0, 0

    @activity.defn
    async def work() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.002)
        running -= 1

    @workflow.defn
    async def fulfil() -> int:
        await asyncio.gather(*(work() for _ in range(20)))
        return 20

    assert await result_of(ledger, fulfil, work, max_concurrent_activities=3) == 20
    assert most == 3


async def test_the_time_of_an_attempt_does_not_pass_in_a_line_for_a_thread(ledger: Ledger) -> None:
    """Each takes half of its time and there is one thread: all but the first would be late by waiting."""
    made: list[int] = []

    @activity.defn(start_to_close_timeout=timedelta(milliseconds=200), retry_policy=ONCE)
    def work(number: int) -> int:
        made.append(number)
        threading.Event().wait(0.1)
        return number

    @workflow.defn
    async def fulfil() -> list[int]:
        return list(await asyncio.gather(*(work(number) for number in range(5))))

    assert await result_of(ledger, fulfil, work, max_activity_threads=1) == list(range(5))
    assert sorted(made) == list(range(5))


async def test_an_activity_that_finds_no_thread_here_finds_one_elsewhere(ledger: Ledger) -> None:
    together = threading.Barrier(2)

    @activity.defn
    def meet() -> str:
        together.wait(PATIENCE_S)
        return "met"

    @workflow.defn
    async def fulfil() -> list[str]:
        return list(await asyncio.gather(meet(), meet()))

    with worker_process(ledger, meet, max_activity_threads=1):
        assert await result_of(ledger, fulfil, meet, max_activity_threads=1) == ["met", "met"]


async def test_a_worker_of_another_queue_in_the_same_process_is_told(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not find out by its next look: there is none here."""

    @activity.defn(task_queue="gpu", retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=1)))
    async def render(name: str) -> str:
        if activity.info().attempt == 1:
            raise ConnectionError("once more")
        return name

    @workflow.defn
    async def film() -> str:
        return await render("a frame")

    async with ledger.connect() as client:
        monkeypatch.setattr(type(client.internals.store._inner), "look_every_s", 3_600.0)
        async with (
            ledger.worker(client, film, lease=timedelta(hours=2)),
            ledger.worker(client, render, task_queue="gpu", lease=timedelta(hours=2)),
        ):
            await asyncio.sleep(0.05)  # both have had their first look
            async with asyncio.timeout(30):
                assert await client.execute_workflow(film, id="film-1") == "a frame"


async def test_an_activity_of_another_queue_runs_there(ledger: Ledger) -> None:
    @activity.defn(task_queue="gpu")
    async def where() -> str:
        return activity.info().task_queue

    @workflow.defn
    async def fulfil() -> str:
        return await where()

    async with (
        ledger.connect() as client,
        ledger.worker(client, fulfil),
        ledger.worker(client, where, task_queue="gpu"),
    ):
        assert await (await client.start_workflow(fulfil, id="order-1")).result() == "gpu"


@activity.defn(executor="process")
def in_a_process(number: int) -> list[int]:
    activity.heartbeat(number)
    return [os.getpid(), number * 2]


async def test_a_process_activity_runs_in_a_process_of_its_own(ledger: Ledger) -> None:
    @workflow.defn
    async def fulfil() -> list[int]:
        return await in_a_process(21)

    pid, doubled = await result_of(ledger, fulfil, in_a_process)
    assert (pid != os.getpid(), doubled) == (True, 42)


@activity.defn(executor="process", retry_policy=ONCE)
def waits_for_ever() -> None:
    threading.Event().wait()


@activity.defn
async def at_once() -> None: ...


async def test_a_process_is_stopped_that_was_cancelled_while_it_started(ledger: Ledger) -> None:
    @workflow.defn
    async def fulfil() -> str:
        waiting = workflow.start_activity(waits_for_ever, cancellation_type="wait")
        await at_once()
        waiting.cancel()
        try:
            await waiting
        except asyncio.CancelledError:
            return "cancelled"
        return "went on"

    assert await result_of(ledger, fulfil, waits_for_ever, at_once) == "cancelled"
