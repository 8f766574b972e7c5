"""The keys that sign tokens."""

from __future__ import annotations

from typing import Final

from pledger.engine.port.tokens import TokenKey
from pledger.store.sqlfiles import load_queries
from pledger.store.sqlite.handle import SqliteHandle
from pledger.store.sqlite.writer import Cursor

_SQL: Final = load_queries(__package__, "tokens")


class SqliteTokens(SqliteHandle):
    async def read_token_keys(self) -> list[TokenKey]:
        return [TokenKey(*row) for row in self._rows(_SQL["read_token_keys"])]

    async def rotate_token_keys(self, key_id: str, secret: bytes, keep_ms: int) -> TokenKey:
        def rotate(cursor: Cursor) -> TokenKey:
            now_ms = self._time(cursor)
            cursor.execute(_SQL["retire_token_keys"], (now_ms + keep_ms,))
            cursor.execute(_SQL["drop_token_keys"], (now_ms,))
            cursor.execute(_SQL["add_token_key"], (key_id, secret, now_ms))
            return TokenKey(key_id, secret, now_ms)

        return await self._submit(rotate, durable=True)
