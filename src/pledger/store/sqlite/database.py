"""One database file in this process: its two connections, shared by every handle.

One SQLite library and one writer per process and file: closing any second descriptor of a file drops the process's
POSIX locks on it, and a second writer would only wait for the first.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any, Final, TypeAlias

import apsw

from pledger.store.sqlite import guard
from pledger.store.sqlite.connection import connect_reader, connect_writer
from pledger.store.sqlite.failures import store_failure
from pledger.store.sqlite.files import prepare_file
from pledger.store.sqlite.host import MACHINE, Host
from pledger.store.sqlite.lane import Lane
from pledger.store.sqlite.schema import migrate
from pledger.store.sqlite.writer import Rows, Writer

#: Process, file and VFS. The process too: a forked child must not touch its parent's connections, nor drop them, since
#: closing one would check the log in.
_Key: TypeAlias = tuple[int, int, int, str | None]

_open: Final[dict[_Key, Database]] = {}
_open_lock: Final = threading.Lock()


class Database:
    """path: absolute. handles: how many are open. host: what it stands on."""

    def __init__(self, path: Path, key: _Key, busy_timeout_ms: int, host: Host) -> None:
        self.path = str(path)
        self.host = host
        self.handles = 0
        self._key = key
        writer = connect_writer(path, host.vfs)
        try:
            self.schema_version = migrate(writer, self.path)
            self._reader = connect_reader(path, host.vfs)
        except BaseException:
            writer.close()
            raise
        self.writer = Writer(writer, self.path, host)
        self.lane = Lane(self.writer, self.path, busy_timeout_ms, threads=host.threads)
        self._read_lock = threading.Lock()
        self._read = self._reader.cursor().execute

    def rows(self, sql: str, bindings: tuple[Any, ...]) -> Rows:
        """The rows of one query on what is committed."""
        try:
            with self._read_lock:
                return self._read(sql, bindings).fetchall()
        except apsw.Error as error:
            raise store_failure(error, self.path) from error

    def rest(self) -> None:
        """After a quiet while: make the log small, unless it is or something is on its way."""
        if self.writer.wal_pages and self.writer.lock.acquire(blocking=False):
            try:
                self.writer.rest()
            finally:
                self.writer.lock.release()

    def leave(self) -> None:
        """A handle is closed; the last one closes the file."""
        with _open_lock:
            self.handles -= 1
            if self.handles == 0:
                del _open[self._key]
                try:
                    self._close()
                finally:
                    _, device, inode, _ = self._key
                    guard.let_go(device, inode)

    def _close(self) -> None:
        self.lane.close()
        with self.writer.lock, self._read_lock:
            try:
                self._reader.close()
            finally:
                self.writer.close()


def enter_database(path: Path, *, allow_network_fs: bool, busy_timeout_ms: int, host: Host = MACHINE) -> Database:
    """The database at `path`, made if there is none; to be left again with `leave`."""
    path = Path(os.path.realpath(path))
    with _open_lock:
        prepare_file(path, allow_network_fs=allow_network_fs)
        status = path.stat()
        key = (os.getpid(), status.st_dev, status.st_ino, host.vfs)
        if key not in _open:
            # Before it is opened: what comes between would be as bad.
            guard.protect(status.st_dev, status.st_ino)
            try:
                _open[key] = Database(path, key, busy_timeout_ms, host)
            except BaseException as error:
                guard.let_go(status.st_dev, status.st_ino)
                if isinstance(error, apsw.Error):
                    raise store_failure(error, str(path)) from error
                raise
        database = _open[key]
        database.handles += 1
        return database
