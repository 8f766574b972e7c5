"""From what the code has asked for to what is recorded: every command gets its event id, and its waiter is filed.

One transition takes a bounded number of commands, so that a wide fan-out is written in parts that keep nobody else
waiting; the rest is unrecorded for now and follows in transitions without inputs. No line of the code runs in between,
so the parts are one activation, wherever they are cut and whoever goes on after a crash.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from pledger.history import events
from pledger.machine import closing, publishing, replay
from pledger.machine.context import ActivityHandle, Asked, PhaseMark
from pledger.machine.family import ParentClosePolicy
from pledger.machine.loop import LoopTimer

if TYPE_CHECKING:
    import asyncio

    from pledger.history.events import Command
    from pledger.history.transition import Transition
    from pledger.machine.context import RunContext, Waiter
    from pledger.machine.machine import Machine


#: What a run that ends has still said of itself.
_KEPT: Final = (
    events.RecordPatch,
    events.CompleteUpdate,
    events.SendSignal,
    events.SendCancel,
    events.CancelChild,
    events.UpsertSearchAttributes,
    events.UpsertMemo,
)


def seal(machine: Machine, context: RunContext, main: asyncio.Task[Any] | None, first_event_id: int) -> list[Command]:
    """The commands of a live activation that is over, in the order of their event ids. main: the task of its code."""
    asked: Sequence[Asked] = _asked(machine, context, main)
    if context.outgoing is not None:
        machine.published = publishing.take(context)
    if len(asked) > 1:
        asked = replay.in_order(asked)
        # What ends the run is never cut off: nothing else follows it.
        if machine.commands_max is not None and len(asked) > machine.commands_max and machine.closed is None:
            asked = _cut(machine, asked)
    commands = [one.command for one in asked]
    for event_id, one in enumerate(asked, first_event_id):
        if one.waiter is not None:
            _file(machine, context, one.waiter, event_id, commands[event_id - first_event_id])
    if context.labels is not None:
        context.labels.seal(commands, continues=bool(machine.unrecorded))
    return commands


def seal_more(machine: Machine, context: RunContext, first_event_id: int) -> list[Command]:
    """The commands of the next transition, from those that are unrecorded."""
    asked = _cut(machine, machine.unrecorded)
    commands = [one.command for one in asked]
    _file_all(machine, context, asked, commands, first_event_id)
    return commands


def _cut(machine: Machine, asked: Sequence[Asked]) -> Sequence[Asked]:
    """What one transition takes. The rest is unrecorded."""
    taken: Sequence[Asked] = asked[: machine.commands_max]
    rest = asked[len(taken) :]
    if patches := [one for one in rest if type(one.command) is events.RecordPatch]:
        # A replay of the activation has to know them before the code asks: they are in its first transition.
        taken = [*taken, *patches]
        rest = [one for one in rest if type(one.command) is not events.RecordPatch]
    machine.unrecorded = rest
    return taken


def pair(
    machine: Machine,
    context: RunContext,
    main: asyncio.Task[Any] | None,
    first_event_id: int,
    recorded: Sequence[Command],
    *,
    continues: bool,
) -> None:
    """The same on replay: the recorded commands, each with who asked for it. Raises NondeterminismError."""
    asked = _asked(machine, context, main)
    taken = _match(machine, context, recorded, asked, first_event_id, continues=continues)
    _file_all(machine, context, taken, recorded, first_event_id)


def pair_more(machine: Machine, context: RunContext, transition: Transition) -> bool:
    """On replay, with a transition after one that continues. False when it ends the run from outside: then that is for
    the machine to take, and what is unrecorded has come to nothing. Raises NondeterminismError."""
    first = machine.last_event + 1
    if transition.inputs:
        if isinstance(transition.inputs[0], events.RunTimedOut | events.RunTerminated):
            machine.unrecorded = ()
            return False
        raise replay.mismatch(machine.identity, event_id=first, recorded=None, replayed=machine.unrecorded[0])
    asked = _match(machine, context, transition.commands, machine.unrecorded, first, continues=transition.continues)
    _file_all(machine, context, asked, transition.commands, first)
    return True


def _asked(machine: Machine, context: RunContext, main: asyncio.Task[Any] | None) -> list[Asked]:
    """What the code has asked for in this activation; of one that ends the run, what is kept of it, and the end."""
    asked = context.asked
    if asked:
        context.asked = []
    if context.late:
        asked, context.late = [*context.late, *asked], []
    if context.withdrawals:
        context.withdrawals = 0
        asked = [one for one in asked if not one.withdrawn]
    if (main is not None and main.done()) or machine.closed is not None:
        if machine.closed is None:
            assert main is not None
            machine.closed = closing.command_of(machine, main)
        if context.handlers and not context.replaying:
            machine.unfinished = tuple(each for each in context.handlers_at_work() if each.is_told)
        asked = [*(_kept(machine, context, asked) if asked else ()), Asked(machine.closed, None, ())]
    return asked


def _kept(machine: Machine, context: RunContext, asked: list[Asked]) -> list[Asked]:
    """A run that ends starts nothing of its own any more: what its last activation asked for was never promised to
    anybody. What concerns others is written with its end: messages, children that are to outlive it, and what came of
    updates."""
    cancelled = (one.command for one in asked if isinstance(one.command, events.CancelActivity))
    machine.given_up = tuple(each.scheduled_event_id for each in cancelled)
    if type(machine.closed) is events.CompleteRun and not context.replaying:
        activities = (one.command for one in asked if isinstance(one.command, events.ScheduleActivity))
        machine.unstarted = tuple(each.activity_type for each in activities)
    return [one for one in asked if _outlives(one.command)]


def _outlives(command: Command) -> bool:
    if isinstance(command, events.StartChild):
        return command.parent_close_policy == ParentClosePolicy.ABANDON.value
    return isinstance(command, _KEPT)


def _match(
    machine: Machine,
    context: RunContext,
    recorded: Sequence[Command],
    asked: Sequence[Asked],
    first_event_id: int,
    *,
    continues: bool,
) -> Sequence[Asked]:
    """For each recorded command who asked for it. What nobody recorded is unrecorded, where the record continues; else
    it can only be phases, which are asked for again."""
    taken, left = replay.match(
        recorded,
        asked,
        first_event_id=first_event_id,
        identity=machine.identity,
        is_same_code=machine.is_same_code,
        continues=continues,
    )
    machine.unrecorded = left if continues else ()
    if left and not continues:
        context.late = [*context.late, *left]
    return taken


def _file_all(
    machine: Machine, context: RunContext, asked: Sequence[Asked], commands: Sequence[Command], first_event_id: int
) -> None:
    for event_id, one in enumerate(asked, first_event_id):
        if one.waiter is not None:
            _file(machine, context, one.waiter, event_id, commands[event_id - first_event_id])
        elif type(one.command) is events.BeginPhase:
            # The code does not name this phase any more: it is over once somebody can record that.
            context.late.append(Asked(events.EndPhase(event_id), None, ()))
            context.timed_phases.add(event_id)
    if context.labels is not None:
        context.labels.seal(commands, continues=bool(machine.unrecorded))


def _file(
    machine: Machine,
    context: RunContext,
    waiter: Waiter,
    event_id: int,
    command: Command,
) -> None:
    """Who waits for the command, under its event id; on replay with what the record says of it."""
    if isinstance(waiter, ActivityHandle):
        assert isinstance(command, events.ScheduleActivity)
        waiter.event_id = event_id
        waiter.asked = None
        waiter.command = command
        context.activities[event_id] = waiter
    elif isinstance(waiter, PhaseMark):
        waiter.event_id = event_id
        waiter.asked = None
        if isinstance(command, events.BeginPhase) and command.deadline_ms is not None:
            context.timed_phases.add(event_id)
    elif not isinstance(waiter, LoopTimer):
        waiter.recorded(event_id, command)  # type: ignore[arg-type] # that of its own kind, as it was matched
    else:
        assert isinstance(command, events.StartTimer)
        waiter.event_id = event_id
        waiter.scheduled_command = None
        waiter.fire_at_ms = command.fire_at_ms
        context.timers[event_id] = waiter
        heapq.heappush(machine.due, (command.fire_at_ms, event_id))
