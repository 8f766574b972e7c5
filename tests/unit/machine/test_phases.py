"""Phases and named waits: what the history says of them, and that no code depends on them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from pledger import activity, workflow
from pledger.errors import InvalidPolicyError, NondeterminismError, TimeoutError, UsageError  # noqa: A004 - ours
from pledger.history import events
from pledger.history.state import fold
from tests.unit.machine.harness import START_MS, DrivenRun, kinds

Drive = Callable[..., DrivenRun]


@activity.defn
async def step(name: str) -> Any:
    return name


@workflow.defn(name="staged")
async def staged() -> None:
    workflow.set_phase("ordering", owner="sales")
    await step("order")
    workflow.set_phase("fulfilling", owner="warehouse", deadline=timedelta(hours=4))
    async with workflow.phase("picking"):
        await step("pick")
    await workflow.sleep(5, name="cooling off", owner="law")
    workflow.set_phase(None)
    await step("the rest")


def open_phases(run: DrivenRun) -> list[tuple[str, str, str | None]]:
    return [(each.begun.kind, each.begun.name, each.begun.owner) for each in fold(run.transitions).phases.values()]


def test_what_a_run_says_of_the_stage_that_it_is_in(drive: Drive) -> None:
    run = drive(staged)
    run.start()
    assert open_phases(run) == [("phase", "ordering", "sales")]
    run.complete(run.event_id_of("step"))
    assert open_phases(run) == [("phase", "fulfilling", "warehouse"), ("phase", "picking", None)]
    run.complete(run.event_id_of("step"))
    assert open_phases(run) == [("phase", "fulfilling", "warehouse"), ("wait", "cooling off", "law")]
    run.fire(5_000)
    assert open_phases(run) == []
    run.complete(run.event_id_of("step"))
    assert kinds(run.events[-1:]) == ["CompleteRun"]


def test_a_deadline_of_a_phase_is_a_time_in_the_history_and_no_timer(drive: Drive) -> None:
    run = drive(staged)
    run.start()
    run.now_ms += 1_000
    commands = run.complete(run.event_id_of("step"))
    begun = next(each for each in commands if isinstance(each, events.BeginPhase) and each.name == "fulfilling")
    assert begun.deadline_ms == START_MS + 1_000 + 4 * 3_600_000
    assert "StartTimer" not in kinds(commands)
    phase = next(iter(fold(run.transitions).phases.values()))
    assert not phase.is_overdue(begun.deadline_ms - 1)
    assert phase.is_overdue(begun.deadline_ms)


def test_an_overdue_phase_may_raise(drive: Drive) -> None:
    @workflow.defn
    async def strict() -> str:
        try:
            async with workflow.phase("packing", owner="ada", deadline=timedelta(minutes=5), overdue="raise"):
                await step("pack")
        except TimeoutError as error:
            return str(error)
        return "in time"

    run = drive(strict)
    assert sorted(kinds(run.start())) == ["BeginPhase", "ScheduleActivity", "StartDeadline"]
    run.fire(300_000)
    assert run.result.startswith("the deadline of phase 'packing' passed at")


def test_a_named_wait_lasts_as_long_as_it_waits(drive: Drive) -> None:
    @workflow.defn
    class Waits:
        answer = ""

        @workflow.run
        async def run(self) -> str:
            await workflow.wait_condition(lambda: True, name="already so")
            await workflow.wait_condition(
                lambda: bool(self.answer), name="answer", owner="ada", deadline=timedelta(days=2), timeout=60
            )
            return self.answer

        @workflow.signal
        def say(self, answer: str) -> None:
            self.answer = answer

    run = drive(Waits)
    assert sorted(kinds(run.start())) == ["BeginPhase", "StartTimer"], "what holds already is no wait"
    assert open_phases(run) == [("wait", "answer", "ada")]
    run.signal("say", "yes")
    assert run.result == "yes"


def test_what_begins_and_ends_at_once_leaves_no_trace(drive: Drive) -> None:
    @workflow.defn
    async def short() -> None:
        async with workflow.phase("nothing"):
            pass
        workflow.set_phase("a")
        workflow.set_phase("b")
        await step("one")

    run = drive(short)
    assert [each.name for each in run.start() if isinstance(each, events.BeginPhase)] == ["b"]


@workflow.defn(name="staged")
async def without_phases() -> None:
    await step("order")
    await step("pick")
    await workflow.sleep(5)
    await step("the rest")


@workflow.defn(name="staged")
async def with_others() -> None:
    async with workflow.phase("everything", owner="ada"):
        workflow.set_phase("ordering")
        await step("order")
        await step("pick")
        await workflow.sleep(5)
        workflow.set_phase("the end")
        await step("the rest")


def test_code_may_name_other_phases_than_what_made_the_history(drive: Drive) -> None:
    """Phases are told to people, and no replay depends on them: naming one takes no patch."""
    codes = [staged, without_phases, with_others]
    for before, after in itertools.product(codes, codes):
        for steps, commands_max in itertools.product(range(4), (None, 1)):
            old = drive(before, commands_max=commands_max)
            old.start()
            go_on(old, range(steps))
            new = drive(after, commands_max=commands_max)
            new.replay_at_end = False
            new.now_ms, new.transitions = old.now_ms, list(old.transitions)
            new.machine.replay_all(old.transitions)
            go_on(new, range(steps, 4))
            assert kinds(new.events[-1:]) == ["CompleteRun"]
            assert fold(new.transitions).status == "completed"
            assert new.replay().last_event == len(new.events)


def test_what_changed_code_says_of_its_phases_is_recorded_once_it_goes_on(drive: Drive) -> None:
    old = drive(staged)
    old.start()
    old.complete(old.event_id_of("step"))
    new = drive(with_others)
    new.replay_at_end = False
    new.machine.replay_all(old.transitions)
    new.now_ms, new.transitions = old.now_ms, list(old.transitions)
    assert ("phase", "picking", None) in open_phases(new), "as the code before it has said"
    new.complete(new.event_id_of("step"))
    assert open_phases(new) == [("phase", "everything", "ada")], "ordering is over, as the code before it has said"
    assert new.replay().last_event == len(new.events)


def go_on(run: DrivenRun, steps: range) -> None:
    for number in steps:
        if number == 2:
            run.fire(5_000)
        else:
            run.complete(run.event_id_of("step"))


def test_a_step_that_was_added_is_still_a_mismatch(drive: Drive) -> None:
    @workflow.defn(name="staged")
    async def other() -> None:
        workflow.set_phase("ordering", owner="sales")
        await workflow.sleep(1)

    old = drive(staged)
    old.start()
    new = drive(other)
    new.replay_at_end = False
    with pytest.raises(NondeterminismError, match="recorded  ScheduleActivity 'step'"):
        new.machine.replay_all(old.transitions)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: workflow.phase(""),
        lambda: workflow.phase("a", owner=""),
        lambda: workflow.phase("a", overdue="raise"),
        lambda: workflow.phase("a", overdue="shout"),  # type: ignore[arg-type]
        lambda: workflow.phase("a", deadline="tomorrow"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_phase(wrong: Callable[[], object]) -> None:
    with pytest.raises((UsageError, InvalidPolicyError)):
        wrong()
