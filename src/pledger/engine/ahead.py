"""How many activities a worker claims ahead of its free slots: as many as it ends while a claim is on its way.

A slot that becomes free would stand empty for the round trip of a claim. Where attempts are long that is nothing; where
they take a millisecond it is most of the time. A row that is claimed ahead begins about as soon as it would have begun
on another worker, which needs a claim of its own for it. That is the bound: whatever is more, or is held for longer,
would keep work from those who are idle.

No clock here: times come in, in seconds of any steady clock.
"""

from __future__ import annotations

from collections import deque
from typing import Final

#: Ends of attempts that are looked back on, at most, and how far: enough to smooth a round of them, few enough that a
#: worker which meets slow ones stops claiming ahead.
ENDS_MAX: Final = 16
SPAN_S: Final = 1.0
#: Fewer than this tell nothing.
ENDS_MIN: Final = 4
#: The share of the newest claim in what claims are taken to last.
NEWEST: Final = 0.25
#: A row that was claimed ahead waits for so many claims' time at most, and not less than this, in seconds: a busy
#: machine is late by as much.
PATIENCE: Final = 4
PATIENCE_MIN_S: Final = 0.05


class Pace:
    """How fast the attempts of one kind end here, and how long a claim takes."""

    __slots__ = ("_claim_s", "_ends")

    def __init__(self) -> None:
        self._ends: deque[float] = deque(maxlen=ENDS_MAX)
        self._claim_s = 0.0

    def ended(self, at_s: float) -> None:
        """An attempt is over, and its slot is free."""
        self._ends.append(at_s)

    def claimed(self, took_s: float) -> None:
        """A claim has brought something, so long after it was found out that there may be something to claim."""
        self._claim_s += (took_s - self._claim_s) * (NEWEST if self._claim_s else 1.0)

    def falter(self) -> None:
        """What was claimed ahead should not have been: nothing more is, until attempts have ended quickly again."""
        self._ends.clear()

    def ahead(self, at_s: float, slots: int) -> int:
        """How many rows to hold for slots to come: those that end meanwhile, at most as many as there are slots."""
        ends = self._ends
        while ends and ends[0] < at_s - SPAN_S:
            ends.popleft()
        if len(ends) < ENDS_MIN or self._claim_s <= 0:
            return 0
        span_s = at_s - ends[0]
        if span_s * slots <= self._claim_s * len(ends):
            return slots
        return int(self._claim_s * len(ends) / span_s + 0.5)

    @property
    def patience_s(self) -> float:
        """For how long a row waits here before it goes back to the queue."""
        return max(PATIENCE_MIN_S, PATIENCE * self._claim_s)
