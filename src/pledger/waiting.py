"""What an open run waits for, in one answer: what, since when, who must act, and what wakes it. Pure.

`pledger show` tells all of it (`cli/waits.py`); this is the first thing that somebody wants to know, for programs too.
A run that stands still is told as that, whatever else it waits for; then the innermost wait that its code has named;
then the activity that it has waited for longest; then the timer that comes first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Literal, TypeAlias

from pledger.history.times import utc

if TYPE_CHECKING:
    from pledger.engine.port.records import TaskRow
    from pledger.history.state import OpenPhase, PendingActivity, RunState
    from pledger.views import Description, WorkerSummary

#: What carries an open run on: a time that comes, a message, an activity's outcome, the worker that holds it, a worker
#: that takes it, or a person who mends or resumes it.
Waker: TypeAlias = Literal["timer", "message", "activity", "lease", "worker", "person"]


@dataclass(frozen=True, slots=True)
class WaitingFor:
    """what: like "activity 'charge_card'" or "wait 'approval'". since: when that began, with zone (UTC).

    waker: what carries the run on; wakes_at: when, where that is known. owner: who must act: that of the wait, else of
    its phase, else of the run; None where nobody is named. deadline: when it should be over, or is; None: it has none.
    overdue: that has passed. phase: the stage that the run is in, or None. problem: why nothing will happen by itself,
    or None.
    """

    what: str
    since: datetime
    waker: Waker
    wakes_at: datetime | None = None
    owner: str | None = None
    deadline: datetime | None = None
    overdue: bool = False
    phase: str | None = None
    problem: str | None = None

    def __str__(self) -> str:
        """One line; times in UTC."""
        told = [f"waits for {self.what} since {_clock(self.since)}"]
        if self.phase is not None:
            told.append(f"in phase {self.phase!r}")
        told.append("nobody is named to act" if self.owner is None else f"{self.owner} must act")
        at = "" if self.wakes_at is None else f" at {_clock(self.wakes_at)}"
        told.append(f"a {self.waker} wakes it{at}" if self.waker != "activity" else f"an activity wakes it{at}")
        if self.deadline is None:
            told.append("no deadline")
        else:
            told.append(f"{'overdue since' if self.overdue else 'due by'} {_clock(self.deadline)}")
        if self.problem is not None:
            told.append(self.problem)
        return "; ".join(told)


def _clock(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M:%SZ}"


def waiting_for(run: Description) -> WaitingFor | None:
    """None for a closed run."""
    if run.summary.closed is not None:
        return None
    found = _standing_still(run) or _named_wait(run) or _activity(run) or _child(run) or _timer(run) or _message(run)
    phase = _innermost(run.state.phases.values(), "phase")
    if phase is not None:
        deadline_ms = phase.begun.deadline_ms
        found = replace(found, phase=phase.begun.name, owner=found.owner or phase.begun.owner)
        if found.deadline is None and deadline_ms is not None:
            found = replace(found, deadline=utc(deadline_ms))
    if found.deadline is None and run.state.deadline_ms is not None:
        found = replace(found, deadline=utc(run.state.deadline_ms))
    is_overdue = found.deadline is not None and found.deadline <= run.now
    return replace(found, owner=found.owner or run.state.owner, overdue=is_overdue)


def _standing_still(run: Description) -> WaitingFor | None:
    if run.blocked is not None:
        return WaitingFor(f"a person: it is blocked by {run.blocked['type']}", utc(run.blocked["at_ms"]), "person")
    lifted = [pause for pause in run.pauses if pause.rate is None]
    if lifted:
        by, reason = lifted[0].paused_by, lifted[0].reason or "no reason was given"
        return WaitingFor(f"a person: it is paused by {by} ({reason})", lifted[0].since, "person")
    due = run.due
    is_due = run.owner is None and due is not None and due <= run.now
    if run.last_event == 0 or is_due:
        since = run.summary.started if due is None else max(due, run.summary.started)
        what = "a worker to start it" if run.last_event == 0 else "a worker to go on"
        return WaitingFor(what, since, "worker", problem=unserved(run.summary.task_queue, run.workers))
    return None


def _named_wait(run: Description) -> WaitingFor | None:
    wait = _innermost(run.state.phases.values(), "wait")
    if wait is None:
        return None
    fires_at_ms = min((each.fire_at_ms for each in run.state.timers.values()), default=None)
    return WaitingFor(
        f"{wait.begun.name!r}",
        utc(wait.begun_ms),
        "message" if fires_at_ms is None else "timer",
        None if fires_at_ms is None else utc(fires_at_ms),
        owner=wait.begun.owner,
        deadline=None if wait.begun.deadline_ms is None else utc(wait.begun.deadline_ms),
        problem=unserved(run.summary.task_queue, run.workers),
    )


def _innermost(phases: Iterable[OpenPhase], kind: str) -> OpenPhase | None:
    found = [each for each in phases if each.begun.kind == kind]
    return found[-1] if found else None


def _activity(run: Description) -> WaitingFor | None:
    if not run.state.activities:
        return None
    event_id, pending = next(iter(run.state.activities.items()))
    task = next((each for each in run.pending if each.event_id == event_id), None)
    queue = pending.command.task_queue or run.summary.task_queue
    others = len(run.state.activities) - 1
    what = f"activity {pending.command.activity_type!r}{f' and {others:,} more' if others else ''}"
    return WaitingFor(
        what,
        utc(pending.scheduled_ms),
        "activity",
        _begins(task, run.now),
        deadline=_whole(pending),
        problem=None if task is not None and task.state == "started" else unserved(queue, run.workers),
    )


def _child(run: Description) -> WaitingFor | None:
    if not run.state.children:
        return None
    child = next(iter(run.state.children.values()))
    others = len(run.state.children) - 1
    what = f"child workflow {child.command.workflow_id!r}{f' and {others:,} more' if others else ''}"
    queue = unserved(child.command.task_queue, run.workers)
    return WaitingFor(what, utc(child.requested_ms), "message", problem=queue)


def _begins(task: TaskRow | None, now: datetime) -> datetime | None:
    """When its next attempt does, where that lies ahead."""
    return utc(task.due_ms) if task is not None and task.state == "queued" and utc(task.due_ms) > now else None


def _whole(pending: PendingActivity) -> datetime | None:
    whole_ms = pending.command.options.schedule_to_close_ms
    return None if whole_ms is None else utc(pending.scheduled_ms + whole_ms)


def _timer(run: Description) -> WaitingFor | None:
    timers = [each for each in run.state.timers.values() if not each.is_deadline]
    if not timers:
        return None
    first = min(timers, key=lambda each: each.fire_at_ms)
    queue = unserved(run.summary.task_queue, run.workers)
    return WaitingFor("its timer", utc(first.started_ms), "timer", utc(first.fire_at_ms), problem=queue)


def _message(run: Description) -> WaitingFor:
    ends = _first_deadline(run.state)
    since = utc(run.state.last_ms) if run.state.last_ms else run.summary.started
    queue = unserved(run.summary.task_queue, run.workers)
    return WaitingFor("a message", since, "message", deadline=ends, problem=queue)


def _first_deadline(state: RunState) -> datetime | None:
    return min((utc(each.fire_at_ms) for each in state.timers.values()), default=None)


def unserved(queue: str, workers: Sequence[WorkerSummary]) -> str | None:
    """That nobody serves the queue, and since when as far as that is known: workers that have ended leave no trace."""
    serving = [each for each in workers if each.task_queue == queue]
    if any(each.live for each in serving):
        return None
    since = f" since {_clock(max(each.expires for each in serving))}" if serving else ""
    return f"no live worker serves task queue {queue!r}{since}"
