"""One opener's view of a ledger on a server: its connections, how it reads, writes, and hears of others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

import psycopg

from pledger.errors import StoreError, StoreUnavailableError
from pledger.store.postgres.address import Address
from pledger.store.postgres.commit import CommitHook, Committer
from pledger.store.postgres.failures import is_of_the_connection
from pledger.store.postgres.links import STATEMENT_TIMEOUT_S, BlockingLink, Link, all_answers, pipelined, settings
from pledger.store.postgres.listening import Listener
from pledger.store.postgres.news import Interest
from pledger.store.postgres.patience import until_nobody_is_in_the_way
from pledger.store.postgres.quota import CONNECTIONS_MAX, LISTENERS_MAX, Quota
from pledger.store.postgres.statements import load_statements

T = TypeVar("T")

#: For how long a server that went away is waited for, in seconds: a restart, or a fail-over.
PATIENCE_S: Final = 20.0
#: The same when a ledger is opened: a worker may be started while its server is restarted; and who has a wrong address
#: wants to know it soon.
OPENING_PATIENCE_S: Final = 3.0


class PostgresHandle:
    """Without the verbs. durable: whether its commits wait for the server's disk. clock: in place of the store's own,
    for tests.

    Four connections at most, and one to listen: see `quota`.
    """

    #: A look is a round trip, of each worker of a fleet. With the heartbeats of a lease of 5 s, less than one a second.
    look_every_s = 4.0
    #: A server notices a lost connection only when it wants to answer. See `links.settings`.
    outlives_s = STATEMENT_TIMEOUT_S + 1.0

    def __init__(
        self,
        address: Address,
        *,
        durable: bool = True,
        clock: Callable[[], int] | None = None,
        on_commit: CommitHook | None = None,
    ) -> None:
        self.address = address
        self._sql = load_statements(address.schema)
        self._durable = durable
        self._clock = clock
        said = settings(durable=durable)
        self._quota, self._ears = Quota(CONNECTIONS_MAX), Quota(LISTENERS_MAX)
        self._writer = Link(address, "writer", said, self._quota, locks=True)
        self._reader = Link(address, "reader", said, self._quota)
        self._lists = Link(address, "lists", said, self._quota)
        self._heart = BlockingLink(address, "heartbeat", said, self._quota)
        self._interest = Interest()
        self._committer = Committer(self._sql, address.channel, self._interest, on_commit)
        self._listener = Listener(address, self._interest, self._ears)
        self._schema_version = 0
        #: Whether a run may be in doubt: looked up with each new connection and each new session, which is when that
        #: can have changed.
        self._has_losses = True
        self._looks_for_losses = self._newest_look = 0
        #: When the newest loss was declared that this handle knows of.
        self._declared_ms = 0
        self._closed = False

    @property
    def patience_s(self) -> float:
        """For how long a server that went away is waited for; 0 for not at all."""
        return self._writer.patience_s

    @patience_s.setter
    def patience_s(self, seconds: float) -> None:
        self._writer.patience_s = self._reader.patience_s = self._lists.patience_s = seconds

    def opened(self) -> None:
        """The ledger is there, and takes this URL."""
        self.patience_s = PATIENCE_S
        self._writer.opened = self._reader.opened = self._lists.opened = self._heart.opened = True

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await self._listener.stop()
            await self._writer.close()
            await self._reader.close()
            await self._lists.close()
            await asyncio.to_thread(self._heart.close)

    def _now(self) -> int | None:
        """For statements: None stands for the store's clock, read by the statement itself."""
        return None if self._clock is None else self._clock()

    def _check_open(self) -> None:
        if self._closed:
            raise self._closed_error()

    def _closed_error(self) -> StoreError:
        return StoreError(f"This store on {self.address.shown} is closed. Open it again with open_store().")

    def _next_look(self) -> int:
        """The number of a look for losses that begins now."""
        self._looks_for_losses += 1
        return self._looks_for_losses

    def _learn_of_losses(self, look: int, *, found: bool) -> None:
        """What that look has found. One that began before another whose answer is here says nothing: each connection
        looks, and answers may come late."""
        if look > self._newest_look:
            self._newest_look, self._has_losses = look, found

    # Reading and writing ----------------------------------------------------------------------------------------------

    async def _rows(self, name: str, *parameters: Any) -> list[tuple[Any, ...]]:
        return await self._read_sql(self._reader, self._sql[name], parameters)

    async def _read_together(self, *asked: tuple[str, Sequence[Any]]) -> list[list[tuple[Any, ...]]]:
        """The rows of several statements, by name and parameters, in one round trip; not of one moment."""

        async def read(connection: psycopg.AsyncConnection[Any]) -> list[list[tuple[Any, ...]]]:
            async with pipelined(connection) as pipeline:
                cursors = [
                    await connection.execute(self._sql[name], parameters, binary=True) for name, parameters in asked
                ]
                await all_answers(pipeline)
                return [await cursor.fetchall() for cursor in cursors]

        return await self._read_by(self._reader, read)

    async def _read_sql(self, link: Link, sql: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        async def read(connection: psycopg.AsyncConnection[Any]) -> list[tuple[Any, ...]]:
            return await (await connection.execute(sql, parameters, binary=True)).fetchall()

        return await self._read_by(link, read)

    async def _read_by(self, link: Link, read: Callable[[psycopg.AsyncConnection[Any]], Awaitable[T]]) -> T:
        """Twice, when the connection is lost meanwhile: to look again harms nobody."""
        self._check_open()
        try:
            async with link.use() as connection:
                return await read(connection)
        except StoreUnavailableError as error:
            if not self.patience_s or not is_of_the_connection(error.__cause__):
                raise
        self._check_open()
        async with link.use() as connection:
            return await read(connection)

    async def _row(self, name: str, *parameters: Any) -> tuple[Any, ...] | None:
        rows = await self._rows(name, *parameters)
        return rows[0] if rows else None

    async def _change(self, name: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """One statement that writes, which is a transaction by itself; its rows, if it gives any."""

        async def change(connection: psycopg.AsyncConnection[Any]) -> list[tuple[Any, ...]]:
            cursor = await connection.execute(self._sql[name], parameters, binary=True)
            return await cursor.fetchall() if cursor.description is not None else []

        return await self._passing(change)

    async def _transact(self, work: Callable[[psycopg.AsyncConnection[Any]], Awaitable[T]]) -> T:
        async def transact(connection: psycopg.AsyncConnection[Any]) -> T:
            async with connection.transaction():
                return await work(connection)

        return await self._passing(transact)

    async def _passing(self, work: Callable[[psycopg.AsyncConnection[Any]], Awaitable[T]]) -> T:
        return await until_nobody_is_in_the_way(lambda: self._use(work))

    async def _use(self, work: Callable[[psycopg.AsyncConnection[Any]], Awaitable[T]]) -> T:
        self._check_open()
        async with self._writer.use() as connection:
            return await work(connection)

    async def _say(self, connection: psycopg.AsyncConnection[Any], news: Iterable[str]) -> None:
        await connection.execute(self._sql["notify"], [self.address.channel, self._interest.signed(news)])

    # Changes by others ------------------------------------------------------------------------------------------------

    async def wait_for_change(self, timeout_s: float) -> bool:
        """False also as soon as a run has closed, or something was published: that concerns only who waits."""
        self._check_open()
        return await self._listener.wait(timeout_s)
