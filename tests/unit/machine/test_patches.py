"""`workflow.patched`: old runs stay on the old side, new ones take the new one, and both replay."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from pledger import activity, workflow
from pledger.errors import NondeterminismError
from pledger.history import events
from tests.unit.machine.harness import DrivenRun, kinds, scheduled

Drive = Callable[..., DrivenRun]


@activity.defn
async def step(name: str) -> str:
    return name


@workflow.defn(name="fulfil")
async def original() -> list[str]:
    await asyncio.sleep(1)
    return [await step("charge")]


@workflow.defn(name="fulfil")
async def unguarded() -> list[str]:
    await step("reserve")
    await asyncio.sleep(1)
    return [await step("charge")]


@workflow.defn(name="fulfil")
async def guarded() -> list[str]:
    if workflow.patched("reserve-first"):
        await step("reserve")
    await asyncio.sleep(1)
    return [await step("charge")]


@workflow.defn(name="fulfil")
async def without_the_old_side() -> list[str]:
    workflow.deprecate_patch("reserve-first")
    await step("reserve")
    await asyncio.sleep(1)
    return [await step("charge")]


def test_a_new_step_breaks_runs_that_are_past_it(drive: Drive) -> None:
    run = drive(original)
    run.start()
    with pytest.raises(NondeterminismError):
        run.replay(unguarded)


def test_a_guarded_step_leaves_old_runs_on_the_old_side(drive: Drive) -> None:
    run = drive(original)
    run.start()
    run.machine.destroy()
    run.machine = run.replay(guarded)
    assert scheduled(run.fire(1_000)) == [("step", "charge")]
    run.complete(run.event_id_of("step"), "charged")
    assert run.result == ["charged"]
    assert "RecordPatch" not in kinds(run.events)


def test_new_runs_take_the_new_side_and_record_it(drive: Drive) -> None:
    run = drive(guarded)
    assert kinds(run.start()) == ["RecordPatch", "ScheduleActivity"]
    run.reload()
    run.complete(run.event_id_of("step"), "reserved")
    run.fire(1_000)
    run.complete(run.event_id_of("step"), "charged")
    assert run.result == ["charged"]


def test_a_patch_is_deprecated_before_it_is_removed(drive: Drive) -> None:
    run = drive(guarded)
    run.start()
    run.machine.destroy()
    run.machine = run.replay(without_the_old_side)
    run.complete(run.event_id_of("step"), "reserved")
    again = run.replay(without_the_old_side)
    again.destroy()
    # Removed outright, its record has no partner.
    with pytest.raises(NondeterminismError) as caught:
        run.replay(unguarded)
    assert caught.value.recorded == "RecordPatch 'reserve-first'"


def finish(run: DrivenRun) -> None:
    run.complete(run.event_id_of("step"), "reserved")
    run.fire(1_000)
    run.complete(run.event_id_of("step"), "charged")
    assert run.result == ["charged"]


@pytest.mark.parametrize("other", [guarded, unguarded], ids=["before", "after"])
def test_a_run_born_under_a_deprecated_patch_is_carried_on_by_the_code_before_and_after(
    drive: Drive, other: Callable[..., object]
) -> None:
    """A rolling deployment has both at work, and a rollback brings the code before back."""
    run = drive(without_the_old_side)
    assert kinds(run.start()) == ["RecordPatch", "ScheduleActivity"]
    run.machine.destroy()
    run.machine = run.replay(other)
    finish(run)
    run.replay(other).destroy()


def test_a_run_born_under_a_patch_is_carried_on_where_it_is_deprecated_and_back(drive: Drive) -> None:
    run = drive(guarded)
    run.start()
    for code in (without_the_old_side, guarded):
        run.machine.destroy()
        run.machine = run.replay(code)
    finish(run)
    run.replay(without_the_old_side).destroy()


def test_a_history_without_a_record_of_the_deprecated_patch_still_replays(drive: Drive) -> None:
    """Earlier versions of Pledger recorded nothing there."""
    run = drive(unguarded)
    run.start()
    run.machine.destroy()
    run.machine = run.replay(without_the_old_side)
    finish(run)
    assert "RecordPatch" not in kinds(run.events)
    run.replay(without_the_old_side).destroy()


def test_a_deprecated_patch_that_is_not_named_hides_no_other_difference(drive: Drive) -> None:
    run = drive(without_the_old_side)
    run.start()
    with pytest.raises(NondeterminismError) as caught:
        run.replay(original)
    assert caught.value.recorded == "ScheduleActivity 'step'"


def test_a_patch_that_is_deprecated_in_a_later_round_is_not_taken_half_way(drive: Drive) -> None:
    """A run from before the patch that meets the line on replay must not record it when it comes round again, live."""
    run = drive(loops_unpatched, 3)
    run.replay_at_end = False  # its end is of the new code
    run.start()
    run.fire(1_000)
    run.machine.destroy()
    run.machine = run.replay(loops_deprecated)
    run.fire(1_000)
    run.fire(1_000)
    assert "RecordPatch" not in kinds(run.events)
    run.replay(loops_deprecated).destroy()


def test_a_query_that_names_a_deprecated_patch_records_nothing(drive: Drive) -> None:
    run = drive(Asked)
    run.start()
    assert run.machine.query("state", b"[]") == b'"open"'
    run.fire(1_000)
    assert "RecordPatch" not in kinds(run.events)


def test_rolling_back_past_a_taken_patch_is_a_mismatch(drive: Drive) -> None:
    run = drive(guarded)
    run.start()
    with pytest.raises(NondeterminismError) as caught:
        run.replay(original)
    assert caught.value.recorded == "RecordPatch 'reserve-first'"


@workflow.defn(name="loops")
async def loops(rounds: int) -> list[bool]:
    answers = []
    for _ in range(rounds):
        await asyncio.sleep(1)
        answers.append(workflow.patched("new-round"))
    return answers


@workflow.defn(name="loops")
async def loops_unpatched(rounds: int) -> list[bool]:
    for _ in range(rounds):
        await asyncio.sleep(1)
    return []


@workflow.defn(name="loops")
async def loops_deprecated(rounds: int) -> list[bool]:
    for _ in range(rounds):
        await asyncio.sleep(1)
        workflow.deprecate_patch("new-round")
    return []


@workflow.defn
class Asked:
    @workflow.run
    async def run(self) -> None:
        await asyncio.sleep(1)

    @workflow.query
    def state(self) -> str:
        workflow.deprecate_patch("told-otherwise")
        return "open"


def test_the_first_answer_holds_for_the_whole_run(drive: Drive) -> None:
    run = drive(loops, 3)
    run.start()
    for _ in range(3):
        run.fire(1_000)
    assert run.result == [True, True, True]
    assert kinds(run.events).count("RecordPatch") == 1


def test_a_no_holds_when_the_run_goes_on_live(drive: Drive) -> None:
    """Asked on replay and again live: a run must not change sides half-way, nor after the next reload."""
    run = drive(loops_unpatched, 3)
    run.replay_at_end = False  # its end is of the new code
    run.start()
    run.fire(1_000)
    run.machine.destroy()
    run.machine = run.replay(loops)
    run.fire(1_000)
    run.machine.destroy()
    run.machine = run.replay(loops)
    run.fire(1_000)
    assert run.events[-1] == events.CompleteRun(b"[false,false,false]")


def test_several_patches_are_told_apart(drive: Drive) -> None:
    @workflow.defn
    async def patches() -> list[bool]:
        return [workflow.patched("a"), workflow.patched("b"), workflow.patched("a")]

    run = drive(patches)
    assert kinds(run.start()) == ["RecordPatch", "RecordPatch", "CompleteRun"]


def test_a_patch_taken_in_the_last_transition_is_recorded(drive: Drive) -> None:
    @workflow.defn
    async def patches() -> bool:
        await asyncio.sleep(1)
        return workflow.patched("late")

    run = drive(patches)
    run.start()
    assert kinds(run.fire(1_000)) == ["RecordPatch", "CompleteRun"]
