"""Watches that what is paused stands still: nobody takes it, and an owner that knows of the pause lets go of it.

An owner knows of a pause once it has had the answer to a look. What it had in flight then may still be written: one
transition of each run, and nothing that this schedules begins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pledger.engine.port.records import RunRow, TaskRow
from pledger.history import events, transition

if TYPE_CHECKING:
    from pledger.engine.attempt import Attempt
    from pledger.engine.port.operations import Append
    from pledger.engine.port.pauses import Pause
    from pledger.engine.port.records import Outlook
    from pledger.testing.findings import Findings
    from pledger.testing.process import Process
    from pledger.testing.views import View


class Stillness:
    """findings: where to say what was looked at and what broke it."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._known: dict[int, Outlook] = {}
        self._told: dict[int, tuple[tuple[Pause, ...], tuple[int, ...]]] = {}
        self._in_flight: dict[int, tuple[RunRow, int]] = {}
        self._unstarted: dict[tuple[int, int], RunRow] = {}

    def told(self, process: Process, session_key: int, outlook: Outlook) -> None:
        """A session has had the answer to a look. What it does about that comes with the next turn of its loop."""
        said = (outlook.pauses, outlook.paused)
        if self._told.get(session_key, ((), ())) == said:
            return  # it knows, or is about to
        self._told[session_key] = said
        loop = process.loop
        loop.call_soon(lambda: loop.call_soon(lambda: self._knows(session_key, outlook)))

    def _knows(self, session_key: int, outlook: Outlook) -> None:
        self._known[session_key] = outlook
        # Of a run that is paused no more, what is written counts for nothing.
        for run_key, (run, _) in [*self._in_flight.items()]:
            if run.owner == session_key and not _covers(outlook, run):
                del self._in_flight[run_key]
        for place, run in [*self._unstarted.items()]:
            if run.owner == session_key and not _covers(outlook, run):
                del self._unstarted[place]

    def look_at_claim(self, row: RunRow | TaskRow, view: View) -> None:
        for pause in view.pauses():
            self._findings.checks("what is paused is not taken")
            is_its = pause.scope.namespace == row.namespace and pause.rate is None
            if is_its and pause.covers(row.run_key, row.workflow_type, row.task_queue):
                what = f"{row.workflow_id}, while {pause.scope} is paused"
                self._findings.violated("what is paused is not taken", what)

    def look_at_append(self, append: Append, before: RunRow | None) -> None:
        outlook = None if before is None or before.owner is None else self._known.get(before.owner)
        if outlook is not None and (outlook.paused or outlook.pauses):
            self._findings.checks("what is paused stands still")
        if before is None or before.owner is None or outlook is None or not _covers(outlook, before):
            return
        first_event = append.transition.first_event_id
        run, in_flight = self._in_flight.get(before.run_key, (before, first_event))
        if run.owner != before.owner:
            in_flight = first_event
        elif in_flight != first_event:  # written once more, since its answer was lost, it is the same one
            what = f"{before.workflow_id} goes on at event {first_event}"
            self._findings.violated("what is paused stands still", what)
        self._in_flight[before.run_key] = (before, in_flight)
        found = transition.decode(append.transition.body)
        for event_id, event in enumerate(found.events(), first_event):
            if isinstance(event, events.ScheduleActivity):
                self._unstarted[append.run_key, event_id] = before

    def attempt_began(self, attempt: Attempt, what: str) -> None:
        """Of a row it was looked at when it was claimed; such a one has no fence."""
        if attempt.fence and (attempt.run_key, attempt.event_id) in self._unstarted:
            self._findings.violated("what is paused stands still", f"{what} began beside its run")


def _covers(outlook: Outlook, run: RunRow) -> bool:
    return run.run_key in outlook.paused or any(
        each.rate is None and each.covers(run.run_key, run.workflow_type, run.task_queue) for each in outlook.pauses
    )
