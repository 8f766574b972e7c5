"""Transactions of users in the ledger's file, on a simulated disk: the real ones, watched, in the weather of their
process, and gone with it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import apsw

from pledger.engine.port.answers import Answer, Reply
from pledger.engine.port.operations import FinishTask, Operation
from pledger.errors import PledgerError
from pledger.store.sqlite.guest import Guest

if TYPE_CHECKING:
    from pledger.store.sqlite.transactions import BlockingSqliteTransaction, SqliteTransaction
    from pledger.store.sqlite.writer import Cursor
    from pledger.testing.audit import Sight
    from pledger.testing.sqlite_ledger import SimulatedSqliteStore
    from pledger.testing.sqlite_views import Moment


class Seen(NamedTuple):
    """What an operation did in a transaction, as long as that is not committed. moment: its run, just after it."""

    sight: Sight
    answer: Answer
    moment: Moment


class WatchedGuest(Guest):
    """What it writes for the ledger is shown to the auditor, once it is committed."""

    def watch(self, see: Callable[[Cursor, Any], Seen], conclude: Callable[[Sequence[Seen]], None]) -> None:
        """see: carries out an operation, and looks at it. conclude: called when all that was seen is there for good."""
        self._see = see
        self._conclude = conclude
        self._seen: list[Seen] = []
        self._plain_hook, self._hook = self._hook, self._around_commit

    def write(self, rule: Callable[[Cursor, Any], Any], operation: Any) -> Any:  # noqa: ARG002 - the auditor's side has it
        return super().write(self._write_watched, operation)

    def _write_watched(self, cursor: Cursor, operation: Operation) -> Answer:
        seen = self._see(cursor, operation)
        if isinstance(seen.answer, PledgerError):
            raise seen.answer
        self._seen.append(seen)
        return seen.answer

    def _around_commit(self, phase: Literal["before", "after"]) -> None:
        if self._plain_hook is not None:
            self._plain_hook(phase)
        if phase == "after":
            self._conclude(self._seen)

    def bury(self) -> None:
        """Its process is dead, and its lock is nobody's any more."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(apsw.Error):
                connection.close()


class SimulatedTransaction:
    """In the weather of a process: what is committed may be said in vain, or not at all."""

    def __init__(self, store: SimulatedSqliteStore, real: SqliteTransaction) -> None:
        self._store = store
        self._real = real
        self.connection = real.connection

    async def open(self) -> None:
        await self._real.open()

    async def commit(self) -> None:
        async def commit(_: object) -> list[Answer]:
            await self._real.commit()
            return []

        await self._store.around("commit", commit, ([],))

    async def finish(self, finish: FinishTask) -> Reply:
        async def settle(_: object) -> list[Answer]:
            return [await self._real.finish(finish)]

        [reply] = await self._store.around("commit", settle, ([finish],))
        assert isinstance(reply, Reply)
        return reply

    async def close(self) -> None:
        await self._real.close()


class BlockingSimulatedTransaction:
    """The same for code that is run as in a thread."""

    def __init__(self, store: SimulatedSqliteStore, real: BlockingSqliteTransaction) -> None:
        self._store = store
        self._real = real
        self.connection = real.connection

    def open(self) -> None:
        self._real.open()

    def commit(self) -> None:
        def commit(_: object) -> list[Answer]:
            self._real.commit()
            return []

        self._store.around_blocking("commit", commit, ([],))

    def finish(self, finish: FinishTask) -> Reply:
        [reply] = self._store.around_blocking("commit", lambda _: [self._real.finish(finish)], ([finish],))
        assert isinstance(reply, Reply)
        return reply

    def close(self) -> None:
        self._real.close()
