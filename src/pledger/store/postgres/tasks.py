"""Activities that wait in the store or run away from their run's owner."""

from __future__ import annotations

from pledger.engine.port.lanes import Served
from pledger.engine.port.records import AttemptRecord, TaskRow
from pledger.store.postgres.pauses import PostgresPauses


class PostgresTasks(PostgresPauses):
    async def claim_tasks(self, session_key: int, now_ms: int, served: Served, room: int) -> list[TaskRow]:
        place = (session_key, now_ms, served.namespace, served.task_queue)
        return [TaskRow(*row) for row in await self._change("claim_tasks", *place, list(served.activity_types), room)]

    async def expired_tasks(self, namespace: str, now_ms: int, limit: int) -> list[TaskRow]:
        return [TaskRow(*row) for row in await self._rows("expired_tasks", namespace, now_ms, limit)]

    async def owned_tasks(self, session_key: int) -> list[TaskRow]:
        return [TaskRow(*row) for row in await self._rows("owned_tasks", session_key)]

    async def read_tasks(self, run_key: int) -> list[TaskRow]:
        return [TaskRow(*row) for row in await self._rows("read_tasks", run_key)]

    async def read_attempts(self, run_key: int) -> list[AttemptRecord]:
        return [AttemptRecord(*row) for row in await self._rows("read_attempts", run_key)]
