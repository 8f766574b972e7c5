"""Leases of worker processes, and what they own."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import psycopg

from pledger.engine.port.pauses import Part
from pledger.engine.port.records import Outlook, RunRow, SessionRow
from pledger.store.postgres import news
from pledger.store.postgres.pauses import PostgresPauses, pause_of


class PostgresSessions(PostgresPauses):
    async def now_ms(self) -> int:
        [(now,)] = await self._rows("now", self._now())
        return int(now)

    async def open_session(
        self, identity: str, namespace: str, task_queue: str, code: str, lease_ms: int
    ) -> SessionRow:
        [row] = await self._change("open_session", self._now(), identity, namespace, task_queue, code, lease_ms)
        session = SessionRow(*row)
        self._interest.sessions[session.session_key] = (namespace, task_queue)
        look = self._next_look()
        [(found,)] = await self._rows("has_losses")
        self._learn_of_losses(look, found=found)
        return session

    def renew_session(self, session_key: int, lease_ms: int) -> int | None:
        self._check_open()
        with self._heart.use() as connection:
            cursor = connection.execute(self._sql["renew_session"], [self._now(), session_key, lease_ms], binary=True)
            row = cursor.fetchone()
        return None if row is None else int(row[0])

    async def close_session(self, session_key: int) -> None:
        self._interest.sessions.pop(session_key, None)
        await self._transact(lambda connection: self._bury(connection, "end_session", session_key))

    async def bury_sessions(self, namespace: str) -> list[SessionRow]:
        parameters = (self._now(), namespace)
        return await self._transact(lambda connection: self._bury(connection, "end_expired_sessions", *parameters))

    async def _bury(self, connection: psycopg.AsyncConnection[Any], ending: str, *parameters: Any) -> list[SessionRow]:
        """What an ended session owned becomes ownerless and due."""
        cursor = await connection.execute(self._sql[ending], parameters, binary=True)
        buried = [SessionRow(*row) for row in await cursor.fetchall()]
        if buried:
            keys = [session.session_key for session in buried]
            orphans = await connection.execute(self._sql["orphan_runs"], [keys], binary=True)
            run_keys = [run_key for (run_key,) in await orphans.fetchall()]
            await connection.execute(self._sql["orphan_tasks"], [keys])
            await connection.execute(self._sql["drop_wakes"], [run_keys])
            await connection.execute(self._sql["drop_marks"])
            limits = {news.for_limits(session.namespace) for session in buried}
            queues = {(session.namespace, session.task_queue) for session in buried}
            # Its tasks may be of other queues: whoever serves them looks within its period.
            await self._say(connection, [*(news.for_queue(*queue) for queue in sorted(queues)), *sorted(limits)])
        return buried

    async def read_sessions(self, namespace: str) -> list[SessionRow]:
        return [SessionRow(*row) for row in await self._rows("read_sessions", namespace)]

    async def claim_runs(
        self, session_key: int, now_ms: int, namespace: str, task_queue: str, codes: Mapping[str, str], limit: int
    ) -> list[RunRow]:
        place = (session_key, now_ms, namespace, task_queue)
        rows = await self._change("claim_runs", *place, list(codes), list(codes.values()), limit, [])
        return [RunRow(*row) for row in rows]

    async def claim_lifted_runs(
        self, session_key: int, now_ms: int, namespace: str, task_queue: str, codes: Mapping[str, str], limit: int
    ) -> list[RunRow]:
        place = (session_key, now_ms, namespace, task_queue)

        async def take(connection: psycopg.AsyncConnection[Any], part: Part) -> list[RunRow]:
            known = [codes[name] for name in part.names]
            rows = await self._execute(connection, "claim_runs", *place, part.names, known, part.room, part.lifted)
            return [RunRow(*row) for row in rows]

        return await self._claim_lifted(namespace, task_queue, lambda lifting: lifting.of_runs(codes, limit), take)

    async def woken_runs(self, session_key: int) -> list[int]:
        return [run_key for (run_key,) in await self._change("take_wakes", session_key)]

    async def owned_runs(self, session_key: int) -> list[RunRow]:
        return [RunRow(*row) for row in await self._rows("owned_runs", session_key)]

    async def look(
        self,
        session_key: int,
        now_ms: int,
        namespace: str,
        task_queue: str,
        codes: Mapping[str, str],
        held: Sequence[int],
    ) -> Outlook:
        place = (namespace, task_queue, self._now(), session_key, now_ms)
        [row] = await self._rows("look", *place, list(codes), list(codes.values()), list(held))
        overdue, woken, expired, unblocked, ended, (due_ms, runs_due_ms), places, paused, lanes, partings = row
        return Outlook(
            overdue=overdue,
            woken=woken,
            expired=expired,
            unblocked=unblocked,
            ended=tuple(ended),
            due_ms=due_ms,
            pauses=() if places is None else tuple(map(pause_of, json.loads(places))),
            paused=tuple(paused),
            lanes=lanes,
            runs_due_ms=runs_due_ms,
            partings=partings,
        )
