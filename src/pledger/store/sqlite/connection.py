"""Connections to one database file, with the settings that its promises rest on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import apsw

from pledger.errors import StoreError

#: The page size of new files. Larger pages make batches a little cheaper and a lone step dearer.
PAGE_BYTES: Final = 4096

#: How long the first opening of a file waits for others that do the same.
_OPENING_WAIT_MS: Final = 10_000


def connect_writer(path: Path, vfs: str | None = None) -> apsw.Connection:
    """The connection that writes. In autocommit mode, in WAL, synchronous=FULL."""
    with _connected(path, vfs) as connection:
        connection.pragma("page_size", PAGE_BYTES)  # without effect on a file that has pages
        mode = connection.pragma("journal_mode", "wal")
        if mode != "wal":
            raise StoreError(f"{path} cannot use a write-ahead log (journal_mode stays {mode!r}). Use a local disk.")
        connection.pragma("synchronous", "FULL")
        # Where fsync alone leaves data in the drive's cache (macOS); without effect elsewhere.
        connection.pragma("fullfsync", 1)
        connection.pragma("checkpoint_fullfsync", 1)
        return connection


def connect_reader(path: Path, vfs: str | None = None) -> apsw.Connection:
    """The connection that reads: it sees what is committed and can change nothing."""
    # Not opened read-only: a reader of a write-ahead log must be able to write its index.
    with _connected(path, vfs) as connection:
        connection.pragma("query_only", 1)
        return connection


def connect_guest(path: Path, vfs: str | None = None, *, durable: bool) -> apsw.Connection:
    """A connection for one transaction of a user's. It copies nothing of the log: the writer does."""
    with _connected(path, vfs) as connection:
        connection.pragma("synchronous", "FULL" if durable else "NORMAL")
        connection.pragma("fullfsync", 1)
        # Off by default in SQLite, and not to be changed within a transaction.
        connection.pragma("foreign_keys", 1)
        connection.wal_autocheckpoint(0)
        return connection


@contextlib.contextmanager
def _connected(path: Path, vfs: str | None) -> Iterator[apsw.Connection]:
    """A connection that is closed if it cannot be set up: its locks must not last until a collector comes by."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_EXRESCODE, vfs=vfs)
    try:
        connection.set_busy_timeout(_OPENING_WAIT_MS)
        connection.pragma("trusted_schema", 0)
        # The last one to close copies the log into the database, whatever is known of that log: only the writer may say
        # that it is sound (`log`). An opening that fails has not looked at it.
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        # Plans that do not depend on the values bound. Without it, a build with STAT4 (apsw's is one) prepares many
        # joins anew at each execution with other values: 25 us in place of 2.
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        yield connection
    except BaseException:
        connection.close()
        raise
