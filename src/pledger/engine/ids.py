"""Run ids: 26 characters that sort by the time of their making (the ULID form), from time and entropy handed in."""

from __future__ import annotations

import base64

_CROCKFORD = bytes.maketrans(b"0123456789ABCDEFGHIJKLMNOPQRSTUV", b"0123456789ABCDEFGHJKMNPQRSTVWXYZ")


def new_run_id(now_ms: int, entropy: bytes) -> str:
    """now_ms: since 1970. entropy: 10 random bytes."""
    raw = now_ms.to_bytes(6, "big") + entropy
    return base64.b32hexencode(raw).rstrip(b"=").translate(_CROCKFORD).decode()
