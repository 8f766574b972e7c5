"""What stands still because somebody said so."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from pledger.engine.port.pauses import Lifting, Part, Pause, Paused, Scope, lifted_at, paused_again
from pledger.store.sqlfiles import as_json, load_queries
from pledger.store.sqlite.handle import SqliteHandle
from pledger.store.sqlite.writer import Cursor, Reader

T = TypeVar("T", bound=Paused)

_SQL: Final = load_queries(__package__, "pauses")

#: No pause at all, as statements take those that do not stand in their way.
NONE: Final = as_json([])


def pause_of(row: tuple[Any, ...]) -> Pause:
    """The pause of a row; the statements name its columns."""
    pause_key, namespace, kind, name, run_key, workflow_id, *rest = row
    return Pause(pause_key, Scope(namespace, kind, name, run_key, workflow_id), *rest)


def lifting(reader: Reader, namespace: str, task_queue: str, now_ms: int) -> Lifting:
    return Lifting(pauses_of(reader.rows(_SQL["pauses_of_places"], (namespace,))), task_queue, now_ms)


def claim(cursor: Cursor, lifting: Lifting, parts: Iterable[Part], take: Callable[[Cursor, Part], list[T]]) -> list[T]:
    """What is let go on now, part by part. take: claims one."""
    claimed: list[T] = []
    for part in parts:
        taken = take(cursor, part)
        lifting.pay(part, taken)
        claimed += taken
    for key, row in lifting.paid.items():
        _write(cursor, key, row)
    return claimed


def _write(cursor: Cursor, key: int, row: Pause | None) -> None:
    if row is None:
        cursor.execute(_SQL["drop_pause"], (key,))
        return
    bucket = (row.rate, row.backlog, row.released, row.tokens, row.filled_ms)
    cursor.execute(_SQL["change_pause"], (row.reason, row.paused_by, row.paused_ms, *bucket, key))


def _find(cursor: Cursor, scope: Scope) -> Pause | None:
    row = cursor.row(_SQL["find_pause"], (scope.namespace, scope.kind, scope.name))
    return None if row is None else pause_of(row)


class SqlitePauses(SqliteHandle):
    async def pause(self, scope: Scope, reason: str, paused_by: str) -> Pause:
        def pause(cursor: Cursor) -> Pause:
            now_ms = self._time(cursor)
            cursor.execute(_SQL["drop_pauses_of_closed_runs"], ())
            there = _find(cursor, scope)
            if there is not None:
                row = paused_again(there, reason, paused_by, now_ms)
                _write(cursor, row.pause_key, row)
                return row
            place = (scope.namespace, scope.kind, scope.name, scope.run_key, scope.workflow_id)
            cursor.execute(_SQL["insert_pause"], (*place, reason, paused_by, now_ms))
            return Pause(cursor.last_key(), scope, reason, paused_by, now_ms)

        return await self._submit(pause, durable=True)

    async def resume(self, scope: Scope, rate: float | None) -> Pause | None:
        def resume(cursor: Cursor) -> Pause | None:
            there = _find(cursor, scope)
            if there is None:
                return None
            now_ms = self._time(cursor)
            backlog = 0 if rate is None else self._backlog(cursor, scope, now_ms)
            _write(cursor, there.pause_key, lifted_at(there, rate, backlog, now_ms))
            return there

        return await self._submit(resume, durable=True)

    async def read_pauses(self, namespace: str) -> list[Pause]:
        return pauses_of(self._rows(_SQL["read_pauses"], namespace))

    def _backlog(self, cursor: Cursor, scope: Scope, now_ms: int) -> int:
        type_ = scope.name if scope.kind == "type" else None
        queue = scope.name if scope.kind == "queue" else None
        [(backlog,)] = cursor.rows(_SQL["backlog"], (scope.namespace, now_ms, type_, queue))
        return int(backlog)


def pauses_of(rows: Iterable[tuple[Any, ...]]) -> list[Pause]:
    return [pause_of(row) for row in rows]
