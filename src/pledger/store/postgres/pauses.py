"""What stands still because somebody said so."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import psycopg

from pledger.engine.port.pauses import Lifting, Part, Pause, Paused, Scope, lifted_at, paused_again
from pledger.store.postgres import news
from pledger.store.postgres.handle import PostgresHandle

T = TypeVar("T", bound=Paused)


def pause_of(row: tuple[Any, ...]) -> Pause:
    """The pause of a row; the statements name its columns."""
    pause_key, namespace, kind, name, run_key, workflow_id, *rest = row
    return Pause(pause_key, Scope(namespace, kind, name, run_key, workflow_id), *rest)


class PostgresPauses(PostgresHandle):
    async def pause(self, scope: Scope, reason: str, paused_by: str) -> Pause:
        place = (scope.namespace, scope.kind, scope.name)

        async def pause(connection: psycopg.AsyncConnection[Any]) -> Pause:
            await self._execute(connection, "drop_pauses_of_closed_runs")
            now_ms = await self._time(connection)
            # Inserted first: of two who do so at one moment, the second waits here and then finds the other's row.
            whole = (*place, scope.run_key, scope.workflow_id, reason, paused_by, now_ms)
            inserted = await self._execute(connection, "insert_pause", *whole)
            if inserted:
                row = Pause(inserted[0][0], scope, reason, paused_by, now_ms)
            else:
                [found] = await self._execute(connection, "lock_pause", *place)
                row = paused_again(pause_of(found), reason, paused_by, now_ms)
                await self._write(connection, row.pause_key, row)
            await self._say(connection, [news.OF_ANYTHING])
            return row

        return await self._transact(pause)

    async def resume(self, scope: Scope, rate: float | None) -> Pause | None:
        async def resume(connection: psycopg.AsyncConnection[Any]) -> Pause | None:
            found = await self._execute(connection, "lock_pause", scope.namespace, scope.kind, scope.name)
            if not found:
                return None
            there, now_ms, backlog = pause_of(found[0]), await self._time(connection), 0
            if rate is not None:
                type_ = scope.name if scope.kind == "type" else None
                queue = scope.name if scope.kind == "queue" else None
                [(backlog,)] = await self._execute(connection, "backlog", scope.namespace, now_ms, type_, queue)
            await self._write(connection, there.pause_key, lifted_at(there, rate, backlog, now_ms))
            await self._say(connection, [news.OF_ANYTHING])
            return there

        return await self._transact(resume)

    async def read_pauses(self, namespace: str) -> list[Pause]:
        return [pause_of(row) for row in await self._rows("read_pauses", namespace)]

    async def _claim_lifted(
        self,
        namespace: str,
        task_queue: str,
        parts: Callable[[Lifting], Iterator[Part]],
        take: Callable[[psycopg.AsyncConnection[Any], Part], Awaitable[list[T]]],
    ) -> list[T]:
        """What is let go on now, part by part. take: claims one."""

        async def claim(connection: psycopg.AsyncConnection[Any]) -> list[T]:
            rows = await self._execute(connection, "lock_lifted", namespace)
            lifting = Lifting([pause_of(row) for row in rows], task_queue, await self._time(connection))
            claimed: list[T] = []
            for part in parts(lifting):
                taken = await take(connection, part)
                lifting.pay(part, taken)
                claimed += taken
            for key, row in lifting.paid.items():
                await self._write(connection, key, row)
            return claimed

        return await self._transact(claim)

    async def _write(self, connection: psycopg.AsyncConnection[Any], key: int, row: Pause | None) -> None:
        if row is None:
            await self._execute(connection, "drop_pause", key)
            return
        bucket = (row.rate, row.backlog, row.released, row.tokens, row.filled_ms)
        await self._execute(connection, "change_pause", key, row.reason, row.paused_by, row.paused_ms, *bucket)

    async def _time(self, connection: psycopg.AsyncConnection[Any]) -> int:
        [(now_ms,)] = await self._execute(connection, "now", self._now())
        return int(now_ms)

    async def _execute(
        self, connection: psycopg.AsyncConnection[Any], name: str, *parameters: Any
    ) -> list[tuple[Any, ...]]:
        cursor = await connection.execute(self._sql[name], parameters, binary=True)
        return await cursor.fetchall() if cursor.description is not None else []
