"""Connections for transactions of users: few, and each in use by one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import psycopg
from psycopg.pq import TransactionStatus

from pledger.errors import StoreUnavailableError
from pledger.store.postgres.address import Address, parse_url
from pledger.store.postgres.failures import store_failure
from pledger.store.postgres.links import conninfo
from pledger.store.postgres.quota import Quota

_PURPOSE: Final = "transaction"


class Place:
    """Where one connection may be: of the loop or a blocking one, as whichever user. It stays for the next who wants
    the same."""

    def __init__(self, address: Address, quota: Quota, purpose: str) -> None:
        self._address = address
        self._quota = quota
        self._purpose = purpose
        self._url: str | None = None
        self._connection: psycopg.AsyncConnection[Any] | psycopg.Connection[Any] | None = None

    async def connection(self, url: str | None) -> psycopg.AsyncConnection[Any]:
        """Raises StoreError."""
        found = self._connection
        if isinstance(found, psycopg.AsyncConnection) and self._serves(found, url):
            return found
        await self.close()
        self._quota.take(self._purpose, self)
        try:
            made = await psycopg.AsyncConnection.connect(self._conninfo(url), autocommit=True)
        except psycopg.Error as error:
            self._quota.give(self._purpose, self)
            raise store_failure(error, self._address) from error
        self._url, self._connection = url, made
        await made.set_isolation_level(psycopg.IsolationLevel.READ_COMMITTED)
        return made

    def blocking_connection(self, url: str | None) -> psycopg.Connection[Any]:
        """The same for a thread. What was there before has been closed, if it was of the loop."""
        found = self._connection
        if isinstance(found, psycopg.Connection) and self._serves(found, url):
            return found
        assert not isinstance(found, psycopg.AsyncConnection), "the loop closes its own"
        if found is not None:
            found.close()
        self._quota.take(self._purpose, self)
        try:
            made = psycopg.Connection.connect(self._conninfo(url), autocommit=True)
        except psycopg.Error as error:
            raise store_failure(error, self._address) from error
        self._url, self._connection = url, made
        made.set_isolation_level(psycopg.IsolationLevel.READ_COMMITTED)
        return made

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if isinstance(connection, psycopg.AsyncConnection):
            await connection.close()
        elif connection is not None:
            connection.close()
        self._quota.give(self._purpose, self)

    async def make_room_for_a_thread(self) -> None:
        """A connection of the loop can be closed by the loop only."""
        if isinstance(self._connection, psycopg.AsyncConnection):
            await self.close()

    def _serves(self, connection: psycopg.AsyncConnection[Any] | psycopg.Connection[Any], url: str | None) -> bool:
        at_rest = not connection.closed and connection.info.transaction_status is TransactionStatus.IDLE
        return at_rest and self._url == url

    def _conninfo(self, url: str | None) -> str:
        return conninfo(self._address if url is None else parse_url(url), _PURPOSE)


class Places:
    """count: how many there are; it may grow. patience_s: how long somebody waits for one."""

    def __init__(self, address: Address, quota: Quota, patience_s: Callable[[], float]) -> None:
        self.count = 0
        self._address = address
        self._quota = quota
        self._patience_s = patience_s
        self._closed = False
        self._free: list[Place] = []
        self._waiting = asyncio.Condition()

    async def allow(self, count: int) -> None:
        """So many from now on, no fewer than there are."""
        async with self._waiting:
            while self.count < count:
                self.count += 1
                place = Place(self._address, self._quota, f"{_PURPOSE} {self.count}")
                self._free.append(place)
            self._waiting.notify_all()

    async def take(self) -> Place:
        """Raises StoreUnavailableError when none gets free."""
        async with self._waiting:
            try:
                async with asyncio.timeout(self._patience_s()):
                    await self._waiting.wait_for(lambda: bool(self._free))
            except TimeoutError:
                raise StoreUnavailableError(
                    f"{self._address.shown}: all {self.count} connections for transactions are in use. Keep them "
                    "short, or allow more: Worker(max_transactions=...)"
                ) from None
            # The one that was in use last: its connection is the likeliest to be alive.
            return self._free.pop()

    async def give(self, place: Place) -> None:
        if self._closed:
            await place.close()
            return
        async with self._waiting:
            self._free.append(place)
            self._waiting.notify()

    async def close(self) -> None:
        """Those in use are closed when they are given back: a thread may be in the midst of a statement."""
        self._closed = True
        for place in self._free:
            await place.close()
