"""Reverts of how attempts are started, counted and ended."""

from __future__ import annotations

from typing import Any

import pytest

from pledger.engine import intake
from pledger.engine.active_run import ActiveRun
from pledger.engine.activities import Activities
from pledger.engine.attempt import Attempt
from pledger.engine.loading import Loader
from pledger.engine.outcomes import Outcomes
from pledger.engine.port.operations import PutTask
from pledger.engine.port.records import TaskRow
from pledger.engine.runs import Runs
from pledger.engine.task_rows import TaskRows, queued_row
from pledger.history.events import ScheduleActivity
from pledger.store.memory import State, tasks
from pledger.testing import Faults
from tests.simulation.reverts.revert import DEATHS, JUMPS, RETRIES_LOST, Revert


def lost_attempts_do_not_count(patch: pytest.MonkeyPatch) -> None:
    def start_claimed(self: Activities, row: TaskRow, identity: Any) -> None:
        self._start(self._claimed(row, identity)[0])

    patch.setattr(Activities, "start_claimed", start_claimed)


def lost_eager_attempts_do_not_count(patch: pytest.MonkeyPatch) -> None:
    def lost(self: Loader, run: ActiveRun, event_id: int, command: ScheduleActivity, scheduled_ms: int) -> None:
        now_ms = self._clock.now_ms()
        row = queued_row(
            run.identity, run.run_key, event_id, command, number=1, due_ms=now_ms, scheduled_ms=scheduled_ms
        )
        self._activities.rows.put(PutTask(run.fence, row, []))

    patch.setattr(Loader, "_lost", lost)


def effects_before_their_intent(patch: pytest.MonkeyPatch) -> None:
    def activate(self: Runs, run: ActiveRun, now_ms: int) -> None:
        built = self.transition(run, now_ms)
        if built is not None:
            run.in_flight = True
            for event_id, command in built.eager:
                self.activities.start_eager(run.run_key, run.fence, run.identity, event_id, command, run.time_ms)
            built.eager.clear()
            self._committer.submit(built.append, built.settle)

    patch.setattr(Runs, "_activate", activate)


def outcomes_of_an_earlier_lease_count(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Activities, "stop_claimed", lambda self, reason: None)
    outcome_rule = Runs.outcome

    def outcome(self: Runs, attempt: Attempt, outcome: Any, *, fence: int | None, row: bool) -> bool:
        return outcome_rule(self, attempt, outcome, fence=None, row=row)

    patch.setattr(Runs, "outcome", outcome)
    rule = Outcomes.deliver

    def deliver(self: Outcomes, attempt: Attempt, outcome: Any, records: Any) -> None:
        before, row = self._session_key, attempt.row
        self._session_key = before if row is None else lambda: row.owner
        try:
            rule(self, attempt, outcome, records)
        finally:
            self._session_key = before

    patch.setattr(Outcomes, "deliver", deliver)


def retries_are_put_back_after_their_outcome(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Runs, "awaits", lambda self, run_key, fence, event_id: True)


def cancelled_attempts_are_put_back(patch: pytest.MonkeyPatch) -> None:
    rule = tasks.change_tasks

    def change_tasks(state: State, run_key: int, put: Any, dropped: Any, cancelled: Any) -> None:
        for row in put:
            state.tasks.get(run_key, {}).pop(row.event_id, None)
        rule(state, run_key, put, dropped, cancelled)

    patch.setattr(tasks, "change_tasks", change_tasks)


def cancelled_attempts_without_a_row_get_none(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Activities, "unwritten_row", lambda self, run_key, fence, event_id: None)


def what_is_repeated_hides_a_later_attempt(patch: pytest.MonkeyPatch) -> None:
    """While a row is being written again, an attempt of it that was claimed and not heard of is not looked for."""
    patch.setattr(TaskRows, "is_overtaking", lambda self, row: (row.run_key, row.event_id) in self.unwritten)


def what_has_changed_is_not_looked_for(patch: pytest.MonkeyPatch) -> None:
    """An attempt that was claimed and not heard of is let alone when its row is not the same any more."""
    patch.setattr(intake, "_is_same_attempt", lambda now, task: now == task)


CANCELLING = ("giving-up",) * 6
TRIED_AGAIN = ("what is cancelled is not tried again",)

REVERTS = [
    Revert(
        lost_attempts_do_not_count,
        ("attempts are counted", "never more than maximum_attempts", "what is cancelled is not tried again"),
        DEATHS,
    ),
    Revert(lost_eager_attempts_do_not_count, ("attempts are counted",), DEATHS),
    Revert(effects_before_their_intent, ("intent before effect",)),
    Revert(
        outcomes_of_an_earlier_lease_count,
        # Or what comes of it: the run takes the failure of an attempt that others have repeated for its own.
        ("late outcomes are refused", "one outcome per position", "beating-1 ended as failed"),
        JUMPS,
        ("beating", "race-won"),
    ),
    Revert(
        retries_are_put_back_after_their_outcome, ("attempts are counted", "one outcome per position"), RETRIES_LOST
    ),
    Revert(
        what_is_repeated_hides_a_later_attempt,
        ("everything finishes",),
        Faults(reply_lost=0.3, effect_refused=0.5),
        ("retrying", "giving-up") * 3,
    ),
    Revert(
        what_has_changed_is_not_looked_for,
        ("everything finishes",),
        Faults(reply_lost=0.3, slow_store=0.5, effect_refused=0.5),
        CANCELLING,
    ),
    Revert(cancelled_attempts_are_put_back, TRIED_AGAIN, Faults(), CANCELLING),
    Revert(cancelled_attempts_without_a_row_get_none, TRIED_AGAIN, Faults(slow_store=0.3), CANCELLING),
]
