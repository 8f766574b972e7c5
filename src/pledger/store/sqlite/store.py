"""The verbs of the port on a SQLite file."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import apsw

from pledger.engine.port.answers import Answer
from pledger.engine.port.operations import Operation
from pledger.store.sqlfiles import load_migrations
from pledger.store.sqlite.backup import back_up
from pledger.store.sqlite.commit import write_batch
from pledger.store.sqlite.database import enter_database
from pledger.store.sqlite.dependencies import SqliteDependencies
from pledger.store.sqlite.families import SqliteFamilies
from pledger.store.sqlite.files import file_system
from pledger.store.sqlite.host import MACHINE, Host
from pledger.store.sqlite.labels import SqliteLabels
from pledger.store.sqlite.ledger import SqliteLedger
from pledger.store.sqlite.loads import SqliteLoads
from pledger.store.sqlite.losses import SqliteLosses
from pledger.store.sqlite.mail import SqliteMail
from pledger.store.sqlite.mailbox import SqliteMailbox
from pledger.store.sqlite.pauses import SqlitePauses
from pledger.store.sqlite.pieces import SqlitePieces
from pledger.store.sqlite.queues import SqliteQueues
from pledger.store.sqlite.requests import SqliteRequests
from pledger.store.sqlite.resets import SqliteResets
from pledger.store.sqlite.retention import SqliteRetention
from pledger.store.sqlite.sessions import SqliteSessions
from pledger.store.sqlite.streams import SqliteStreams
from pledger.store.sqlite.tasks import SqliteTasks
from pledger.store.sqlite.tokens import SqliteTokens
from pledger.store.sqlite.transactions import SqliteTransactions
from pledger.store.sqlite.writer import CommitHook

#: How long a transaction waits for those of other processes before it gives up.
BUSY_TIMEOUT_MS = 10_000


class SqliteStore(
    SqliteLedger,
    SqliteResets,
    SqliteLabels,
    SqliteMailbox,
    SqliteMail,
    SqliteFamilies,
    SqliteLoads,
    SqliteTasks,
    SqliteQueues,
    SqliteDependencies,
    SqliteSessions,
    SqliteRequests,
    SqlitePauses,
    SqlitePieces,
    SqliteRetention,
    SqliteTransactions,
    SqliteLosses,
    SqliteTokens,
    SqliteStreams,
):
    """A ledger in one file, shared by any number of processes on one machine."""

    def commit(self, batch: Sequence[Operation]) -> asyncio.Future[list[Answer]]:
        path = self._database.path
        return self._submit(lambda cursor: write_batch(cursor, batch, path), durable=True)

    async def describe(self) -> dict[str, Any]:
        database = self._database
        [(journal_mode,)] = self._rows("PRAGMA journal_mode")
        [(page_size,)] = self._rows("PRAGMA page_size")
        return {
            "kind": "sqlite",
            "path": database.path,
            "file_system": file_system(Path(database.path)),
            "durability": "power" if self._durable else "process",
            "synchronous": "FULL" if self._durable else "NORMAL",
            "journal_mode": journal_mode,
            "commits": "inline" if database.lane.inline else "in a thread: the disk is slow",
            "commit_ms": round(database.lane.average_ms, 3),
            "schema_version": database.schema_version,
            "schema_version_known": len(load_migrations(__package__)),
            "sqlite_version": apsw.sqlite_lib_version(),
            "size_bytes": _size(database.path),
            "wal_bytes": _size(database.path + "-wal"),
            "page_size": page_size,
        }

    async def back_up(self, path: str) -> int:
        self._check_open()
        database = self._database
        # In a thread: it takes as long as the ledger is large, and this process goes on meanwhile.
        return await asyncio.to_thread(back_up, Path(database.path), Path(path), database.host.vfs)


def open_sqlite(
    path: str | os.PathLike[str],
    *,
    durability: str = "power",
    allow_network_fs: bool = False,
    busy_timeout_ms: int = BUSY_TIMEOUT_MS,
    clock: Callable[[], int] | None = None,
    on_commit: CommitHook | None = None,
    host: Host = MACHINE,
) -> SqliteStore:
    """A handle on the ledger in the file `path`, made if there is none. The first four are as in `open_store`.

    busy_timeout_ms: how long a transaction waits for those of other processes; the first handle of a file decides.
    clock: milliseconds, in place of SQLite's own clock. on_commit: called just before and just after each COMMIT of
    this handle with its number, counted from 1 (heartbeats, which come at any time, are left out). host: what the file
    and its connections stand on.
    """
    database = enter_database(Path(path), allow_network_fs=allow_network_fs, busy_timeout_ms=busy_timeout_ms, host=host)
    try:
        return SqliteStore(database, durable=durability == "power", clock=clock, on_commit=on_commit)
    except BaseException:
        database.leave()  # it was entered, and nobody else would
        raise


def _size(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except FileNotFoundError:
        return 0
