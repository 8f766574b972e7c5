"""When the runs in memory are due: one heap and one timer of the loop for all of them."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable

from pledger.engine.session import LedgerClock


class Alarms:
    """ring: called with the run_keys that are due, never early by the clock.

    An entry that is no longer right is left in the heap and found out when it comes up: the receiver asks the run.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: LedgerClock, ring: Callable[[list[int]], None]) -> None:
        self._loop = loop
        self._clock = clock
        self._ring = ring
        self._due: list[tuple[int, int]] = []
        self._handle: asyncio.TimerHandle | None = None
        self._handle_ms = 0

    def set(self, run_key: int, due_ms: int) -> None:
        heapq.heappush(self._due, (due_ms, run_key))
        if self._handle is None or due_ms < self._handle_ms:
            self._arm()

    def _arm(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if self._due:
            self._handle_ms = self._due[0][0]
            delay_ms = max(0, self._handle_ms - self._clock.now_ms())
            # At most a minute at a time: the clock is sampled anew meanwhile, and may have been corrected.
            self._handle = self._loop.call_later(min(delay_ms, 60_000) / 1000, self._check)

    def _check(self) -> None:
        self._handle = None
        now_ms = self._clock.now_ms()
        due: dict[int, None] = {}
        while self._due and self._due[0][0] <= now_ms:
            due[heapq.heappop(self._due)[1]] = None
        self._arm()
        if due:
            self._ring(list(due))

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._due.clear()
