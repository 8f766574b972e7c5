"""What dependencies let through while a claim chooses: see `circuit`. Pure.

What is held up is set aside, in a lane that says so: retries apart from first attempts, since a retry needs a token and
a first attempt does not. While nothing may start nobody looks at more than the head of such a lane, and whoever looks
for what is due does not meet its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from pledger.engine.port import circuit
from pledger.engine.port.circuit import Dependency
from pledger.engine.port.lane_text import CALLS, held_up_by, lane_aside
from pledger.engine.port.lanes import Bounds, Choice, Head, Line, Situation
from pledger.history.placement import LimitUse

#: What was held up is looked at not sooner than so: tokens may come one by one, a thousand a second, and the claimer's
#: clock may be ahead of the store's.
AGAIN_MS: Final = 50


def dependencies_of_all(heads: Iterable[Head], bounds: Bounds) -> list[str]:
    """Those that the heads depend on. Sorted."""
    types = {head.activity_type for head in heads if not head.is_over}
    return sorted({bounds.dependencies[name] for name in types if name in bounds.dependencies})


def deciding(heads: Iterable[Head], bounds: Bounds, rows: Mapping[str, Dependency], now_ms: int) -> list[str]:
    """Of these the ones whose row a claim may change, so that it has to be alone with it: those that are half open,
    those that let retries through, and those that are ahead of the clock. now_ms: by the store. Sorted."""
    retried = {bounds.dependencies.get(each.activity_type) for each in heads if each.attempt > 1 and not each.is_over}
    found = []
    for name in dependencies_of_all(heads, bounds):
        row = circuit.seen(rows[name], now_ms) if name in rows else None
        if row is not None and (
            row.phase == "half_open" or (row.phase == "closed" and name in retried) or circuit.is_ahead(rows[name], row)
        ):
            found.append(name)
    return found


class Gates:
    """What dependencies let through while grants are given. in_use: how many slots of a limit are taken."""

    def __init__(self, found: Situation, bounds: Bounds, choice: Choice, in_use: Callable[[LimitUse], int]) -> None:
        self._choice = choice
        self._in_use = in_use
        self._now_ms = found.now_ms
        for name in dependencies_of_all(found.heads, bounds):
            there = found.dependencies.get(name) or circuit.new(bounds.budgets[name], found.store_ms)
            choice.seen[name] = row = circuit.seen(there, found.store_ms)
            if circuit.is_ahead(there, row):
                choice.dependencies[name] = row  # else what it waits for would begin anew at each look

    def hold_up(self, line: Line) -> bool:
        """Whether none of the line may start now; what was not is then set aside."""
        if line.dependency is None:
            return False
        found = self._choice.seen[line.dependency]
        concurrency = found.concurrency
        if concurrency is not None and self._in_use((CALLS, line.dependency)) >= concurrency:
            if found.phase == "open":
                self._choice.is_due_by(max(found.until_ms, self._now_ms + AGAIN_MS))
            self._choice.waits = True
        elif line.is_retry and (due_ms := circuit.retry_due_ms(found)) is not None:
            self._choice.is_due_by(max(due_ms, self._now_ms + AGAIN_MS))
            self._choice.waits = True
        else:
            return False
        for head in line.heads:
            if held_up_by(head.lane) is None:
                self._choice.aside.append((head, lane_aside(head.lane, line.dependency, is_retry=line.is_retry)))
        return True

    def pass_through(self, line: Line) -> None:
        """One of the line starts; its slots are taken."""
        if line.dependency is None:
            return
        before = self._choice.seen[line.dependency]
        in_use = self._in_use((CALLS, line.dependency))
        after = circuit.granted(before, is_retry=line.is_retry, in_use=in_use)
        if after is not before or after.phase == "half_open":
            self._choice.seen[line.dependency] = self._choice.dependencies[line.dependency] = after
