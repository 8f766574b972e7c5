"""Questions to runs that another process owns."""

from __future__ import annotations

from typing import Final

from pledger.engine.port.records import Request
from pledger.store.sqlfiles import load_queries
from pledger.store.sqlite import mailbox
from pledger.store.sqlite.handle import SqliteHandle
from pledger.store.sqlite.writer import Cursor

_SQL: Final = load_queries(__package__, "requests")


class SqliteRequests(SqliteHandle):
    async def ask(self, run_key: int, kind: str, name: str, body: bytes, expires_ms: int) -> int:
        def insert(cursor: Cursor) -> int:
            if not mailbox.has_run(cursor, run_key):
                raise mailbox.unknown_run(run_key)
            [(request_key,)] = cursor.rows(_SQL["ask"], (run_key, kind, name, body, expires_ms))
            mailbox.wake(cursor, run_key)
            return int(request_key)

        return await self._submit(insert)

    async def answer_request(
        self, request_key: int, answer: bytes | None, failure: bytes | None, fence: int | None = None
    ) -> None:
        await self._submit(lambda cursor: cursor.execute(_SQL["answer_request"], (answer, failure, request_key, fence)))

    async def take_answer(self, request_key: int) -> Request | None:
        # Asked again and again until there is one: only then is there something to write.
        if not self._rows(_SQL["has_answer"], request_key):
            return None
        row = await self._submit(lambda cursor: cursor.row(_SQL["take_answer"], (request_key,)))
        return None if row is None else Request(*row)

    async def drop_requests(self, now_ms: int) -> None:
        if self._rows(_SQL["has_expired_request"], now_ms):
            await self._submit(lambda cursor: cursor.execute(_SQL["drop_requests"], (now_ms,)))
