"""Values of a filter, as the fields that they are compared with have them."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Final

from pledger.engine.search.errors import refuse
from pledger.engine.search.text import is_now, place
from pledger.history.attributes import TEXTS

if TYPE_CHECKING:
    from sqlglot import Expr

    from pledger.engine.port.filters import Operator, Test

_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_WORDS: Final = {
    "millisecond": "ms",
    "second": "s",
    "sec": "s",
    "minute": "m",
    "min": "m",
    "hour": "h",
    "day": "d",
    "week": "w",
}
_PART: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)", re.IGNORECASE)
_INT_MIN, _INT_MAX = -(2**63), 2**63 - 1

#: A comparison that no value meets.
NEVER: Final[Test] = ("in", ())


def text_of(found: Expr, text: str, name: str) -> str:
    if not _is_string(found):
        refuse(text, f"{name} is compared with a quoted text, not with {found.sql()}", place(found))
    value = str(found.this)
    if "\0" in value or any("\ud800" <= each <= "\udfff" for each in value):
        refuse(text, f"{name} is compared with a text that no name can be", place(found))
    return value


def bool_of(found: Expr, text: str, name: str) -> int:
    from sqlglot import exp  # noqa: PLC0415 - loaded by who has parsed it

    if not isinstance(found, exp.Boolean):
        refuse(text, f"{name} is compared with true or false", place(found))
    return int(bool(found.this))


def number_of(found: Expr, text: str, name: str) -> Decimal:
    from sqlglot import exp  # noqa: PLC0415 - as above

    inner, sign = (found.this, -1) if isinstance(found, exp.Neg) else (found, 1)
    if not isinstance(inner, exp.Literal) or inner.is_string:
        refuse(text, f"{name} is compared with a number, not with {found.sql()}", place(found))
    try:
        number = sign * Decimal(str(inner.this))
    except InvalidOperation:
        refuse(text, f"{inner.sql()} is no number", place(found))
    if not number.is_finite() or abs(number.adjusted()) > 400:  # noqa: PLR2004 - beyond every float
        refuse(text, f"{inner.sql()} is beyond every number that is kept", place(found))
    return number


def time_of(found: Expr, text: str, name: str, now_ms: int) -> int:
    """Milliseconds since 1970: of an ISO text, or of now() and a duration more or less."""
    from sqlglot import exp  # noqa: PLC0415 - as above

    if is_now(found):
        return now_ms
    if isinstance(found, exp.Sub | exp.Add) and is_now(found.this):
        moved_ms = duration_of(found.expression, text, name)
        return now_ms - moved_ms if isinstance(found, exp.Sub) else now_ms + moved_ms
    if not _is_string(found):
        refuse(text, f"{name} is compared with a time, like '2026-11-29T18:00:00+01:00' or now() - '7d'", place(found))
    value = str(found.this)
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        refuse(
            text, f"{value!r} is not a time; write it like '2026-11-29T18:00:00+01:00', or now() - '7d'", place(found)
        )
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return round(time.timestamp() * 1000)


def duration_of(found: Expr, text: str, name: str) -> int:
    """Milliseconds: of '90s', '1h30m', or interval '7 days'."""
    from sqlglot import exp  # noqa: PLC0415 - as above

    value = ""
    if isinstance(found, exp.Interval) and found.this is not None:
        value = f"{found.this.name}{'' if found.unit is None else found.unit.name}"
    elif _is_string(found):
        value = str(found.this)
    total, at = Decimal(0), 0
    while at < len(value) and (part := _PART.match(value, at)) is not None:
        unit = part[2].lower()
        unit = unit if unit in _UNITS_MS else _WORDS.get(unit.rstrip("s"), "")
        if not unit:
            break
        total += Decimal(part[1]) * _UNITS_MS[unit]
        at = part.end()
    if not value or value[at:].strip() or total > _INT_MAX:
        refuse(text, f"{name} is compared with a duration, like '90s', '1h30m' or interval '7 days'", place(found))
    return round(total)


def whole_tests(sign: Operator, value: Decimal) -> Test | None:
    """The comparison of a whole number with this one, in whole numbers of 64 bits; None where any meets it."""
    low, high = math.floor(value), math.ceil(value)
    match sign:
        case "<":
            bound, is_below = high, True
        case "<=":
            bound, is_below = low, True
        case ">":
            bound, is_below = low, False
        case ">=":
            bound, is_below = high, False
        case _:
            return (sign, low) if low == high and _INT_MIN <= low <= _INT_MAX else NEVER
    if _INT_MIN <= bound <= _INT_MAX:
        return sign, bound
    return None if is_below == (bound > 0) else NEVER


def prefix_tests(prefix: str) -> tuple[Test, ...]:
    """What begins with it is a range, which an index has."""
    after = _after(prefix)
    return ((">=", prefix),) if after is None else ((">=", prefix), ("<", after))


def _after(prefix: str) -> str | None:
    """The least text that is greater than all that begin with it."""
    for length in range(len(prefix), 0, -1):
        code = ord(prefix[length - 1]) + 1
        if code == 0xD800:  # noqa: PLR2004 - halves of surrogate pairs are in no text
            code = 0xE000
        if code <= 0x10FFFF:  # noqa: PLR2004 - the last one of Unicode
            return prefix[: length - 1] + chr(code)
    return None


def _is_string(found: Expr) -> bool:
    from sqlglot import exp  # noqa: PLC0415 - as above

    return isinstance(found, exp.Literal) and bool(found.is_string)


def suits(kind: str, found: Expr) -> bool:
    """Whether a value of the filter can be one of this kind, by its form."""
    from sqlglot import exp  # noqa: PLC0415 - as above

    if kind in TEXTS:
        return _is_string(found)
    if kind == "bool":
        return isinstance(found, exp.Boolean)
    if kind == "datetime":
        return not isinstance(found, exp.Boolean | exp.Neg) and (
            _is_string(found) or not isinstance(found, exp.Literal)
        )
    return isinstance(found, exp.Neg) or (isinstance(found, exp.Literal) and not found.is_string)
