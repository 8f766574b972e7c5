"""A line of rows that wait for the slots of one kind: by priority, then tenants by turns, then by age.

The store's claims go by that order too, but each of them alone: what a later one brings for a tenant who has nothing
here must not stand behind all that an earlier one has brought for another. Turns are counted as in start-time fair
queueing (Goyal, Vin, Cheng 1996): a tenant's next row is due one turn, over its weight, after its last one, and not
before the turn of the row that has begun last.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from pledger.engine.ahead import Pace
from pledger.engine.port.lane_text import read_lane

if TYPE_CHECKING:
    from pledger.engine.port.lane_text import Share
    from pledger.engine.port.records import TaskRow


class Waiting(NamedTuple):
    """place: (priority, turn). since_s: when it was claimed."""

    place: tuple[int, float]
    since_s: float
    row: TaskRow


class Line:
    """Rows of one kind. pace: how fast they end here."""

    __slots__ = ("_begun", "_rows", "_turns", "pace")

    def __init__(self) -> None:
        self.pace = Pace()
        self._rows: list[Waiting] = []
        self._turns: dict[Share, float] = {}
        self._begun = 0.0

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[TaskRow]:
        """In their order."""
        return (each.row for each in self._rows)

    def put(self, row: TaskRow, now_s: float) -> None:
        """Have it wait from now on."""
        share = read_lane(row.lane)[0]
        turn = max(self._begun, self._turns.get(share, 0.0)) + 1 / row.weight
        self._turns[share] = turn
        insort(self._rows, Waiting((share[0], turn), now_s, row), key=_place)

    def first(self) -> TaskRow:
        return self._rows[0].row

    def take(self) -> TaskRow:
        """The first one, which begins."""
        taken = self._rows.pop(0)
        self._begun = max(self._begun, taken.place[1])
        if not self._rows:
            self._turns.clear()
            self._begun = 0.0
        return taken.row

    def replace(self, row: TaskRow) -> None:
        """Another state of a row that waits, in its place; nothing where it does not."""
        for at, each in enumerate(self._rows):
            if (each.row.run_key, each.row.event_id) == (row.run_key, row.event_id):
                self._rows[at] = each._replace(row=row)

    def oldest_s(self) -> float:
        """Since when the one waits that has waited longest."""
        return min(each.since_s for each in self._rows)

    def clear(self) -> list[TaskRow]:
        """All of them, which wait no longer."""
        rows, self._rows = [each.row for each in self._rows], []
        self._turns.clear()
        self._begun = 0.0
        return rows


def _place(waiting: Waiting) -> tuple[int, float]:
    return waiting.place
