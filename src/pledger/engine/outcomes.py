"""What becomes of an attempt that has ended: its outcome goes to its run, or a next attempt to the queue."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from pledger.engine import task_rows
from pledger.engine.port.operations import FinishTask, PutTask
from pledger.engine.task_rows import TaskRows, encode_record, queued_row
from pledger.engine.verdicts import GiveUp, Retry, after_failure
from pledger.history.events import ActivityCompleted, ActivityFailed
from pledger.history.failures import Failure, is_benign

if TYPE_CHECKING:
    from pledger.engine.attempt import Attempt
    from pledger.engine.port.records import AttemptRecord
    from pledger.engine.session import LedgerClock

logger = logging.getLogger("pledger.engine")

#: The type of the failure of an attempt that a shutdown cut short.
SHUTDOWN: Final = "WorkerShutdown"


class Runs(task_rows.Runs, Protocol):
    """What activities tell the runs of this worker."""

    def outcome(
        self, attempt: Attempt, outcome: ActivityCompleted | ActivityFailed, *, fence: int | None, row: bool
    ) -> bool:
        """Hand an outcome to a run that this worker owns; False when it does not own it, or not under this fence.
        row: it has a task row."""
        ...

    def published(self, chain_key: int) -> None:
        """An attempt has published something to the streams of the chain."""
        ...


class Outcomes:
    """rows, runs: of the same worker. session_key: of the session that it has now."""

    def __init__(
        self,
        *,
        rows: TaskRows,
        runs: Runs,
        clock: LedgerClock,
        randomness: random.Random,
        session_key: Callable[[], int],
    ) -> None:
        self._rows = rows
        self._runs = runs
        self._clock = clock
        self._random = randomness
        self._session_key = session_key

    def failed(self, attempt: Attempt, failure: Failure) -> None:
        """It has brought no result: there is a next attempt, or that is the outcome."""
        now_ms = self._clock.now_ms()
        verdict = after_failure(
            attempt.command,
            attempt=attempt.number,
            failure=failure,
            scheduled_ms=attempt.scheduled_ms,
            now_ms=now_ms,
            last_failure=attempt.last_failure,
            draw=self._random.random(),
            cancel_requested=attempt.cancel_requested,
        )
        outcome = {"timeout": "timed_out", "cancelled": "cancelled", "worker_lost": "lost"}.get(failure.kind, "failed")
        records = (self._rows.record(attempt, outcome, failure),)
        _log_failure(attempt, failure, verdict, now_ms)
        match verdict:
            case GiveUp():
                failed = ActivityFailed(attempt.event_id, verdict.failure, verdict.retry_state, attempt.number)
                self.deliver(attempt, failed, records)
            case Retry():
                self._requeue(attempt, verdict.due_ms, attempt.number + 1, verdict.failure, records)

    def deliver(
        self, attempt: Attempt, outcome: ActivityCompleted | ActivityFailed, records: tuple[AttemptRecord, ...]
    ) -> None:
        """Bring the outcome to the run: directly when it is ours, through the task row when it is not."""
        row = attempt.row
        # The row of an attempt with a transaction decides, in the same commit as the transaction: nothing goes past it.
        in_row = attempt.definition.transaction is not None
        # What began under an earlier lease has been counted as lost; the run may be ours again, the attempt is not.
        ours = row is None or row.owner == self._session_key()
        fence = attempt.fence if row is None else None
        has_row = row is not None or attempt.row_sent
        if ours and not in_row and self._runs.outcome(attempt, outcome, fence=fence, row=has_row):
            if records:
                self._rows.log(*records)
            return
        if row is None or row.owner is None:
            return  # the run was taken over meanwhile: its new owner has counted this attempt as lost
        finish = FinishTask(
            attempt.run_key, attempt.event_id, attempt.number, row.owner, encode_record(outcome), None, records
        )
        self._rows.finish(attempt, finish)

    def _requeue(
        self,
        attempt: Attempt,
        due_ms: int,
        number: int,
        failure: Failure,
        records: tuple[AttemptRecord, ...],
    ) -> None:
        task = queued_row(
            attempt.identity,
            attempt.run_key,
            attempt.event_id,
            attempt.command,
            number=number,
            due_ms=due_ms,
            scheduled_ms=attempt.scheduled_ms,
            heartbeat=attempt.heartbeat,
            last_failure=failure,
            run_deadline_ms=attempt.run_deadline_ms,
        )
        if attempt.row is not None and attempt.row.owner is not None:
            finish = FinishTask(
                attempt.run_key, attempt.event_id, attempt.number, attempt.row.owner, None, task, records
            )
            self._rows.finish(attempt, finish)
        else:
            self._rows.put(PutTask(attempt.fence, task, records))


def _log_failure(attempt: Attempt, failure: Failure, verdict: GiveUp | Retry, now_ms: int) -> None:
    """One line for the people who watch the worker; the ledger's attempt log has the rest."""
    who, name = attempt.identity, attempt.command.activity_type
    if isinstance(verdict, Retry):
        then = f"attempt {attempt.number + 1} in {max(0, verdict.due_ms - now_ms) / 1000:g} s"
    else:
        then = f"given up ({verdict.retry_state})"
    # A shutdown says in one line how many attempts it cut short; which ones is for those who look closely.
    level = logging.INFO if failure.type == SHUTDOWN else logging.DEBUG if is_benign(failure) else logging.WARNING
    logger.log(
        level,
        "activity %s of %s: attempt %d: %s: %s; %s",
        name,
        who,
        attempt.number,
        failure.type,
        failure.message,
        then,
        extra={"workflow_id": who.workflow_id, "run_id": who.run_id, "activity": name, "attempt": attempt.number},
    )
