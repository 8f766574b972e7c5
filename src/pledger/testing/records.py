"""Histories as the auditor saw them grow: what may be in one once, what has to come before what."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pledger.history import events, transition
from pledger.history.state import ImpossibleEventError, RunState, fold

if TYPE_CHECKING:
    from collections.abc import Callable

    from pledger.engine.port.operations import ResetRun
    from pledger.history.transition import StoredTransition, Transition
    from pledger.testing.findings import Findings
    from pledger.testing.views import View


@dataclass(slots=True)
class Record:
    """One run's history as the auditor saw it grow. outcomes, fired: positions that have their one answer.

    messages: where each message was delivered, by its id. last_attempts: of the activities that the run has cancelled,
    the attempt that may still begin or go on. notices: what other runs, or the store, have told it. heads: the
    checksums of all its transitions.
    """

    run_id: str
    head: bytes = transition.CHAIN_START
    heads: set[bytes] = field(default_factory=set)
    state: RunState = field(default_factory=RunState)
    scheduled: dict[int, events.ScheduleActivity] = field(default_factory=dict)
    timers: dict[int, int] = field(default_factory=dict)
    outcomes: dict[int, events.ActivityCompleted | events.ActivityFailed] = field(default_factory=dict)
    fired: set[int] = field(default_factory=set)
    messages: dict[str, int] = field(default_factory=dict)
    last_attempts: dict[int, int] = field(default_factory=dict)
    notices: set[str] = field(default_factory=set)
    children: dict[int, events.StartChild] = field(default_factory=dict)

    def has_head(self, head: bytes) -> bool:
        """Whether its history was ever as long as that."""
        return head == transition.CHAIN_START or head in self.heads


class Records:
    """by_run: by run_key. forgotten: the runs that retention took. findings: where to say what was looked at and what
    broke it. latest_ms: the latest time that the store's clock has shown."""

    def __init__(self, findings: Findings, latest_ms: Callable[[], int]) -> None:
        self.by_run: dict[int, Record] = {}
        self.forgotten: set[int] = set()
        self._findings = findings
        self._latest_ms = latest_ms

    def reset(self, operation: ResetRun, run_key: int, view: View) -> None:
        """A run goes on from a part of another one's history."""
        self._findings.checks("a reset takes over what is there", "terminal states absorb")
        record = self.by_run.get(run_key)
        if record is not None and record.run_id == operation.run_id:
            return  # it is told again, to one who has lost the answer
        newest = self.by_run[operation.newest_key]
        if operation.closing is not None:
            if newest.state.status != "running":
                self._findings.violated("terminal states absorb", f"a reset ends run {newest.run_id} once more")
                return
            self.extend(operation.newest_key, operation.closing, operation.newest_event + 1)
        base = self.by_run[operation.base_key]
        if (base.state.status == "running") or not base.has_head(operation.head):
            self._findings.violated(
                "a reset takes over what is there", f"run {operation.run_id} begins with what run {base.run_id} has not"
            )
        self.by_run[run_key] = new = Record(operation.run_id)
        for stored in view.history(run_key):
            self.extend(run_key, stored, stored.first_event_id + len(transition.decode(stored.body).events()) - 1)
        if new.head != operation.head:
            self._findings.violated("a reset takes over what is there", f"run {operation.run_id} lacks some of it")
        self.check_status(run_key, view)

    def extend(self, run_key: int, stored: StoredTransition, last_event: int) -> None:
        record = self.by_run[run_key]
        first = record.state.last_event + 1
        self._findings.checks("gap-free history", "chained checksums", "time goes forward", "the fold accepts it")
        if stored.first_event_id != first:
            self._findings.violated(
                "gap-free history", f"run {run_key}: event {stored.first_event_id} follows {first - 1}"
            )
            return
        if stored.checksum != transition.checksum(record.head, first, stored.body):
            self._findings.violated(
                "chained checksums", f"run {run_key}: the transition at event {first} breaks the chain"
            )
        record.head = stored.checksum
        record.heads.add(stored.checksum)
        found = transition.decode(stored.body)
        self._look_at(record, found, first)
        if found.time_ms < record.state.last_ms:
            self._findings.violated(
                "time goes forward", f"run {run_key}: {found.time_ms} follows {record.state.last_ms}"
            )
        try:
            fold([found], record.state)
        except ImpossibleEventError as error:
            self._findings.violated("the fold accepts it", f"run {run_key}: {error}")
        if record.state.last_event != last_event:
            self._findings.violated("gap-free history", f"run {run_key}: {last_event} is not {record.state.last_event}")

    def _look_at(self, record: Record, found: Transition, first: int) -> None:  # noqa: C901 - a line for each kind
        for event_id, event in enumerate(found.events(), first):
            match event:
                case events.ScheduleActivity():
                    record.scheduled[event_id] = event
                case events.StartChild():
                    record.children[event_id] = event
                case events.StartTimer():
                    record.timers[event_id] = event.fire_at_ms
                case events.ActivityCompleted() | events.ActivityFailed():
                    self._look_at_outcome(record, event)
                case events.TimerFired():
                    self._look_at_timer(record, event.started_event_id)
                case events.SignalReceived():
                    self._look_at_message(record, event.message_id, event_id)
                case events.CancelRequested():
                    self._look_at_message(record, event.request_id, event_id)
                case events.ChildStarted() | events.ChildStartFailed():
                    self._look_at_notice(record, "the start", event.started_event_id)
                case events.ChildClosed():
                    self._look_at_notice(record, "the end", event.started_event_id)
                case events.MessageDelivered() | events.MessageRefused():
                    self._look_at_notice(record, "the message", event.sent_event_id)
                case _:
                    pass

    def _look_at_outcome(self, record: Record, outcome: events.ActivityCompleted | events.ActivityFailed) -> None:
        position = outcome.scheduled_event_id
        self._findings.checks("one outcome per position")
        if position in record.outcomes:
            self._findings.violated("one outcome per position", f"{record.run_id}: a second one for event {position}")
        if position not in record.scheduled:
            self._findings.violated(
                "one outcome per position", f"{record.run_id}: one for event {position}, never scheduled"
            )
        record.outcomes[position] = outcome

    def _look_at_timer(self, record: Record, position: int) -> None:
        self._findings.checks("timers fire once", "timers never early")
        due_ms = record.timers.get(position)
        if due_ms is None or position in record.fired:
            self._findings.violated("timers fire once", f"{record.run_id}: the timer of event {position}")
        elif (shown_ms := self._latest_ms()) < due_ms:
            self._findings.violated(
                "timers never early",
                f"{record.run_id}: the timer of event {position} is due at {due_ms}, the store shows {shown_ms}",
            )
        record.fired.add(position)

    def _look_at_message(self, record: Record, message_id: str, event_id: int) -> None:
        self._findings.checks("messages are delivered once")
        if message_id in record.messages:
            self._findings.violated(
                "messages are delivered once", f"{record.run_id}: {message_id} at {event_id}, and before"
            )
        record.messages[message_id] = event_id

    def _look_at_notice(self, record: Record, what: str, position: int) -> None:
        if not position:
            return  # meant for a run of its chain before it, which can have asked for many things
        self._findings.checks("notices come once")
        notice = f"{what} of {position}"
        if notice in record.notices:
            self._findings.violated("notices come once", f"{record.run_id} is told twice of {notice}")
        record.notices.add(notice)

    def check_status(self, run_key: int, view: View) -> None:
        self._findings.checks("row and history agree")
        row, recorded = view.run(run_key), self.by_run[run_key].state.status
        shown = None if row is None else row.status
        if shown != recorded:
            self._findings.violated(
                "row and history agree", f"run {run_key} is {shown} in its row, {recorded} in its history"
            )
