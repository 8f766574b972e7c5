"""Retry arithmetic: how long to wait after a failed attempt, and when to give up.

Pure: the draw for the jitter is an argument.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, TypeGuard

import msgspec

from pledger.errors import InvalidPolicyError
from pledger.history.names import check_str
from pledger.history.times import DURATION_MAX, check_duration, in_words, milliseconds


class RetryPolicyRecord(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A retry policy as the ledger keeps it. Intervals in ms; maximum_attempts 0 means without end.

    maximum_interval_ms None: a hundred times the initial interval, the field's default.
    jitter: 0.0 to 1.0, the share of the delay that is drawn; 1.0 (full) draws from the whole of it.
    """

    initial_interval_ms: int = 1_000
    backoff_coefficient: float = 2.0
    maximum_interval_ms: int | None = None
    maximum_attempts: int = 10
    non_retryable_error_types: tuple[str, ...] = ()
    jitter: float = 1.0


DEFAULT_RETRY = RetryPolicyRecord()

#: More than anybody counts to; it fits every database's integers.
ATTEMPTS_MAX: Final = 2**31 - 1
_NO_MAXIMUM: Final = "None for a hundred times the initial interval"


def is_whole(given: object) -> TypeGuard[int]:
    """Whether it is a whole number, by its type: neither 3.0 nor True."""
    return isinstance(given, int) and not isinstance(given, bool)


def is_number(given: object) -> bool:
    """Whether it is an int or a float, and neither True nor an int that no float can hold."""
    return isinstance(given, float) or (is_whole(given) and abs(given) < 2**63)


def retry_delay_ms(policy: RetryPolicyRecord, attempt: int) -> int:
    """How long to wait after `attempt` (1-based) failed, before jitter: initial * coefficient ** (attempt - 1), capped.

    Never overflows: the power is compared in logarithms first (case RTY-01: delays computed first and capped later
    have crashed schedulers at attempt 1024). An initial interval of 0 is a delay of 0 for ever (case RTY-02).
    """
    initial = policy.initial_interval_ms
    cap = policy.maximum_interval_ms if policy.maximum_interval_ms is not None else initial * 100
    if initial <= 0 or cap <= 0:
        return 0
    if initial >= cap:
        return cap
    growth = (attempt - 1) * math.log(policy.backoff_coefficient)
    if growth >= math.log(cap / initial):
        return cap
    return min(cap, round(initial * math.exp(growth)))


def jittered_ms(delay_ms: int, jitter: float, draw: float) -> int:
    """The delay with its jitter. draw: uniform in [0, 1). Full jitter spreads over (0, delay], so retries do not
    arrive in step; the mean is half of the delay."""
    return delay_ms - int(delay_ms * jitter * draw)


def is_exhausted(policy: RetryPolicyRecord, attempt: int) -> bool:
    """Whether `attempt` (1-based) was the last that the policy allows."""
    return 0 < policy.maximum_attempts <= attempt


def _are_names(given: object) -> bool:
    return isinstance(given, Collection) and not isinstance(given, str) and all(isinstance(each, str) for each in given)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often and how fast a failed activity is tried again.

    initial_interval: the delay after the first failure, 0 or more. backoff_coefficient: its growth, 1 or more.
    maximum_interval: the ceiling; None is a hundred times the initial interval. maximum_attempts: counts the first one
    and those lost with their worker; 0 is without end, 1 is at-most-once. non_retryable_error_types: names of
    exception classes (or `ApplicationError.type`s) that end the activity at once. jitter: the share of each delay that
    is drawn, 0.0 to 1.0; by default the whole of it, so that retries of many runs do not arrive in step.

    Raises InvalidPolicyError for values out of range.
    """

    initial_interval: timedelta = timedelta(seconds=1)
    backoff_coefficient: float = 2.0
    maximum_interval: timedelta | None = None
    maximum_attempts: int = 10
    non_retryable_error_types: Sequence[str] = ()
    jitter: float = 1.0

    def __post_init__(self) -> None:
        check_duration(self.initial_interval, "RetryPolicy.initial_interval", or_none="")
        if self.maximum_interval is not None:
            check_duration(self.maximum_interval, "RetryPolicy.maximum_interval", or_none=_NO_MAXIMUM)
        self._check(is_whole(self.maximum_attempts), "maximum_attempts", "a whole number")
        for field in ("backoff_coefficient", "jitter"):
            self._check(is_number(getattr(self, field)), field, "a number")
        self._check(self.initial_interval >= timedelta(0), "initial_interval", "0 or more")
        self._check(1 <= self.backoff_coefficient < math.inf, "backoff_coefficient", "at least 1 and finite")
        self._check(
            self.maximum_interval is None or self.maximum_interval >= timedelta(0),
            "maximum_interval",
            f"0 or more, or {_NO_MAXIMUM}",
        )
        self._check(self.maximum_attempts >= 0, "maximum_attempts", "0 (without end) or more")
        self._check(self.maximum_attempts <= ATTEMPTS_MAX, "maximum_attempts", f"at most {ATTEMPTS_MAX:,}")
        self._check(0.0 <= self.jitter <= 1.0, "jitter", "between 0.0 and 1.0")
        self._check(_are_names(self.non_retryable_error_types), "non_retryable_error_types", "a list of names")
        for name in self.non_retryable_error_types:
            check_str(name, "a name in RetryPolicy.non_retryable_error_types")

    def _check(self, holds: bool, field: str, range_: str) -> None:  # noqa: FBT001 - reads as an assertion
        if not holds:
            value = getattr(self, field)
            told = in_words(value) if isinstance(value, timedelta) else repr(value)
            raise InvalidPolicyError(f"RetryPolicy.{field} is {told}; it must be {range_}")

    def record(self) -> RetryPolicyRecord:
        """The policy as the ledger keeps it."""
        return RetryPolicyRecord(
            milliseconds(min(self.initial_interval, DURATION_MAX)),
            float(self.backoff_coefficient),
            None if self.maximum_interval is None else milliseconds(min(self.maximum_interval, DURATION_MAX)),
            int(self.maximum_attempts),
            tuple(check_str(name, "a name") for name in self.non_retryable_error_types),
            float(self.jitter),
        )
