"""Matching what the code asks on replay against what is recorded.

Within one transition commands are matched by what they are, not by their order: kind, name and input first, equal ones
by the spawn path of the asking task; what is left over, by kind and name alone and again by spawn path (a changed input
is not a change of the sequence, case RPL-08). A command that then has no partner, on either side, is a mismatch. For
the very code that made the record a changed input is one too, where verification looks so closely.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Hashable, Sequence
from typing import Final, assert_never

from pledger.errors import NondeterminismError
from pledger.history import events, failures
from pledger.history.events import Command
from pledger.machine.context import Asked
from pledger.machine.identity import RunIdentity

#: Characters of a value that an error shows.
VALUE_MAX: Final = 200

_PHASES: Final = (events.BeginPhase, events.EndPhase)


def what_it_is(command: Command) -> Hashable:  # noqa: C901, PLR0912 - a case for each kind
    """Kind, name and input of a command: two commands that are equal in this are the same to a replay."""
    match command:
        case events.ScheduleActivity():
            return ("activity", command.activity_type, command.args)
        case events.StartTimer():
            return ("timer", command.delay_ms)
        case events.CancelActivity():
            return ("cancel activity", command.scheduled_event_id)
        case events.CancelTimer():
            return ("cancel timer", command.started_event_id)
        case events.RecordPatch():
            return ("patch", command.patch_id)
        case events.BeginPhase():
            return ("phase", command.kind, command.name, command.owner, command.deadline_ms)
        case events.EndPhase():
            return ("end of a phase", command.begun_event_id)
        case events.StartChild():
            return ("child", command.workflow_type, command.workflow_id, command.args)
        case events.CancelChild():
            return ("cancel child", command.started_event_id)
        case events.SendSignal():
            return ("signal", command.workflow_id, command.name, command.args)
        case events.SendCancel():
            return ("cancel workflow", command.workflow_id)
        case events.CompleteUpdate():
            failed = None if command.failure is None else command.failure.type
            return ("update", command.update_id, command.result, failed)
        case events.UpsertSearchAttributes() | events.UpsertMemo():
            return command
        case events.CompleteRun():
            return ("complete", command.result)
        case events.FailRun():
            return ("fail", command.failure.type)
        case events.CancelRun():
            return ("cancelled",)
        case events.ContinueAsNew():
            return ("continue as new", command.workflow_type, command.args)
        case _:
            assert_never(command)


def kind_and_name(command: Command) -> Hashable:  # noqa: C901 - a case for each kind
    """What must agree even where the input does not."""
    match command:
        case events.ScheduleActivity():
            return ("activity", command.activity_type)
        case events.StartTimer():
            return ("timer",)
        case events.BeginPhase():
            return ("phase", command.kind, command.name)
        case events.StartChild():
            return ("child", command.workflow_type)
        case events.SendSignal():
            return ("signal", command.name)
        case events.SendCancel():
            return ("cancel workflow",)
        case events.CompleteUpdate():
            return ("update", command.update_id)
        case events.UpsertSearchAttributes() | events.UpsertMemo():
            return type(command)
        case events.CompleteRun():
            return ("complete",)
        case events.FailRun():
            return ("fail",)
        case events.ContinueAsNew():
            return ("continue as new", command.workflow_type)
        case _:
            return what_it_is(command)


def in_words(command: Command) -> str:  # noqa: C901, PLR0912 - a line for each kind
    """The command as an error message names it: `ScheduleActivity 'charge_card'`."""
    name = type(command).__name__
    match command:
        case events.ScheduleActivity():
            return f"{name} {command.activity_type!r}"
        case events.StartTimer():
            return f"{name} of {command.delay_ms / 1000:g} s"
        case events.CancelActivity():
            return f"{name} of event {command.scheduled_event_id}"
        case events.CancelTimer():
            return f"{name} of event {command.started_event_id}"
        case events.RecordPatch():
            return f"{name} {command.patch_id!r}"
        case events.BeginPhase():
            return f"{name} {command.name!r}"
        case events.EndPhase():
            return f"{name} of event {command.begun_event_id}"
        case events.StartChild():
            return f"{name} {command.workflow_type!r} as {command.workflow_id!r}"
        case events.CancelChild():
            return f"{name} of event {command.started_event_id}"
        case events.SendSignal():
            return f"{name} {command.name!r} to {command.workflow_id!r}"
        case events.SendCancel():
            return f"{name} to {command.workflow_id!r}"
        case events.CompleteUpdate(failure=None):
            return f"{name} {command.update_id!r}"
        case events.CompleteUpdate(failure=failures.Failure() as failure):
            return f"{name} {command.update_id!r} with {failure.type}"
        case events.UpsertSearchAttributes():
            return f"{name} {', '.join(each.name for each in command.attributes)}"
        case events.FailRun() | events.CancelRun():
            return f"{name} with {command.failure.type}"
        case events.ContinueAsNew():
            return f"{name} {command.workflow_type!r}"
        case _:
            return name


def in_order(asked: Sequence[Asked]) -> Sequence[Asked]:
    """The order in which a live transition records its commands: as asked, those of one kind and name by spawn path.

    Python versions start tasks in different orders, and by the time of a replay the inputs may have changed: the spawn
    path is then all that tells such commands apart. It decides who gets which event id, here and in `match`.
    """
    if len(asked) < 2:  # noqa: PLR2004 - nothing to order
        return asked
    groups: dict[Hashable, list[int]] = defaultdict(list)
    for position, one in enumerate(asked):
        groups[kind_and_name(one.command)].append(position)
    if len(groups) == len(asked):
        return asked
    ordered = list(asked)
    for positions in groups.values():
        if len(positions) > 1:
            for position, one in zip(positions, sorted((asked[p] for p in positions), key=_path), strict=True):
                ordered[position] = one
    return ordered


def match(
    recorded: Sequence[Command],
    asked: Sequence[Asked],
    *,
    first_event_id: int,
    identity: RunIdentity,
    is_same_code: bool = False,
    continues: bool = False,
) -> tuple[Sequence[Asked], Sequence[Asked]]:
    """For each recorded command, in order, who asked for it. Raises NondeterminismError when they do not pair up.

    first_event_id: that of recorded[0]. is_same_code: the code that asks made the record: inputs must agree too.
    continues: the record of the activation goes on; the second of what is returned is then the rest of what was asked
    for, in the order of its record. Otherwise it can only be phases: code that names more of them than what made the
    record carries it on.
    """
    if len(recorded) == 1 == len(asked) and what_it_is(recorded[0]) == what_it_is(asked[0].command):
        return asked, ()
    asked = [*asked, *_no_longer_named(recorded, asked)]
    partners: list[Asked | None] = [None] * len(recorded)
    left = asked
    for alike in (what_it_is, kind_and_name):
        groups: dict[Hashable, list[Asked]] = defaultdict(list)
        for one in left:
            groups[alike(one.command)].append(one)
        # One task may have asked for several: sorted forwards, since a backward sort would not turn those around.
        queues = {what: deque(sorted(group, key=_path)) for what, group in groups.items()}
        for position, command in enumerate(recorded):
            if partners[position] is None and (queue := queues.get(alike(command))):
                partners[position] = partner = queue.popleft()
                if is_same_code and alike is kind_and_name:
                    raise _other_values(identity, first_event_id + position, command, partner)
        taken = {id(one) for one in partners if one is not None}
        left = [one for one in asked if id(one) not in taken]
        if None not in partners:
            break
    # Nothing depends on a phase, nor on one that the code does not name any more.
    partners = [each or _phase(command) for each, command in zip(partners, recorded, strict=True)]
    if None in partners:
        missing = partners.index(None)
        raise mismatch(
            identity,
            event_id=first_event_id + missing,
            recorded=in_words(recorded[missing]),
            replayed=left[0] if left else None,
        )
    beyond = [] if continues else [one for one in left if type(one.command) not in _PHASES]
    if beyond:
        raise mismatch(identity, event_id=first_event_id + len(recorded), recorded=None, replayed=in_order(beyond)[0])
    return [one for one in partners if one is not None], in_order(left)


def _phase(command: Command) -> Asked | None:
    return Asked(command, None, ()) if type(command) in _PHASES else None


def _no_longer_named(recorded: Sequence[Command], asked: Sequence[Asked]) -> list[Asked]:
    """What code that has dropped the names of deprecated patches would have asked for: nothing else depends on them."""
    deprecated = [each for each in recorded if type(each) is events.RecordPatch and each.is_deprecated]
    if not deprecated:
        return []
    named = {one.command.patch_id for one in asked if type(one.command) is events.RecordPatch}
    return [Asked(each, None, ()) for each in deprecated if each.patch_id not in named]


def _path(asked: Asked) -> tuple[int, ...]:
    return asked.path


def mismatch(
    identity: RunIdentity, *, event_id: int, recorded: str | None, replayed: Asked | None
) -> NondeterminismError:
    """The error that blocks the run: what is recorded, what the code asks, where, and the ways out."""
    asked = None if replayed is None else in_words(replayed.command)
    where = None if replayed is None else replayed.where
    suggestion = _patch_name(replayed)
    return NondeterminismError(
        f"{identity} is blocked at event {event_id}\n"
        f"  recorded  {recorded or 'nothing more'}\n"
        f"  replayed  {asked or 'nothing'}{'' if where is None else f'   {where}'}\n"
        f"The code changed while this run was open; nothing is lost. Roll back, or guard the new branch with\n"
        f"workflow.patched({suggestion!r}). To see the first difference: pledger replay {identity.workflow_id}",
        event_id=event_id,
        recorded=recorded,
        replayed=asked,
        where=where,
    )


def _other_values(identity: RunIdentity, event_id: int, recorded: Command, replayed: Asked) -> NondeterminismError:
    """The error where the same code asks for the same with other values."""
    told, asked = _with_values(recorded), _with_values(replayed.command)
    where = replayed.where
    return NondeterminismError(
        f"{identity} gives other values at event {event_id}, replayed by the code that made it\n"
        f"  recorded  {told}\n"
        f"  replayed  {asked}{'' if where is None else f'   {where}'}\n"
        f"Something that is not in its history decides over them: a variable of a module, the environment, a file.\n"
        f"Give it to the workflow as an argument, or read it in an activity, whose result is recorded.",
        event_id=event_id,
        recorded=told,
        replayed=asked,
        where=where,
    )


def _with_values(command: Command) -> str:
    match command:
        case events.ScheduleActivity():
            return f"{in_words(command)} with {_text(command.args)}"
        case events.ContinueAsNew():
            return f"{in_words(command)} with {_text(command.args)}"
        case events.CompleteRun() | events.CompleteUpdate(result=bytes()):
            return f"{in_words(command)} with {_text(command.result or b'')}"
        case events.UpsertSearchAttributes():
            return f"{in_words(command)} with {[each.value for each in command.attributes]!r}"[:VALUE_MAX]
        case events.UpsertMemo():
            return f"{in_words(command)} with {_text(command.memo)}"
        case _:
            return in_words(command)


def _text(payload: bytes) -> str:
    text = failures.cut(payload.decode("utf-8", "replace"))
    return text if len(text) <= VALUE_MAX else f"{text[:VALUE_MAX]}..."


def _patch_name(replayed: Asked | None) -> str:
    if replayed is not None and isinstance(replayed.command, events.ScheduleActivity):
        return f"{replayed.command.activity_type.replace('_', '-')}-added"
    return "my-change"
