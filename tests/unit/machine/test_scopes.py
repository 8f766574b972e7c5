"""Blocks that are cancelled as a whole: scopes, deadlines, shields. Every run is replayed at the end of its test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pledger import activity, workflow
from pledger.errors import InvalidPolicyError, TimeoutError, UsageError  # noqa: A004 - ours
from pledger.history import events
from tests.unit.machine.harness import DrivenRun, completed, failed, kinds, scheduled

Drive = Callable[..., DrivenRun]


@activity.defn
async def step(name: str) -> Any:
    return name


@activity.defn(cancellation_type="wait")
async def patient(name: str) -> Any:
    return name


@activity.defn(schedule_to_close_timeout=timedelta(seconds=30))
async def brief(name: str) -> Any:
    return name


def bounds(commands: list[Any]) -> list[int | None]:
    """How long each scheduled activity may take as a whole, in ms."""
    return [each.options.schedule_to_close_ms for each in commands if isinstance(each, events.ScheduleActivity)]


# Scopes ---------------------------------------------------------------------------------------------------------------


@workflow.defn
class Stoppable:
    """Does two things in a block that a signal may stop, and one behind it."""

    def __init__(self) -> None:
        self.block: workflow.Scope | None = None

    @workflow.run
    async def run(self) -> list[Any]:
        async with workflow.scope() as self.block:
            other = asyncio.create_task(in_background())
            started = workflow.start_activity(patient, "started, and not awaited")
            await step("in the block")
        ended = [other.cancelled(), started.done()]
        await step("behind it")
        return [*ended, self.block.cancelled]

    @workflow.signal
    def stop(self) -> None:
        assert self.block is not None
        self.block.cancel()


async def in_background() -> None:
    await step("in a task of the block")


def test_a_scope_is_cancelled_with_all_that_was_begun_inside_it(drive: Drive) -> None:
    run = drive(Stoppable)
    assert len(scheduled(run.start())) == 3
    commands = run.signal("stop")
    assert kinds(commands) == ["CancelActivity", "CancelActivity", "CancelActivity", "ScheduleActivity"]
    run.complete(run.event_id_of("step"))
    assert run.result == [False, False, True], "they are asked to end; who needs to know waits for them"


def test_a_scope_that_nobody_cancels_is_nothing(drive: Drive) -> None:
    run = drive(Stoppable)
    first, second, third = scheduled_ids(run.start())
    run.feed(completed(first), completed(second), completed(third))
    run.complete(run.event_id_of("step"))
    assert run.result == [False, True, False]


def scheduled_ids(commands: list[Any]) -> list[int]:
    return [n for n, each in enumerate(commands, 2) if isinstance(each, events.ScheduleActivity)]


def test_a_cancellation_of_the_run_passes_through_a_scope(drive: Drive) -> None:
    run = drive(Stoppable)
    run.start()
    run.cancel("enough")
    assert isinstance(run.events[-1], events.CancelRun)


def test_both_at_once_cancel_the_run(drive: Drive) -> None:
    run = drive(Stoppable)
    run.start()
    run.feed(*signals_and_cancel())
    assert isinstance(run.events[-1], events.CancelRun)


def signals_and_cancel() -> list[Any]:
    return [events.SignalReceived("stop", b"[]", "m1"), events.CancelRequested("enough", "c1")]


@pytest.mark.parametrize("ends", ["returns", "raises"])
def test_a_block_that_cancels_itself_and_ends_before_it_waits(drive: Drive, ends: str) -> None:
    @workflow.defn
    async def itself() -> list[Any]:
        try:
            async with workflow.scope() as block:
                block.cancel()
                if ends == "raises":
                    raise ValueError
        except ValueError:
            told = "raised"
        else:
            told = "returned"
        await step("what comes next is not cancelled")
        return [told, block.cancelled, block.cancel_requested]

    run = drive(itself)
    assert kinds(run.start()) == ["ScheduleActivity"]
    run.complete(2)
    assert run.result == ["raised" if ends == "raises" else "returned", True, True]


def test_an_inner_scope_does_not_cancel_the_outer_one_and_the_outer_one_cancels_it(drive: Drive) -> None:
    @workflow.defn
    class Nested:
        @workflow.run
        async def run(self) -> list[bool]:
            async with workflow.scope() as self.outer:
                async with workflow.scope() as self.inner:
                    await step("innermost")
                await step("between")
            return [self.inner.cancelled, self.outer.cancelled]

        @workflow.signal
        def stop(self, which: str) -> None:
            getattr(self, which).cancel()

    run = drive(Nested)
    run.start()
    assert kinds(run.signal("stop", "inner")) == ["CancelActivity", "ScheduleActivity"]
    run.signal("stop", "outer")
    assert run.result == [True, True]
    again = drive(Nested)
    again.start()
    again.signal("stop", "outer")
    assert again.result == [False, True]


def test_a_scope_that_was_left_still_cancels_what_was_begun_in_it(drive: Drive) -> None:
    @workflow.defn
    async def later() -> str:
        async with workflow.scope() as block:
            handle = workflow.start_activity(step, "goes on")
        await workflow.sleep(1)
        block.cancel()
        try:
            await handle
        except asyncio.CancelledError:
            return "cancelled"
        return "not cancelled"

    run = drive(later)
    run.start()
    assert kinds(run.fire(1_000)) == ["CancelActivity", "CompleteRun"] or run.result == "cancelled"
    assert run.result == "cancelled"


def test_a_scope_of_a_long_loop_keeps_only_what_has_not_ended(drive: Drive) -> None:
    kept: list[int] = []

    @workflow.defn
    async def loop() -> None:
        async with workflow.scope() as block:
            for number in range(200):
                await step(str(number))
                kept.append(len(block._inside))

    run = drive(loop)
    run.start()
    for _ in range(200):
        run.complete(run.event_id_of("step"))
    assert max(kept) <= 40


def test_what_a_scope_is_not_for(drive: Drive) -> None:
    told: list[str] = []

    @workflow.defn
    async def misuse() -> None:
        block = workflow.scope()
        for wrong in (block.cancel, lambda: workflow.deadline(datetime(2026, 1, 1)), lambda: workflow.phase("")):  # noqa: DTZ001 - that is what is wrong
            try:
                wrong()
            except UsageError as error:
                told.append(str(error))
        async with block:
            pass
        try:
            async with block:
                pass
        except UsageError as error:
            told.append(str(error))

    drive(misuse).start()
    assert [
        any(part in each for each in told)
        for part in ("not entered", "without a zone", "name of a phase", "entered once")
    ] == [True] * 4
    with pytest.raises(InvalidPolicyError, match="deadline of the block"):
        workflow.deadline(5)  # type: ignore[arg-type] # a number of what?


# Deadlines ------------------------------------------------------------------------------------------------------------


@workflow.defn
class Bounded:
    """Two steps that must be done within a minute."""

    @workflow.run
    async def run(self, kind: str) -> list[Any]:
        at = timedelta(minutes=1) if kind == "duration" else workflow.now() + timedelta(minutes=1)
        try:
            async with workflow.deadline(at) as block:
                self.block = block
                await step("first")
                await workflow.sleep(20)
                await brief("second")
        except TimeoutError as error:
            return ["late", error.kind, str(error), block.expired]
        return ["in time", block.expired]


@pytest.mark.parametrize("kind", ["duration", "time"])
def test_a_deadline_ends_its_block_and_says_so(drive: Drive, kind: str) -> None:
    run = drive(Bounded, kind)
    commands = run.start()
    assert sorted(kinds(commands)) == ["ScheduleActivity", "StartDeadline"]
    assert bounds(commands) == [60_000], "no attempt goes on for a block that is over"
    assert kinds(run.fire(60_000)) == ["CancelActivity", "CompleteRun"] or run.result[0] == "late"
    assert run.result[:2] == ["late", "deadline"]
    assert run.result[2].startswith("the deadline of the block passed at ")
    assert run.result[3] is True


def test_what_is_in_time_cancels_the_timer_and_activities_are_bounded_by_what_is_left(drive: Drive) -> None:
    run = drive(Bounded, "duration")
    run.start()
    run.now_ms += 15_000
    run.complete(run.event_id_of("step"))
    commands = run.fire(20_000)
    assert bounds(commands) == [25_000], "35 s of the minute are over"
    assert kinds(run.complete(run.event_id_of("brief"))) == ["CompleteRun"]
    assert run.result == ["in time", False]


def test_a_stricter_bound_of_the_activity_stays(drive: Drive) -> None:
    @workflow.defn
    async def strict() -> None:
        async with workflow.deadline(timedelta(minutes=1)):
            await brief("of thirty seconds")

    assert bounds(drive(strict).start()) == [30_000]


def test_of_nested_deadlines_the_earliest_counts(drive: Drive) -> None:
    @workflow.defn
    async def nested(outer_s: float, inner_s: float) -> str:
        try:
            async with workflow.deadline(timedelta(seconds=outer_s)):
                try:
                    async with workflow.deadline(timedelta(seconds=inner_s)):
                        await step("innermost")
                except TimeoutError:
                    await step("the outer one goes on")
                    return "inner"
        except TimeoutError:
            return "outer"
        return "none"

    outer_first = drive(nested, 10, 20)
    commands = outer_first.start()
    assert [each.delay_ms for each in commands if isinstance(each, events.StartTimer)] == [10_000], "one is enough"
    assert bounds(commands) == [10_000]
    outer_first.fire(10_000)
    assert outer_first.result == "outer"

    inner_first = drive(nested, 30, 20)
    inner_first.start()
    assert bounds(inner_first.fire(20_000)) == [10_000], "what is left of the outer one"
    inner_first.complete(inner_first.event_id_of("step"))
    assert inner_first.result == "inner"


def test_a_task_that_outlives_the_outer_block_keeps_its_own_deadline(drive: Drive) -> None:
    @workflow.defn
    async def outlives() -> str:
        async def inner() -> str:
            try:
                async with workflow.deadline(timedelta(seconds=20)):
                    await asyncio.Event().wait()
            except TimeoutError:
                return "inner"
            return "none"

        async with workflow.deadline(timedelta(seconds=10)):
            task = asyncio.create_task(inner())
            await workflow.sleep(1)
        return await task

    run = drive(outlives)
    run.start()
    run.fire(1_000)
    run.fire(19_000)
    assert run.result == "inner"


def test_clean_up_after_the_deadline_is_not_bounded_by_it(drive: Drive) -> None:
    @workflow.defn
    async def cleans_up() -> str:
        try:
            async with workflow.deadline(timedelta(seconds=10)):
                try:
                    await step("too long")
                finally:
                    await step("clean-up")
        except TimeoutError:
            return "late"
        return "in time"

    run = drive(cleans_up)
    run.start()
    assert bounds(run.fire(10_000)) == [None]
    run.complete(run.event_id_of("step"))
    assert run.result == "late"


def test_a_deadline_that_has_passed_before_ends_its_block_at_its_first_wait(drive: Drive) -> None:
    @workflow.defn
    async def too_late() -> str:
        try:
            async with workflow.deadline(datetime(2020, 1, 1, tzinfo=UTC)):
                await step("never scheduled")
        except TimeoutError:
            return "late"
        return "in time"

    assert kinds(drive(too_late).start()) == ["CompleteRun"]


def test_an_activity_that_is_told_first_is_the_deadline_all_the_same(drive: Drive) -> None:
    """Its worker's clock may be ahead a little; or it has failed, and cannot be tried again before the deadline."""
    late = TimeoutError("too late", kind="schedule_to_close")
    for early_ms in (0, 300, 30_000):
        run = drive(Bounded, "duration")
        run.start()
        run.now_ms += 60_000 - early_ms
        run.feed(failed(run.event_id_of("step"), late, "timeout"))
        assert run.result[:2] == ["late", "deadline"]


def test_what_goes_on_in_a_block_that_an_activity_has_ended_is_cancelled_too(drive: Drive) -> None:
    @workflow.defn
    async def two() -> list[Any]:
        try:
            async with workflow.deadline(timedelta(minutes=1)):
                other = asyncio.create_task(in_background())
                await brief("first")
                await step("second")
        except TimeoutError:
            await workflow.sleep(1)
        return [other.cancelled()]

    run = drive(two)
    run.start()
    run.complete(run.event_id_of("brief"))
    run.now_ms += 60_000
    late = TimeoutError("too late", kind="schedule_to_close")
    assert "CancelActivity" in kinds(run.feed(failed(run.event_id_of("step"), late, "timeout")))
    run.fire(1_000)
    assert run.result == [True]


def test_an_activity_with_less_time_of_its_own_is_not_the_deadline(drive: Drive) -> None:
    run = drive(Bounded, "duration")
    run.start()
    run.complete(run.event_id_of("step"))
    run.fire(20_000)
    run.now_ms += 30_000
    run.feed(failed(run.event_id_of("brief"), TimeoutError("too slow", kind="schedule_to_close"), "timeout"))
    assert isinstance(run.events[-1], events.FailRun)


def test_an_activity_that_fails_by_itself_is_not_the_deadline(drive: Drive) -> None:
    run = drive(Bounded, "duration")
    run.start()
    run.now_ms += 5_000
    run.feed(failed(run.event_id_of("step"), TimeoutError("too slow", kind="start_to_close"), "timeout"))
    assert isinstance(run.events[-1], events.FailRun)


def test_a_result_and_the_deadline_in_one_transition(drive: Drive) -> None:
    @workflow.defn
    async def close() -> str:
        try:
            async with workflow.deadline(timedelta(seconds=10)):
                await step("just so")
        except TimeoutError:
            return "late"
        return "in time"

    for first in ("result", "deadline"):
        run = drive(close)
        run.start()
        run.now_ms += 10_000
        [timer] = run.machine.due_timers(run.now_ms)
        result = completed(run.event_id_of("step"))
        run.feed(*([result, timer] if first == "result" else [timer, result]))
        assert run.result == ("in time" if first == "result" else "late"), "whatever came first"


def test_a_deadline_without_end_bounds_nothing(drive: Drive) -> None:
    @workflow.defn
    async def endless() -> None:
        async with workflow.deadline(None) as block, workflow.deadline(timedelta.max):
            assert block.when is None
            await step("unbounded")

    commands = drive(endless).start()
    assert kinds(commands) == ["ScheduleActivity"]
    assert bounds(commands) == [None]


def test_a_timeout_of_asyncio_inside_and_around(drive: Drive) -> None:
    @workflow.defn
    async def mixed() -> list[str]:
        told = []
        try:
            async with asyncio.timeout(5), workflow.deadline(timedelta(seconds=10)):
                await step("a")
        except TimeoutError:
            told.append("ours")
        except builtin_timeout:
            told.append("asyncio's")
        try:
            async with workflow.deadline(timedelta(seconds=5)), asyncio.timeout(10):
                await step("b")
        except TimeoutError:
            told.append("ours")
        return told

    run = drive(mixed)
    run.start()
    run.fire(5_000)
    run.fire(5_000)
    assert run.result == ["asyncio's", "ours"]


builtin_timeout = __import__("builtins").TimeoutError


def test_a_task_group_in_a_deadline_is_aborted(drive: Drive) -> None:
    @workflow.defn
    async def group() -> str:
        try:
            async with workflow.deadline(timedelta(seconds=5)), asyncio.TaskGroup() as tasks:
                tasks.create_task(in_background())
                tasks.create_task(in_background())
        except TimeoutError:
            return "late"
        return "in time"

    run = drive(group)
    assert bounds(run.start()) == [5_000, 5_000]
    run.fire(5_000)
    assert run.result == "late"


# Shields --------------------------------------------------------------------------------------------------------------


@workflow.defn
class Shielded:
    @workflow.run
    async def run(self) -> str:
        try:
            async with workflow.deadline(timedelta(seconds=10)):
                await workflow.shield(self.clean_up())
        except TimeoutError:
            return "late, and cleaned up"
        return "in time"

    async def clean_up(self) -> None:
        await step("one")
        await step("two")


def test_what_is_shielded_ends_before_the_cancellation_is_raised(drive: Drive) -> None:
    run = drive(Shielded)
    assert bounds(run.start()) == [None], "no deadline holds inside"
    assert run.fire(10_000) == [], "it is not told"
    run.complete(run.event_id_of("step"))
    run.complete(run.event_id_of("step"))
    assert run.result == "late, and cleaned up"


def test_a_shield_holds_against_every_cancellation_of_the_run(drive: Drive) -> None:
    run = drive(Shielded)
    run.start()
    run.cancel("enough")
    run.cancel("really")
    run.complete(run.event_id_of("step"))
    run.complete(run.event_id_of("step"))
    assert isinstance(run.events[-1], events.CancelRun)


def test_an_error_inside_a_shield_is_what_is_raised(drive: Drive) -> None:
    run = drive(Shielded)
    run.start()
    run.cancel("enough")
    run.fail(run.event_id_of("step"), ValueError("no"))
    closing = run.events[-1]
    assert isinstance(closing, events.FailRun)
    assert closing.failure.kind == "activity"


def test_a_shield_takes_activities_and_gives_results(drive: Drive) -> None:
    @workflow.defn
    async def gives() -> list[str]:
        async with workflow.scope() as block:
            waiting = asyncio.create_task(stop_soon(block))
            handle = step("shielded")
            try:
                found = await workflow.shield(handle)
            except asyncio.CancelledError:
                found = handle.result()
        await asyncio.gather(waiting, return_exceptions=True)
        return [found, await workflow.shield(step("another"))]

    async def stop_soon(block: workflow.Scope) -> None:
        await workflow.sleep(1)
        block.cancel()

    run = drive(gives)
    run.start()
    assert "CancelActivity" not in kinds(run.fire(1_000))
    run.complete(run.event_id_of("step"), "done")
    run.complete(run.event_id_of("step"), "done too")
    assert run.result == ["done", "done too"]


def test_eviction_within_every_kind_of_block(drive: Drive) -> None:
    @workflow.defn
    async def all_of_them() -> None:
        async with workflow.scope(), workflow.deadline(timedelta(hours=1)), workflow.phase("deep", owner="ada"):
            await workflow.shield(workflow.first_of(workflow.sleep(60), in_background()))

    run = drive(all_of_them)
    run.start()
    assert run.machine.destroy() == 0
