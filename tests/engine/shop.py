"""A table of a user's in the ledger's own database, and transactions on it, whichever database that is."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import apsw
import psycopg

from pledger import Client
from pledger.store.postgres.address import parse_url
from tests.engine.harness import Ledger


@dataclass
class Shop:
    """ledger: with a table `shop_order (id text primary key)` beside it, which `conninfo` leads to on PostgreSQL."""

    ledger: Ledger
    conninfo: str = ""
    table: str = "shop_order"

    @property
    def is_postgres(self) -> bool:
        return bool(self.conninfo)

    @property
    def schema(self) -> str:
        """Of the ledger, on PostgreSQL."""
        return parse_url(self.ledger.url).schema

    @contextlib.asynccontextmanager
    async def transaction(self, client: Client) -> AsyncIterator[Any]:
        """As a user would open one."""
        if not self.is_postgres:
            async with client.connection() as connection:
                yield connection
            return
        async with await psycopg.AsyncConnection.connect(self.conninfo) as connection, connection.transaction():
            yield connection

    async def insert(self, connection: Any, order: str) -> None:
        mark = "%s" if self.is_postgres else "?"
        await connection.execute(f"INSERT INTO {self.table} VALUES ({mark})", (order,))

    def ending(self, order: str) -> str:
        """A statement that inserts the order; one that is there already is an error, which ends the transaction."""
        return f"INSERT {'' if self.is_postgres else 'OR ROLLBACK '}INTO {self.table} VALUES ('{order}')"

    def orders(self) -> list[str]:
        """What is committed, in order."""
        sql = f"SELECT id FROM {self.table} ORDER BY id"
        if self.is_postgres:
            with psycopg.connect(self.conninfo) as connection:
                return [order for (order,) in connection.execute(sql).fetchall()]
        with contextlib.closing(apsw.Connection(str(self.ledger.path))) as connection:
            return [order for (order,) in connection.execute(sql).fetchall()]


@contextlib.contextmanager
def table_beside(ledger: Ledger) -> Iterator[Shop]:
    """A shop in the ledger's database, which is made already."""
    if ledger.url.startswith("sqlite"):
        with contextlib.closing(apsw.Connection(str(ledger.path))) as made:
            made.execute("CREATE TABLE shop_order (id text PRIMARY KEY)")
        yield Shop(ledger)
        return
    address = parse_url(ledger.url)
    table = f"{address.schema}_order"
    with psycopg.connect(address.conninfo, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE {table} (id text PRIMARY KEY)")
        try:
            yield Shop(ledger, address.conninfo, table)
        finally:
            connection.execute(f"DROP TABLE {table}")
