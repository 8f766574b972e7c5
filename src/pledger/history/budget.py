"""Retry budgets: what users state of a system that many activities depend on, and its numbers as the ledger keeps them.

Pure. What becomes of them is decided in `engine.port.circuit`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import timedelta

import msgspec

from pledger.errors import InvalidPolicyError
from pledger.history.names import check_text
from pledger.history.retry import is_number, is_whole
from pledger.history.times import DURATION_MAX, check_duration, milliseconds


@dataclass(frozen=True, slots=True, kw_only=True)
class CircuitBreaker:
    """When attempts stop for a while, since what they depend on does not work.

    failure_ratio: the share of the attempts of a window that have failed, more than 0 and at most 1, at which it opens.
    minimum_calls: not before so many of them have ended. pause: for how long it stays open the first time; twice as
    long each time that it opens again before it has closed, up to maximum_pause.
    Raises InvalidPolicyError for values out of range.
    """

    failure_ratio: float = 0.5
    minimum_calls: int = 20
    pause: timedelta = timedelta(seconds=5)
    maximum_pause: timedelta = timedelta(minutes=5)

    def __post_init__(self) -> None:
        if not (is_number(self.failure_ratio) and 0 < self.failure_ratio <= 1):
            raise InvalidPolicyError(
                f"CircuitBreaker(failure_ratio={self.failure_ratio!r}) must be a number of more than 0 and at most 1"
            )
        if not (is_whole(self.minimum_calls) and self.minimum_calls >= 1):
            raise InvalidPolicyError(
                f"CircuitBreaker(minimum_calls={self.minimum_calls!r}) must be at least 1, and a whole number"
            )
        check_duration(self.pause, "CircuitBreaker(pause=...)", or_none="")
        check_duration(self.maximum_pause, "CircuitBreaker(maximum_pause=...)", or_none="")
        if not timedelta(0) < self.pause <= self.maximum_pause:
            raise InvalidPolicyError(
                f"CircuitBreaker(pause={self.pause}, maximum_pause={self.maximum_pause}): the pause must be more than "
                "0, and at most maximum_pause"
            )


@dataclass(frozen=True, slots=True)
class RetryBudget:
    """A system that activities depend on: how many retries it gets, and when it is left alone. Shared by all workers.

    name: of the system, an API, say; activities with the same one share its budget. ratio: retries for each call that
    is no retry; minimum_per_second: so many retries a second beyond that. window: what is looked at, of the past.
    breaker: None for none.
    The numbers are those of the worker that started last. Raises InvalidPolicyError for values out of range.
    """

    name: str
    ratio: float = 0.1
    minimum_per_second: float = 1.0
    window: timedelta = timedelta(seconds=30)
    breaker: CircuitBreaker | None = CircuitBreaker()

    def __post_init__(self) -> None:
        if self.name == "":
            raise InvalidPolicyError("RetryBudget(name='') needs a name: of the system that it is about")
        object.__setattr__(self, "name", check_text(self.name, "name of a retry budget"))
        if not (is_number(self.ratio) and self.ratio >= 0 and math.isfinite(self.ratio)):
            raise InvalidPolicyError(f"RetryBudget({self.name!r}, ratio={self.ratio!r}) must be 0 or more, and finite")
        least = self.minimum_per_second
        if not (is_number(least) and least > 0 and math.isfinite(least)):
            raise InvalidPolicyError(
                f"RetryBudget({self.name!r}, minimum_per_second={least!r}) must be more than 0, and finite: without "
                "any, a retry might wait for ever"
            )
        check_duration(self.window, f"RetryBudget({self.name!r}).window", or_none="")
        if self.breaker is not None and not isinstance(self.breaker, CircuitBreaker):
            raise InvalidPolicyError(
                f"RetryBudget({self.name!r}, breaker={self.breaker!r}) must be a CircuitBreaker, or None for none"
            )
        if self.window < timedelta(seconds=1):
            raise InvalidPolicyError(f"RetryBudget({self.name!r}, window={self.window}) must be at least a second")

    def rule(self) -> BudgetRule:
        """Its numbers."""
        breaker = self.breaker
        window_ms = milliseconds(min(self.window, DURATION_MAX))
        if breaker is None:
            return BudgetRule(self.ratio, self.minimum_per_second, window_ms, failure_ratio=None)
        return BudgetRule(
            self.ratio,
            self.minimum_per_second,
            window_ms,
            breaker.failure_ratio,
            breaker.minimum_calls,
            milliseconds(min(breaker.pause, DURATION_MAX)),
            milliseconds(min(breaker.maximum_pause, DURATION_MAX)),
        )


class BudgetRule(msgspec.Struct, frozen=True, gc=False):
    """The numbers of a retry budget. failure_ratio: None where there is no breaker."""

    ratio: float = 0.1
    minimum_per_second: float = 1.0
    window_ms: int = 30_000
    failure_ratio: float | None = 0.5
    minimum_calls: int = 20
    pause_ms: int = 5_000
    pause_max_ms: int = 300_000
