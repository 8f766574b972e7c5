"""A ledger that has gone back behind what it had acknowledged, and how that is noticed.

A server that is promoted begins a new timeline: what the old one had committed and not sent is gone, and nobody can
tell how much that was. The ledger keeps the timeline it was last seen on. Every connection compares before it is used,
since whoever goes to another server, or to one that was restarted, goes by a new connection. A copy of an earlier
moment in place of the server has the same timeline: that one is told by what this handle was answered last, which it
lacks: the mark of a batch, or a plain step, which leaves none.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final

import psycopg

from pledger.store.losses import JUMP
from pledger.store.postgres.handle import PostgresHandle
from pledger.store.postgres.links import HAS_TRANSACTION_TIMEOUT

logger = logging.getLogger("pledger.store")

#: Of PostgreSQL's advisory locks: who declares a loss.
_LOCK_KEY: Final = 0x706C_6564_0000_0001


class PostgresLosses(PostgresHandle):
    async def declare_loss(self) -> int:
        in_doubt = await self._transact(self._declare)
        self._learn_of_losses(self._next_look(), found=True)
        return in_doubt

    async def read_losses(self, run_keys: Sequence[int]) -> dict[int, bool]:
        if not self._has_losses:
            return {}
        return dict(await self._rows("read_losses", list(run_keys)))

    async def _declare(self, connection: psycopg.AsyncConnection[Any]) -> int:
        """In the order in which everybody locks: sessions, runs, tasks."""
        sql = self._sql
        # A ledger with a million open runs takes longer than any step may, and has to be declared all the same.
        await connection.execute("SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = '20 s'", prepare=False)
        if connection.info.server_version >= HAS_TRANSACTION_TIMEOUT:
            await connection.execute("SET LOCAL transaction_timeout = 0", prepare=False)
        await connection.execute(sql["lock_timeline"], [_LOCK_KEY])
        await connection.execute(sql["end_all_sessions"])
        noted = await (await connection.execute(sql["note_losses"], [self._now()])).fetchall()
        await connection.execute(sql["fence_runs"], [JUMP])
        await connection.execute(sql["lose_tasks"], [self._now()])
        await connection.execute(sql["drop_all_wakes"])
        await connection.execute(sql["jump_keys"], [JUMP, self.address.schema])
        await connection.execute(sql["jump_streams"], [JUMP])
        await connection.execute(sql["keep_declared"], [self._declared_ms])
        return sum(moved for (moved,) in noted)

    async def _greet(self, connection: psycopg.AsyncConnection[Any], timeline: int | None) -> None:
        """Before a new connection is used: has the ledger gone back since it was last seen? Once it is open."""
        if not self._schema_version:
            return
        known, declared_ms = await self._read_timeline(connection)
        if timeline is not None and known is None:
            await connection.execute(self._sql["keep_timeline"], [str(timeline)])
        elif timeline is not None and known != timeline:
            declared_ms = await self._change_timeline(connection, timeline)
        elif declared_ms <= self._declared_ms and await self._lacks_ours(connection):
            declared_ms = await self._change_timeline(connection, None)
        if declared_ms > self._declared_ms:
            # What is not there now is part of that loss, and no further one, however often the server is restarted.
            self._declared_ms = declared_ms
            if await self._lacks_ours(connection):
                self._committer.forget_acknowledged()
        look = self._next_look()
        [(found,)] = await (await connection.execute(self._sql["has_losses"])).fetchall()
        self._learn_of_losses(look, found=found)

    async def _change_timeline(self, connection: psycopg.AsyncConnection[Any], timeline: int | None) -> int:
        """When the newest loss was declared: by this, or by somebody else who was faster. timeline: the new one, None
        for a server that is on the old one and lacks what it had."""
        async with connection.transaction():
            await connection.execute(self._sql["lock_timeline"], [_LOCK_KEY])
            known, declared_ms = await self._read_timeline(connection)
            if declared_ms > self._declared_ms if timeline is None else known == timeline:
                return declared_ms
            if timeline is not None:
                await connection.execute(self._sql["keep_timeline"], [str(timeline)])
            if timeline is not None and self.address.lossless:
                logger.warning(
                    "%s is on another server now, which lacks nothing (failover=lossless)", self.address.shown
                )
                return declared_ms
            in_doubt = await self._declare(connection)
            _, declared_ms = await self._read_timeline(connection)
        logger.error(
            "%s has gone back: %s. What was acknowledged and is not there is lost. %d runs that may have gone on in "
            "that part are in doubt: what they may do once only comes out as unknown. See docs/postgresql.md",
            self.address.shown,
            "a copy of an earlier moment is in its place" if timeline is None else "a replica has taken over",
            in_doubt,
        )
        return declared_ms

    async def _read_timeline(self, connection: psycopg.AsyncConnection[Any]) -> tuple[int | None, int]:
        """Which line of the server's history the ledger was last seen on, and when the newest loss was declared."""
        [(known, declared_ms)] = await (await connection.execute(self._sql["read_timeline"])).fetchall()
        return known, declared_ms

    async def _lacks_ours(self, connection: psycopg.AsyncConnection[Any]) -> bool:
        """Whether the newest of what this handle was answered is not there."""
        # Taken before the questions: an answer may be on its way while the writer goes on.
        step, mark = self._committer.newest_step, self._committer.acknowledged
        since_ms = self._committer.acknowledged_ms
        if mark:
            asked = (self._interest.name, mark, since_ms)
            [(lacks,)] = await (await connection.execute(self._sql["lacks_mark"], asked)).fetchall()
            if lacks:
                return True
        if step is None:
            return False
        place = (step.run_key, step.transition.first_event_id, step.transition.checksum)
        [(is_there,)] = await (await connection.execute(self._sql["has_step"], place)).fetchall()
        return not is_there
