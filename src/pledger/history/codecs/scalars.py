"""Values without parts: JSON's own scalars, those that travel as text, and enums."""

from __future__ import annotations

import base64
import enum
import math
import re
import sys
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, TypeGuard
from uuid import UUID

import msgspec

from pledger.history.codecs.codec import Codec, NoneType, opened
from pledger.history.codecs.json_tree import Misfit
from pledger.history.secret import Secret

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo


class PlainCodec(Codec):
    """str, int, bool, None: the tree is the value. Surrogates and digits are found when the text is written."""

    native = True

    def __init__(self, cls: type) -> None:
        self.name = "None" if cls is NoneType else cls.__name__
        self.types = (cls,)
        self.kinds = self.passes = self.reads = frozenset({cls})

    def encode(self, value: object, _depth: int, /) -> object:
        if type(value) not in self.passes:
            raise self.refused(value)
        return value

    def decode(self, tree: object) -> object:
        if type(tree) not in self.reads:
            raise self.unexpected(tree)
        return tree


class FloatCodec(Codec):
    """float; an int as well, which the annotation allows (PEP 484) and which comes back as the int that it was."""

    name = "float"
    native = True
    types = (float, int)
    kinds = reads = frozenset({float, int})
    passes = frozenset({int})

    def encode(self, value: object, _depth: int, /) -> object:
        if type(value) is float:
            return finite(value)
        if type(value) is not int:
            raise self.refused(value)
        return value

    def decode(self, tree: object) -> object:
        if type(tree) not in self.reads:
            raise self.unexpected(tree)
        return tree


def finite(number: float) -> float:
    """The number itself. Raises Misfit for NaN and the infinities."""
    if not math.isfinite(number):
        raise Misfit(f"{number} is not a JSON number (RFC 8259). Pass None, a string or a finite number instead.")
    return number


class TextCodec(Codec):
    """A type whose values travel as one string. `write` may raise Misfit; `read` may raise what parsers raise."""

    kinds = frozenset({str})

    def __init__(self, cls: type, write: Callable[[Any], str], read: Callable[[str], object], like: str) -> None:
        self.name = self.tag = cls.__name__
        self.types = (cls,)
        self._write = write
        self._read = read
        self._like = like

    def encode(self, value: object, _depth: int, /) -> object:
        if type(value) is not self.types[0]:
            raise self.refused(value)
        return self._write(value)

    def decode(self, tree: object) -> object:
        text = tree if type(tree) is str else opened(tree, self.tag)
        if type(text) is not str:
            raise self.unexpected(tree)
        try:
            return self._read(text)
        except (ValueError, ArithmeticError, msgspec.ValidationError) as error:
            raise Misfit(f"expected {self.name}, found another string. Write it like {self._like}.") from error


# Text forms -----------------------------------------------------------------------------------------------------------


def _write_bytes(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _read_bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _write_decimal(value: Decimal) -> str:
    if not value.is_finite():
        raise Misfit(f"{value} is not a number that can be kept. Pass None, a string or a finite Decimal instead.")
    return str(value)


def _read_decimal(text: str) -> Decimal:
    value = Decimal(text)
    if not value.is_finite():
        raise ValueError(text)
    return value


def _write_timedelta(value: timedelta) -> str:
    return str(msgspec.to_builtins(value))


def _read_timedelta(text: str) -> timedelta:
    return msgspec.convert(text, timedelta)


def aware(value: datetime) -> datetime:
    """The datetime itself. Raises Misfit for one without a zone."""
    if value.utcoffset() is None:
        raise Misfit(
            "a naive datetime names no instant: the zone is missing. Give it one, like datetime.now(timezone.utc) or "
            "tzinfo=ZoneInfo(...)."
        )
    return value


def _write_datetime(value: datetime) -> str:
    """RFC 9557, like 2024-11-03T01:30:00-05:00[America/New_York][_fold=1].

    The zone is kept besides the offset because Python calls an hour that the clock repeats unequal to the same instant
    in any other zone, and because "the same time tomorrow" needs it.
    """
    text = aware(value).isoformat()
    zone = value.tzinfo
    if not isinstance(zone, timezone) and _key(zone) is None and datetime.fromisoformat(text) != value:
        raise _foreign_zone(zone)
    return text + _suffix(zone, value.fold)


def _read_datetime(text: str) -> datetime:
    iso, key, fold = _parts(text)
    value = datetime.fromisoformat(iso)
    if value.tzinfo is None:
        raise Misfit("the datetime has no zone and so names no instant. Write the offset, like 2024-11-03T06:30:00Z.")
    if key is None:
        return value.replace(fold=fold)
    return _located(value, _zone(key), fold)


def zone_suffix(value: datetime | time) -> str:
    """What RFC 9557 writes behind the offset: "" where the offset says it all."""
    return "" if _key(value.tzinfo) is None else _suffix(value.tzinfo, value.fold)


def in_zone(value: datetime | time, suffix: str) -> datetime | time:
    """The value in the zone of a suffix: a datetime at the same instant. Raises Misfit."""
    match = _SUFFIX.fullmatch(suffix)
    if match is None:
        raise Misfit(f"expected a zone, found another string. Write it like {'[Europe/Berlin]'!r}.")
    zone, fold = _zone(match[1]), int(match[2] is not None)
    if isinstance(value, time):
        return value.replace(tzinfo=zone, fold=fold)
    return value if value.tzinfo is None else _located(value, zone, fold)


def _located(value: datetime, zone: ZoneInfo, fold: int) -> datetime:
    local = value.replace(tzinfo=zone, fold=fold)
    # Offsets differ in text from elsewhere, which need not carry the fold, and when the rules of the zone have changed
    # since. The instant is what was recorded.
    return local if local.utcoffset() == value.utcoffset() else value.astimezone(zone)


def _write_time(value: time) -> str:
    zone = value.tzinfo
    if not isinstance(zone, (NoneType, timezone)) and _key(zone) is None:
        raise _foreign_zone(zone)
    return value.isoformat() + _suffix(zone, value.fold)


def _read_time(text: str) -> time:
    iso, key, fold = _parts(text)
    value = time.fromisoformat(iso)
    return value.replace(tzinfo=value.tzinfo if key is None else _zone(key), fold=fold)


def _suffix(zone: tzinfo | None, fold: int) -> str:
    key = _key(zone)
    return (f"[{key}]" if key is not None else "") + ("[_fold=1]" if fold else "")


def _is_zone_info(zone: tzinfo | None) -> TypeGuard[ZoneInfo]:
    # Not imported at the top: most programs keep no zones, and it takes a twentieth of the library's whole start-up.
    # Whoever has made one has imported its module. Another thread may be importing it now: then it has no class yet.
    return isinstance(zone, getattr(sys.modules.get("zoneinfo"), "ZoneInfo", ()))


def _key(zone: tzinfo | None) -> str | None:
    return zone.key if _is_zone_info(zone) else None


_PARTS = re.compile(r"([^\[\]]+)(?:\[([^\[\]=]+)\])?(\[_fold=1\])?")
_SUFFIX = re.compile(r"\[([^\[\]=]+)\](\[_fold=1\])?")


def _parts(text: str) -> tuple[str, str | None, int]:
    """The ISO 8601 text, the key of the zone or None, and the fold."""
    if "[" not in text:
        return text, None, 0
    match = _PARTS.fullmatch(text)
    if match is None:
        raise ValueError(text)
    return match[1], match[2], int(match[3] is not None)


def _zone(key: str) -> ZoneInfo:
    from zoneinfo import ZoneInfo  # noqa: PLC0415 - see _is_zone_info

    try:
        return ZoneInfo(key)
    except (KeyError, ValueError, OSError) as error:  # unknown; not a key at all; a directory such as "America"
        raise Misfit(
            f"the time zone {key[:80]!r} is not known here. Install the package tzdata, or write the offset only."
        ) from error


def _foreign_zone(zone: tzinfo | None) -> Misfit:
    return Misfit(f"a time zone of class {type(zone).__qualname__} would not come back. Use zoneinfo.ZoneInfo.")


# Enums ----------------------------------------------------------------------------------------------------------------


class EnumCodec(Codec):
    """An Enum by its values where these are all str or int (a Flag by its bits), else by the names of its members."""

    def __init__(self, cls: type[enum.Enum]) -> None:
        self._cls = cls
        self.name = cls.__qualname__
        self.types = (cls,)
        kinds = {int} if issubclass(cls, enum.Flag) else {type(member.value) for member in cls}
        self._by_value = kinds <= {str, int}
        self.kinds = frozenset(kinds if self._by_value else {str})

    def encode(self, value: object, _depth: int, /) -> object:
        if not isinstance(value, self._cls):
            raise self.refused(value)
        return value.value if self._by_value else value.name

    def decode(self, tree: object) -> object:
        body = opened(tree, self.name)
        if type(body) not in self.kinds:
            raise self.unexpected(tree)
        try:
            return self._cls(body) if self._by_value else self._cls[str(body)]
        except Exception:  # noqa: BLE001 - `_missing_` is the user's own code
            choices = ", ".join(member.name for member in self._cls)
            raise Misfit(
                f"no member of {self.name} has the recorded value; it has {choices}. "
                "Keep the members that open runs still hold."
            ) from None


class IntKeyCodec(Codec):
    """int as the key of a JSON object, where it must be a string. Reads an int too, as untyped dicts keep it."""

    name = "int"
    types = (int,)
    kinds = frozenset({str})
    reads = frozenset({int})

    def encode(self, value: object, _depth: int, /) -> object:
        if type(value) is not int:
            raise self.refused(value)
        return str(value)

    def decode(self, tree: object) -> object:
        if type(tree) is int:
            return tree
        if type(tree) is not str or not _INT.fullmatch(tree):
            raise Misfit('expected an int as key, found another string. Write it like "17".')
        return int(tree)


_INT: Final = re.compile(r"-?(0|[1-9][0-9]{0,4299})")

NULL: Final = PlainCodec(NoneType)
BOOL: Final = PlainCodec(bool)
INT: Final = PlainCodec(int)
STR: Final = PlainCodec(str)
FLOAT: Final = FloatCodec()
INT_KEY: Final = IntKeyCodec()

TEXTS: Final = (
    TextCodec(bytes, _write_bytes, _read_bytes, 'base64 with padding: "aGk="'),
    TextCodec(Decimal, _write_decimal, _read_decimal, '"12.50"'),
    TextCodec(UUID, str, UUID, '"123e4567-e89b-12d3-a456-426614174000"'),
    TextCodec(datetime, _write_datetime, _read_datetime, '"2024-11-03T06:30:00Z" or with a zone, "...[Europe/Berlin]"'),
    TextCodec(date, date.isoformat, date.fromisoformat, '"2024-11-03"'),
    TextCodec(time, _write_time, _read_time, '"01:30:00"'),
    TextCodec(Secret, str, Secret, '"secret://name"'),
    TextCodec(timedelta, _write_timedelta, _read_timedelta, '"PT1.5S" (ISO 8601)'),
)
