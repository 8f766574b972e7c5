"""Connections to the server: few, each for one purpose, each made anew after it was lost."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, Final, TypeAlias

import psycopg
from psycopg import errors as pg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus
from psycopg.types.numeric import Int8BinaryDumper, Int8Dumper

from pledger.errors import StoreUnavailableError, UsageError
from pledger.store.postgres.address import Address
from pledger.store.postgres.arrays import Packed, PackedDumper
from pledger.store.postgres.failures import is_of_the_connection, store_failure
from pledger.store.postgres.quota import Quota

logger = logging.getLogger("pledger.store")

#: The oldest server that has what the statements use.
SERVER_MIN: Final = 14

#: A connection that gives no sign of life is given up. In seconds, and for libpq's keep-alive in its own units.
_ALIVE: Final = {
    "connect_timeout": "5",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
}

#: Between two attempts to connect, in seconds.
_AGAIN_S: Final = (0.05, 1.0)

#: Statements that stay prepared: each is prepared anew for parameters of other types.
_PREPARED_MAX: Final = 500

#: No statement goes on for longer, in seconds: nor does one whose connection is lost.
STATEMENT_TIMEOUT_S: Final = 30.0

#: Below the shortest lease that makes sense: a process that stands still in a transaction must not keep others from
#: taking over what it holds.
_SETTINGS: Final = {
    "lock_timeout": "3 s",
    "idle_in_transaction_session_timeout": "3 s",
    "statement_timeout": f"{STATEMENT_TIMEOUT_S:g} s",
    # Plans are made once (left to itself, the server makes one for each batch, whose length it can see), and often
    # while a table is all but empty: they are to go by the indices from the start.
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
    "search_path": "pg_catalog",
    "timezone": "UTC",
}

#: Statements that are sent without an end of their round trip leave the server waiting for the next one with all locks,
#: and to it that is no rest: a process that is stopped just there would hold them for as long as it lives. From this
#: version on the server can be asked to end a transaction whatever it waits for.
HAS_TRANSACTION_TIMEOUT: Final = 170_000
#: Of transactions of the one connection that takes locks. More than a slow disk takes, less than two leases.
TRANSACTION_MAX: Final = "8 s"

_CHECK: Final = "SELECT current_setting('server_version_num')::int, pg_is_in_recovery()"
#: Of the server's history, as the name of its newest log file begins: it changes at once when a replica is promoted.
_TIMELINE: Final = "SELECT ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::bigint"

#: What is done with a new connection before it is used; it is given the server's timeline, None for one that has none.
Greeting: TypeAlias = Callable[[psycopg.AsyncConnection[Any], int | None], Awaitable[None]]


def settings(*, durable: bool) -> Mapping[str, str]:
    """Of every session. durable: whether a commit waits for the server's disk."""
    # Never less than local: where replicas are waited for, that is the server's own setting.
    return _SETTINGS if durable else {**_SETTINGS, "synchronous_commit": "off"}


def conninfo(address: Address, purpose: str, **settings: str) -> str:
    """For libpq. What the URL says of these things counts more."""
    given = conninfo_to_dict(address.conninfo)
    return make_conninfo(address.conninfo, **({"application_name": f"pledger {purpose}"} | _ALIVE | settings | given))


class Link:
    """One connection of the event loop, for one user at a time. Opened when first used.

    patience_s: for how long a server that cannot be reached is tried again, before that is an error. greeting: what is
    done with each new connection first. locks: whether its transactions take locks that others may wait for. opened:
    whether the ledger was opened, see `store_failure`.
    """

    def __init__(
        self, address: Address, purpose: str, settings: Mapping[str, str], quota: Quota, *, locks: bool = False
    ) -> None:
        self.address = address
        self.patience_s = 0.0
        self.opened = False
        self.greeting: Greeting | None = None
        self._quota = quota
        self._purpose = purpose
        self._settings = settings
        self._locks = locks
        self._told = False
        self._lock = asyncio.Lock()
        self._connection: psycopg.AsyncConnection[Any] | None = None

    @contextlib.asynccontextmanager
    async def use(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        """The connection, outside of any transaction. Raises StoreError for whatever PostgreSQL says."""
        async with self._lock:
            try:
                connection = await self._wait_for_connection()
                yield connection
            except psycopg.Error as error:
                await self._recover()
                raise store_failure(error, self.address, opened=self.opened) from error
            except BaseException:
                await self._recover()
                raise

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()
        self._quota.give(self._purpose, self)

    async def retire(self) -> None:
        """Close it, once nobody uses it."""
        async with self._lock:
            await self.close()

    async def _wait_for_connection(self) -> psycopg.AsyncConnection[Any]:
        deadline_s = time.monotonic() + self.patience_s
        pause_s = _AGAIN_S[0]
        while True:
            try:
                connection = await self._connect()
                self._told = False
                return connection  # noqa: TRY300 - in place of an else that says no more
            except (psycopg.Error, StoreUnavailableError) as error:
                passing = isinstance(error, StoreUnavailableError) or is_of_the_connection(error)
                if not passing or time.monotonic() >= deadline_s:
                    raise
                if not self._told:
                    self._told = True
                    logger.warning(
                        "%s cannot be reached; trying again for %g s: %s",
                        self.address.shown,
                        self.patience_s,
                        str(error).strip().partition("\n")[0],
                    )
            # All processes lose their connections at the same moment, and should not come back at one.
            await asyncio.sleep(pause_s * (0.5 + random.random()))  # noqa: S311 - no secret
            pause_s = min(_AGAIN_S[1], pause_s * 2)

    async def _connect(self) -> psycopg.AsyncConnection[Any]:
        connection = self._connection
        if connection is not None and connection.info.transaction_status is not TransactionStatus.IDLE:
            await self.close()  # its last user was stopped in the midst of something
            connection = None
        if connection is None or connection.closed:
            self._quota.take(self._purpose, self)
            try:
                connection = await psycopg.AsyncConnection.connect(
                    conninfo(self.address, self._purpose),
                    autocommit=True,
                    cursor_factory=psycopg.AsyncRawCursor,
                    prepare_threshold=0,
                )
            except BaseException:
                self._quota.give(self._purpose, self)
                raise
            connection.adapters.register_dumper(Packed, PackedDumper)
            # By their size, numbers would have three types, and each statement a plan for every mixture of them.
            connection.adapters.register_dumper(int, Int8Dumper)
            connection.adapters.register_dumper(int, Int8BinaryDumper)
            connection.prepared_max = _PREPARED_MAX
            try:
                [found] = await (await connection.execute(_CHECK)).fetchall()
                check_server(found, self.address)
                bounded = self._locks and connection.info.server_version >= HAS_TRANSACTION_TIMEOUT
                more = {"transaction_timeout": TRANSACTION_MAX} if bounded else {}
                await connection.execute(_set({**self._settings, **more}), prepare=False)
                if self.greeting is not None:
                    await self.greeting(connection, await timeline(connection))
            except BaseException:
                await connection.close()
                self._quota.give(self._purpose, self)
                raise
            self._connection = connection
        return connection

    async def _recover(self) -> None:
        """Whatever was going on, the next user finds a connection at rest, or none."""
        connection = self._connection
        if connection is None:
            return
        status = connection.info.transaction_status
        if status is TransactionStatus.INERROR:
            with contextlib.suppress(psycopg.Error):
                await connection.execute("ROLLBACK")
                return
        if status is not TransactionStatus.IDLE:
            await self.close()


@contextlib.asynccontextmanager
async def pipelined(connection: psycopg.AsyncConnection[Any]) -> AsyncIterator[psycopg.AsyncPipeline]:
    """What is executed meanwhile goes out together.

    Whoever fetches within has to wait for `all_answers` before, or `sync`: only then does the server count the
    transaction as idle, which bounds how long a process that stands still holds its locks.
    """
    token = _in_pipeline.set(True)
    try:
        async with connection.pipeline() as pipeline:
            yield pipeline
    finally:
        _in_pipeline.reset(token)


async def all_answers(pipeline: psycopg.AsyncPipeline) -> None:
    """Send and take in what was executed in the pipeline, which nothing may follow; not in one within another one.

    At its end psycopg asks once more whether all is there: a round trip for nothing, and what is sent with it has the
    server count no transaction as idle any more.
    """
    await pipeline.sync()
    if not pipeline.result_queue and not pipeline.command_queue:
        pipeline._exit_gen = _nothing  # type: ignore[method-assign] # noqa: SLF001 - without it, it asks as ever


def _nothing() -> Generator[Any, Any, None]:
    yield from ()


_in_pipeline: ContextVar[bool] = ContextVar("pledger_in_pipeline", default=False)


def _is_news(record: logging.LogRecord) -> bool:
    """Without what psycopg says when it cannot end the pipeline of a lost connection: of ours, that was told."""
    return not (_in_pipeline.get() and str(record.msg).startswith("error ignored terminating"))


logging.getLogger("psycopg").addFilter(_is_news)


#: A beat that hangs is given up while there is time for another one.
_BEATING: Final = {"connect_timeout": "2", "tcp_user_timeout": "2000"}


class BlockingLink:
    """The same for a thread: a heartbeat's."""

    def __init__(self, address: Address, purpose: str, settings: Mapping[str, str], quota: Quota) -> None:
        self.address = address
        self.opened = False
        self._quota = quota
        self._purpose = purpose
        self._settings = settings
        self._lock = threading.Lock()
        self._connection: psycopg.Connection[Any] | None = None

    @contextlib.contextmanager
    def use(self) -> Iterator[psycopg.Connection[Any]]:
        """Statements commit by themselves. Raises StoreError."""
        with self._lock:
            try:
                yield self._connect()
            except psycopg.Error as error:
                self._drop()
                raise store_failure(error, self.address, opened=self.opened) from error

    def close(self) -> None:
        with self._lock:
            self._drop()

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        self._quota.give(self._purpose, self)

    def _connect(self) -> psycopg.Connection[Any]:
        if self._connection is None or self._connection.closed:
            self._quota.take(self._purpose, self)
            self._connection = psycopg.Connection.connect(
                conninfo(self.address, self._purpose, **_BEATING),
                autocommit=True,
                cursor_factory=psycopg.RawCursor,
                prepare_threshold=0,
            )
            self._connection.execute(_set(self._settings), prepare=False)
        return self._connection


def check_server(found: tuple[Any, ...], address: Address) -> None:
    """Raises UsageError for a server that is too old, StoreUnavailableError for one that takes no writes (yet)."""
    version, in_recovery = found
    if version < SERVER_MIN * 10_000:
        raise UsageError(
            f"{address.shown}: the server is PostgreSQL {version // 10_000}; Pledger needs {SERVER_MIN} or later."
        )
    if in_recovery:
        raise StoreUnavailableError(
            f"{address.shown}: this server is a replica and takes no writes. Name the primary, or several hosts with "
            "target_session_attrs=read-write."
        )


async def timeline(connection: psycopg.AsyncConnection[Any]) -> int | None:
    """None where the log is not the server's own to see, as of one whose storage keeps what was committed by itself."""
    try:
        [(timeline,)] = await (await connection.execute(_TIMELINE, prepare=False)).fetchall()
    except (pg.FeatureNotSupported, pg.InsufficientPrivilege, pg.UndefinedFunction):
        return None
    return int(timeline)


def _set(settings: Mapping[str, str]) -> str:
    """One statement for all: names and values are ours."""
    return "; ".join(f"SET {name} = '{value}'" for name, value in settings.items())
