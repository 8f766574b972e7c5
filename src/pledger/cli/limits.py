"""Limits as they are written on a command line: `api=10`, `api=50/s`, `api=10,200/m`."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from pledger.cli.durations import parse_duration
from pledger.errors import UsageError
from pledger.history.placement import Limit

_UNITS: Final = {"s": timedelta(seconds=1), "m": timedelta(minutes=1), "h": timedelta(hours=1)}


def parse_limit(text: str) -> Limit:
    """Raises UsageError for what is not written like that, InvalidPolicyError for numbers out of range."""
    name, _, numbers = text.partition("=")
    concurrency: int | None = None
    rate: tuple[float, timedelta] | None = None
    for part in numbers.split(","):
        try:
            if "/" in part and rate is None:
                rate = parse_rate(part)
                continue
            if "/" not in part and concurrency is None:
                concurrency = int(part)
                continue
        except ValueError:
            pass
        raise UsageError(f"{text!r} is no limit: write api=10 (at a time), api=50/s, or both as api=10,200/m")
    if rate is None:
        return Limit(name, concurrency=concurrency)
    return Limit(name, concurrency=concurrency, rate=rate[0], per=rate[1])


def parse_rate(text: str) -> tuple[float, timedelta]:
    """`50/s`, `200/m`, `5000/h`, `3/1m30s`. Raises ValueError."""
    count, _, per = text.partition("/")
    return float(count), _UNITS.get(per) or parse_duration(per)


def rate_words(rate: float, per: timedelta) -> str:
    """The same for people."""
    unit = next((name for name, each in _UNITS.items() if each == per), None)
    return f"{rate:g}/{unit or f'{per.total_seconds():g}s'}"
