"""The order in which rows begin that a worker has claimed ahead of its slots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from pledger.engine.line import Line
from pledger.engine.port.lane_text import lane_of
from pledger.engine.port.records import TaskRow
from pledger.history.placement import Placement
from tests.conformance.harness import task
from tests.unit.store.postgres.rows import a_run


def row(number: int, **stated: Any) -> TaskRow:
    placement = Placement(**stated) if stated else None
    weight = 1.0 if placement is None else placement.fairness_weight
    return task(a_run(), number, lane=lane_of(placement), weight=weight)


def begun(line: Line, count: int | None = None) -> list[int]:
    return [line.take().event_id for _ in range(len(line) if count is None else count)]


def put(line: Line, numbers: Sequence[int], **stated: Any) -> None:
    for number in numbers:
        line.put(row(number, **stated), 1.0)


def test_rows_of_one_tenant_begin_in_their_order() -> None:
    line = Line()
    put(line, range(5))
    assert begun(line) == [0, 1, 2, 3, 4]


def test_who_has_nothing_here_is_not_behind_all_of_another() -> None:
    line = Line()
    put(line, range(20), fairness_key="noisy")
    assert begun(line, 3) == [0, 1, 2]
    put(line, [100], fairness_key="quiet")
    assert begun(line, 2) == [3, 100]


def test_tenants_take_turns_by_their_weight() -> None:
    line = Line()
    put(line, range(10), fairness_key="light")
    put(line, range(100, 110), fairness_key="heavy", fairness_weight=2.0)
    first = begun(line, 9)
    assert sum(each >= 100 for each in first) == 6


def test_whoever_was_away_has_saved_up_nothing() -> None:
    line = Line()
    put(line, [100], fairness_key="late")
    put(line, range(20), fairness_key="steady")
    assert begun(line, 12) == [100, *range(11)]
    put(line, range(101, 106), fairness_key="late")
    assert begun(line, 6) == [11, 101, 12, 102, 13, 103]


def test_the_urgent_come_first() -> None:
    line = Line()
    put(line, range(3), priority=3)
    put(line, [100], priority=1)
    assert begun(line) == [100, 0, 1, 2]


def test_the_one_that_has_waited_longest_is_not_the_first() -> None:
    line = Line()
    line.put(row(1, priority=3), 1.0)
    line.put(row(2, priority=1), 2.0)
    assert line.oldest_s() == 1.0
    assert line.first().event_id == 2


def test_what_is_replaced_keeps_its_place() -> None:
    line = Line()
    put(line, range(3))
    line.replace(replace(row(1), cancel_requested=True))
    line.replace(row(7))
    assert [(each.event_id, each.cancel_requested) for each in line] == [(0, False), (1, True), (2, False)]
    assert [each.event_id for each in line.clear()] == [0, 1, 2]
    assert not line
