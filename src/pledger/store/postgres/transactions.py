"""Transactions of users that hold something of the ledger too."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, TypeVar
from weakref import WeakSet

import psycopg
from psycopg import errors as pg

from pledger.engine.port.answers import Answer
from pledger.engine.port.operations import StartRun
from pledger.errors import UsageError
from pledger.store.postgres.address import parse_url
from pledger.store.postgres.failures import PASSING, is_of_an_operation, operation_failure, store_failure
from pledger.store.postgres.guests import Guest, guest_of
from pledger.store.postgres.handed_out import BlockingPostgresTransaction, PostgresTransaction
from pledger.store.postgres.handle import PostgresHandle
from pledger.store.postgres.joined import Rows, Steps, ask, carry_out, carry_out_blocking, write
from pledger.store.postgres.places import Places
from pledger.store.postgres.quota import CONNECTIONS_MAX

T = TypeVar("T")


class PostgresTransactions(PostgresHandle):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        #: Where the ledger is, as its own connection said last: a server that was restarted says something else.
        self._whereabouts: Rows | None = None
        #: Connections that are known to lead there.
        self._guests: WeakSet[Guest] = WeakSet()
        self._places = Places(self.address, self._quota, lambda: self.patience_s)

    async def join(self, connection: object, operation: StartRun) -> Answer:
        guest = await guest_of(connection)
        try:
            if guest not in self._guests:
                await self._check_place(guest, connection)
            return await _carry_out(guest, write(self._sql, self.address.channel, operation))
        except pg.InsufficientPrivilege as error:
            schema = self.address.quoted
            raise UsageError(
                f"the role of connection={connection!r} may not write to the ledger ({_first_line(error)}). "
                f"GRANT it the role that owns the schema {schema}, or USAGE on the schema and its sequences, and "
                "SELECT, INSERT and UPDATE on its tables"
            ) from error
        except psycopg.Error as error:
            if is_of_an_operation(error) and not isinstance(error, PASSING):
                raise operation_failure(error, operation) from error
            raise store_failure(error, self.address) from error

    async def _check_place(self, guest: Guest, given: object) -> None:
        """Raises UsageError when the connection is one to another database than the ledger's."""
        told = await _carry_out(guest, ask(self._sql["whereabouts"]))
        if told != self._whereabouts:
            self._whereabouts = await self._rows("whereabouts")
        if told != self._whereabouts:
            raise UsageError(
                f"connection={given!r} leads to another database, or another server, than the ledger "
                f"{self.address.shown}: only what lies in one database is committed together. Connect both to one"
            )
        self._guests.add(guest)

    def transaction(self, url: str | None = None, *, open_max_s: float | None = None) -> PostgresTransaction:
        return PostgresTransaction(self.address, self._sql, self._places, url, open_max_s)

    def blocking_transaction(
        self, url: str | None = None, *, open_max_s: float | None = None
    ) -> BlockingPostgresTransaction:
        loop = asyncio.get_running_loop()
        return BlockingPostgresTransaction(self.address, self._sql, self._places, url, open_max_s, loop)

    async def prepare_transactions(self, urls: Iterable[str | None], count: int) -> None:
        self._check_open()
        if not self._places.count:
            # The one connection that transactions get is the one of long lists, which come by the reader's from now on.
            lists, self._lists = self._lists, self._reader
            await lists.retire()
        self._quota.seats = max(self._quota.seats, CONNECTIONS_MAX + count - 1)
        await self._places.allow(count)
        for url in urls:
            await self._check_url(url)

    async def _check_url(self, url: str | None) -> None:
        transaction = self.transaction(url)
        try:
            await transaction.open()
            await self._check_place(transaction.connection, "transactions=" if url is None else parse_url(url).shown)
        finally:
            await transaction.close()

    async def close(self) -> None:
        await self._places.close()
        await super().close()


async def _carry_out(guest: Guest, steps: Steps[T]) -> T:
    if isinstance(guest, psycopg.AsyncConnection):
        return await carry_out(guest, steps)
    # It may have to wait for somebody else's transaction, and the loop does not.
    return await asyncio.to_thread(carry_out_blocking, guest, steps)


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
