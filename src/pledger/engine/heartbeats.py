"""Heartbeats of attempts: noted at once, written to the task row now and then, and what the row answers.

Where its run lives elsewhere, that answer is how an attempt learns that it was cancelled, or lost to another worker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from pledger.engine.port.answers import Reply
from pledger.engine.port.operations import Heartbeat, PutTask
from pledger.engine.verdicts import cancelled

if TYPE_CHECKING:
    from pledger.engine.attempt import Attempt
    from pledger.engine.committer import Committer
    from pledger.engine.port.answers import Answer
    from pledger.engine.port.records import TaskRow
    from pledger.engine.session import LedgerClock
    from pledger.engine.task_rows import TaskRows
    from pledger.history.failures import Failure

#: Heartbeat details are written at most this often, and at least twice within a heartbeat timeout.
HEARTBEAT_FLUSH_MS: Final = 2_000


class Heartbeats:
    """stop: ends an attempt from outside."""

    def __init__(
        self, committer: Committer, clock: LedgerClock, rows: TaskRows, stop: Callable[[Attempt, Failure], None]
    ) -> None:
        self._committer = committer
        self._clock = clock
        self._rows = rows
        self._stop = stop

    def beat(self, attempt: Attempt) -> None:
        """The attempt is alive."""
        now_ms = self._clock.now_ms()
        attempt.beat_at = now_ms
        options = attempt.command.options
        every = (
            HEARTBEAT_FLUSH_MS if options.heartbeat_ms is None else min(HEARTBEAT_FLUSH_MS, options.heartbeat_ms // 2)
        )
        if now_ms - attempt.beat_flushed_at < every:
            return
        attempt.beat_flushed_at = now_ms
        attempt.unwritten_beat = False
        if attempt.row is None:
            # The first heartbeat of an eager attempt gives it a row of its own.
            started = self._rows.started(attempt)
            put = PutTask(attempt.fence, started)
            attempt.row_sent = True
            self._committer.submit(put, lambda answer: self._has_row(attempt, started, answer))
        elif attempt.row.owner is not None:
            beat = Heartbeat(attempt.run_key, attempt.event_id, attempt.number, attempt.row.owner, attempt.heartbeat)
            self._committer.submit(beat, lambda answer: self._beaten(attempt, answer))

    def _has_row(self, attempt: Attempt, row: TaskRow, answer: Answer) -> None:
        if answer in (Reply.WON, Reply.DUPLICATE) and not attempt.finished:
            attempt.row = row

    def _beaten(self, attempt: Attempt, answer: Answer) -> None:
        if attempt.finished or attempt.ending is not None:
            return
        if answer is Reply.CANCEL_REQUESTED:
            self._stop(attempt, cancelled("the activity was cancelled"))
        elif answer is Reply.LOST and not self._rows.is_on_hold(attempt.run_key):
            self._stop(attempt, cancelled("the attempt was lost to another worker"))
