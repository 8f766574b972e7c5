"""Transactions on connections that the store hands out: to steps, and to the users of a client."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Final

import psycopg
from psycopg.pq import TransactionStatus

from pledger.engine.port.answers import Answer, Reply
from pledger.engine.port.operations import FinishTask
from pledger.errors import StoreUnavailableError, UsageError
from pledger.store.postgres.address import Address
from pledger.store.postgres.failures import is_of_the_connection, store_failure
from pledger.store.postgres.joined import carry_out, carry_out_blocking, write
from pledger.store.postgres.places import Place, Places

#: The longest that a transaction may take whose user names no bound, in seconds.
OPEN_MAX_S: Final = 60.0


class PostgresTransaction:
    """One of asynchronous code. The block that psycopg has for it keeps code from committing by itself."""

    connection: psycopg.AsyncConnection[Any]

    def __init__(
        self, address: Address, sql: Mapping[str, str], places: Places, url: str | None, open_max_s: float | None
    ) -> None:
        self._address = address
        self._sql = sql
        self._places = places
        self._url = url
        self._limits = _limits(open_max_s)
        self._place: Place | None = None
        self._block: AbstractAsyncContextManager[psycopg.AsyncTransaction] | None = None

    async def open(self) -> None:
        self._place = await self._places.take()
        try:
            self.connection = await self._place.connection(self._url)
            block = self.connection.transaction()
            await block.__aenter__()
            self._block = block
            await self.connection.execute(self._limits, prepare=False)
        except psycopg.Error as error:
            raise store_failure(error, self._address) from error

    async def commit(self) -> None:
        assert self._block is not None
        _check_whole(self.connection)
        block, self._block = self._block, None
        try:
            await block.__aexit__(None, None, None)
        except psycopg.Error as error:
            if is_of_the_connection(error):
                raise _in_doubt(error, self._address) from error
            raise  # a constraint that was put off until now, for one: it is the user's

    async def finish(self, finish: FinishTask) -> Reply:
        _check_whole(self.connection)
        try:
            answer = await carry_out(self.connection, write(self._sql, self._address.channel, finish))
        except psycopg.Error as error:
            raise store_failure(error, self._address) from error
        return await self._settle(_reply(answer))

    async def _settle(self, reply: Reply) -> Reply:
        if reply is Reply.WON:
            await self.commit()
        return reply

    async def close(self) -> None:
        place, self._place = self._place, None
        if place is None:
            return
        try:
            block, self._block = self._block, None
            if block is not None and not self.connection.closed:
                try:
                    await block.__aexit__(psycopg.Rollback, psycopg.Rollback(), None)
                except psycopg.Error:
                    await self.connection.close()  # the server rolls back what it has no connection to
        finally:
            await self._places.give(place)


class BlockingPostgresTransaction:
    """The same for a thread. loop: of the places."""

    connection: psycopg.Connection[Any]

    def __init__(
        self,
        address: Address,
        sql: Mapping[str, str],
        places: Places,
        url: str | None,
        open_max_s: float | None,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._address = address
        self._sql = sql
        self._places = places
        self._url = url
        self._limits = _limits(open_max_s)
        self._loop = loop
        self._place: Place | None = None
        self._block: AbstractContextManager[psycopg.Transaction] | None = None

    def open(self) -> None:
        self._place = asyncio.run_coroutine_threadsafe(self._take(), self._loop).result()
        try:
            self.connection = self._place.blocking_connection(self._url)
            block = self.connection.transaction()
            block.__enter__()
            self._block = block
            self.connection.execute(self._limits, prepare=False)
        except psycopg.Error as error:
            raise store_failure(error, self._address) from error

    async def _take(self) -> Place:
        place = await self._places.take()
        await place.make_room_for_a_thread()
        return place

    def commit(self) -> None:
        assert self._block is not None
        _check_whole(self.connection)
        block, self._block = self._block, None
        try:
            block.__exit__(None, None, None)
        except psycopg.Error as error:
            if is_of_the_connection(error):
                raise _in_doubt(error, self._address) from error
            raise

    def finish(self, finish: FinishTask) -> Reply:
        _check_whole(self.connection)
        try:
            answer = carry_out_blocking(self.connection, write(self._sql, self._address.channel, finish))
        except psycopg.Error as error:
            raise store_failure(error, self._address) from error
        reply = _reply(answer)
        if reply is Reply.WON:
            self.commit()
        return reply

    def close(self) -> None:
        place, self._place = self._place, None
        if place is None:
            return
        try:
            block, self._block = self._block, None
            if block is not None and not self.connection.closed:
                try:
                    block.__exit__(psycopg.Rollback, psycopg.Rollback(), None)
                except psycopg.Error:
                    self.connection.close()
        finally:
            self._loop.call_soon_threadsafe(lambda: self._loop.create_task(self._places.give(place)))


def _check_whole(connection: psycopg.AsyncConnection[Any] | psycopg.Connection[Any]) -> None:
    """Raises UsageError when nothing is left to commit: the server rolls back at a COMMIT then, without an error."""
    status = connection.info.transaction_status
    if status is TransactionStatus.INERROR:
        raise UsageError(
            "a statement of the transaction has failed, and the server keeps nothing of it. Let its error end the "
            "transaction, or put what may fail into a savepoint: `async with connection.transaction():`"
        )
    if status is TransactionStatus.IDLE:
        raise UsageError("the transaction was ended by a statement. It is ended by the block that gave the connection")


def _limits(open_max_s: float | None) -> str:
    """The server ends it when its time is over: neither a statement nor a pause outlasts that, nor the locks."""
    most_ms = max(1, round((OPEN_MAX_S if open_max_s is None else open_max_s) * 1000))
    return f"SET LOCAL statement_timeout = {most_ms}; SET LOCAL idle_in_transaction_session_timeout = {most_ms}"


def _reply(answer: Answer) -> Reply:
    assert isinstance(answer, Reply)
    return answer


def _in_doubt(error: psycopg.Error, address: Address) -> StoreUnavailableError:
    return StoreUnavailableError(
        f"{address.shown}: the connection was lost while the transaction was committed ({str(error).strip()}). It "
        "is there as a whole or not at all: look for what it has written before you do it again"
    )
