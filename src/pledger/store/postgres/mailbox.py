"""Messages accepted for a chain and not yet in its history."""

from __future__ import annotations

from pledger.engine.port.records import Message
from pledger.store.postgres.handle import PostgresHandle


class PostgresMailbox(PostgresHandle):
    async def read_inbox(self, chain_key: int) -> list[Message]:
        return [Message(*row) for row in await self._rows("read_inbox", chain_key)]

    async def read_message(self, chain_key: int, message_id: str) -> Message | None:
        row = await self._row("read_message", chain_key, message_id)
        return None if row is None else Message(*row)

    async def read_undelivered(self, chain_key: int) -> list[Message]:
        return [Message(*row) for row in await self._rows("read_undelivered", chain_key)]
