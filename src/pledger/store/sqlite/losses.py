"""A ledger that has gone back behind what it had acknowledged: see the port's `Losses`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from pledger.store.losses import JUMP
from pledger.store.sqlfiles import load_queries
from pledger.store.sqlite.handle import SqliteHandle
from pledger.store.sqlite.writer import Cursor

_SQL: Final = load_queries(__package__, "losses")


class SqliteLosses(SqliteHandle):
    async def declare_loss(self) -> int:
        now_ms = self._now()

        def declare(cursor: Cursor) -> int:
            noted = cursor.rows(_SQL["note_losses"], (now_ms,))
            cursor.execute(_SQL["lose_tasks"], (now_ms,))
            cursor.execute(_SQL["fence_runs"], (JUMP,))
            cursor.execute(_SQL["jump_keys"], (JUMP,))
            cursor.execute(_SQL["jump_streams"], (JUMP,))
            cursor.execute(_SQL["end_all_sessions"], ())
            cursor.execute(_SQL["drop_all_wakes"], ())
            return sum(moved for (moved,) in noted)

        return await self._submit(declare, durable=True)

    async def read_losses(self, run_keys: Sequence[int]) -> dict[int, bool]:
        found = self._rows(_SQL["read_losses"], json.dumps(list(run_keys)))
        return {run_key: bool(moved) for run_key, moved in found}
