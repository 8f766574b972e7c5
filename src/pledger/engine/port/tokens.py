"""The keys that sign the tokens of attempts that are completed from outside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pledger.engine.port.records import Record


class TokenKey(Record, frozen=True):
    """key_id: stands in each token that it has signed. retired_ms: from then on those are refused; None for never.

    What it shows of itself has no secret in it: it may come into a log.
    """

    key_id: str
    secret: bytes
    created_ms: int
    retired_ms: int | None = None

    def __repr__(self) -> str:
        return f"TokenKey({self.key_id!r}, created_ms={self.created_ms}, retired_ms={self.retired_ms})"


class Tokens(Protocol):
    """Keys of a ledger: it has one from the first day on."""

    async def read_token_keys(self) -> Sequence[TokenKey]:
        """All, the newest first: that is the one that signs."""
        ...

    async def rotate_token_keys(self, key_id: str, secret: bytes, keep_ms: int) -> TokenKey:
        """A new key, which signs from now on. What others have signed is accepted for `keep_ms` more, or for as long as
        has been said of them before, should that be less; those that are accepted no more are forgotten. Durable before
        it returns."""
        ...
