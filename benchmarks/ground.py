"""Where the ledgers of a repeat lie, what that costs, and what a durable commit takes there.

A file on this machine's disk, or a database of its own on a PostgreSQL server.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Literal, Protocol, TypeAlias

import msgspec
import psycopg

from benchmarks import disk, processes
from benchmarks.load import own_cpu_s

StoreName: TypeAlias = Literal["sqlite", "postgres"]

#: The probe's row, as in `disk`.
_PROBE: Final = "INSERT INTO probe (record) VALUES (%s)"


class Server(msgspec.Struct, frozen=True):
    """url: of a database in which others may be created. pid: of the process that all others of it descend from."""

    url: str
    pid: int


class Ground(Protocol):
    """roots: processes whose work is ours besides this one and its children: the server's."""

    roots: tuple[int, ...]

    def url(self, name: str = "ledger") -> str:
        """Of one of the ledgers of the repeat."""
        ...

    def commit_times_ms(self, samples: int = disk.SAMPLES, idle_s: float = 0.0) -> list[float]:
        """What a durable commit of a single row takes, `idle_s` after the one before."""
        ...

    def stored_bytes(self) -> int:
        """What the ledger takes, its write-ahead log included where that is its own."""
        ...

    def bytes_at_rest(self) -> int:
        """The same without the log."""
        ...

    def statements(self) -> int | None:
        """How many the server has run for this repeat so far; None where there is no server."""
        ...


class FileGround:
    roots: tuple[int, ...] = ()

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def _file(self, name: str) -> Path:
        return self._directory.absolute() / f"{name}.db"

    def url(self, name: str = "ledger") -> str:
        return f"sqlite:///{self._file(name)}"

    def commit_times_ms(self, samples: int = disk.SAMPLES, idle_s: float = 0.0) -> list[float]:
        return disk.commit_times_ms(self._directory, samples, idle_s)

    def stored_bytes(self) -> int:
        return disk.bytes_on_disk(self._file("ledger"))

    def bytes_at_rest(self) -> int:
        return self._file("ledger").stat().st_size

    def statements(self) -> int | None:
        return None


class DatabaseGround:
    def __init__(self, server: Server, database: str) -> None:
        self.roots = (server.pid,)
        self._connect = f"{server.url.rpartition('/')[0]}/{database}"
        with psycopg.connect(self._connect, autocommit=True) as connection:
            connection.execute("CREATE EXTENSION pg_stat_statements")

    def url(self, name: str = "ledger") -> str:
        return f"{self._connect}?schema={name}"

    def commit_times_ms(self, samples: int = disk.SAMPLES, idle_s: float = 0.0) -> list[float]:
        with psycopg.connect(self._connect, autocommit=True) as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS probe (number bigserial PRIMARY KEY, record bytea)")
            record = os.urandom(disk.RECORD_BYTES)
            return disk.times_ms(lambda: connection.execute(_PROBE, (record,), prepare=True), samples, idle_s)

    def stored_bytes(self) -> int:
        """Tables and indices; the log belongs to the server, and is written over again and again."""
        return self.bytes_at_rest()

    def bytes_at_rest(self) -> int:
        return self._number("SELECT pg_database_size(current_database())")

    def statements(self) -> int | None:
        # Not by pg_stat_database: what autovacuum does is in it.
        return self._number(
            "SELECT coalesce(sum(calls), 0) FROM pg_stat_statements JOIN pg_database ON dbid = pg_database.oid "
            "WHERE datname = current_database() AND toplevel"
        )

    def _number(self, query: str) -> int:
        with psycopg.connect(self._connect, autocommit=True) as connection:
            row = connection.execute(query).fetchone()
            assert row is not None
            return int(row[0])


@contextlib.contextmanager
def prepared(server: Server | None, directory: Path) -> Iterator[Ground]:
    """A ground that is empty, and gone with the block where the directory does not take it along."""
    if server is None:
        yield FileGround(directory)
        return
    database = directory.name.replace("-", "_").lower()
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{database}"')
        try:
            yield DatabaseGround(server, database)
        finally:
            connection.execute(f'DROP DATABASE "{database}" WITH (FORCE)')


def cpu_s(roots: Sequence[int]) -> float:
    """User and system time of this process and its ended children, and of those with all that descends from them."""
    # Without any, no look at all the processes of the machine.
    return own_cpu_s() + (processes.cpu_s(roots) if roots else 0.0)
