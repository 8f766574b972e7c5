"""Attempts end in time: at their deadline, after too long a silence, or when somebody stops them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from pledger.engine.deadlines import Deadlines
from pledger.engine.verdicts import timed_out

if TYPE_CHECKING:
    from pledger.engine.attempt import Attempt
    from pledger.engine.session import LedgerClock
    from pledger.history.failures import Failure

#: How long the code of an attempt may clean up once its time is over, before the attempt ends without it.
CLEANUP_S = 5.0


class TimeOuts:
    """end: called with an attempt that is over, and the failure that it ends with."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: LedgerClock, end: Callable[[Attempt, Failure], None]
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._end = end
        self._deadlines = Deadlines(loop, clock, self._check_deadline)

    def arm(self, attempt: Attempt) -> None:
        """Have the attempt looked at when its deadline passes, or the end of its heartbeat's silence."""
        beat_ms = attempt.command.options.heartbeat_ms
        if beat_ms is None:
            if attempt.deadline_ms is not None:
                self._deadlines.set(attempt, attempt.deadline_ms)
            return
        silence = attempt.beat_at + beat_ms
        at_ms = silence if attempt.deadline_ms is None else min(silence, attempt.deadline_ms)
        delay = max(0, at_ms - self._clock.now_ms()) / 1000
        attempt.timer = self._loop.call_later(delay, self._check_deadline, attempt)

    def _check_deadline(self, attempt: Attempt) -> None:
        if attempt.finished:
            return
        now_ms = self._clock.now_ms()
        options = attempt.command.options
        if attempt.deadline_ms is not None and now_ms >= attempt.deadline_ms:
            self.stop(attempt, out_of_time(attempt))
        elif options.heartbeat_ms is not None and now_ms >= attempt.beat_at + options.heartbeat_ms:
            self.stop(attempt, timed_out("heartbeat", options.heartbeat_ms, heartbeat=attempt.heartbeat))
        else:
            self.arm(attempt)

    def stop(self, attempt: Attempt, ending: Failure) -> None:
        """End the attempt from outside. Async code gets to run its clean-up; a thread is left to its flag."""
        attempt.ending = ending
        if ending.kind == "cancelled":
            attempt.cancel_requested = True
        attempt.stop_code()
        if ending.kind != "timeout":
            return
        if attempt.definition.executor == "thread":
            self._end(attempt, ending)
        else:
            attempt.timer = self._loop.call_later(CLEANUP_S, self._give_up, attempt, ending)

    def _give_up(self, attempt: Attempt, ending: Failure) -> None:
        """The code does not end though its time is over: what becomes of the activity does not wait for it."""
        if not attempt.finished:
            self._end(attempt, ending)

    def close(self) -> None:
        self._deadlines.stop()


def out_of_time(attempt: Attempt) -> Failure:
    """The failure of an attempt whose deadline has passed."""
    options = attempt.command.options
    bounds = {
        "start_to_close": options.start_to_close_ms,
        "schedule_to_close": options.schedule_to_close_ms,
        "run": (attempt.run_deadline_ms or 0) - attempt.scheduled_ms,
    }
    return timed_out(attempt.deadline_kind, bounds[attempt.deadline_kind] or 0, heartbeat=attempt.heartbeat)
