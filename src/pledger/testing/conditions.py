"""What holds for everybody in a simulation at the moment: what may go wrong, and what the store's clock shows."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from pledger.testing.faults import Faults

if TYPE_CHECKING:
    from pledger.testing.scheduler import Scheduler

#: The store's clock at the start: any time that is not now, so that a look at a real clock is found out.
EPOCH_MS: Final = 1_000_000_000_000


class Conditions:
    """faults: those of the moment. hits: how often each happened. calm: whether they are over, for good."""

    def __init__(self, scheduler: Scheduler, faults: Faults) -> None:
        self.faults = faults
        self.hits: Counter[str] = Counter()
        self.calm = False
        self._scheduler = scheduler
        self._clock_ahead_ms = 0

    def hit(self, kind: str) -> None:
        self.hits[kind] += 1

    def calm_down(self) -> None:
        self.faults = Faults()
        self.calm = True

    def store_ms(self) -> int:
        return EPOCH_MS + self._clock_ahead_ms + int(self._scheduler.now_s * 1000)

    def jump_clock(self, by_ms: int) -> None:
        self._clock_ahead_ms += by_ms
