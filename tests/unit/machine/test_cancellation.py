"""Cancellation as in asyncio: of tasks, timers and activities by the code, and of the whole run from outside."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pledger import activity, workflow
from pledger.errors import ActivityError, ApplicationError, CancelledError
from pledger.history import events
from tests.unit.machine.harness import DrivenRun, completed, failed, kinds, scheduled, timers

Drive = Callable[..., DrivenRun]


@activity.defn
async def step(name: str) -> str:
    return name


@activity.defn(cancellation_type="wait")
async def patient(name: str) -> str:
    return name


@activity.defn(cancellation_type="abandon")
async def careless(name: str) -> str:
    return name


# The code cancels -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sleep", [asyncio.sleep, workflow.sleep], ids=["asyncio.sleep", "workflow.sleep"])
def test_CAN_02_cancelling_a_task_that_sleeps_cancels_the_durable_timer(
    drive: Drive, sleep: Callable[[float], Awaitable[None]]
) -> None:
    @workflow.defn
    class Waits:
        hit = False

        @workflow.run
        async def run(self) -> str:
            task = asyncio.ensure_future(sleep(3_600))
            await workflow.wait_condition(lambda: self.hit)
            task.cancel()
            await step("done")
            await sleep(7_200)
            return "rested"

        @workflow.signal
        def strike(self) -> None:
            self.hit = True

    run = drive(Waits)
    assert timers(run.start()) == [3_600_000]
    assert kinds(run.signal("strike")) == ["ScheduleActivity", "CancelTimer"]
    assert events.CancelTimer(2) in run.events
    run.now_ms += 60_000
    run.complete(run.event_id_of("step"), "done")
    # No wake-up when the old timer would have fired; the next thing due is the second sleep.
    assert run.machine.next_timer_ms() == run.now_ms + 7_200_000
    assert run.fire(3_600_000) == []
    run.fire(3_600_000)
    assert run.result == "rested"


@workflow.defn
class CancelsAStep:
    """Starts a step, cancels it when told to, and says what it saw."""

    stop = False

    @workflow.run
    async def run(self, kind: str) -> list[str]:
        handle = workflow.start_activity({"try": step, "wait": patient, "abandon": careless}[kind], "a")
        await workflow.wait_condition(lambda: self.stop or handle.done())
        handle.cancel()
        told = []
        try:
            told.append(await handle)
        except asyncio.CancelledError as error:
            told.append(f"cancelled {error}".strip())
        except ActivityError as error:
            told.append(f"failed: {error.__cause__}")
        told.append(await step("after"))
        return told

    @workflow.signal
    def halt(self) -> None:
        self.stop = True


def test_a_cancelled_activity_is_told_and_not_waited_for(drive: Drive) -> None:
    run = drive(CancelsAStep, "try")
    run.start()
    assert run.signal("halt") == [
        events.CancelActivity(2),
        events.ScheduleActivity("step", b'["after"]', step.record),
    ]
    assert not run.machine.awaits(2)
    # What became of it is taken in, and changes nothing.
    assert run.feed(failed(2, CancelledError("stopped"), "cancelled")) == []
    run.complete(run.event_id_of("step"), "after")
    assert run.result == ["cancelled", "after"]


def test_a_patient_cancellation_waits_for_the_outcome(drive: Drive) -> None:
    run = drive(CancelsAStep, "wait")
    run.start()
    assert run.signal("halt") == [events.CancelActivity(2)]
    assert run.machine.awaits(2)
    run.feed(failed(2, CancelledError("cleaned up"), "cancelled"))
    run.complete(run.event_id_of("step"), "after")
    assert run.result == ["cancelled cleaned up", "after"]


def test_a_patiently_cancelled_activity_may_finish_all_the_same(drive: Drive) -> None:
    run = drive(CancelsAStep, "wait")
    run.start()
    run.signal("halt")
    run.complete(2, "finished")
    run.complete(run.event_id_of("step"), "after")
    assert run.result == ["finished", "after"]


def test_a_patiently_cancelled_activity_may_fail(drive: Drive) -> None:
    run = drive(CancelsAStep, "wait")
    run.start()
    run.signal("halt")
    run.fail(2, ApplicationError("could not clean up"))
    run.complete(run.event_id_of("step"), "after")
    assert run.result == ["failed: could not clean up", "after"]


def test_an_abandoned_activity_is_not_told(drive: Drive) -> None:
    run = drive(CancelsAStep, "abandon")
    run.start()
    assert kinds(run.signal("halt")) == ["ScheduleActivity"]
    run.complete(2, "whatever")
    run.complete(run.event_id_of("step"), "after")
    assert run.result == ["cancelled", "after"]


def test_an_activity_that_is_done_cannot_be_cancelled(drive: Drive) -> None:
    run = drive(CancelsAStep, "try")
    run.start()
    assert kinds(run.complete(2, "done")) == ["ScheduleActivity"]
    run.complete(run.event_id_of("step"), "after")
    assert run.result == ["done", "after"]


@pytest.mark.parametrize("definition", [step, patient, careless])
def test_an_activity_cancelled_before_it_was_recorded_never_was(drive: Drive, definition: Any) -> None:
    @workflow.defn
    async def changes_its_mind() -> str:
        handle = workflow.start_activity(definition, "a")
        handle.cancel()
        try:
            await handle
        except asyncio.CancelledError:
            return await step("instead")
        return "never"

    run = drive(changes_its_mind)
    assert scheduled(run.start()) == [("step", "instead")]
    run.complete(2, "done")
    assert run.result == "done"


def test_an_outcome_that_meets_the_cancellation_in_one_transition_is_taken_in_order(drive: Drive) -> None:
    run = drive(CancelsAStep, "try")
    run.start()
    run.feed(events.SignalReceived("halt", b"[]", "m"), completed(2, "too late"))
    run.complete(run.event_id_of("step"), "after")
    assert run.result == ["cancelled", "after"]


def test_a_failed_outcome_of_cancelled_kind_without_a_cancel_is_a_failure(drive: Drive) -> None:
    @workflow.defn
    async def waits() -> str:
        try:
            return await step("a")
        except ActivityError as error:
            return type(error.__cause__).__name__

    run = drive(waits)
    run.start()
    run.feed(failed(2, CancelledError("the worker stopped it"), "cancelled"))
    assert run.result == "CancelledError"


def test_cancelling_gather_cancels_all_that_it_gathers(drive: Drive) -> None:
    @workflow.defn
    class Gathers:
        stop = False

        @workflow.run
        async def run(self) -> str:
            gathered = asyncio.gather(step("a"), asyncio.sleep(60), step("b"))
            await workflow.wait_condition(lambda: self.stop)
            gathered.cancel()
            return await step("after")

        @workflow.signal
        def halt(self) -> None:
            self.stop = True

    run = drive(Gathers)
    run.start()
    commands = run.signal("halt")
    assert sorted(kinds(commands)) == ["CancelActivity", "CancelActivity", "CancelTimer", "ScheduleActivity"]
    run.complete(run.event_id_of("step"), "after")
    assert run.result == "after"


def test_the_message_of_a_cancellation_arrives(drive: Drive) -> None:
    @workflow.defn
    async def cancels() -> str:
        async def waits() -> None:
            await asyncio.sleep(60)

        task = asyncio.create_task(waits())
        await asyncio.sleep(0)
        task.cancel("enough")
        try:
            await task
        except asyncio.CancelledError as error:
            return str(error)
        return "never"

    run = drive(cancels)
    run.start()
    assert run.result == "enough"


# The run is cancelled -------------------------------------------------------------------------------------------------


@workflow.defn
async def waits_for_ever() -> None:
    await asyncio.Event().wait()


def test_a_cancelled_run_ends_as_cancelled_with_the_reason(drive: Drive) -> None:
    run = drive(waits_for_ever)
    run.start()
    assert kinds(run.cancel("customer left")) == ["CancelRun"]
    assert (run.failure.kind, run.failure.message) == ("cancelled", "customer left")


def test_a_cancel_without_a_reason_needs_none(drive: Drive) -> None:
    run = drive(waits_for_ever)
    run.start()
    run.cancel()
    assert (run.failure.kind, run.failure.message) == ("cancelled", "")


def test_a_cancel_that_comes_with_the_start_lets_the_first_line_run(drive: Drive) -> None:
    told: list[str] = []

    @workflow.defn
    async def begins() -> None:
        told.append("began")
        await step("a")

    run = drive(begins)
    run.replay_at_end = False
    assert kinds(run.start(events.CancelRequested("no", "cancel-1"))) == ["CancelRun"]
    assert told == ["began"]


def test_clean_up_works_and_may_take_its_time(drive: Drive) -> None:
    @workflow.defn
    async def reserves() -> None:
        try:
            await step("reserve")
            await asyncio.sleep(3_600)
        finally:
            await step("release")
            await asyncio.sleep(1)
            await step("notify")

    run = drive(reserves)
    run.start()
    run.complete(2, "reserved")
    commands = run.cancel("no longer needed")
    assert sorted(kinds(commands)) == ["CancelTimer", "ScheduleActivity"]
    assert scheduled(commands) == [("step", "release")]
    run.reload()
    run.complete(run.event_id_of("step"), "released")
    assert scheduled(run.fire(1_000)) == [("step", "notify")]
    assert kinds(run.complete(run.event_id_of("step"), "notified")) == ["CancelRun"]


def test_shielded_clean_up_is_finished_even_when_cancelled_twice(drive: Drive) -> None:
    @workflow.defn
    async def reserves() -> str:
        try:
            await asyncio.sleep(3_600)
        except asyncio.CancelledError:
            release = asyncio.ensure_future(step("release"))
            while not release.done():
                try:
                    await asyncio.shield(release)
                except asyncio.CancelledError:
                    continue
            raise
        return "never"

    run = drive(reserves)
    run.start()
    run.cancel("once")
    assert run.cancel("twice") == []
    assert kinds(run.complete(run.event_id_of("step"), "released")) == ["CancelRun"]


def test_a_run_that_catches_the_cancellation_may_complete(drive: Drive) -> None:
    @workflow.defn
    async def shrugs() -> str:
        try:
            await asyncio.sleep(3_600)
        except asyncio.CancelledError:
            return "settled"
        return "never"

    run = drive(shrugs)
    run.start()
    run.cancel()
    assert run.result == "settled"


def test_a_failure_during_clean_up_fails_the_run(drive: Drive) -> None:
    @workflow.defn
    async def fails() -> None:
        try:
            await asyncio.sleep(3_600)
        finally:
            raise ApplicationError("could not release", type="Stuck")

    run = drive(fails)
    run.start()
    assert kinds(run.cancel()) == ["FailRun"]
    assert run.failure.type == "Stuck"
    assert run.failure.cause is not None
    assert run.failure.cause.kind == "cancelled"


def test_a_cancellation_of_its_own_is_a_failure_and_no_cancelled_run(drive: Drive) -> None:
    @workflow.defn
    async def cancels_itself() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    assert kinds(drive(cancels_itself).start()) == ["FailRun"]


def test_a_cancelled_run_cancels_its_activities(drive: Drive) -> None:
    @workflow.defn
    async def works() -> str:
        try:
            return await step("a")
        except asyncio.CancelledError:
            await step("undo")
            raise

    run = drive(works)
    run.start()
    assert sorted(kinds(run.cancel())) == ["CancelActivity", "ScheduleActivity"]
    assert kinds(run.complete(run.event_id_of("step"), "undone")) == ["CancelRun"]


def test_a_task_group_is_cancelled_with_the_run(drive: Drive) -> None:
    @workflow.defn
    async def groups() -> None:
        async with asyncio.TaskGroup() as group:
            for name in "abc":
                group.create_task(step(name))

    run = drive(groups)
    run.start()
    assert kinds(run.cancel("stop")) == ["CancelRun"]


def test_a_cancelled_run_may_wait_patiently_for_its_activities(drive: Drive) -> None:
    @workflow.defn
    async def works() -> str:
        return await patient("a")

    run = drive(works)
    run.start()
    assert run.cancel("stop") == [events.CancelActivity(2)]
    assert kinds(run.feed(failed(2, CancelledError("cleaned up"), "cancelled"))) == ["CancelRun"]
