"""Durations that users give, as the ledger counts them, and its times as they are told: nothing beyond the year 9999.

Pure. Times are milliseconds since 1970 UTC. `datetime` ends with 9999, so a duration is bounded where it is given, and
a later time, of a history from before there was a bound, is told as the last day of that year.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from pledger.errors import InvalidPolicyError

#: About 6,800 years: what is longer ends after the year 9999, for which there is no datetime.
DURATION_MAX: Final = timedelta(days=2_500_000)
DURATION_MS_MAX: Final = 2_500_000 * 86_400_000
#: 9999-12-31 UTC: it has a datetime in every time zone.
LAST_MS: Final = 253_402_214_400_000


def utc(ms: int) -> datetime:
    """The time, with zone."""
    return datetime.fromtimestamp(min(ms, LAST_MS) / 1000, UTC)


def milliseconds(duration: timedelta) -> int:
    """Whole milliseconds, rounded up: a wait is never shorter than asked."""
    whole, rest = divmod(duration, timedelta(milliseconds=1))
    return whole + bool(rest)


def in_words(duration: timedelta) -> str:
    """As error messages name it: `-5 s`."""
    return f"{duration.total_seconds():g} s"


def check_duration(given: object, what: str, *, or_none: str = "None for no such bound") -> timedelta:
    """The duration; timedelta.max, "for ever", passes too. Raises InvalidPolicyError for what is none, or too long.

    what: like "execution_timeout of workflow 'a'". or_none: what None would mean, or "" where it may not be.
    """
    other = f", or {or_none}" if or_none else ""
    if not isinstance(given, timedelta):
        raise InvalidPolicyError(f"{what} is {given!r}, of type {type(given).__name__}; it must be a timedelta{other}")
    if DURATION_MAX < given < timedelta.max:
        raise InvalidPolicyError(
            f"{what} is {given.days:,} days; the most is {DURATION_MAX.days:,}: what is longer ends after the year "
            "9999. Give timedelta.max for what has no end"
        )
    return given
