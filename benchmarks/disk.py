"""What the disk under a ledger can do, measured beside every workload, and how much of it a ledger takes."""

import os
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

import apsw

#: Samples of each: enough for a steady median, few enough to take less than 0.2 s.
SAMPLES: Final = 300

#: Bytes of a row and of an appended record.
RECORD_BYTES: Final = 128


def commit_times_ms(directory: Path, samples: int = SAMPLES, idle_s: float = 0.0) -> list[float]:
    """What a durable commit of a single row takes: the floor under anything that this disk is to keep.

    idle_s: how long nothing goes on before each of them. A machine that has to wake up first takes longer.
    """
    with closing(apsw.Connection(str(directory / "probe.db"))) as connection:
        execute = connection.cursor().execute
        execute("PRAGMA journal_mode = WAL").fetchall()
        execute("PRAGMA synchronous = FULL")
        execute("CREATE TABLE IF NOT EXISTS probe (number INTEGER PRIMARY KEY, record BLOB)")
        record = os.urandom(RECORD_BYTES)
        return times_ms(lambda: execute("INSERT INTO probe (record) VALUES (?)", (record,)), samples, idle_s)


def fsync_times_ms(directory: Path) -> list[float]:
    """What it takes to append a record to a file and sync it."""
    with (directory / "probe.log").open("ab", buffering=0) as file:
        record = os.urandom(RECORD_BYTES)

        def append() -> None:
            file.write(record)
            os.fsync(file.fileno())

        return times_ms(append, SAMPLES)


def bytes_on_disk(database: Path) -> int:
    """The database file and its write-ahead log."""
    log = database.with_name(database.name + "-wal")
    return database.stat().st_size + (log.stat().st_size if log.exists() else 0)


def times_ms(action: Callable[[], object], samples: int, idle_s: float = 0.0) -> list[float]:
    """How long each of so many repeats takes, `idle_s` after the one before."""
    times = []
    for _ in range(samples):
        if idle_s:
            time.sleep(idle_s)
        started = time.perf_counter()
        action()
        times.append((time.perf_counter() - started) * 1000)
    return times
