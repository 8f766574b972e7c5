"""The connection that writes: one transaction at a time, made durable, measured, and checkpointed in between."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any, Final, Literal, Protocol, TypeAlias, TypeVar

import apsw

from pledger.errors import StoreUnavailableError, UsageError
from pledger.store.sqlite.failures import store_failure
from pledger.store.sqlite.host import MACHINE, Host
from pledger.store.sqlite.log import Log

T = TypeVar("T")
Rows: TypeAlias = list[tuple[Any, ...]]

#: Called around the COMMIT of a handle's transactions, which are numbered from 1: the place to die in a crash test.
CommitHook: TypeAlias = Callable[[Literal["before", "after"], int], None]
PhaseHook: TypeAlias = Callable[[Literal["before", "after"]], None]

#: The log is copied into the database once it has this many pages: SQLite's own default.
CHECKPOINT_PAGES: Final = 1000


class LockedError(StoreUnavailableError):
    """Another process held the write lock for longer than this transaction was to wait. Nothing was begun."""


class Reader(Protocol):
    """A transaction, or the database outside of one."""

    def rows(self, sql: str, bindings: tuple[Any, ...], /) -> Rows: ...


class Cursor:
    """What an operation does its statements with. Exactly one per connection, so that statements stay prepared."""

    __slots__ = ("_connection", "changes", "execute", "last_key")

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self.execute: Callable[[str, tuple[Any, ...]], apsw.Cursor] = connection.cursor().execute
        self.changes: Callable[[], int] = connection.changes
        self.last_key: Callable[[], int] = connection.last_insert_rowid

    def rows(self, sql: str, bindings: tuple[Any, ...]) -> Rows:
        return self.execute(sql, bindings).fetchall()

    def roll_back(self) -> None:
        # Some errors, such as a full disk, have rolled back already.
        if self._connection.in_transaction:
            self.execute("ROLLBACK", ())

    def row(self, sql: str, bindings: tuple[Any, ...]) -> tuple[Any, ...] | None:
        # Fetched to the end: a statement that is not finished would hold its snapshot past the commit.
        rows = self.execute(sql, bindings).fetchall()
        return rows[0] if rows else None


Job: TypeAlias = Callable[[Cursor], T]


class Writer:
    """lock: held by whoever calls `run`, `rest` or `change_counter`; the heartbeat comes from a thread of its own.

    commit_ms: how long the newest durable COMMIT took, without the statements before it. wal_pages: length of the log
    after the newest transaction of this connection. commits: how many transactions had a hook. last_write_s: when the
    newest of them was, by the host's monotonic clock.
    """

    def __init__(self, connection: apsw.Connection, path: str, host: Host = MACHINE) -> None:
        self.lock = threading.Lock()
        self.connection = connection
        self.commit_ms = 0.0
        self.wal_pages = 0
        self.commits = 0
        self.last_write_s = 0.0
        self._path = path
        self._monotonic = host.monotonic
        self.log = Log(path, host.vfs)
        self._cursor = Cursor(connection)
        self._checkpoint_at = CHECKPOINT_PAGES
        self._durable = True
        self._wait_ms = -1
        self._pid = os.getpid()
        # The hook takes the place of SQLite's automatic checkpoints.
        connection.set_wal_hook(self._on_commit)

    def run(self, job: Job[T], *, durable: bool, wait_ms: int, hook: PhaseHook | None = None) -> T:
        """Run `job` in one transaction, committed on return; on any error nothing of it is written.

        durable: on disk on return. Otherwise it is on disk once a later durable one is, and a power cut may take it:
        enough for what only matters to processes that the power cut kills too.
        Raises LockedError after waiting `wait_ms` for other processes; apsw.Error from the job comes as it is.
        """
        self._begin(wait_ms, durable=durable)
        try:
            if durable:
                self.log.mend()
            result = job(self._cursor)
            if hook is not None:
                hook("before")
            started = time.perf_counter()
            self._cursor.execute("COMMIT", ())
        except BaseException as error:
            self.log.failed(error)
            self._cursor.roll_back()
            raise
        if durable:
            self.commit_ms = (time.perf_counter() - started) * 1000
        if hook is not None:
            self.commits += 1
            self.last_write_s = self._monotonic()
            hook("after")
        if self.wal_pages >= self._checkpoint_at:
            self._checkpoint(apsw.SQLITE_CHECKPOINT_PASSIVE)
        return result

    def rest(self) -> None:
        """Copy the log into the database and empty it, if nobody is in the way: the file on disk becomes small."""
        self.connection.set_busy_timeout(0)
        self._wait_ms = 0
        self._checkpoint(apsw.SQLITE_CHECKPOINT_TRUNCATE)

    def change_counter(self) -> int:
        """Another number than before after another process (not this connection) has committed something."""
        [(version,)] = self._cursor.rows("PRAGMA data_version", ())
        return int(version)

    def close(self) -> None:
        self.rest()
        if not self.log.is_doubtful:
            self.connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
        self.connection.close()

    def _begin(self, wait_ms: int, *, durable: bool) -> None:
        if os.getpid() != self._pid:
            raise UsageError(
                f"{self._path} was opened before this process forked. SQLite connections do not survive a fork: "
                "open the store in the child."
            )
        if durable is not self._durable:
            self._cursor.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}", ())
            self._durable = durable
        if wait_ms != self._wait_ms:
            self.connection.set_busy_timeout(wait_ms)
            self._wait_ms = wait_ms
        try:
            self._cursor.execute("BEGIN IMMEDIATE", ())
        except apsw.BusyError as error:
            raise LockedError(store_failure(error, self._path).message) from error

    def _on_commit(self, _connection: apsw.Connection, _database: str, pages: int) -> int:
        self.wal_pages = pages
        return apsw.SQLITE_OK

    def _mend_log(self) -> None:
        self._begin(self._wait_ms, durable=self._durable)
        try:
            self.log.mend()
        finally:
            self._cursor.roll_back()

    def _checkpoint(self, mode: int) -> None:
        try:
            if self.log.is_doubtful:
                self._mend_log()
            pages, copied = self.connection.wal_checkpoint(mode=mode)
        except (apsw.Error, LockedError) as error:
            self.log.failed(error)
            # Nothing is lost: the log keeps everything, and if the disk is at fault the next commit says so.
            pages, copied = self.wal_pages, 0
        if pages == copied:
            self._checkpoint_at = CHECKPOINT_PAGES
            if mode == apsw.SQLITE_CHECKPOINT_TRUNCATE:
                self.wal_pages = 0
        else:
            # A reader of another process holds the end of the log. Ask again when as much has come on top.
            self._checkpoint_at = self.wal_pages + CHECKPOINT_PAGES
