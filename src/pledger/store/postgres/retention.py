"""What is forgotten of finished chains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pledger.engine.port.records import RunRow
from pledger.engine.port.retention import EVENTS_MAX, Finished, Place
from pledger.store.postgres.handle import PostgresHandle


class PostgresRetention(PostgresHandle):
    """By the connection of long lists: no commit waits for what is removed."""

    async def take_duty(self, namespace: str, name: str, session_key: int, hold_ms: int) -> bool:
        return bool(await self._tidy("take_duty", self._now(), namespace, name, session_key, hold_ms))

    async def leave_duty(self, namespace: str, name: str, session_key: int, rest_ms: int) -> None:
        await self._tidy("leave_duty", self._now(), namespace, name, session_key, rest_ms)

    async def finished_types(self, namespace: str) -> list[str]:
        return [name for (name,) in await self._tidy("finished_types", namespace)]

    async def finished_chains(
        self, namespace: str, workflow_type: str, keep_ms: int, after: Place, limit: int
    ) -> list[Finished]:
        place = (self._now(), namespace, workflow_type, keep_ms)
        return [Finished(*row) for row in await self._tidy("finished_chains", *place, *after, limit)]

    async def chain_runs(self, chain_keys: Sequence[int]) -> list[RunRow]:
        return [RunRow(*row) for row in await self._tidy("chain_runs", list(chain_keys))]

    async def forget_chains(self, chain_keys: Sequence[int], keep_ms: int) -> int:
        [(count,)] = await self._tidy("forget_chains", self._now(), list(chain_keys), keep_ms, EVENTS_MAX)
        return int(count)

    async def drop_leftovers(self, limit: int) -> int:
        [(count,)] = await self._tidy("drop_leftovers", limit)
        if not count:
            [(count,)] = await self._tidy("drop_streams", limit)
        return int(count)

    async def _tidy(self, name: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """One statement, which is a transaction by itself. Not repeated when it fails: it is never urgent."""
        self._check_open()
        async with self._lists.use() as connection:
            cursor = await connection.execute(self._sql[name], parameters, binary=True)
            return await cursor.fetchall() if cursor.description is not None else []
