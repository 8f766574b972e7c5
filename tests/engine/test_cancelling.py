"""Activities that are asked to stop: by their run, and with it."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import Any

from pledger import RetryPolicy, activity, workflow
from pledger.errors import ActivityError, ApplicationError, CancelledError
from tests.engine.harness import Ledger, until
from tests.engine.steps import ONCE, hang, pending_of, result_of


@workflow.defn
class Stops:
    """Waits for a step until it is told to stop, then says what became of it."""

    stop = False

    @workflow.run
    async def run(self, name: str) -> list[str]:
        handle = workflow.start_activity(name, cancellation_type="wait", heartbeat_timeout=timedelta(seconds=30))
        await workflow.wait_condition(lambda: self.stop or handle.done())
        handle.cancel()
        try:
            return ["finished", await handle]
        except asyncio.CancelledError:
            return ["cancelled"]
        except ActivityError as error:
            return ["failed", str(error.__cause__)]

    @workflow.signal
    def halt(self) -> None:
        self.stop = True


async def cancelled(ledger: Ledger, step: Any, began: asyncio.Event | threading.Event) -> list[str]:
    async with ledger.connect() as client, ledger.worker(client, Stops, step):
        handle = await client.start_workflow(Stops, step.name, id="order-1")
        await until(began.is_set)
        await handle.signal(Stops.halt)
        told: list[str] = await handle.result()
        return told


async def test_an_async_activity_is_cancelled_as_a_task(ledger: Ledger) -> None:
    began, cleaned = asyncio.Event(), asyncio.Event()

    @activity.defn
    async def waits() -> None:
        began.set()
        try:
            await hang()
        finally:
            cleaned.set()

    assert await cancelled(ledger, waits, began) == ["cancelled"]
    assert cleaned.is_set()


async def test_an_async_activity_may_finish_all_the_same(ledger: Ledger) -> None:
    began = asyncio.Event()

    @activity.defn
    async def finishes() -> str:
        began.set()
        try:
            await hang()
        except asyncio.CancelledError:
            return "what was done"
        return "never"

    assert await cancelled(ledger, finishes, began) == ["finished", "what was done"]


async def test_an_activity_may_fail_while_it_cleans_up(ledger: Ledger) -> None:
    began = asyncio.Event()

    @activity.defn(retry_policy=ONCE)
    async def fails() -> str:
        began.set()
        try:
            await hang()
        finally:
            raise ApplicationError("could not clean up", type="Dirty")

    assert await cancelled(ledger, fails, began) == ["failed", "Dirty: could not clean up"]


async def test_a_thread_sees_its_flag(ledger: Ledger) -> None:
    began = threading.Event()

    @activity.defn
    def polls() -> None:
        began.set()
        while not activity.is_cancelled():
            pass
        raise CancelledError("seen by the flag")

    assert await cancelled(ledger, polls, began) == ["cancelled"]


async def test_a_thread_gets_its_cancellation_out_of_a_heartbeat(ledger: Ledger) -> None:
    began = threading.Event()

    @activity.defn
    def beats() -> None:
        began.set()
        while True:
            activity.heartbeat()

    assert await cancelled(ledger, beats, began) == ["cancelled"]


async def test_an_activity_is_cancelled_in_the_last_breath_of_its_run(ledger: Ledger) -> None:
    began, stopped = threading.Event(), threading.Event()

    @activity.defn
    async def waits() -> None:
        began.set()
        try:
            await asyncio.sleep(3600)
        finally:
            stopped.set()

    @activity.defn
    async def first() -> None:
        await until(began.is_set)

    @workflow.defn
    async def hasty() -> None:
        handle = workflow.start_activity(waits)
        await first()
        handle.cancel()

    async with ledger.connect() as client, ledger.worker(client, hasty, waits, first):
        await client.execute_workflow(hasty, id="h-1")
        await until(stopped.is_set)


async def test_an_activity_on_another_queue_is_cancelled_through_its_heartbeat(ledger: Ledger) -> None:
    began = asyncio.Event()

    @activity.defn(task_queue="other", heartbeat_timeout=timedelta(milliseconds=200), cancellation_type="wait")
    async def elsewhere() -> None:
        began.set()
        while True:
            activity.heartbeat()
            await asyncio.sleep(0.01)

    @workflow.defn
    class StopsElsewhere:
        stop = False

        @workflow.run
        async def run(self) -> str:
            handle = workflow.start_activity(elsewhere)
            await workflow.wait_condition(lambda: self.stop)
            handle.cancel()
            try:
                await handle
            except asyncio.CancelledError:
                return "cancelled"
            return "never"

        @workflow.signal
        def halt(self) -> None:
            self.stop = True

    async with (
        ledger.connect() as client,
        ledger.connect() as other,
        ledger.worker(client, StopsElsewhere),
        ledger.worker(other, elsewhere, task_queue="other"),
    ):
        handle = await client.start_workflow(StopsElsewhere, id="order-1")
        await began.wait()
        await handle.signal(StopsElsewhere.halt)
        assert await handle.result() == "cancelled"


async def test_a_queued_activity_is_cancelled_before_it_starts(ledger: Ledger) -> None:
    slow = RetryPolicy(initial_interval=timedelta(hours=1), jitter=0.0)
    made: list[int] = []

    @activity.defn(retry_policy=slow)
    async def flaky() -> None:
        made.append(activity.info().attempt)
        raise ValueError("try again in an hour")

    async with ledger.connect() as client, ledger.worker(client, Stops, flaky):
        handle = await client.start_workflow(Stops, "flaky", id="order-1")
        # By name, so with the default policy: what waits now is attempt 2.
        await until(lambda: pending_of(handle))
        await handle.signal(Stops.halt)
        assert await handle.result() == ["cancelled"]


async def test_the_activities_of_a_run_that_ends_are_stopped(ledger: Ledger) -> None:
    began, stopped = asyncio.Event(), asyncio.Event()

    @activity.defn
    async def waits() -> None:
        began.set()
        try:
            await hang()
        finally:
            stopped.set()

    @workflow.defn
    async def leaves() -> str:
        workflow.start_activity(waits)
        await workflow.execute_activity(begun)
        return "done"

    @activity.defn
    async def begun() -> None:
        await began.wait()

    assert await result_of(ledger, leaves, waits, begun) == "done"
    assert stopped.is_set()
