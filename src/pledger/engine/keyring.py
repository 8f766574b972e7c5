"""The keys of tokens as one process knows them: those of its program, or those of the ledger."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from pledger.engine.tokens import Claims, accepted, key_of, sign

if TYPE_CHECKING:
    from pledger.engine.port.tokens import TokenKey, Tokens
    from pledger.machine.identity import RunIdentity

#: How long the keys of the ledger may be signed with before they are read again: a new one is in use so soon.
KEYS_AGE_S: Final = 30.0


class Keyring:
    """given: the secrets of the program, the first of which signs; () for the keys of the ledger."""

    def __init__(self, store: Tokens, given: Sequence[bytes], monotonic: Callable[[], float]) -> None:
        self._store = store
        self._monotonic = monotonic
        self._is_given = bool(given)
        self._keys: Sequence[TokenKey] = [key_of(secret) for secret in given]
        self._read_s = monotonic()

    @property
    def is_given(self) -> bool:
        """Whether the keys are the program's."""
        return self._is_given

    @property
    def is_stale(self) -> bool:
        return not self._is_given and (not self._keys or self._monotonic() - self._read_s > KEYS_AGE_S)

    @property
    def signing(self) -> TokenKey | None:
        """None before the first reading."""
        return self._keys[0] if self._keys else None

    async def read(self) -> None:
        """Know what the ledger has now. Raises StoreUnavailableError."""
        if not self._is_given:
            self._keys = await self._store.read_token_keys()
            self._read_s = self._monotonic()

    def accepted(self, key_id: str, now_ms: int) -> TokenKey | None:
        return accepted(self._keys, key_id, now_ms)


def token_of(key: TokenKey, identity: RunIdentity, event_id: int, attempt: int, expires_ms: int) -> str:
    who = (identity.namespace, identity.workflow_id, identity.run_id)
    return sign(Claims(key.key_id, *who, event_id, attempt, expires_ms), key.secret)
