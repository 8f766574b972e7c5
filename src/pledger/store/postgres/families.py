"""Parents and children: reads, and what is seen to after a parent's end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg

from pledger.engine.port.posts import Child, Parting
from pledger.engine.port.records import RunRow
from pledger.store.postgres.handle import PostgresHandle


class PostgresFamilies(PostgresHandle):
    async def read_parent(self, chain_key: int) -> RunRow | None:
        row = await self._row("read_parent", chain_key)
        return None if row is None else RunRow(*row)

    async def read_children(self, run_key: int, limit: int, after_event: int = 0) -> list[Child]:
        return _children(await self._rows("read_children", run_key, limit, after_event))

    async def read_parting(self, namespace: str, limit: int) -> Parting | None:
        row = await self._row("next_parting", namespace)
        if row is None:
            return None
        run = RunRow(*row)
        children = _children(await self._rows("dependants", run.run_key, limit))
        return Parting(run.run_key, run.workflow_id, run.run_id, run.status, tuple(children))

    async def settle_parting(self, run_key: int, chain_keys: Sequence[int]) -> None:
        async def settle(connection: psycopg.AsyncConnection[Any]) -> None:
            await connection.execute(self._sql["seen_to"], [sorted(chain_keys)])
            await connection.execute(self._sql["drop_parting"], [run_key])

        await self._transact(settle)


def _children(rows: Sequence[tuple[Any, ...]]) -> list[Child]:
    return [Child(event_id, policy, RunRow(*row)) for event_id, policy, *row in rows]
