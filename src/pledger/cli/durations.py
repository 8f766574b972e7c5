"""Durations as people type them on a command line: `500ms`, `30s`, `5m`, `1h30m`, `2d`, or a number of seconds."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

import typer

_UNITS: Final = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_SECONDS: Final = re.compile(r"\d+(?:\.\d+)?")


def parse_duration(text: str | timedelta) -> timedelta:
    """The duration of an option; Typer hands defaults through here as well. Raises typer.BadParameter."""
    if isinstance(text, timedelta):
        return text
    text = text.strip().replace(" ", "")
    try:
        if _SECONDS.fullmatch(text):
            return timedelta(seconds=float(text))
        if re.fullmatch(f"(?:{_PART.pattern})+", text):
            return sum((float(number) * _UNITS[unit] for number, unit in _PART.findall(text)), timedelta())
    except OverflowError:
        pass
    raise typer.BadParameter(f"{text!r} is no duration; write it like 500ms, 30s, 5m, 1h30m or 2d")
