"""Tokens: the right to complete one attempt of an activity from outside, for a time. Pure.

    pldg1.<what it is for>.<HMAC-SHA256 of that>        each in base64url, without padding

It holds no secret but its signature, and names the attempt whole: ledger-wide unique run, event and number. So a token
that was changed to name another one is a forgery, and one that is given twice meets an attempt that has ended: the row
of the attempt decides who was first, and nothing has to be remembered of tokens.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence
from typing import Final

import msgspec

from pledger.engine.port.tokens import TokenKey
from pledger.errors import TokenForgedError

_PREFIX: Final = "pldg1"
#: Characters of a token at most: ids are bounded, so none that is real is longer.
_LENGTH_MAX: Final = 8_192
#: Bytes of a key at least: those of its hash's output.
SECRET_BYTES_MIN: Final = 32


class Claims(msgspec.Struct, frozen=True, array_like=True):
    """What a token is for. key_id: of the key that has signed it. New fields come last, with defaults."""

    key_id: str
    namespace: str
    workflow_id: str
    run_id: str
    event_id: int
    attempt: int
    expires_ms: int


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Claims).decode


def sign(claims: Claims, secret: bytes) -> str:
    body = _text(_encode(claims))
    return f"{_PREFIX}.{body}.{_text(_mac(body, secret))}"


def read(token: str | bytes) -> tuple[Claims, str, bytes]:
    """What the token says of itself, which proves nothing yet; the signed part, and its signature. Raises
    TokenForgedError for what is no token."""
    try:
        text = token.decode("ascii") if isinstance(token, bytes) else token
        prefix, body, signature = text.strip().split(".")
        if prefix != _PREFIX or len(text) > _LENGTH_MAX:
            raise ValueError("of another kind")
        return _decode(_bytes(body)), body, _bytes(signature)
    except (AttributeError, ValueError, binascii.Error, msgspec.MsgspecError) as error:
        raise TokenForgedError(
            "this is no token of an activity: one begins with 'pldg1.' and has three parts. Give it as "
            "activity.completion_token() gave it, whole"
        ) from error


def is_signed(body: str, signature: bytes, key: TokenKey) -> bool:
    """In a time that does not tell how much of the signature is right."""
    return hmac.compare_digest(_mac(body, key.secret), signature)


def key_of(secret: bytes) -> TokenKey:
    """The key of a secret that a program gives itself: every process that has it names it alike."""
    return TokenKey(hashlib.sha256(b"pledger key id:" + secret).hexdigest()[:8], secret, 0)


def accepted(keys: Sequence[TokenKey], key_id: str, now_ms: int) -> TokenKey | None:
    found = next((key for key in keys if key.key_id == key_id), None)
    return found if found is not None and (found.retired_ms is None or now_ms < found.retired_ms) else None


def _mac(body: str, secret: bytes) -> bytes:
    return hmac.digest(secret, f"{_PREFIX}.{body}".encode(), "sha256")


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def _bytes(text: str) -> bytes:
    data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    if _text(data) != text:  # bits that nobody reads: a token has one spelling
        raise ValueError("of another spelling")
    return data
