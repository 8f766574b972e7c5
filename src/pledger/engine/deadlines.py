"""Deadlines of attempts: many are set, hardly one ever passes, so setting one must cost next to nothing.

Attempts with the same time-out end in the order in which they began: one queue for each length, and one timer of the
loop for all of them, set to the earliest head. An attempt that has finished is dropped when it comes to the front, or
when there is more and more to sweep: below the deadline of its run each attempt may have a length of its own.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from pledger.engine.attempt import Attempt
from pledger.engine.session import LedgerClock

#: Queues that have grown to this many more than at their last sweep are swept of finished attempts.
_SWEEP_AT: Final = 256


class Deadlines:
    """passed: called with an attempt whose deadline has passed, unless it finished before."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: LedgerClock, passed: Callable[[Attempt], None]) -> None:
        self._loop = loop
        self._clock = clock
        self._passed = passed
        self._queues: dict[int, deque[Attempt]] = {}
        self._swept: dict[int, int] = {}
        self._queues_swept = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0

    def set(self, attempt: Attempt, deadline_ms: int) -> None:
        """Have the attempt told when `deadline_ms`, its deadline, has passed."""
        length = deadline_ms - attempt.started_ms
        queue = self._queues.get(length)
        if queue is None:
            if len(self._queues) > self._queues_swept * 2 + _SWEEP_AT:
                self._sweep()
            queue = self._queues[length] = deque()
        while queue and queue[0].finished:
            queue.popleft()
        queue.append(attempt)
        if len(queue) > self._swept.get(length, 0) + _SWEEP_AT:
            # One long attempt at the front must not keep all those behind it.
            self._queues[length] = queue = deque(each for each in queue if not each.finished)
            self._swept[length] = len(queue)
        if self._timer is None or deadline_ms < self._timer_ms:
            self._arm(deadline_ms)

    def _sweep(self) -> None:
        """Of all lengths."""
        for length, queue in list(self._queues.items()):
            while queue and queue[0].finished:
                queue.popleft()
            if not queue:
                self._drop(length)
        self._queues_swept = len(self._queues)

    def _drop(self, length: int) -> None:
        del self._queues[length]
        self._swept.pop(length, None)

    def _arm(self, at_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = at_ms
        self._timer = self._loop.call_later(max(0, at_ms - self._clock.now_ms()) / 1000, self._check)

    def _check(self) -> None:
        self._timer = None
        now_ms = self._clock.now_ms()
        passed: list[Attempt] = []
        heads: list[int] = []
        for length, queue in list(self._queues.items()):
            while queue and (queue[0].finished or queue[0].started_ms + length <= now_ms):
                attempt = queue.popleft()
                if not attempt.finished:
                    passed.append(attempt)
            if queue:
                heads.append(queue[0].started_ms + length)
            else:
                self._drop(length)
        if heads:
            self._arm(min(heads))
        for attempt in passed:
            self._passed(attempt)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
