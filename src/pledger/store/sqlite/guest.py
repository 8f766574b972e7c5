"""A write transaction of a user's in the ledger's own file, on a connection that lives no longer than it.

Another connection than the writer's, of the same library: what the user does cannot disturb that one. It begins with
the first statement, since from then on nobody else may write: it is to be short, and is rolled back when it is not.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import apsw

from pledger.errors import UsageError
from pledger.store.sqlite.connection import connect_guest
from pledger.store.sqlite.database import Database
from pledger.store.sqlite.failures import store_failure
from pledger.store.sqlite.writer import Cursor, PhaseHook

T = TypeVar("T")
Op = TypeVar("Op")

#: For how long a transaction may keep others from writing, in seconds: less than half of a worker's usual lease, whose
#: heartbeat waits for it too.
OPEN_MAX_S: Final = 2.0

#: Before a transaction whose time is over is looked at again, while a statement of it runs.
_AGAIN_S: Final = 0.01

#: What names of the ledger's own tables, indices and views begin with.
_OURS: Final = re.compile("pledger_", re.IGNORECASE)

#: What looks at tables and changes none.
_READING: Final = frozenset({apsw.SQLITE_SELECT, apsw.SQLITE_READ, apsw.SQLITE_FUNCTION, apsw.SQLITE_RECURSIVE})
_LOOKS: Final = frozenset(
    {"table_info", "table_xinfo", "table_list", "index_info", "index_xinfo", "index_list", "foreign_key_list"}
    | {"foreign_key_check", "defer_foreign_keys", "database_list", "data_version", "compile_options"}
)
_FORBIDDEN: Final = {
    apsw.SQLITE_TRANSACTION: "the transaction is ended by the block that gave the connection, never by a statement",
    apsw.SQLITE_ATTACH: "no other file is attached to a ledger",
    apsw.SQLITE_DETACH: "no file is detached from a ledger",
}


#: A statement that ends the transaction leaves the connection in autocommit mode: what came next would stay by itself.
_ROLLED_BACK: Final = (
    "a statement has failed and has rolled the whole transaction back, as INSERT OR ROLLBACK, ON CONFLICT ROLLBACK and "
    "RAISE(ROLLBACK) do, and a full disk. Let its error end the transaction, or use what undoes the statement alone: "
    "OR ABORT, OR IGNORE"
)


class Result(NamedTuple):
    """All rows of a statement, and how many it changed."""

    rows: list[tuple[Any, ...]]
    changed: int


class Guest:
    """loop: whose timer ends it when it has been open for `open_max_s`, or OPEN_MAX_S if that is less. hook:
    called around its COMMIT.

    Its methods may be called from any thread; they block.
    """

    def __init__(
        self,
        database: Database,
        loop: asyncio.AbstractEventLoop,
        *,
        durable: bool,
        open_max_s: float | None = None,
        hook: PhaseHook | None = None,
    ) -> None:
        self.database = database
        self._loop = loop
        self._durable = durable
        self._open_max_s = OPEN_MAX_S if open_max_s is None else min(open_max_s, OPEN_MAX_S)
        self._hook = hook
        self._lock = threading.Lock()
        self._connection: apsw.Connection | None = None
        self._cursor: Cursor | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._over: str | None = None
        self._refused: str | None = None
        self._is_ours = False
        self._is_committing = False

    def begin(self, wait_ms: int) -> None:
        """Take the write lock, unless it is taken. Raises StoreUnavailableError when another has it all the while."""
        with self._lock:
            self._check()
            if self._connection is not None:
                return
            try:
                connection = connect_guest(Path(self.database.path), self.database.host.vfs, durable=self._durable)
            except apsw.Error as error:
                raise store_failure(error, self.database.path) from error
            log = self.database.writer.log
            try:
                connection.set_busy_timeout(wait_ms)
                cursor = Cursor(connection)
                cursor.execute("BEGIN IMMEDIATE", ())
                if self._durable:
                    log.mend()
                connection.set_wal_hook(self._on_commit)
                connection.authorizer = self._authorize
            except apsw.Error as error:
                log.failed(error)
                connection.close()
                raise store_failure(error, self.database.path) from error
            except BaseException:
                connection.close()
                raise
            self._connection, self._cursor = connection, cursor
        if _is_running(self._loop):
            self._arm()
        else:
            self._loop.call_soon_threadsafe(self._arm)

    def execute(self, sql: str, bindings: Sequence[Any] | dict[str, Any]) -> Result:
        """Of a user's statement. Raises apsw.Error as it comes."""
        with self._lock:
            connection = self._opened()
            self._refused = None
            before = connection.total_changes()
            try:
                rows = connection.cursor().execute(sql, bindings).fetchall()
            except apsw.AuthError as error:
                raise self._refusal(sql, error) from None
            finally:
                self._end_if_rolled_back(connection)
            return Result(rows, connection.changes() if connection.total_changes() != before else 0)

    def write(self, rule: Callable[[Cursor, Op], T], operation: Op) -> T:
        """What the store itself writes in it: whole, or not at all."""
        with self._lock:
            connection = self._opened()
            assert self._cursor is not None
            cursor = self._cursor
            self._is_ours = True
            try:
                cursor.execute("SAVEPOINT pledger_operation", ())
                try:
                    result = rule(cursor, operation)
                except BaseException:
                    if connection.in_transaction:
                        cursor.execute("ROLLBACK TO pledger_operation", ())
                        cursor.execute("RELEASE pledger_operation", ())
                    raise
                cursor.execute("RELEASE pledger_operation", ())
            except apsw.Error as error:
                raise store_failure(error, self.database.path) from error
            finally:
                self._is_ours = False
                self._end_if_rolled_back(connection)
            return result

    def commit(self) -> None:
        with self._lock:
            if self._connection is None and self._over is None:
                return  # nothing was asked of it
            self._opened()
            assert self._cursor is not None
            self._is_ours = self._is_committing = True
            try:
                if self._hook is not None:
                    self._hook("before")
                self._cursor.execute("COMMIT", ())
            except BaseException as error:
                self.database.writer.log.failed(error)
                self._end("the transaction could not be committed, and was rolled back")
                if isinstance(error, apsw.Error):
                    raise store_failure(error, self.database.path) from error
                raise
            self._end("the transaction is committed")
        if self._hook is not None:
            self._hook("after")

    def close(self) -> None:
        """Roll back what is not committed."""
        with self._lock:
            self._end("the transaction is over")

    # Inside -----------------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        if self._over is not None:
            raise UsageError(f"{self.database.path}: {self._over}; nothing more can be done with its connection")

    def _refusal(self, sql: str, error: apsw.AuthError) -> UsageError:
        return UsageError(f"{self._refused or error}: {sql.strip()[:200]}")

    def _opened(self) -> apsw.Connection:
        self._check()
        assert self._connection is not None, "begin comes first"
        return self._connection

    def _end_if_rolled_back(self, connection: apsw.Connection) -> None:
        if not connection.in_transaction:
            self._end(_ROLLED_BACK)

    def _end(self, why: str) -> None:
        if self._over is None:
            self._over = why
        connection, self._connection = self._connection, None
        if self._timer is not None:
            timer, self._timer = self._timer, None
            if _is_running(self._loop):
                timer.cancel()
            else:
                self._loop.call_soon_threadsafe(timer.cancel)
        if connection is not None:
            connection.close()  # which rolls back

    def _arm(self) -> None:
        if self._connection is not None:
            self._timer = self._loop.call_later(self._open_max_s, self._expire)

    def _expire(self) -> None:
        if self._connection is None or self._is_committing:
            return
        # From now on no statement begins. One that runs, in a thread, ends with an error.
        self._over = (
            f"the transaction was open for {self._open_max_s:g} s, in which nobody else could write, and was rolled "
            "back: do what takes long before it, and wait for nobody in it"
        )
        if self._lock.acquire(blocking=False):
            try:
                self._end(self._over)
            finally:
                self._lock.release()
        else:
            self._connection.interrupt()
            self._timer = self._loop.call_later(_AGAIN_S, self._expire)

    def _on_commit(self, _connection: apsw.Connection, _database: str, pages: int) -> int:
        # In place of SQLite's own checkpoints: the writer sees to them, and has to know of what there is.
        self.database.writer.wal_pages = pages
        return apsw.SQLITE_OK

    def _authorize(
        self, action: int, first: str | None, second: str | None, _database: str | None, _trigger: str | None
    ) -> int:
        """Asked when a statement is prepared. Against a slip, not against malice: who has the file can write it."""
        if self._is_ours or action in _READING:
            return apsw.SQLITE_OK
        if action in _FORBIDDEN:
            self._refused = _FORBIDDEN[action]
        elif action == apsw.SQLITE_PRAGMA and first not in _LOOKS:
            self._refused = f"PRAGMA {first} is not for a connection to a ledger"
        elif any(name is not None and _OURS.match(name) for name in (first, second)):
            self._refused = (
                "tables whose names begin with pledger_ are the ledger's own: read them if you like, but change them "
                "through the client"
            )
        else:
            return apsw.SQLITE_OK
        return apsw.SQLITE_DENY


def _is_running(loop: asyncio.AbstractEventLoop) -> bool:
    return asyncio._get_running_loop() is loop  # noqa: SLF001 - documented for event loops
