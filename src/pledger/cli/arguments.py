"""Arguments of workflows, signals and queries: each one JSON value on the command line, `@file`, or `-` for stdin.

Digits are not lost: integers of any size stay exact, and a number that no double holds exactly enough is refused
instead of rounded (a Decimal travels as a string, or marked as one).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from pledger import errors
from pledger.history import payloads


def read_arguments(texts: Sequence[str]) -> list[Any]:
    """The values that the texts stand for. Raises UsageError naming the argument and what would be right."""
    return [_value(text, f"argument {position}") for position, text in enumerate(texts, 1)]


def _value(text: str, which: str) -> Any:
    source, which = _source(text, which)
    try:
        # First, since it names the plain mistakes best: a text without its quotes, a key without, a comma too many.
        json.loads(source, parse_float=_exact_float, parse_constant=_refuse_constant)
        return payloads.decode(source)
    except json.JSONDecodeError as error:
        place = f"{error.msg} at line {error.lineno}, column {error.colno}"
        raise errors.UsageError(f"{which} is not JSON: {_shortened(text)}{_hint(text, place)}") from None
    except (errors.PayloadError, ValueError, RecursionError) as error:
        raise errors.UsageError(f"{which} cannot be used: {error}") from None


def _source(text: str, which: str) -> tuple[bytes, str]:
    """The JSON behind the argument, and its name for messages."""
    if text == "-":
        return sys.stdin.buffer.read(), f"{which} (from stdin)"
    if not text.startswith("@"):
        return text.encode("utf-8", "surrogateescape"), which
    try:
        return Path(text[1:]).read_bytes(), f"{which} (from {text[1:]})"
    except OSError as error:
        raise errors.UsageError(f"{which}: the file {text[1:]} cannot be read: {error.strerror}") from None


def _exact_float(literal: str) -> float:
    number = float(literal)
    if Decimal(literal) != Decimal(repr(number)):
        raise ValueError(
            f"the number {_shortened(literal)} would be rounded to {number!r}. Write it as a string and annotate the "
            f'parameter with Decimal; where it has no annotation, write {{"$type": "Decimal", "value": "{literal}"}}'
        )
    return number


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number (RFC 8259); pass null or a string")


def _shortened(text: str) -> str:
    return text if len(text) <= 60 else text[:59] + "…"  # noqa: PLR2004 - one glance


def _hint(text: str, place: str) -> str:
    """What the mistake probably is."""
    if text.startswith("--"):
        return ". There is no such option here; --help lists them"
    if text[:1].isalpha():
        return f". A text carries its own quotes: {_quoted(text)}"
    return f" ({place})"


def _quoted(text: str) -> str:
    return "'" + json.dumps(_shortened(text), ensure_ascii=False).replace("'", "'\\''") + "'"
