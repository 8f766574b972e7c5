"""Moments, times and spans: instant, zone and fold are kept."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime, time, timedelta, timezone
from types import ModuleType
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from pledger.history.payloads import decode
from tests.unit.history.models import (
    NEW_YORK,
    NOON,
    Handmade,
    assert_same,
    refusal,
    round_trip,
    unreadable,
)

AT = datetime(2024, 11, 3, 1, 30, tzinfo=NEW_YORK, fold=1)


@pytest.mark.parametrize(
    "moment",
    [
        NOON,
        NOON.replace(fold=1),
        datetime(2024, 11, 3, 1, 30, tzinfo=NEW_YORK),
        datetime(2024, 3, 10, 2, 30, tzinfo=NEW_YORK),  # an hour that the clock skips
        datetime(2024, 3, 10, 2, 30, tzinfo=NEW_YORK, fold=1),
        datetime(1900, 1, 1, tzinfo=ZoneInfo("Europe/Amsterdam")),  # an offset with seconds
        datetime(2024, 1, 1, tzinfo=timezone(timedelta(hours=5, minutes=45, seconds=1, microseconds=2))),
        datetime(2024, 1, 1, tzinfo=ZoneInfo("UTC")),
        datetime.min.replace(tzinfo=UTC),
        datetime.max.replace(tzinfo=UTC),
    ],
    ids=str,
)
@pytest.mark.parametrize("hint", [Any, datetime], ids=["untyped", "typed"])
def test_a_datetime_keeps_instant_zone_and_fold(moment: datetime, hint: Any) -> None:
    back = round_trip(moment, hint)
    assert_same(back, moment)
    assert (back.tzinfo, back.fold, back.utcoffset()) == (moment.tzinfo, moment.fold, moment.utcoffset())


def test_the_offset_tells_the_fold_where_hand_written_text_does_not() -> None:
    assert decode(b'"2024-11-03T01:30:00-05:00[America/New_York]"', datetime) == AT
    assert decode(b'"2024-11-03T06:30:00Z"', datetime) == AT.astimezone(UTC)


def test_the_instant_stays_when_the_rules_of_the_zone_have_changed() -> None:
    back = decode(b'"2024-07-01T12:00:00+09:00[Europe/Berlin]"', datetime)
    assert back == datetime(2024, 7, 1, 3, tzinfo=UTC)
    assert back.tzinfo == ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize("key", ["Mars/Olympus", "America", "../../etc/passwd", ""])
def test_an_unknown_zone_is_refused(key: str) -> None:
    assert unreadable(json.dumps(f"2024-07-01T12:00:00+02:00[{key}]").encode(), datetime).path == "$"


def test_an_unknown_zone_is_named_with_the_remedy() -> None:
    message = str(unreadable(b'["2024-07-01T12:00:00+02:00[Mars/Olympus]"]', list[datetime]))
    assert "'Mars/Olympus'" in message
    assert "tzdata" in message


def test_a_time_is_kept_while_another_thread_imports_time_zones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zoneinfo", ModuleType("zoneinfo"))
    for moment in (datetime(2024, 6, 1, tzinfo=UTC), time(1)):
        assert round_trip(moment, type(moment)) == moment


def test_a_zone_of_another_library_keeps_its_instant_or_is_refused() -> None:
    moment = datetime(2024, 6, 1, tzinfo=Handmade())
    assert round_trip(moment, datetime) == moment
    assert "ZoneInfo" in str(refusal(datetime(2024, 1, 2, 1, tzinfo=Handmade()), datetime))
    assert "ZoneInfo" in str(refusal(time(1, tzinfo=Handmade()), time))


@pytest.mark.parametrize(
    "moment", [time(1, 2), time(1, 2, tzinfo=UTC), time(1, 2, tzinfo=NEW_YORK, fold=1), time.max], ids=str
)
def test_a_time_keeps_zone_and_fold(moment: time) -> None:
    for hint in (Any, time):
        back = round_trip(moment, hint)
        assert (back, back.tzinfo, back.fold) == (moment, moment.tzinfo, moment.fold)


@pytest.mark.parametrize("span", [timedelta.min, timedelta.max, timedelta(0), timedelta(microseconds=-1)], ids=str)
def test_a_timedelta_is_exact_over_its_whole_range(span: timedelta) -> None:
    assert_same(round_trip(span, timedelta), span)
