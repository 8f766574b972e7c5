"""Transactions of users in the ledger's own file, and the connections that they are handed for it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import apsw

from pledger.engine.port.answers import Answer, Reply
from pledger.engine.port.operations import FinishTask, StartRun
from pledger.errors import PledgerError, StoreUnavailableError, UsageError
from pledger.store.sqlite import ledger, tasks
from pledger.store.sqlite.failures import operation_failure
from pledger.store.sqlite.guest import Guest, Result
from pledger.store.sqlite.handle import SqliteHandle

Bindings: TypeAlias = Sequence[Any] | Mapping[str, Any]

#: Between two tries to take a lock that somebody else has, in seconds.
_AGAIN_S: Final = (0.002, 0.02)


# What users are handed ------------------------------------------------------------------------------------------------


class LedgerCursor:
    """The outcome of one statement. rowcount: how many rows it changed."""

    def __init__(self, result: Result) -> None:
        self.rowcount = result.changed
        self._rows = iter(result.rows)

    async def fetchone(self) -> tuple[Any, ...] | None:
        """The next row, None after the last."""
        return next(self._rows, None)

    async def fetchall(self) -> list[tuple[Any, ...]]:
        """The rows that are left."""
        return list(self._rows)

    async def __aiter__(self) -> AsyncIterator[tuple[Any, ...]]:
        for row in self._rows:
            yield row


class LedgerConnection:
    """Statements on your own tables in the ledger's file, in one transaction: see docs/transactions.md."""

    def __init__(self, guest: Guest, wait_ms: int) -> None:
        self._guest = guest
        self._wait_ms = wait_ms

    async def execute(self, sql: str, parameters: Bindings = ()) -> LedgerCursor:
        """parameters: for `?`, or by name for `:name`. The first statement takes the file's write lock.

        Raises what apsw raises for a statement that cannot be (apsw.ConstraintError, apsw.SQLError),
        StoreUnavailableError when others write all the while, UsageError for what would change the ledger, or once the
        transaction is over.
        """
        await begin(self._guest, self._wait_ms)
        return LedgerCursor(self._guest.execute(sql, _bound(parameters)))


class BlockingLedgerCursor:
    """As `LedgerCursor`, for code without an event loop."""

    def __init__(self, result: Result) -> None:
        self.rowcount = result.changed
        self._rows = iter(result.rows)

    def fetchone(self) -> tuple[Any, ...] | None:
        return next(self._rows, None)

    def fetchall(self) -> list[tuple[Any, ...]]:
        return list(self._rows)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return self._rows


class BlockingLedgerConnection:
    """As `LedgerConnection`, for code without an event loop."""

    def __init__(self, guest: Guest, wait_ms: int) -> None:
        self._guest = guest
        self._wait_ms = wait_ms

    def execute(self, sql: str, parameters: Bindings = ()) -> BlockingLedgerCursor:
        self._guest.begin(self._wait_ms)
        return BlockingLedgerCursor(self._guest.execute(sql, _bound(parameters)))


def _bound(parameters: Bindings) -> Sequence[Any] | dict[str, Any]:
    return dict(parameters) if isinstance(parameters, Mapping) else tuple(parameters)


async def begin(guest: Guest, wait_ms: int) -> None:
    """The loop goes on while another process writes. Raises StoreUnavailableError."""
    monotonic = guest.database.host.monotonic
    deadline_s = monotonic() + wait_ms / 1000
    pause_s = _AGAIN_S[0]
    while True:
        try:
            guest.begin(0)
        except StoreUnavailableError as error:
            if not isinstance(error.__cause__, apsw.BusyError) or monotonic() >= deadline_s:
                raise
        else:
            return
        await asyncio.sleep(pause_s)
        pause_s = min(_AGAIN_S[1], pause_s * 2)


# What the engine works with -------------------------------------------------------------------------------------------


class SqliteTransaction:
    def __init__(self, guest: Guest, wait_ms: int) -> None:
        self.connection = LedgerConnection(guest, wait_ms)
        self._guest = guest
        self._wait_ms = wait_ms

    async def open(self) -> None:
        """It begins with its first statement."""

    async def commit(self) -> None:
        self._guest.commit()

    async def finish(self, finish: FinishTask) -> Reply:
        await begin(self._guest, self._wait_ms)
        return _finish(self._guest, finish)

    async def close(self) -> None:
        self._guest.close()


class BlockingSqliteTransaction:
    def __init__(self, guest: Guest, wait_ms: int) -> None:
        self.connection = BlockingLedgerConnection(guest, wait_ms)
        self._guest = guest
        self._wait_ms = wait_ms

    def open(self) -> None:
        """As above."""

    def commit(self) -> None:
        self._guest.commit()

    def finish(self, finish: FinishTask) -> Reply:
        self._guest.begin(self._wait_ms)
        return _finish(self._guest, finish)

    def close(self) -> None:
        self._guest.close()


def _finish(guest: Guest, finish: FinishTask) -> Reply:
    reply = guest.write(tasks.finish_task, finish)
    assert isinstance(reply, Reply)
    if reply is Reply.WON:
        guest.commit()
    guest.close()
    return reply


def _leads_to(url: str, path: str) -> bool:
    named = url.partition("?")[0].removeprefix("sqlite:///")
    return url.startswith("sqlite:///") and os.path.realpath(named) == os.path.realpath(path)


class SqliteTransactions(SqliteHandle):
    async def join(self, connection: object, operation: StartRun) -> Answer:
        if not isinstance(connection, (LedgerConnection, BlockingLedgerConnection)):
            raise UsageError(
                f"connection={connection!r}: on SQLite, give the connection of `async with client.connection()`; "
                "another library's would lose the ledger's locks, and another file's would be committed apart from it"
            )
        guest = connection._guest  # noqa: SLF001 - the other half of it
        if guest.database is not self._database:
            raise UsageError(f"connection={connection!r} is one to {guest.database.path}, not to {self._database.path}")
        await begin(guest, connection._wait_ms)  # noqa: SLF001 - as above
        try:
            return guest.write(ledger.start_run, operation)
        except PledgerError:
            raise
        except Exception as error:
            raise operation_failure(error, operation, self._database.path) from error

    def transaction(self, url: str | None = None, *, open_max_s: float | None = None) -> SqliteTransaction:  # noqa: ARG002 - checked
        return SqliteTransaction(self._new_guest(open_max_s), self._database.lane.busy_timeout_ms)

    def blocking_transaction(
        self,
        url: str | None = None,  # noqa: ARG002 - checked by `prepare_transactions`
        *,
        open_max_s: float | None = None,
    ) -> BlockingSqliteTransaction:
        return BlockingSqliteTransaction(self._new_guest(open_max_s), self._database.lane.busy_timeout_ms)

    async def prepare_transactions(self, urls: Iterable[str | None], count: int) -> None:  # noqa: ARG002 - they take turns
        self._check_open()
        for url in urls:
            if url is not None and not _leads_to(url, self._database.path):
                raise UsageError(
                    f"{url!r} is another place than the ledger's, {self._database.path}: only what lies in one file is "
                    "committed together. Keep your tables in the ledger's own file"
                )

    def _new_guest(self, open_max_s: float | None) -> Guest:
        self._check_open()
        return Guest(
            self._database,
            asyncio.get_running_loop(),
            durable=self._durable,
            open_max_s=open_max_s,
            hook=self._around_commit,
        )
