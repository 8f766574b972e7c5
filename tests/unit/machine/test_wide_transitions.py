"""An activation that asks for more than one transition takes: it is written in parts, and is one all the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from pledger import activity, workflow
from pledger.errors import NondeterminismError
from pledger.history import events
from pledger.history.transition import Transition
from tests.unit.machine.harness import DrivenRun, completed, scheduled

Drive = Callable[..., DrivenRun]


@activity.defn
async def step(name: str) -> str:
    return name


@activity.defn
async def other(name: str) -> str:
    return name


@workflow.defn
async def fan_out(width: int) -> list[str]:
    return list(await asyncio.gather(*(step(f"part {n}") for n in range(width))))


@workflow.defn
async def mixed() -> list[Any]:
    """Of two kinds in turns, in the order in which tasks begin, with timers among them."""

    async def both(n: int) -> str:
        first, second = asyncio.create_task(step(f"{n}")), asyncio.create_task(other(f"{n}"))
        await asyncio.sleep(n)
        return await first + await second

    return list(await asyncio.gather(*map(both, range(3))))


@workflow.defn
async def patches_late() -> str:
    early = [asyncio.ensure_future(step(f"part {n}")) for n in range(4)]
    await asyncio.sleep(0)
    late = other("new") if workflow.patched("late") else step("old")
    return " ".join([await late, *await asyncio.gather(*early)])


@workflow.defn
async def fan_out_by_other(width: int) -> list[str]:
    """The code of `fan_out` after a change in its second half."""
    return list(await asyncio.gather(*((step if n < width // 2 else other)(f"part {n}") for n in range(width))))


def sizes(run: DrivenRun) -> list[tuple[int, int, bool]]:
    return [(len(each.inputs), len(each.commands), each.continues) for each in run.transitions]


def answer_all(run: DrivenRun) -> None:
    for event_id, event in enumerate(run.events, 1):
        if isinstance(event, events.ScheduleActivity) and run.machine.awaits(event_id):
            run.feed(completed(event_id, msgspec.json.decode(event.args)[0]))


def test_it_is_written_in_parts_of_which_none_is_too_large(drive: Drive) -> None:
    run = drive(fan_out, 7, commands_max=3)
    run.start()
    assert sizes(run) == [(1, 3, True), (0, 3, True), (0, 1, False)]
    answer_all(run)
    assert run.result == [f"part {n}" for n in range(7)]


def test_what_just_fits_is_one_transition(drive: Drive) -> None:
    run = drive(fan_out, 3, commands_max=3)
    run.start()
    assert sizes(run) == [(1, 3, False)]
    answer_all(run)


@pytest.mark.parametrize("workflow_fn", [fan_out, mixed], ids=lambda each: each.__name__)
@pytest.mark.parametrize("commands_max", [1, 2, 3, 4])
def test_whoever_goes_on_from_any_part_writes_the_same(drive: Drive, workflow_fn: Any, commands_max: int) -> None:
    args = (7,) if workflow_fn is fan_out else ()
    whole = drive(workflow_fn, *args)
    whole.start()
    commands = whole.events[1:]
    whole.replay_at_end = False
    run = drive(workflow_fn, *args, commands_max=commands_max)
    run.start()
    parts = list(run.transitions)
    assert run.events[1:] == commands
    run.replay_at_end = False
    for written in range(1, len(parts)):
        run = drive(workflow_fn, *args, commands_max=commands_max)
        run.transitions = parts[:written]
        run.reload()
        assert run.machine.unrecorded
        run.record_rest()
        assert run.transitions == parts
        answer_all(run)
        run.fire(3_000)


def test_a_part_may_be_cut_anywhere_else_by_whoever_goes_on(drive: Drive) -> None:
    run = drive(fan_out, 7, commands_max=3)
    run.start()
    run.transitions = run.transitions[:1]
    run.reload()
    run.machine.commands_max = None
    run.record_rest()
    assert sizes(run) == [(1, 3, True), (0, 4, False)]
    answer_all(run)
    assert run.result == [f"part {n}" for n in range(7)]


def test_patches_are_in_the_first_part(drive: Drive) -> None:
    """A replay has to know them when the code asks, and nothing of the second part is known by then."""
    run = drive(patches_late, commands_max=2)
    run.start()
    assert events.RecordPatch("late") in run.transitions[0].commands
    assert scheduled(run.transitions[-1].commands) == [("other", "new")]
    run.reload()
    answer_all(run)


def test_the_end_of_a_run_is_not_cut_off(drive: Drive) -> None:
    @workflow.defn
    async def ends() -> str:
        for n in range(3):
            workflow.patched(f"patch {n}")
        return "done"

    run = drive(ends, commands_max=1)
    run.start()
    assert sizes(run) == [(1, 4, False)]


def test_code_that_has_changed_in_a_later_part_is_found_there(drive: Drive) -> None:
    run = drive(fan_out, 6, commands_max=2)
    run.start()
    run.replay_at_end = False
    run.replay(fan_out_by_other, run.transitions[:1]).destroy()
    with pytest.raises(NondeterminismError) as caught:
        run.replay(fan_out_by_other)
    assert (caught.value.event_id, caught.value.recorded) == (5, "ScheduleActivity 'step'")


@pytest.mark.parametrize(
    ("changed", "event_id"),
    [
        (lambda parts: [parts[0], replace_commands(parts[1], parts[1].commands[:1]), parts[2]], 7),
        (lambda parts: [parts[0], parts[2]], 6),
        (lambda parts: [parts[0], parts[1], msgspec.structs.replace(parts[2], commands=())], 6),
        (lambda parts: [*parts, msgspec.structs.replace(parts[2], inputs=())], 8),
        (lambda parts: [parts[0], replace_inputs(parts[1])], 4),
        (lambda parts: [msgspec.structs.replace(parts[0], continues=False), *parts[1:]], 4),
    ],
    ids=["less", "a part is missing", "nothing", "more", "an input comes in between", "it does not say so"],
)
def test_a_part_that_is_not_as_the_code_asks_is_found(drive: Drive, changed: Any, event_id: int) -> None:
    run = drive(fan_out, 6, commands_max=2)
    run.start()
    run.replay_at_end = False
    with pytest.raises(NondeterminismError) as caught:
        run.replay(transitions=changed(run.transitions))
    assert caught.value.event_id == event_id


@pytest.mark.parametrize("ended", [events.RunTimedOut(), events.RunTerminated("enough")], ids=repr)
def test_a_run_may_be_ended_from_outside_between_two_parts(drive: Drive, ended: events.Input) -> None:
    run = drive(fan_out, 6, commands_max=2)
    run.start()
    run.replay_at_end = False
    parts = run.transitions[:2]
    machine = run.replay(transitions=[*parts, msgspec.structs.replace(parts[1], inputs=(ended,), commands=())])
    assert machine.last_event == 6
    assert not machine.unrecorded
    machine.destroy()


def replace_commands(one: Transition, commands: tuple[events.Command, ...]) -> Transition:
    return msgspec.structs.replace(one, commands=commands)


def replace_inputs(one: Transition) -> Transition:
    return msgspec.structs.replace(one, inputs=(events.TimerFired(2),))
