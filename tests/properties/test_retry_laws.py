"""Laws of the delays between attempts, for every policy and every attempt."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pledger.errors import InvalidPolicyError
from pledger.history.retry import (
    RetryPolicy,
    RetryPolicyRecord,
    is_exhausted,
    jittered_ms,
    milliseconds,
    retry_delay_ms,
)

DURATIONS_MS = st.integers(0, 10**12)
POLICIES = st.builds(
    RetryPolicyRecord,
    initial_interval_ms=DURATIONS_MS,
    backoff_coefficient=st.floats(1.0, 1e300),
    maximum_interval_ms=st.none() | DURATIONS_MS,
    maximum_attempts=st.integers(0, 10**6),
)
ATTEMPTS = st.integers(1, 10) | st.integers(1, 10**9)
DRAWS = st.floats(0.0, 1.0, exclude_max=True)


def ceiling_ms(policy: RetryPolicyRecord) -> int:
    return policy.initial_interval_ms * 100 if policy.maximum_interval_ms is None else policy.maximum_interval_ms


@given(policy=POLICIES, attempt=ATTEMPTS)
def test_a_delay_lies_between_nothing_and_the_ceiling(policy: RetryPolicyRecord, attempt: int) -> None:
    assert 0 <= retry_delay_ms(policy, attempt) <= ceiling_ms(policy)


@given(policy=POLICIES)
def test_the_first_delay_is_the_initial_interval(policy: RetryPolicyRecord) -> None:
    assert retry_delay_ms(policy, 1) == min(policy.initial_interval_ms, ceiling_ms(policy))


@given(policy=POLICIES, one=ATTEMPTS, other=ATTEMPTS)
def test_delays_never_shrink(policy: RetryPolicyRecord, one: int, other: int) -> None:
    earlier, later = sorted([one, other])
    assert retry_delay_ms(policy, earlier) <= retry_delay_ms(policy, later)


@given(initial=st.integers(1, 10**6), coefficient=st.integers(1, 10), attempt=st.integers(1, 12))
def test_below_the_ceiling_a_delay_is_the_product(initial: int, coefficient: int, attempt: int) -> None:
    exact = initial * coefficient ** (attempt - 1)
    policy = RetryPolicyRecord(initial, float(coefficient), maximum_interval_ms=2 * exact)
    assert retry_delay_ms(policy, attempt) == pytest.approx(exact, rel=1e-9, abs=1)


@given(delay=DURATIONS_MS, jitter=st.floats(0.0, 1.0), one=DRAWS, other=DRAWS)
def test_jitter_takes_its_share_and_no_more(delay: int, jitter: float, one: float, other: float) -> None:
    shorter, longer = sorted([jittered_ms(delay, jitter, one), jittered_ms(delay, jitter, other)])
    assert int(delay * (1 - jitter)) - 1 <= shorter <= longer <= delay
    assert jittered_ms(delay, 0.0, one) == delay
    assert jittered_ms(delay, jitter, max(one, other)) == shorter


@given(policy=POLICIES, attempt=ATTEMPTS)
def test_exactly_so_many_attempts_are_allowed(policy: RetryPolicyRecord, attempt: int) -> None:
    maximum = policy.maximum_attempts
    assert is_exhausted(policy, attempt) == (maximum != 0 and attempt >= maximum)


@given(duration=st.timedeltas(min_value=timedelta(0)))
def test_a_wait_is_never_shorter_than_asked_and_less_than_a_millisecond_longer(duration: timedelta) -> None:
    assert duration <= timedelta(milliseconds=milliseconds(duration)) < duration + timedelta(milliseconds=1)


@given(
    initial=st.timedeltas(),
    coefficient=st.floats(),
    maximum=st.none() | st.timedeltas(),
    attempts=st.integers(),
    jitter=st.floats(),
)
def test_a_policy_is_refused_or_all_its_delays_can_be_told(
    initial: timedelta, coefficient: float, maximum: timedelta | None, attempts: int, jitter: float
) -> None:
    try:
        policy = RetryPolicy(
            initial_interval=initial,
            backoff_coefficient=coefficient,
            maximum_interval=maximum,
            maximum_attempts=attempts,
            jitter=jitter,
        )
    except InvalidPolicyError:
        return
    record = policy.record()
    for attempt in (1, 2, 1024, 10**9):
        delay = retry_delay_ms(record, attempt)
        assert 0 <= jittered_ms(delay, record.jitter, 0.999) <= delay <= ceiling_ms(record)
