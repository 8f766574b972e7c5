"""Runs as a worker brings them into memory: many by one round trip."""

from __future__ import annotations

from collections.abc import Sequence

from pledger.engine.port.records import Message, StoredRun, TaskRow
from pledger.history.transition import StoredTransition
from pledger.store.loads import gather
from pledger.store.postgres.handle import PostgresHandle


class PostgresLoads(PostgresHandle):
    async def read_stored_runs(self, run_keys: Sequence[int], limit: int) -> list[StoredRun]:
        keys = list(run_keys)
        messages, tasks, transitions = await self._read_together(
            ("waiting_messages", (keys,)), ("tasks_of_runs", (keys,)), ("histories_of_runs", (keys, limit))
        )
        return gather(
            keys,
            [(run_key, StoredTransition(*row)) for run_key, *row in transitions],
            [(run_key, Message(*row)) for run_key, *row in messages],
            [TaskRow(*row) for row in tasks],
        )
