"""Runs that go on from a part of another one's history, for those who look. `rules.resets` makes them."""

from __future__ import annotations

from pledger.engine.port.records import ResetRow
from pledger.store.postgres.handle import PostgresHandle


class PostgresResets(PostgresHandle):
    async def read_resets(self, run_key: int) -> list[ResetRow]:
        return [ResetRow(*row) for row in await self._rows("read_resets", run_key)]
