"""Leases of worker processes, and what they own."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pledger.engine.port.pauses import Part
from pledger.engine.port.records import Outlook, RunRow, SessionRow
from pledger.store.sqlfiles import as_json, load_queries
from pledger.store.sqlite import pauses
from pledger.store.sqlite.handle import SqliteHandle
from pledger.store.sqlite.writer import Cursor

_SQL: Final = load_queries(__package__, "sessions")


def is_alive(cursor: Cursor, session_key: int) -> bool:
    """Whether the session was not ended: what it took after that would never be given back."""
    return cursor.row(_SQL["has_session"], (session_key,)) is not None


def _orphan(cursor: Cursor, session_key: int) -> None:
    """What an ended session owned becomes ownerless and due."""
    cursor.execute(_SQL["orphan_wakes"], (session_key,))
    cursor.execute(_SQL["orphan_runs"], (session_key,))
    cursor.execute(_SQL["orphan_tasks"], (session_key,))


def _claim(cursor: Cursor, session_key: int, candidates: tuple[Any, ...]) -> list[RunRow]:
    if not is_alive(cursor, session_key):
        return []
    keys = as_json([run_key for (run_key,) in cursor.rows(_SQL["claimable_runs"], candidates)])
    cursor.execute(_SQL["claim_runs"], (session_key, keys))
    return [RunRow(*row) for row in cursor.rows(_SQL["read_claimed"], (keys,))]


class SqliteSessions(SqliteHandle):
    async def now_ms(self) -> int:
        [(now,)] = self._rows(_SQL["now"], self._now())
        return int(now)

    async def open_session(
        self, identity: str, namespace: str, task_queue: str, code: str, lease_ms: int
    ) -> SessionRow:
        bindings = (self._now(), identity, namespace, task_queue, code, lease_ms)
        [row] = await self._submit(lambda cursor: cursor.rows(_SQL["open_session"], bindings))
        return SessionRow(*row)

    def renew_session(self, session_key: int, lease_ms: int) -> int | None:
        self._check_open()
        bindings = (self._now(), session_key, lease_ms)
        row = self._database.lane.run_blocking(
            lambda cursor: cursor.row(_SQL["renew_session"], bindings), durable=False
        )
        return None if row is None else int(row[0])

    async def close_session(self, session_key: int) -> None:
        def end(cursor: Cursor) -> None:
            cursor.execute(_SQL["end_session"], (session_key,))
            _orphan(cursor, session_key)

        await self._submit(end)

    async def bury_sessions(self, namespace: str) -> list[SessionRow]:
        bindings = (self._now(), namespace)
        if not self._rows(_SQL["has_expired_session"], *bindings):
            return []

        def bury(cursor: Cursor) -> list[SessionRow]:
            buried = [SessionRow(*row) for row in cursor.rows(_SQL["end_expired_sessions"], bindings)]
            for session in buried:
                _orphan(cursor, session.session_key)
            return buried

        return await self._submit(bury)

    async def read_sessions(self, namespace: str) -> list[SessionRow]:
        return [SessionRow(*row) for row in self._rows(_SQL["read_sessions"], namespace)]

    async def claim_runs(
        self, session_key: int, now_ms: int, namespace: str, task_queue: str, codes: Mapping[str, str], limit: int
    ) -> list[RunRow]:
        candidates = (as_json(codes), namespace, task_queue, now_ms, limit, pauses.NONE)
        # Looked at first without the write lock: mostly there is nothing to do.
        if not self._rows(_SQL["claimable_runs"], *candidates):
            return []
        return await self._submit(lambda cursor: _claim(cursor, session_key, candidates))

    async def claim_lifted_runs(
        self, session_key: int, now_ms: int, namespace: str, task_queue: str, codes: Mapping[str, str], limit: int
    ) -> list[RunRow]:
        def take(cursor: Cursor, part: Part) -> list[RunRow]:
            known = as_json({name: codes[name] for name in part.names})
            candidates = (known, namespace, task_queue, now_ms, part.room, as_json(part.lifted))
            return _claim(cursor, session_key, candidates)

        def claim(cursor: Cursor) -> list[RunRow]:
            lifting = pauses.lifting(cursor, namespace, task_queue, self._time(cursor))
            return pauses.claim(cursor, lifting, lifting.of_runs(codes, limit), take)

        return await self._submit(claim)

    async def woken_runs(self, session_key: int) -> list[int]:
        if not self._rows(_SQL["woken_runs"], session_key):
            return []

        def take(cursor: Cursor) -> list[int]:
            woken = [run_key for (run_key,) in cursor.rows(_SQL["woken_runs"], (session_key,))]
            cursor.execute(_SQL["drop_wakes"], (as_json(woken),))
            return woken

        return await self._submit(take)

    async def owned_runs(self, session_key: int) -> list[RunRow]:
        return [RunRow(*row) for row in self._rows(_SQL["owned_runs"], session_key)]

    async def look(
        self,
        session_key: int,
        now_ms: int,
        namespace: str,
        task_queue: str,
        codes: Mapping[str, str],
        held: Sequence[int],
    ) -> Outlook:
        bindings = (namespace, task_queue, self._now(), session_key, now_ms, as_json(codes), as_json(held))
        [row] = self._rows(_SQL["look"], *bindings)
        overdue, woken, expired, unblocked, ended, due, paused_places, paused, lanes, partings = row
        due_ms, runs_due_ms = json.loads(due)
        return Outlook(
            overdue=bool(overdue),
            woken=bool(woken),
            expired=bool(expired),
            unblocked=bool(unblocked),
            ended=tuple(json.loads(ended)),
            due_ms=due_ms,
            pauses=tuple(map(pauses.pause_of, json.loads(paused_places))),
            paused=tuple(json.loads(paused)),
            lanes=bool(lanes),
            runs_due_ms=runs_due_ms,
            partings=bool(partings),
        )
