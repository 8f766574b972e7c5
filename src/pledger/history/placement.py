"""Where a task stands in its queue: its priority, whose share of the queue it takes, and what it must not exceed.

Pure. `Priority` and `Limit` are what users state; `Placement` is what is recorded with a scheduled activity.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, TypeAlias

import msgspec
from msgspec.structs import replace

from pledger.errors import InvalidPolicyError
from pledger.history.names import check_text
from pledger.history.retry import is_number, is_whole
from pledger.history.times import DURATION_MAX, check_duration, milliseconds

LimitUse: TypeAlias = tuple[str, str]
"""(name of a limit, key): what is counted together. The key of a limit without keys is empty."""

#: Priorities go from 1, which comes first, to 5.
DEFAULT_PRIORITY: Final = 3
LOWEST_PRIORITY: Final = 5
#: A weight says how many times the share of another key a key gets.
WEIGHT_RANGE: Final = (0.001, 1000.0)


class Placement(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """As the ledger keeps it. limits: what the activity must not exceed, each with its key."""

    priority: int = DEFAULT_PRIORITY
    fairness_key: str = ""
    fairness_weight: float = 1.0
    limits: tuple[LimitUse, ...] = ()

    def priority_stated(self) -> Priority:
        """What was recorded, as it is stated."""
        return Priority(self.priority, self.fairness_key, self.fairness_weight)


@dataclass(frozen=True, slots=True)
class Priority:
    """Which of the activities that wait in a task queue starts first.

    priority_key: 1 comes before 2, and so on to 5; 3 where nobody states one. Of one priority, the keys of fairness
    take turns, by weight: so a tenant with a thousand waiting activities does not hold up another one's first.
    fairness_key: whose turn it is, a tenant's name, say; by default that of all who state none.
    fairness_weight: how many turns the key has for one of a key of weight 1.

    What is not stated is that of the activity's definition, then that of its run.
    Raises InvalidPolicyError for values out of range.
    """

    priority_key: int | None = None
    fairness_key: str | None = None
    fairness_weight: float | None = None

    def __post_init__(self) -> None:
        least, most = WEIGHT_RANGE
        key, weight = self.priority_key, self.fairness_weight
        if key is not None and not (is_whole(key) and 1 <= key <= LOWEST_PRIORITY):
            raise InvalidPolicyError(
                f"Priority(priority_key={key!r}) must be a whole number from 1 (first) to {LOWEST_PRIORITY}"
            )
        if self.fairness_key is not None:
            object.__setattr__(self, "fairness_key", check_text(self.fairness_key, "fairness_key of a Priority"))
        if weight is not None and not (is_number(weight) and least <= weight <= most):
            raise InvalidPolicyError(
                f"Priority(fairness_weight={weight!r}) must be a number from {least:g} to {most:g}"
            )

    def over(self, base: Priority | None) -> Priority:
        """This where it is stated, `base` where it is not."""
        if base is None:
            return self
        return Priority(
            base.priority_key if self.priority_key is None else self.priority_key,
            base.fairness_key if self.fairness_key is None else self.fairness_key,
            base.fairness_weight if self.fairness_weight is None else self.fairness_weight,
        )


@dataclass(frozen=True, slots=True)
class Limit:
    """A bound that holds over all workers of a namespace.

    name: what is bounded, an API, say. concurrency: attempts at a time. rate: starts of attempts in each `per`, which
    is a second by default; after a pause as many may start at once. key: a function of the activity's arguments: what
    is counted apart, a customer, say; by default all is counted together.
    Activities of the same limit name share it. The numbers are those of the worker that takes an activity from its
    queue, unless an operator has set others (`pledger limit set`).
    Raises InvalidPolicyError for values out of range.
    """

    name: str
    concurrency: int | None = None
    rate: float | None = None
    per: timedelta = timedelta(seconds=1)
    key: Callable[..., str] | None = None

    def __post_init__(self) -> None:
        if self.name == "":
            raise InvalidPolicyError("Limit(name='') needs a name: of what is bounded")
        object.__setattr__(self, "name", check_text(self.name, "name of a limit"))
        if self.concurrency is None and self.rate is None:
            raise InvalidPolicyError(f"Limit({self.name!r}) bounds nothing: give it concurrency=..., rate=... or both")
        if self.concurrency is not None and not (is_whole(self.concurrency) and self.concurrency >= 1):
            raise InvalidPolicyError(
                f"Limit({self.name!r}, concurrency={self.concurrency!r}) must be at least 1, and a whole number"
            )
        if self.rate is not None and not (is_number(self.rate) and self.rate > 0 and math.isfinite(self.rate)):
            raise InvalidPolicyError(f"Limit({self.name!r}, rate={self.rate!r}) must be a number of more than 0")
        check_duration(self.per, f"Limit({self.name!r}).per", or_none="")
        if self.key is not None and not callable(self.key):
            raise InvalidPolicyError(f"Limit({self.name!r}, key={self.key!r}) must be a function of the arguments")
        if self.per <= timedelta(0):
            raise InvalidPolicyError(f"Limit({self.name!r}, per={self.per}) must be more than 0")

    def rule(self) -> LimitRule:
        """Its numbers."""
        return LimitRule(self.concurrency, self.rate, milliseconds(min(self.per, DURATION_MAX)))


class LimitRule(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The numbers of a limit. concurrency, rate: None for no such bound. per_ms: what rate counts in."""

    concurrency: int | None = None
    rate: float | None = None
    per_ms: int = 1_000

    @property
    def interval_ms(self) -> float:
        """Between two starts, on average. Of one with a rate only."""
        assert self.rate is not None
        return self.per_ms / self.rate

    @property
    def burst(self) -> int:
        """How many may start at once after a pause."""
        return max(1, int(self.rate or 0))

    def under(self, override: LimitRule | None) -> LimitRule:
        """These numbers, but for those that an operator has set."""
        if override is None:
            return self
        concurrency = self.concurrency if override.concurrency is None else override.concurrency
        if override.rate is None:
            return LimitRule(concurrency, self.rate, self.per_ms)
        return LimitRule(concurrency, override.rate, override.per_ms)


def override_rule(name: str, concurrency: int | None, rate: float | None, per: timedelta) -> LimitRule:
    """The numbers that an operator sets. Raises InvalidPolicyError."""
    if concurrency == 0:  # which code cannot state: it would never be called
        return replace(Limit(name, concurrency=1, rate=rate, per=per).rule(), concurrency=0)
    return Limit(name, concurrency=concurrency, rate=rate, per=per).rule()


def place(priority: Priority | None, limits: tuple[LimitUse, ...] = ()) -> Placement | None:
    """What is to be recorded; None for what stands as all others do."""
    if priority is None:
        return Placement(limits=limits) if limits else None
    placement = Placement(
        int(priority.priority_key or DEFAULT_PRIORITY),
        priority.fairness_key or "",
        float(priority.fairness_weight or 1.0),
        limits,
    )
    return None if placement == _PLAIN else placement


_PLAIN: Final = Placement()


def use_of(activity_type: str, limit: Limit, args: tuple[Any, ...], kwargs: dict[str, Any]) -> LimitUse:
    """What a call of an activity counts for. Raises InvalidPolicyError for a key that cannot stand in an index."""
    if limit.key is None:
        return (limit.name, "")
    key = str(limit.key(*args, **kwargs))
    check_text(key, f"key of limit {limit.name!r} of activity {activity_type!r}")
    return (limit.name, key)
