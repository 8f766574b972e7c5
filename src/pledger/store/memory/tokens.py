"""The keys that sign tokens."""

from __future__ import annotations

from msgspec.structs import replace

from pledger.engine.port.tokens import TokenKey
from pledger.store.memory.state import State


def read_token_keys(state: State) -> list[TokenKey]:
    return list(reversed(state.token_keys))


def rotate_token_keys(state: State, key_id: str, secret: bytes, keep_ms: int) -> TokenKey:
    now_ms = state.clock()
    end_ms = now_ms + keep_ms
    ends = [end_ms if key.retired_ms is None else min(key.retired_ms, end_ms) for key in state.token_keys]
    kept = [replace(key, retired_ms=end) for key, end in zip(state.token_keys, ends, strict=True) if end > now_ms]
    key = TokenKey(key_id, secret, now_ms)
    state.token_keys = [*kept, key]
    return key
