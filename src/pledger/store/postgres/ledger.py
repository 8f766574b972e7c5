"""Runs and their histories."""

from __future__ import annotations

from collections.abc import Sequence

from pledger.engine.port.records import OpenRow, RunRow, RunStatus
from pledger.history.transition import StoredTransition
from pledger.store.open_rows import open_rows
from pledger.store.postgres.handle import PostgresHandle
from pledger.store.postgres.rules.mailbox import unknown_run


class PostgresLedger(PostgresHandle):
    async def find_run(self, namespace: str, workflow_id: str, run_id: str | None = None) -> RunRow | None:
        if run_id is None:
            row = await self._row("find_newest_run", namespace, workflow_id)
        else:
            row = await self._row("find_run", namespace, workflow_id, run_id)
        return None if row is None else RunRow(*row)

    async def read_run(self, run_key: int) -> RunRow:
        row = await self._row("read_run", run_key)
        if row is None:
            raise unknown_run(run_key)
        return RunRow(*row)

    async def read_current(self, run_key: int) -> RunRow:
        row = await self._row("read_current", run_key)
        if row is None:
            raise unknown_run(run_key)
        return RunRow(*row)

    async def read_statuses(self, run_keys: Sequence[int]) -> dict[int, tuple[RunStatus, bool]]:
        rows = await self._rows("read_statuses", list(run_keys))
        return {run_key: (status, blocked) for run_key, status, blocked in rows}

    async def read_history(self, run_key: int, after_event: int = 0, limit: int = 1000) -> list[StoredTransition]:
        return [StoredTransition(*row) for row in await self._rows("read_history", run_key, after_event, limit)]

    async def read_last_transitions(self, run_key: int) -> list[StoredTransition]:
        return [StoredTransition(*row) for row in reversed(await self._rows("read_last_transitions", run_key))]

    async def count_open(self, namespace: str, now_ms: int) -> list[OpenRow]:
        return open_rows(await self._read_sql(self._lists, self._sql["count_open"], (namespace, now_ms)))
