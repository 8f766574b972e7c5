"""Who comes next in a task queue: priority, then turns of the fairness keys, then age, within the limits. Pure.

Turns are those of start-time fair queueing: the next turn of a key is at its `pass`; a turn moves it on by 1 / weight.
The clock of a priority shows the pass of its newest turn. A key that was away re-enters at the clock: it has no credit
for its absence. Each store asks here, with what it has read of the `lanes`, and writes what comes out.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from typing import Any, Final

from pledger.engine.port.gates import Gates
from pledger.engine.port.lane_text import CALLS, Share, read_lane
from pledger.engine.port.lanes import Bounds, Choice, Grant, Head, Line, Situation, SlotKey, age, uses_of
from pledger.history.placement import LimitRule, LimitUse

#: A claim has read the store's clock before it waits for what others have locked, by less than this.
BEHIND_MS: Final = 10_000


def choose(found: Situation, bounds: Bounds, room: int, ahead: int = 0) -> Choice:
    """Which of the heads start now, `room` of them at most. ahead: see Served."""
    choice = Choice()
    limits = _Limits(found, bounds, choice)
    gates = Gates(found, bounds, choice, limits.in_use)
    lanes: dict[tuple[str, str | None, bool], list[Head]] = defaultdict(list)
    for head in sorted(found.heads, key=age):
        if head.ready_ms > found.now_ms:
            choice.is_due_by(head.ready_ms)
        elif not head.is_over:
            is_retry = head.attempt > 1 and head.activity_type in bounds.dependencies
            lanes[head.activity_type, head.lane, is_retry].append(head)
        elif len(choice.grants) < room:
            choice.grants.append(Grant(head, ()))
    shares: dict[Share, list[tuple[Any, int, Line]]] = defaultdict(list)
    for number, ((activity_type, lane, is_retry), heads) in enumerate(lanes.items()):
        dependency = bounds.dependencies.get(activity_type)
        line = Line(uses_of(activity_type, lane, bounds), heads, dependency, is_retry=is_retry)
        shares[read_lane(lane)[0]].append((age(line.heads[0]), number, line))
    turns = _Turns(found, choice, {priority for priority, key in shares if key})
    queue: list[tuple[int, float, Any, Share]] = []
    for share, lines in shares.items():
        heapq.heapify(lines)
        heapq.heappush(queue, (share[0], turns.next(share), lines[0][0], share))
    while queue and len(choice.grants) < room and not limits.was_next:
        _, _, _, share = heapq.heappop(queue)
        lines = shares[share]
        limits.is_ahead = len(choice.grants) >= room - ahead
        taken = _take_first(lines, gates, limits, choice)
        if taken is not None:
            turns.take(share, taken.weight)
        if lines:
            heapq.heappush(queue, (share[0], turns.next(share), lines[0][0], share))
    return choice


def _take_first(lines: list[tuple[Any, int, Line]], gates: Gates, limits: _Limits, choice: Choice) -> Head | None:
    """The oldest head that its limits allow is granted; lanes that they hold up leave the lines."""
    while lines:
        _, number, line = heapq.heappop(lines)
        if gates.hold_up(line):
            continue
        slots = limits.take(line.uses)
        if limits.was_next:
            break
        if slots is None:
            continue
        gates.pass_through(line)
        head = line.heads.popleft()
        choice.grants.append(Grant(head, slots))
        if line.heads:
            heapq.heappush(lines, (age(line.heads[0]), number, line))
        return head
    return None


class _Turns:
    """fair: priorities where somebody has a key; in the others there is only age."""

    def __init__(self, found: Situation, choice: Choice, fair: set[int]) -> None:
        self._found = found
        self._choice = choice
        self._fair = fair

    def next(self, share: Share) -> float:
        """The pass of its next turn."""
        priority = share[0]
        if priority not in self._fair:
            return 0.0
        clock = self._choice.clocks.get(priority, self._found.clocks.get(priority, 0.0))
        own = self._choice.passes.get(share, self._found.passes.get(share, 0.0))
        return max(clock, own)

    def take(self, share: Share, weight: float) -> None:
        if share[0] in self._fair:
            turn = self.next(share)
            self._choice.clocks[share[0]] = turn
            self._choice.passes[share] = turn + 1 / weight


class _Limits:
    """What is left of the limits while grants are given.

    is_ahead: nothing takes any of it now, see Served. was_next: something might have, and nobody goes before that.
    """

    def __init__(self, found: Situation, bounds: Bounds, choice: Choice) -> None:
        self._now_ms = found.store_ms
        self._found = found
        self._choice = choice
        self._rules = {
            name: bounds.rules.get(name, LimitRule()).under(found.overrides.get(name))
            for name in bounds.rules.keys() | found.overrides.keys()
        }
        self._gates = choice.seen
        self.is_ahead = self.was_next = False
        self._taken: dict[LimitUse, set[int]] = defaultdict(set)
        for slot in found.slots.values():
            if slot.live:
                self._taken[slot.limit, slot.key].add(slot.number)

    def in_use(self, use: LimitUse) -> int:
        """Slots of it that are taken."""
        return len(self._taken[use])

    def _rule(self, use: LimitUse) -> LimitRule | None:
        if use[0] != CALLS:
            return self._rules.get(use[0])
        concurrency = self._gates[use[1]].concurrency
        return None if concurrency is None else LimitRule(concurrency)

    def take(self, uses: tuple[LimitUse, ...]) -> tuple[SlotKey, ...] | None:
        """The slots for one attempt that counts for all of these; None, and nothing is taken, when one holds it up."""
        slots: list[SlotKey] = []
        starts: list[tuple[LimitUse, float]] = []
        for use in uses:
            rule = self._rule(use)
            if rule is None:
                continue  # no worker and no operator states it any more
            if rule.concurrency is not None:
                taken = self._taken[use]
                if len(taken) >= rule.concurrency:
                    self._choice.waits = True
                    return None
                slots.append((*use, next(n for n in range(1, rule.concurrency + 1) if n not in taken)))
            if rule.rate is not None:
                full_ms = max(self._full_ms(use, rule), self._now_ms)
                at_ms = full_ms - (rule.burst - 1) * rule.interval_ms
                if at_ms > self._now_ms:
                    self._choice.is_due_by(int(at_ms) + 1)
                    return None
                starts.append((use, full_ms + rule.interval_ms))
        if self.is_ahead and uses:
            self.was_next = True
            return None
        for limit, key, number in slots:
            self._taken[limit, key].add(number)
        self._choice.full_ms.update(starts)
        return tuple(slots)

    def _full_ms(self, use: LimitUse, rule: LimitRule) -> float:
        found_ms = self._choice.full_ms.get(use, self._found.full_ms.get(use, 0.0))
        empty_ms = self._now_ms + rule.burst * rule.interval_ms
        if found_ms > empty_ms + BEHIND_MS:
            # Other numbers held when it was used up, or the store's clock has gone back. That is written whether one
            # may start or not: else it would be empty anew at each look.
            found_ms = self._choice.full_ms[use] = empty_ms
        return found_ms
