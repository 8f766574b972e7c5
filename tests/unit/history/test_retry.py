"""Retry arithmetic: delays that neither overflow nor divide by zero, and policies out of range."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest

from pledger import RetryPolicy
from pledger.errors import InvalidPolicyError
from pledger.history.retry import (
    DEFAULT_RETRY,
    RetryPolicyRecord,
    is_exhausted,
    jittered_ms,
    milliseconds,
    retry_delay_ms,
)


def delays(policy: RetryPolicyRecord, attempts: int) -> list[int]:
    return [retry_delay_ms(policy, attempt) for attempt in range(1, attempts + 1)]


def policy(**options: Any) -> RetryPolicyRecord:
    return RetryPolicy(**options).record()


def test_RTY_01_backoff_with_a_cap_survives_a_thousand_attempts() -> None:
    polling = policy(
        initial_interval=timedelta(seconds=300),
        backoff_coefficient=2.0,
        maximum_interval=timedelta(seconds=3600),
        maximum_attempts=1001,
    )
    assert delays(polling, 1000) == [300_000, 600_000, 1_200_000, 2_400_000] + [3_600_000] * 996
    assert not is_exhausted(polling, 1000)
    assert is_exhausted(polling, 1001)


@pytest.mark.parametrize("attempt", [20, 43, 60, 1100])
def test_RTY_01_the_cap_holds_far_beyond_what_a_float_or_a_timedelta_can_hold(attempt: int) -> None:
    capped = policy(
        initial_interval=timedelta(seconds=10), backoff_coefficient=2.0, maximum_interval=timedelta(seconds=300)
    )
    assert retry_delay_ms(capped, attempt) == 300_000


def test_RTY_01_a_steep_coefficient_is_capped_too() -> None:
    steep = policy(
        initial_interval=timedelta(seconds=1), backoff_coefficient=100.0, maximum_interval=timedelta(seconds=5)
    )
    assert retry_delay_ms(steep, 200) == 5_000
    extreme = policy(initial_interval=timedelta(microseconds=1), backoff_coefficient=1e308)
    assert retry_delay_ms(extreme, 10**9) == 100


def test_RTY_02_a_base_of_zero_is_a_delay_of_zero_for_ever() -> None:
    at_once = policy(initial_interval=timedelta(0), backoff_coefficient=2.0, maximum_attempts=4)
    assert delays(at_once, 4) == [0, 0, 0, 0]
    assert [jittered_ms(0, at_once.jitter, draw) for draw in (0.0, 0.5, 0.999)] == [0, 0, 0]
    assert [is_exhausted(at_once, attempt) for attempt in (1, 2, 3, 4)] == [False, False, False, True]


@pytest.mark.parametrize("maximum", [timedelta(hours=1), None])
def test_RTY_04_a_large_maximum_interval_does_not_replace_the_small_first_one(maximum: timedelta | None) -> None:
    """Where none is given the ceiling is a hundred times the first interval, as elsewhere in the field: the case would
    have no ceiling at all then, which with attempts without end is a wait of years."""
    quick_at_first = policy(
        initial_interval=timedelta(milliseconds=200),
        backoff_coefficient=2.0,
        maximum_interval=maximum,
        maximum_attempts=10,
    )
    nine = [200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 51_200]
    if maximum is None:
        nine = [min(delay, 20_000) for delay in nine]
    assert delays(quick_at_first, 9) == nine
    assert is_exhausted(quick_at_first, 10)


def test_a_first_interval_above_the_cap_is_the_cap() -> None:
    odd = policy(initial_interval=timedelta(seconds=10), maximum_interval=timedelta(seconds=3))
    assert delays(odd, 3) == [3_000, 3_000, 3_000]


def test_a_coefficient_of_one_keeps_the_delay() -> None:
    assert delays(policy(initial_interval=timedelta(seconds=2), backoff_coefficient=1.0), 3) == [2_000] * 3


def test_a_coefficient_that_is_no_whole_number() -> None:
    gentle = policy(initial_interval=timedelta(seconds=1), backoff_coefficient=1.5)
    assert delays(gentle, 5) == [1_000, 1_500, 2_250, 3_375, 5_062]


def test_without_end_is_never_exhausted() -> None:
    assert not is_exhausted(policy(maximum_attempts=0), 10**9)


def test_the_default_is_bounded_and_fully_jittered() -> None:
    assert RetryPolicy().record() == DEFAULT_RETRY
    assert (DEFAULT_RETRY.maximum_attempts, DEFAULT_RETRY.jitter) == (10, 1.0)
    assert delays(DEFAULT_RETRY, 10)[-1] == 100_000


@pytest.mark.parametrize(
    ("jitter", "draw", "expected"),
    [(0.0, 0.999, 1_000), (1.0, 0.0, 1_000), (1.0, 0.5, 500), (1.0, 0.9999, 1), (0.5, 0.9999, 501), (0.5, 0.5, 750)],
)
def test_jitter_takes_away_its_share_at_most_and_never_all(jitter: float, draw: float, expected: int) -> None:
    assert jittered_ms(1_000, jitter, draw) == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"initial_interval": timedelta(seconds=-1)}, "initial_interval is -1 s; it must be 0 or more"),
        ({"backoff_coefficient": 0.5}, r"backoff_coefficient is 0\.5; it must be at least 1 and finite"),
        ({"backoff_coefficient": math.inf}, "must be at least 1 and finite"),
        ({"backoff_coefficient": math.nan}, "must be at least 1 and finite"),
        ({"maximum_interval": timedelta(seconds=-1)}, "maximum_interval is "),
        ({"maximum_attempts": -1}, r"must be 0 \(without end\) or more"),
        ({"jitter": -0.1}, r"must be between 0\.0 and 1\.0"),
        ({"jitter": 1.1}, r"must be between 0\.0 and 1\.0"),
        ({"jitter": math.nan}, r"must be between 0\.0 and 1\.0"),
        ({"non_retryable_error_types": "CardDeclined"}, "must be a list of names"),
    ],
)
def test_policies_out_of_range_are_refused_where_they_are_written(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidPolicyError, match=message):
        RetryPolicy(**options)


@pytest.mark.parametrize(
    ("duration", "expected"),
    [
        (timedelta(microseconds=1), 1),
        (timedelta(milliseconds=1), 1),
        (timedelta(seconds=1.0005), 1_001),
        (timedelta(0), 0),
    ],
)
def test_durations_are_rounded_up(duration: timedelta, expected: int) -> None:
    """A wait is never shorter than asked."""
    assert milliseconds(duration) == expected
