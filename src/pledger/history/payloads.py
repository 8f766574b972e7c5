"""Payloads: the values that workflows, activities and messages exchange, as JSON by their type annotations.

The rule: what is read back equals what was written and has the same types, or writing raises at the producing line. So
code that works live works on replay. Nothing is pickled, and nothing in a payload can name code to run.

A refused value raises PayloadError, with the path of the place and what to do. Paths count fields, keys and indices of
the value (`$.lines[0].price`); the envelopes that mark types in the JSON are not counted. Messages name types, never
contents, which may be secret.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final

from pledger.errors import PayloadTooLargeError
from pledger.history.codecs.containers import ordered_pairs
from pledger.history.codecs.hints import codec_of
from pledger.history.codecs.json_tree import INT_DIGITS_MAX, NESTING_MAX, Misfit, canonical, dumps, loads
from pledger.history.codecs.notes import all_plain
from pledger.history.codecs.untyped import ANY
from pledger.history.signature import Signature

__all__ = [
    "INT_DIGITS_MAX",
    "NESTING_MAX",
    "PAYLOAD_BYTES_MAX",
    "Signature",
    "check_size",
    "decode",
    "digest",
    "encode",
    "encode_args_untyped",
]

#: Default limit of one payload. A history of thousands of events must stay readable in seconds; the field's limits lie
#: between 256 KiB (Step Functions) and 2 MB (Temporal).
PAYLOAD_BYTES_MAX: Final = 256 * 1024


def encode(value: object, hint: Any = Any) -> bytes:
    """The strict JSON (RFC 8259, UTF-8) of a value under an annotation. Raises PayloadError."""
    try:
        codec = ANY if hint is Any else codec_of(hint)
        return dumps(value if type(value) in codec.passes else codec.encode(value, 0))
    except Misfit as misfit:
        raise misfit.error("the value cannot be kept") from misfit.__cause__


def decode(data: bytes, hint: Any = Any) -> Any:
    """The value that `encode` wrote, or hand-written JSON of the annotated shape. Raises PayloadError.

    Also reads what was written without an annotation, if it is of the annotated type.
    """
    try:
        codec = ANY if hint is Any else codec_of(hint)
        tree = loads(data)
        return tree if type(tree) in codec.reads else codec.decode(tree)
    except Misfit as misfit:
        raise misfit.error("the payload cannot be read") from misfit.__cause__


def encode_args_untyped(args: Sequence[Any]) -> bytes:
    """The arguments of a function of which only the name is known, as a JSON array. Raises PayloadError.

    Its `Signature` reads them where they are of the annotated types, or plain JSON of the annotated shape.
    """
    try:
        return dumps(ANY.encode(list(args), 0))
    except Misfit as misfit:
        raise misfit.error("the arguments cannot be kept") from misfit.__cause__


def digest(data: bytes) -> bytes:
    """16 bytes that are equal for equal JSON: blanks, escapes and the order of keys do not count. Raises PayloadError.

    "The same input" compares it. 1 and 1.0 differ, as their types do in Python.
    """
    try:
        tree = loads(data)
    except Misfit as misfit:
        raise misfit.error("the payload cannot be read") from None
    if b'"$type"' in data:  # perhaps notes, which do not count: code from before there were any has written none
        tree = all_plain(tree)
    if b'"dict' in data:  # perhaps a dict written as pairs, whose order does not count either
        tree = ordered_pairs(tree)
    return hashlib.blake2b(canonical(tree), digest_size=16).digest()


def check_size(data: bytes, what: str, limit: int = PAYLOAD_BYTES_MAX) -> None:
    """Raises PayloadTooLargeError for more than `limit` bytes. what: in words, like "the result of charge()"."""
    if len(data) > limit:
        raise PayloadTooLargeError(
            f"{what} has {len(data):,} bytes; the limit is {limit:,}. "
            "Keep the content in a store of your own and pass a reference to it, or raise the limit.",
            size_bytes=len(data),
            size_bytes_max=limit,
        )
