"""Arrays in PostgreSQL's binary form, packed in a few calls.

A batch is written by arrays with a place for each row. What psycopg does to dump them, element by element, is most of
what a step costs in the driver (ADR 0015); here a column is packed as a whole.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from psycopg.adapt import Dumper
from psycopg.pq import Format

_PARAMETER: Final = re.compile(r"\$(\d+)::(bigint|int|text|bytea|boolean|float8)\[\]")
_length: Final = struct.Struct(">i").pack
_NULL: Final = _length(-1)


class _Type(NamedTuple):
    """oid: of an element; array: of the array. encode: an element that is not None. struct: its code and its length,
    where all have the same."""

    oid: int
    array: int
    encode: Callable[[Any], bytes]
    struct: tuple[str, int] | None = None


_TYPES: Final = {
    "bigint": _Type(20, 1016, struct.Struct(">q").pack, ("q", 8)),
    "int": _Type(23, 1007, struct.Struct(">i").pack, ("i", 4)),
    "boolean": _Type(16, 1000, struct.Struct(">?").pack, ("?", 1)),
    "float8": _Type(701, 1022, struct.Struct(">d").pack, ("d", 8)),
    "text": _Type(25, 1009, str.encode),
    "bytea": _Type(17, 1001, bytes),
}


class Packed(NamedTuple):
    """An array as a parameter: the type of the array, and its bytes."""

    oid: int
    data: bytes


class PackedDumper(Dumper):
    """For the adapters of a connection."""

    format = Format.BINARY

    def get_key(self, obj: Packed, format: Any) -> Any:  # noqa: A002, ARG002 - psycopg's name
        return Packed, obj.oid

    def upgrade(self, obj: Packed, format: Any) -> PackedDumper:  # noqa: A002, ARG002 - as above
        dumper = PackedDumper(Packed)
        dumper.oid = obj.oid
        return dumper

    def dump(self, obj: Packed) -> bytes:
        return obj.data


def array_parameters(sql: str) -> Mapping[int, str]:
    """Which parameters of a statement are arrays, from 0, and of what."""
    return {int(number) - 1: kind for number, kind in _PARAMETER.findall(sql)}


def pack(kind: str, values: Sequence[Any]) -> Packed:
    """kind: bigint, int, float8, boolean, text or bytea. Values may be None.

    Raises struct.error, TypeError, AttributeError or UnicodeError for a value that cannot be of that kind.
    """
    described = _TYPES[kind]
    if not values:
        return Packed(described.array, struct.pack(">iii", 0, 0, described.oid))
    nulls = None in values
    header = struct.pack(">iiiii", 1, nulls, described.oid, len(values), 1)
    if described.struct is not None and not nulls:
        code, length = described.struct
        mixed: list[Any] = [length] * (2 * len(values))
        mixed[1::2] = values
        return Packed(described.array, header + struct.pack(f">{f'i{code}' * len(values)}", *mixed))
    encode = described.encode
    parts = [header]
    for value in values:
        if value is None:
            parts.append(_NULL)
        else:
            encoded = encode(value)
            parts.append(_length(len(encoded)))
            parts.append(encoded)
    return Packed(described.array, b"".join(parts))
