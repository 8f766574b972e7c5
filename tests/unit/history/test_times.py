"""Durations up to the end of what a datetime can tell, and times beyond it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from pledger.errors import InvalidPolicyError
from pledger.history.times import DURATION_MAX, DURATION_MS_MAX, check_duration, milliseconds, utc


def test_milliseconds_are_rounded_up_at_both_ends_of_a_timedelta() -> None:
    assert [milliseconds(timedelta(microseconds=each)) for each in (0, 1, 999, 1_000, 1_001)] == [0, 1, 1, 1, 2]
    assert milliseconds(timedelta.max) == 86_400_000 * 10**9
    assert milliseconds(timedelta.min) == -86_400_000 * 999_999_999
    assert milliseconds(DURATION_MAX) == DURATION_MS_MAX


@pytest.mark.parametrize("ms", [253_402_214_400_001, 10**16, 2**63, 10**30])
def test_a_time_beyond_the_year_9999_is_told_as_its_last_day_in_every_zone(ms: int) -> None:
    assert utc(ms) == datetime(9999, 12, 31, tzinfo=UTC)
    for hours in (-12, 14):
        assert utc(ms).astimezone(timezone(timedelta(hours=hours))).year == 9999


def test_a_time_before_it_is_exact() -> None:
    assert utc(1_795_975_200_123) == datetime(2026, 11, 29, 18, 0, 0, 123_000, tzinfo=UTC)


def test_durations_end_before_the_year_9999_does() -> None:
    assert utc(1_795_975_200_000 + DURATION_MS_MAX).year == 8871
    assert check_duration(DURATION_MAX, "deadline") == DURATION_MAX
    assert check_duration(timedelta.max, "deadline") == timedelta.max
    with pytest.raises(InvalidPolicyError, match=r"deadline is 3,000,000 days; the most is 2,500,000: "):
        check_duration(timedelta(days=3_000_000), "deadline")
    with pytest.raises(InvalidPolicyError, match="deadline is 60, of type int; it must be a timedelta, or None for no"):
        check_duration(60, "deadline")
