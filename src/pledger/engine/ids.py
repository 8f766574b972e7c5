"""Run ids: 26 characters that sort by the time of their making (the ULID form), from time and entropy handed in."""

from __future__ import annotations

import hashlib
from typing import Final

_CROCKFORD: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
#: Two characters for each ten bits: one look-up for every two characters of an id.
_PAIRS: Final = [first + second for first in _CROCKFORD for second in _CROCKFORD]

#: Characters of a run id that are its time.
_TIME: Final = 10


def new_run_id(now_ms: int, entropy: bytes) -> str:
    """now_ms: since 1970. entropy: 10 random bytes."""
    # 128 bits in 26 characters of 5: the last two bits are 0, as in any base 32 that fills from the left.
    bits = (now_ms << 80 | int.from_bytes(entropy, "big")) << 2
    pairs = _PAIRS
    return "".join([pairs[bits >> shift & 1023] for shift in range(120, -1, -10)])


def derived_run_id(run_id: str, what: str) -> str:
    """Of the run that something makes, the same whoever asks. It bears the time of `run_id`."""
    digest = hashlib.blake2b(what.encode(), digest_size=10).digest()
    return run_id[:_TIME] + new_run_id(0, digest)[_TIME:]
