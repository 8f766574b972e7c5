"""The memo of a run: values for people, by name. Nobody searches for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from pledger.errors import UsageError
from pledger.history import payloads
from pledger.history.names import check_id
from pledger.history.sealing import is_sealed

_decode: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_NULL: Final = b"null"

#: What is kept of it where there is nothing in it.
EMPTY: Final = b"{}"


def encode(memo: object, what: str, bytes_max: int, before: Mapping[str, bytes] | None = None) -> bytes:
    """The JSON object of a memo, or of changes to the one that there was before; it is bounded as a whole.

    what: like "the memo of workflow 'a'". Raises UsageError for what is no mapping by name, PayloadError for a value
    that cannot be kept, PayloadTooLargeError.
    """
    if not isinstance(memo, Mapping):
        raise UsageError(
            f"{what} is {memo!r}, of type {type(memo).__name__}; it must be a mapping from names to values"
        )
    values = {check_id(name, f"a name in {what}"): payloads.encode(value) for name, value in memo.items()}
    payloads.check_size(written(merged(before or {}, values)), what, bytes_max)
    return written(values if before is not None else merged({}, values))


def read(memo: bytes | None) -> dict[str, bytes]:
    """The JSON of each value; of one that is sealed nothing can be said."""
    return {} if memo is None or is_sealed(memo) else {name: bytes(value) for name, value in _decode(memo).items()}


def written(values: Mapping[str, bytes]) -> bytes:
    return msgspec.json.encode({name: msgspec.Raw(value) for name, value in values.items()})


def merged(before: Mapping[str, bytes], changes: Mapping[str, bytes]) -> dict[str, bytes]:
    """The memo after the changes; null takes a value away."""
    after = {**before, **changes}
    return {name: value for name, value in after.items() if value != _NULL}


def values(memo: Mapping[str, bytes]) -> dict[str, Any]:
    return {name: payloads.decode(value) for name, value in memo.items()}
