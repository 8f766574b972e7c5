"""The attempts that run in a worker, and who waits until none does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pledger.engine.attempt import Attempt
    from pledger.engine.task_rows import TaskRows


class UnderWay:
    """attempts: those that run, by (run_key, event_id). rows: those of the same worker. waiters: of `wait_idle`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, rows: TaskRows) -> None:
        self._loop = loop
        self._rows = rows
        self.attempts: dict[tuple[int, int], Attempt] = {}
        self.waiters: list[asyncio.Future[None]] = []

    def eager(self, run_key: int, fence: int, event_id: int) -> Attempt | None:
        """The attempt that runs here without a row, unless it began under an earlier lease: that one is lost."""
        attempt = self.attempts.get((run_key, event_id))
        return attempt if attempt is not None and attempt.row is None and attempt.fence == fence else None

    def has_eager(self, run_key: int, event_ids: Iterable[int]) -> bool:
        """Whether one of the run's pending activities is known here alone, which ties the run to this worker: it runs
        eagerly, or the row of its next attempt is not written yet."""
        attempts, unwritten = self.attempts, self._rows.unwritten
        for event_id in event_ids:
            attempt = attempts.get((run_key, event_id))
            if (attempt is not None and attempt.row is None) or (run_key, event_id) in unwritten:
                return True
        return False

    @property
    def running(self) -> int:
        """How many attempts run."""
        return len(self.attempts)

    def all(self) -> list[Attempt]:
        return list(self.attempts.values())

    async def wait_idle(self, timeout_s: float) -> bool:
        """Wait until no attempt runs, at most so long; whether that came true."""
        if not self.attempts:
            return True
        waiter: asyncio.Future[None] = self._loop.create_future()
        self.waiters.append(waiter)
        await asyncio.wait([waiter], timeout=timeout_s)
        return not self.attempts

    def signal_idle(self) -> None:
        """An attempt is over: whoever waits is told, if it was the last."""
        if not self.attempts:
            waiters, self.waiters = self.waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)
