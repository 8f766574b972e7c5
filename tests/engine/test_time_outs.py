"""Activities that run out of time, and heartbeats that keep them alive."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest

from pledger import RetryPolicy, activity, workflow
from pledger.errors import ActivityError, ApplicationError, WorkflowFailedError
from pledger.errors import TimeoutError as PledgerTimeoutError
from tests.engine.harness import Ledger, until
from tests.engine.steps import ONCE, attempts_of, failure_of, hang, raising, result_of


def timed_out(error: ActivityError) -> PledgerTimeoutError:
    assert isinstance(error.__cause__, PledgerTimeoutError)
    return error.__cause__


async def test_start_to_close_bounds_one_attempt(ledger: Ledger) -> None:
    made: list[int] = []

    @activity.defn(
        start_to_close_timeout=timedelta(milliseconds=20),
        retry_policy=RetryPolicy(initial_interval=timedelta(0), maximum_attempts=2),
    )
    async def slow() -> None:
        made.append(activity.info().attempt)
        await hang()

    @workflow.defn
    async def fulfil() -> None:
        await slow()

    error = await failure_of(ledger, fulfil, slow)
    assert made == [1, 2]
    assert (timed_out(error).kind, error.retry_state) == ("start_to_close", "maximum_attempts")
    assert await attempts_of(ledger) == [(1, "timed_out"), (2, "timed_out")]


async def test_RTY_05_schedule_to_close_bounds_all_attempts_and_keeps_the_last_real_error(ledger: Ledger) -> None:
    @activity.defn(
        schedule_to_close_timeout=timedelta(milliseconds=100),
        retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=1), maximum_attempts=0),
    )
    async def fails_then_hangs() -> None:
        if activity.info().attempt > 2:
            await hang()
        raise ApplicationError("quota", {"left": activity.info().attempt}, type="Quota")

    @workflow.defn
    async def fulfil() -> None:
        await fails_then_hangs()

    error = await failure_of(ledger, fulfil, fails_then_hangs)
    assert (timed_out(error).kind, error.retry_state) == ("schedule_to_close", "timeout")
    assert isinstance(timed_out(error).__cause__, ApplicationError)
    assert timed_out(error).__cause__.details == ({"left": 2},)  # type: ignore[union-attr]


async def test_RTY_05_a_next_attempt_that_would_miss_the_deadline_is_not_waited_for(ledger: Ledger) -> None:
    """An hour's delay before a deadline in a minute: told at once, in the same shape."""
    slow = RetryPolicy(initial_interval=timedelta(hours=1), jitter=0.0)
    fulfil, flaky, made = raising(
        lambda n: ApplicationError("quota", {"left": n}, type="Quota"),
        schedule_to_close_timeout=timedelta(minutes=1),
        retry_policy=slow,
    )
    error = await failure_of(ledger, fulfil, flaky)
    assert made == [1]
    assert (timed_out(error).kind, error.retry_state) == ("schedule_to_close", "timeout")
    assert isinstance(timed_out(error).__cause__, ApplicationError)
    assert timed_out(error).__cause__.details == ({"left": 1},)  # type: ignore[union-attr]


async def test_schedule_to_start_bounds_the_wait_for_a_worker(ledger: Ledger) -> None:
    @activity.defn(task_queue="nobody", schedule_to_start_timeout=timedelta(milliseconds=20))
    async def elsewhere() -> None: ...

    @workflow.defn
    async def fulfil() -> None:
        await elsewhere()

    error = await failure_of(ledger, fulfil)
    assert (timed_out(error).kind, error.retry_state) == ("schedule_to_start", "timeout")


async def test_schedule_to_close_bounds_the_wait_for_a_worker_too(ledger: Ledger) -> None:
    @activity.defn(task_queue="nobody", schedule_to_close_timeout=timedelta(milliseconds=20))
    async def elsewhere() -> None: ...

    @workflow.defn
    async def fulfil() -> None:
        await elsewhere()

    assert timed_out(await failure_of(ledger, fulfil)).kind == "schedule_to_close"


async def test_a_silent_attempt_is_ended_by_its_heartbeat_timeout(ledger: Ledger) -> None:
    @activity.defn(heartbeat_timeout=timedelta(milliseconds=40), retry_policy=ONCE)
    async def falls_silent() -> None:
        activity.heartbeat({"page": 1})
        activity.heartbeat({"page": 2})
        await hang()

    @workflow.defn
    async def fulfil() -> None:
        await falls_silent()

    error = timed_out(await failure_of(ledger, fulfil, falls_silent))
    assert (error.kind, error.last_heartbeat_details) == ("heartbeat", {"page": 2})


async def test_an_attempt_that_beats_lives_on(ledger: Ledger) -> None:
    @activity.defn(heartbeat_timeout=timedelta(milliseconds=250), retry_policy=ONCE)
    async def beats() -> str:
        for page in range(20):
            activity.heartbeat(page)
            await asyncio.sleep(0.02)
        return "done"

    @workflow.defn
    async def fulfil() -> str:
        return await beats()

    assert await result_of(ledger, fulfil, beats) == "done"


async def test_an_async_attempt_cleans_up_when_its_time_is_over(ledger: Ledger) -> None:
    told: list[str] = []

    @activity.defn(start_to_close_timeout=timedelta(milliseconds=20), retry_policy=ONCE)
    async def slow() -> None:
        try:
            await hang()
        finally:
            await asyncio.sleep(0)
            told.append("cleaned up")

    @workflow.defn
    async def fulfil() -> None:
        await slow()

    assert timed_out(await failure_of(ledger, fulfil, slow)).kind == "start_to_close"
    assert told == ["cleaned up"]


async def test_an_async_attempt_that_ignores_its_end_is_given_up(ledger: Ledger, monkeypatch: Any) -> None:
    """Every wait has a deadline: code that swallows its cancellation does not hold its run for ever."""
    monkeypatch.setattr("pledger.engine.time_outs.CLEANUP_S", 0.02)
    released = asyncio.Event()

    @activity.defn(start_to_close_timeout=timedelta(milliseconds=20), retry_policy=ONCE)
    async def stubborn() -> None:
        while not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:
                continue

    @workflow.defn
    async def fulfil() -> None:
        await stubborn()

    async with ledger.connect() as client, ledger.worker(client, fulfil, stubborn):
        handle = await client.start_workflow(fulfil, id="order-1")
        with pytest.raises(WorkflowFailedError) as caught:
            await handle.result()
        assert timed_out(caught.value.__cause__).kind == "start_to_close"  # type: ignore[arg-type]
        released.set()


async def test_a_thread_that_comes_back_late_is_in_the_attempt_log(ledger: Ledger) -> None:
    released = threading.Event()

    @activity.defn(start_to_close_timeout=timedelta(milliseconds=20), retry_policy=ONCE)
    def slow() -> str:
        released.wait()
        return "too late"

    @workflow.defn
    async def fulfil() -> None:
        await slow()

    async with ledger.connect() as client, ledger.worker(client, fulfil, slow):
        handle = await client.start_workflow(fulfil, id="order-1")
        with pytest.raises(WorkflowFailedError):
            await handle.result()
        released.set()

        async def logged() -> bool:
            return [each.outcome for each in (await handle.describe()).attempts] == ["timed_out", "late"]

        await until(logged)
