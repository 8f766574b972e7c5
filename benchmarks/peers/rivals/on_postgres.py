"""The database of an engine on the PostgreSQL server of a comparison, and what that server counts by itself."""

import asyncio
from typing import Final

import psycopg

from benchmarks.peers.rival import Place

#: The version of PostgreSQL that moved the syncs of its log from pg_stat_wal to pg_stat_io.
WAL_IN_IO: Final = 180_000


class Database:
    """Of one place, whose server there must be."""

    def __init__(self, place: Place) -> None:
        assert place.postgres is not None
        self._server = place.postgres
        self._name = place.database

    def url(self, driver: str = "postgresql") -> str:
        return f"{self._server}/{self._name}".replace("postgresql", driver, 1)

    def create(self) -> None:
        """Unless it is there: what a killed process left is found again."""
        with psycopg.connect(f"{self._server}/postgres", autocommit=True) as connection:
            found = connection.execute("SELECT FROM pg_database WHERE datname = %s", (self._name,)).fetchone()
            if found is None:
                connection.execute(f'CREATE DATABASE "{self._name}"'.encode())

    def disk_bytes(self) -> int:
        return int(self._one("SELECT pg_database_size(current_database())"))

    async def counters(self) -> dict[str, float]:
        # Backends report what they have done at most once a second, and only when they are at rest.
        await asyncio.sleep(2.5)
        in_io = int(self._one("SHOW server_version_num")) >= WAL_IN_IO
        fsyncs = (
            "SELECT sum(fsyncs) FROM pg_stat_io WHERE object = 'wal'" if in_io else "SELECT wal_sync FROM pg_stat_wal"
        )
        transactions = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"
        return {"fsyncs": float(self._one(fsyncs)), "transactions": float(self._one(transactions))}

    def count_statements(self) -> None:
        """From now on; before `statements`."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")

    def statements(self) -> int:
        """Run in this database so far. Not by pg_stat_database: what autovacuum does is in it."""
        return int(
            self._one(
                "SELECT coalesce(sum(calls), 0) FROM pg_stat_statements JOIN pg_database ON dbid = pg_database.oid "
                "WHERE datname = current_database() AND toplevel AND query NOT LIKE '%pg_stat_statements%'"
            )
        )

    def _one(self, query: str) -> str:
        with psycopg.connect(self.url(), autocommit=True) as connection:
            row = connection.execute(query.encode()).fetchone()
        assert row is not None
        return str(row[0])
