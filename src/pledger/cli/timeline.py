"""What happened to one run, as a list that a person can read: one entry for each thing, not for each event. Pure.

An activity, say, is one entry from the event that scheduled it to the one that brought its outcome, with its attempts
inside: the history keeps only the outcome, the attempt log the failures before it, and a task row the attempt to come.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, assert_never

from pledger.cli import words
from pledger.engine.port.records import SIGNAL_HANDLED_LATER, AttemptRecord, TaskRow
from pledger.history import events, failures, memos
from pledger.history.attributes import shown
from pledger.history.events import Command, Input
from pledger.history.failures import Failure
from pledger.history.transition import Transition

Kind: TypeAlias = Literal[
    "start",
    "activity",
    "timer",
    "signal",
    "update",
    "cancel",
    "child",
    "message",
    "patch",
    "phase",
    "wait",
    "label",
    "code",
    "reset",
    "end",
]

#: What goes on for a while.
_WITH_AN_END: Final = frozenset({"activity", "timer", "phase", "wait", "child", "message", "update"})
#: Characters of one value of a memo.
_MEMO_CHARS: Final = 60


@dataclass(slots=True)
class Entry:
    """event_id: the first of its events. at_ms: when. name: of the workflow, activity, signal, patch, phase, wait or
    code; the reason of a cancellation or termination; of a child its type, of a message to another run what it is; of a
    "label" what the run has said of itself.

    input: its arguments, a JSON array. ended_ms: when its outcome came, None while it is pending or where it has none.
    outcome: "completed", "failed", "cancelled", "fired", "over" (a phase or a wait), "abandoned" (the run closed
    first), "not_handled" of a signal that no handler took; an end's is the run's terminal status; "" while pending.
    result: JSON. failure, retry_state: of what failed; the latter says why there was no further attempt. attempt: how
    many there were. attempts: those on the log. task: its row, while it waits. due_ms: when a timer fires, or a phase
    or a wait is overdue. delay_ms: for how long a timer was set. is_deadline: the timer ends a block. owner: who must
    act in a phase or a wait, or None. workflow_id, run_id: of the child, or of whom a message is for.
    A reset's name is the run that the events before are of, its outcome how it was asked; reason, by: why, and who.
    update_id: of an update.
    """

    event_id: int
    at_ms: int
    kind: Kind
    name: str = ""
    input: bytes | None = None
    ended_ms: int | None = None
    outcome: str = ""
    result: bytes | None = None
    failure: Failure | None = None
    retry_state: str = ""
    attempt: int = 0
    attempts: list[AttemptRecord] = field(default_factory=list)
    task: TaskRow | None = None
    due_ms: int | None = None
    delay_ms: int | None = None
    is_deadline: bool = False
    owner: str | None = None
    workflow_id: str = ""
    run_id: str = ""
    reason: str = ""
    by: str = ""

    update_id: str | None = None

    @property
    def is_pending(self) -> bool:
        return self.kind in _WITH_AN_END and not self.outcome


def timeline(
    transitions: Iterable[Transition], attempts: Sequence[AttemptRecord] = (), tasks: Sequence[TaskRow] = ()
) -> list[Entry]:
    """The entries, in the order of their first events. attempts, tasks: the run's attempt log and its task rows."""
    builder = _Builder()
    for transition in transitions:
        builder.take(transition)
    logged: dict[int, list[AttemptRecord]] = defaultdict(list)
    for record in attempts:
        logged[record.event_id].append(record)
    rows = {task.event_id: task for task in tasks}
    for event_id, entry in builder.by_event.items():
        if entry.kind == "signal":
            _refuse(entry, logged.get(event_id, []))
            continue
        entry.attempts = logged.get(event_id, [])
        if entry.is_pending:
            entry.task = rows.get(event_id)
    return builder.entries


def not_handled(entries: Iterable[Entry]) -> list[Entry]:
    """The signals that no handler took."""
    return [each for each in entries if each.kind == "signal" and each.failure is not None]


def _refuse(signal: Entry, log: Sequence[AttemptRecord]) -> None:
    """A signal that the code took at once has no line in the log."""
    for record in log:
        if record.failure is not None:
            failure = failures.decode(record.failure)
            is_late = failure.type == SIGNAL_HANDLED_LATER
            signal.outcome, signal.failure = ("", None) if is_late else ("not_handled", failure)


class _Builder:
    """by_event: activities, timers, phases and waits, by the event that asked for them, and signals and updates."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.by_event: dict[int, Entry] = {}
        self._awaited_to_the_end: set[int] = set()
        self._updates: dict[str, Entry] = {}
        self._event_id = 0
        self._ms = 0
        self._code: str | None = None

    def take(self, transition: Transition) -> None:
        self._ms = transition.time_ms
        if transition.code is not None:
            if self._code not in (None, transition.code):
                self._add("code", transition.code, event_id=self._event_id + 1)
            self._code = transition.code
        for one in transition.inputs:
            self._event_id += 1
            self._take_input(one)
        for command in transition.commands:
            self._event_id += 1
            self._take_command(command)

    def _take_input(self, event: Input) -> None:  # noqa: C901, PLR0912 - a line for each kind
        match event:
            case events.RunStarted():
                entry = self._add("start", event.workflow_type)
                entry.input, entry.due_ms = event.args, event.deadline_ms
            case events.ActivityCompleted() | events.ActivityFailed():
                self._settle(event)
            case events.TimerFired():
                self._end(event.started_event_id, "fired")
            case events.ChildStarted() | events.ChildStartFailed() | events.ChildClosed():
                self._of_child(event)
            case events.MessageDelivered():
                self._end(event.sent_event_id, "delivered")
            case events.MessageRefused():
                self._end(event.sent_event_id, event.reason)
            case events.SignalReceived():
                entry = self.by_event[self._event_id] = self._add("signal", event.name)
                entry.input = event.args
            case events.UpdateAccepted():
                entry = self.by_event[self._event_id] = self._updates[event.update_id] = self._add("update", event.name)
                entry.input, entry.update_id = event.args, event.update_id
            case events.CancelRequested():
                self._add("cancel", event.reason)
            case events.RunTerminated():
                self._close("terminated", event.reason)
            case events.RunTimedOut():
                self._close("timed_out")
            case events.RunReset():
                entry = self._add("reset", event.base_run_id)
                entry.outcome, entry.reason, entry.by = event.how, event.reason, event.by
            case _:
                assert_never(event)

    def _take_command(self, command: Command) -> None:  # noqa: C901, PLR0912 - a case for each kind
        match command:
            case events.ScheduleActivity():
                self._schedule(command)
            case events.CancelActivity():
                # Where the code goes on at once, that is the end of it; else its outcome will be.
                if command.scheduled_event_id not in self._awaited_to_the_end:
                    self._end(command.scheduled_event_id, "cancelled")
            case events.StartTimer():
                entry = self.by_event[self._event_id] = self._add("timer")
                entry.delay_ms, entry.due_ms = command.delay_ms, command.fire_at_ms
                entry.is_deadline = type(command) is events.StartDeadline
            case events.CancelTimer():
                self._end(command.started_event_id, "cancelled")
            case events.RecordPatch():
                self._add("patch", command.patch_id)
            case events.BeginPhase():
                kind: Kind = "wait" if command.kind == "wait" else "phase"
                entry = self.by_event[self._event_id] = self._add(kind, command.name)
                entry.owner, entry.due_ms = command.owner, command.deadline_ms
            case events.EndPhase():
                self._end(command.begun_event_id, "over")
            case events.StartChild():
                entry = self.by_event[self._event_id] = self._add("child", command.workflow_type)
                entry.input, entry.workflow_id = command.args, command.workflow_id
            case events.CancelChild():
                entry = self.by_event[self._event_id] = self._add("message", "cancel")
                entry.workflow_id, entry.outcome = command.workflow_id, "" if command.is_acknowledged else "sent"
            case events.SendSignal() | events.SendCancel():
                what = f"signal {command.name}" if isinstance(command, events.SendSignal) else "cancel"
                entry = self.by_event[self._event_id] = self._add("message", what)
                entry.input = command.args if isinstance(command, events.SendSignal) else None
                entry.workflow_id, entry.run_id = command.workflow_id, command.run_id or ""
            case events.CompleteUpdate():
                entry = self._updates[command.update_id]
                entry.result, entry.failure = command.result, command.failure
                self._end(entry.event_id, "completed" if command.failure is None else "failed")
            case events.UpsertSearchAttributes() | events.UpsertMemo():
                self._add("label", _label(command))
            case _:
                self._take_end(command)

    def _take_end(self, command: events.CompleteRun | events.FailRun | events.CancelRun | events.ContinueAsNew) -> None:
        match command:
            case events.CompleteRun():
                self._close("completed").result = command.result
            case events.FailRun():
                self._close("failed").failure = command.failure
            case events.CancelRun():
                self._close("cancelled").failure = command.failure
            case events.ContinueAsNew():
                self._close("continued_as_new").input = command.args
            case _:
                assert_never(command)

    def _schedule(self, command: events.ScheduleActivity) -> None:
        entry = self.by_event[self._event_id] = self._add("activity", command.activity_type)
        entry.input = command.args
        if command.options.cancellation == "wait":
            self._awaited_to_the_end.add(self._event_id)

    def _add(self, kind: Kind, name: str = "", *, event_id: int | None = None) -> Entry:
        entry = Entry(event_id or self._event_id, self._ms, kind, name)
        self.entries.append(entry)
        return entry

    def _settle(self, event: events.ActivityCompleted | events.ActivityFailed) -> None:
        entry = self.by_event[event.scheduled_event_id]
        if not entry.is_pending:
            return  # the code had let go of it in the same transition: that is what it saw
        entry.attempt = event.attempt
        if isinstance(event, events.ActivityCompleted):
            entry.result = event.result
            self._end(entry.event_id, "completed")
        else:
            entry.failure, entry.retry_state = event.failure, event.retry_state
            self._end(entry.event_id, "cancelled" if event.retry_state == "cancelled" else "failed")

    def _of_child(self, event: events.ChildStarted | events.ChildStartFailed | events.ChildClosed) -> None:
        entry = self.by_event.get(event.started_event_id)
        if entry is None or not entry.is_pending:
            return
        match event:
            case events.ChildStarted():
                entry.run_id = event.run_id
            case events.ChildStartFailed():
                entry.run_id = event.run_id
                self._end(entry.event_id, "not_started")
            case events.ChildClosed():
                entry.result, entry.failure = event.result, event.failure
                self._end(entry.event_id, event.status)

    def _end(self, event_id: int, outcome: str) -> None:
        entry = self.by_event.get(event_id)  # none of a notice for another run of the chain
        if entry is not None and entry.is_pending:
            entry.ended_ms, entry.outcome = self._ms, outcome

    def _close(self, outcome: str, reason: str = "") -> Entry:
        for event_id in self.by_event:
            self._end(event_id, "abandoned")
        entry = self._add("end", reason)
        entry.outcome, entry.ended_ms = outcome, self._ms
        return entry


def _label(command: events.UpsertSearchAttributes | events.UpsertMemo) -> str:
    if isinstance(command, events.UpsertSearchAttributes):
        return ", ".join(words.attribute(each.name, shown(each)) for each in command.attributes)
    memo = memos.read(command.memo)
    return ", ".join(f"memo {name} = {words.preview(value, _MEMO_CHARS)}" for name, value in memo.items())
