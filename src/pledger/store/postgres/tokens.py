"""The keys that sign tokens."""

from __future__ import annotations

from typing import Any

import psycopg

from pledger.engine.port.tokens import TokenKey
from pledger.store.postgres.pauses import PostgresPauses


class PostgresTokens(PostgresPauses):
    async def read_token_keys(self) -> list[TokenKey]:
        return [TokenKey(*row) for row in await self._rows("read_token_keys")]

    async def rotate_token_keys(self, key_id: str, secret: bytes, keep_ms: int) -> TokenKey:
        async def rotate(connection: psycopg.AsyncConnection[Any]) -> TokenKey:
            now_ms = await self._time(connection)
            await self._execute(connection, "retire_token_keys", now_ms + keep_ms)
            await self._execute(connection, "drop_token_keys", now_ms)
            await self._execute(connection, "add_token_key", key_id, secret, now_ms)
            return TokenKey(key_id, secret, now_ms)

        return await self._transact(rotate)
