"""Questions to runs that another process owns."""

from __future__ import annotations

from typing import Any

import psycopg

from pledger.engine.port.records import Request
from pledger.store.postgres.found import Found, Needs
from pledger.store.postgres.handle import PostgresHandle
from pledger.store.postgres.rules.mailbox import unknown_run, wake
from pledger.store.postgres.writes import Writes


class PostgresRequests(PostgresHandle):
    async def ask(self, run_key: int, kind: str, name: str, body: bytes, expires_ms: int) -> int:
        needs = Needs(addressees={run_key})

        async def ask(connection: psycopg.AsyncConnection[Any]) -> int:
            found = Found()
            for statement, parameters in (*needs.locks(), *needs.reads()):
                cursor = await connection.execute(self._sql[statement], parameters, binary=True)
                found.take(statement, await cursor.fetchall())
            run = found.addressees.get(run_key)
            if run is None:
                raise unknown_run(run_key)
            cursor = await connection.execute(self._sql["ask"], [run_key, kind, name, body, expires_ms], binary=True)
            [(request_key,)] = await cursor.fetchall()
            writes = Writes()
            if run.status == "running":
                wake(run, found, writes)
            for statement, parameters in writes.statements(self.address.channel, self._interest.name):
                await connection.execute(self._sql[statement], parameters)
            await self._say(connection, writes.said)
            return int(request_key)

        return await self._transact(ask)

    async def answer_request(
        self, request_key: int, answer: bytes | None, failure: bytes | None, fence: int | None = None
    ) -> None:
        if fence is None:
            await self._change("answer_request", answer, failure, request_key)
        else:
            await self._change("answer_as_owner", answer, failure, request_key, fence)

    async def take_answer(self, request_key: int) -> Request | None:
        rows = await self._change("take_answer", request_key)
        return Request(*rows[0]) if rows else None

    async def drop_requests(self, now_ms: int) -> None:
        await self._change("drop_requests", now_ms)
