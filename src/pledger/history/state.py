"""The fold from a history to the state of its run: what is pending, what it waits for, how it ended.

For reading and for checks; the machine itself goes by replay. The transitions that are possible stand in `_APPLY`: an
event type without an entry does not type-check into a history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from pledger.history import events, memos, resets
from pledger.history.attributes import AttributeRecord, merged
from pledger.history.events import Event
from pledger.history.failures import Failure
from pledger.history.transition import Transition

Status: TypeAlias = Literal[
    "running", "completed", "failed", "cancelled", "terminated", "timed_out", "continued_as_new"
]


@dataclass(slots=True)
class PendingActivity:
    """scheduled_ms: when. cancel_requested: the code no longer wants it."""

    command: events.ScheduleActivity
    scheduled_ms: int
    cancel_requested: bool = False


@dataclass(slots=True)
class PendingTimer:
    """is_deadline: it ends a block of the code; what else is pending is waited for."""

    started_ms: int
    fire_at_ms: int
    is_deadline: bool = False


@dataclass(slots=True)
class OpenPhase:
    """A phase of the work, or a wait that the code has named, see `events.BeginPhase`. begun_ms: since when."""

    begun: events.BeginPhase
    begun_ms: int

    def is_overdue(self, now_ms: int) -> bool:
        return self.begun.deadline_ms is not None and self.begun.deadline_ms <= now_ms


@dataclass(slots=True)
class PendingChild:
    """run_id: of a child that is known to be there. acknowledged_by: the request to cancel whose receipt ends the
    wait."""

    command: events.StartChild
    requested_ms: int
    run_id: str | None = None
    cancel_requested: bool = False
    acknowledged_by: int | None = None


@dataclass(slots=True)
class PendingMessage:
    """One to another run, of which nobody has said yet what became of it."""

    command: events.SendSignal | events.SendCancel
    sent_ms: int


@dataclass(slots=True)
class Update:
    """accepted_event_id, accepted_ms: where and when it was. completed: None while its handler is at work."""

    command: events.UpdateAccepted
    accepted_event_id: int
    accepted_ms: int
    completed: events.CompleteUpdate | None = None


@dataclass(slots=True)
class RunState:
    """What a history amounts to. Pending things are keyed by the event that asked for them.

    result: JSON of a completed run. failure: of one that ended badly. closed_ms: None while it is open. owner: who
    answers for it, or None when nobody was named. link: to the runs before it; successor: what goes on for it; resets:
    where it took over from other runs, the newest last.
    phases: those that are not over, the outermost first.
    updates: all that were accepted, by their ids.
    search_attributes: by name. memo: the JSON of each value, by name.
    activities_done, activities_failed, signals, timers_fired: counts. just_ended: activities whose outcome came in the
    newest transition. parent: of a child. children: those that it waits for. children_started, children_done,
    children_failed: counts.
    """

    status: Status = "running"
    workflow_type: str = ""
    args: bytes = b"[]"
    started_ms: int = 0
    closed_ms: int | None = None
    deadline_ms: int | None = None
    owner: str | None = None
    link: events.ChainLink | None = None
    successor: events.ContinueAsNew | None = None
    result: bytes | None = None
    failure: Failure | None = None
    reason: str = ""
    resets: list[events.RunReset] = field(default_factory=list)
    activities: dict[int, PendingActivity] = field(default_factory=dict)
    timers: dict[int, PendingTimer] = field(default_factory=dict)
    phases: dict[int, OpenPhase] = field(default_factory=dict)
    patches: set[str] = field(default_factory=set)
    updates: dict[str, Update] = field(default_factory=dict)
    search_attributes: dict[str, AttributeRecord] = field(default_factory=dict)
    memo: dict[str, bytes] = field(default_factory=dict)
    cancel_requests: list[events.CancelRequested] = field(default_factory=list)
    codes: list[str] = field(default_factory=list)
    last_event: int = 0
    last_ms: int = 0
    activities_done: int = 0
    activities_failed: int = 0
    timers_fired: int = 0
    signals: int = 0
    parent: events.Parent | None = None
    children: dict[int, PendingChild] = field(default_factory=dict)
    messages: dict[int, PendingMessage] = field(default_factory=dict)
    children_started: int = 0
    children_done: int = 0
    children_failed: int = 0
    just_ended: set[int] = field(default_factory=set, repr=False, compare=False)


class ImpossibleEventError(ValueError):
    """The event cannot follow: the history is not one that this engine wrote."""


def fold(transitions: Iterable[Transition], state: RunState | None = None) -> RunState:
    """The state after the transitions, from the beginning or from `state` (which is changed and returned).

    Raises ImpossibleEventError for an event that cannot follow: anything after the end, an outcome of what is not
    pending, a second start.
    """
    state = state or RunState()
    for transition in transitions:
        state.last_ms = transition.time_ms
        state.just_ended.clear()
        if transition.code is not None and (not state.codes or state.codes[-1] != transition.code):
            state.codes.append(transition.code)
        for event in transition.events():
            apply(state, event)
    return state


def apply(state: RunState, event: Event) -> None:
    """Take one event in; its id is the next one. `state.last_ms` is its time."""
    state.last_event += 1
    if state.status != "running":
        raise ImpossibleEventError(f"event {state.last_event} ({events.event_type(event)}) follows the end of the run")
    begins = isinstance(event, events.RunStarted)
    ends_unbegun = state.last_event == 1 and isinstance(event, events.RunTerminated | events.RunTimedOut)
    if (state.last_event == 1) != (begins or ends_unbegun):
        raise ImpossibleEventError(f"event {state.last_event} is {events.event_type(event)}")
    _APPLY[type(event)](state, event)


def _started(state: RunState, event: events.RunStarted) -> None:
    state.workflow_type, state.args, state.started_ms = event.workflow_type, event.args, state.last_ms
    state.deadline_ms, state.owner, state.link = event.deadline_ms, event.owner, event.link
    state.parent = event.parent
    state.search_attributes = merged({}, event.search_attributes or ())
    state.memo = memos.read(event.memo)


def _scheduled(state: RunState, event: events.ScheduleActivity) -> None:
    state.activities[state.last_event] = PendingActivity(event, state.last_ms)


def _activity_cancel(state: RunState, event: events.CancelActivity) -> None:
    pending = state.activities.get(event.scheduled_event_id)
    if pending is None:
        if event.scheduled_event_id in state.just_ended:
            return  # the code gave up on it, and its outcome came in the same transition
        raise ImpossibleEventError(f"event {state.last_event} cancels event {event.scheduled_event_id}, not pending")
    pending.cancel_requested = True
    if pending.command.options.cancellation == "try":
        del state.activities[event.scheduled_event_id]


def _completed(state: RunState, event: events.ActivityCompleted) -> None:
    # An outcome may meet a cancellation of the same transition; then nobody waited any more.
    if state.activities.pop(event.scheduled_event_id, None) is not None:
        state.activities_done += 1
        state.just_ended.add(event.scheduled_event_id)


def _failed(state: RunState, event: events.ActivityFailed) -> None:
    if state.activities.pop(event.scheduled_event_id, None) is not None:
        state.activities_failed += 1
        state.just_ended.add(event.scheduled_event_id)


def _timer(state: RunState, event: events.StartTimer) -> None:
    state.timers[state.last_event] = PendingTimer(state.last_ms, event.fire_at_ms, type(event) is events.StartDeadline)


def _fired(state: RunState, event: events.TimerFired) -> None:
    if state.timers.pop(event.started_event_id, None) is not None:
        state.timers_fired += 1


def _timer_cancelled(state: RunState, event: events.CancelTimer) -> None:
    state.timers.pop(event.started_event_id, None)


def _signal(state: RunState, _: events.SignalReceived) -> None:
    state.signals += 1


def _update(state: RunState, event: events.UpdateAccepted) -> None:
    if event.update_id in state.updates:
        raise ImpossibleEventError(f"event {state.last_event} accepts the update {event.update_id!r} once more")
    state.updates[event.update_id] = Update(event, state.last_event, state.last_ms)


def _update_completed(state: RunState, event: events.CompleteUpdate) -> None:
    update = state.updates.get(event.update_id)
    if update is None or update.completed is not None:
        raise ImpossibleEventError(f"event {state.last_event} completes the update {event.update_id!r}, not at work")
    update.completed = event


def _cancel(state: RunState, event: events.CancelRequested) -> None:
    state.cancel_requests.append(event)


def _patch(state: RunState, event: events.RecordPatch) -> None:
    state.patches.add(event.patch_id)


def _phase_begun(state: RunState, event: events.BeginPhase) -> None:
    state.phases[state.last_event] = OpenPhase(event, state.last_ms)


def _phase_ended(state: RunState, event: events.EndPhase) -> None:
    # Code that has changed meanwhile may end one that the code before it had ended.
    state.phases.pop(event.begun_event_id, None)


def _start_child(state: RunState, event: events.StartChild) -> None:
    state.children[state.last_event] = PendingChild(event, state.last_ms)


# As for outcomes of activities: what is told of a child that nobody waits for any more is no news.


def _child_started(state: RunState, event: events.ChildStarted) -> None:
    state.children_started += 1
    if (child := state.children.get(event.started_event_id)) is not None:
        child.run_id = event.run_id


def _child_start_failed(state: RunState, event: events.ChildStartFailed) -> None:
    state.children.pop(event.started_event_id, None)


def _child_closed(state: RunState, event: events.ChildClosed) -> None:
    if state.children.pop(event.started_event_id, None) is not None:
        state.children_done += event.status == "completed"
        state.children_failed += event.status != "completed"


def _child_cancel(state: RunState, event: events.CancelChild) -> None:
    child = state.children.get(event.started_event_id)
    if child is not None:
        child.cancel_requested = True
        if event.is_acknowledged:
            child.acknowledged_by = state.last_event
        if child.command.cancellation == "try_cancel":
            del state.children[event.started_event_id]


def _sent(state: RunState, event: events.SendSignal | events.SendCancel) -> None:
    state.messages[state.last_event] = PendingMessage(event, state.last_ms)


def _settled(state: RunState, event: events.MessageDelivered | events.MessageRefused) -> None:
    if state.messages.pop(event.sent_event_id, None) is None:
        for event_id, child in state.children.items():
            if child.acknowledged_by == event.sent_event_id:
                del state.children[event_id]
                break


def _reset(state: RunState, event: events.RunReset) -> None:
    state.resets.append(event)
    state.deadline_ms = event.deadline_ms
    for event_id, pending in state.activities.items():
        pending.command = resets.taken_over(pending.command, event_id, event)
        pending.scheduled_ms = state.last_ms


def _upsert_attributes(state: RunState, event: events.UpsertSearchAttributes) -> None:
    state.search_attributes = merged(state.search_attributes, event.attributes)


def _upsert_memo(state: RunState, event: events.UpsertMemo) -> None:
    state.memo = memos.merged(state.memo, memos.read(event.memo))


def _close(state: RunState, status: Status) -> None:
    state.status, state.closed_ms = status, state.last_ms
    state.activities.clear()
    state.timers.clear()
    state.phases.clear()
    state.children.clear()
    state.messages.clear()


def _complete(state: RunState, event: events.CompleteRun) -> None:
    _close(state, "completed")
    state.result = event.result


def _fail(state: RunState, event: events.FailRun) -> None:
    _close(state, "failed")
    state.failure = event.failure


def _cancelled(state: RunState, event: events.CancelRun) -> None:
    _close(state, "cancelled")
    state.failure = event.failure


def _continued(state: RunState, event: events.ContinueAsNew) -> None:
    _close(state, "continued_as_new")
    state.successor = event


def _terminated(state: RunState, event: events.RunTerminated) -> None:
    _close(state, "terminated")
    state.reason = event.reason


def _timed_out(state: RunState, _: events.RunTimedOut) -> None:
    _close(state, "timed_out")


_APPLY: dict[type[Event], Callable[[RunState, Any], None]] = {
    events.RunStarted: _started,
    events.ActivityCompleted: _completed,
    events.ActivityFailed: _failed,
    events.TimerFired: _fired,
    events.SignalReceived: _signal,
    events.UpdateAccepted: _update,
    events.CompleteUpdate: _update_completed,
    events.CancelRequested: _cancel,
    events.RunTerminated: _terminated,
    events.RunTimedOut: _timed_out,
    events.ChildStarted: _child_started,
    events.ChildStartFailed: _child_start_failed,
    events.ChildClosed: _child_closed,
    events.MessageDelivered: _settled,
    events.MessageRefused: _settled,
    events.RunReset: _reset,
    events.ScheduleActivity: _scheduled,
    events.CancelActivity: _activity_cancel,
    events.StartTimer: _timer,
    events.StartDeadline: _timer,
    events.CancelTimer: _timer_cancelled,
    events.RecordPatch: _patch,
    events.BeginPhase: _phase_begun,
    events.EndPhase: _phase_ended,
    events.StartChild: _start_child,
    events.CancelChild: _child_cancel,
    events.SendSignal: _sent,
    events.SendCancel: _sent,
    events.UpsertSearchAttributes: _upsert_attributes,
    events.UpsertMemo: _upsert_memo,
    events.CompleteRun: _complete,
    events.FailRun: _fail,
    events.CancelRun: _cancelled,
    events.ContinueAsNew: _continued,
}
