"""The connections of a simulated process to the model of a server: those that ask, and the one that listens."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, Self, cast

import psycopg

from pledger.errors import StoreUnavailableError
from pledger.store.postgres.address import Address
from pledger.store.postgres.failures import store_failure
from pledger.store.postgres.handle import PATIENCE_S
from pledger.store.postgres.listening import Listener
from pledger.store.postgres.news import Interest
from pledger.store.postgres.quota import LISTENERS_MAX, Quota

if TYPE_CHECKING:
    from pledger.testing.process import Process

ADDRESS: Final = Address("", "pledger", "postgresql://simulated/ledger")
#: What stands for the statement of that name.
READ_MARK: Final = "read_mark"
#: Between two attempts to reach the server, in seconds.
_AGAIN_S: Final = 0.5
#: What a hint says, in the name of somebody else.
_SOMETHING: Final = '--------["simulated"]'


def lost(what: str) -> psycopg.OperationalError:
    return psycopg.OperationalError(f"simulated: the connection was lost: {what}")


class Server(Protocol):
    """See `ServerLedger`."""

    term: int
    running: set[str]
    marks: dict[str, int]


class Link:
    """One connection, for one user at a time; whoever finds it lost gets another one. See the real `Link`."""

    def __init__(self, server: Server, process: Process) -> None:
        self._server = server
        self._process = process
        self._lock = asyncio.Lock()
        self._term = server.term

    @contextlib.asynccontextmanager
    async def use(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        async with self._lock:
            await self._connect()
            try:
                yield cast("psycopg.AsyncConnection[Any]", Connection(self._server, self))
            except psycopg.Error as error:
                raise store_failure(error, ADDRESS) from error

    def check(self) -> None:
        """Raises psycopg.OperationalError once the server that it led to is gone."""
        if self._term != self._server.term:
            raise lost("the server is another one")

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + PATIENCE_S
        while self._process.cut_off:
            if loop.time() >= deadline_s:
                raise StoreUnavailableError(f"simulated: {self._process.name} is cut off") from lost("cut off")
            await asyncio.sleep(_AGAIN_S)
        self._term = self._server.term


class Connection:
    """Answers the few statements that the store's own code asks."""

    def __init__(self, server: Server, link: Link) -> None:
        self._server = server
        self._link = link

    async def execute(self, sql: str, parameters: Sequence[Any] = (), **_: Any) -> Rows:
        self._link.check()
        if sql == READ_MARK:
            mark = self._server.marks.get(parameters[0])
            return Rows([] if mark is None else [(mark,)])
        if "pg_xact_status" in sql:
            return Rows([("in progress" if parameters[0] in self._server.running else "committed",)])
        assert sql == "ROLLBACK", sql
        return Rows([])


class Rows:
    def __init__(self, rows: list[tuple[Any, ...]]) -> None:
        self._rows = rows

    async def fetchall(self) -> list[tuple[Any, ...]]:
        return self._rows


class Ear(Listener):
    """The real listener, with hints that are lost, and a connection that breaks long before anybody notices."""

    def __init__(self, process: Process) -> None:
        super().__init__(ADDRESS, Interest(), Quota(LISTENERS_MAX), process.dice.random)
        self._process = process
        self._hints: Hints | None = None
        self._stale = False

    def hint(self) -> None:
        """Somebody has written."""
        faults = self._process.surroundings.faults()
        if self._hints is None or self._stale or self._process.cut_off:
            return
        if faults.notification_lost and self._process.dice.random() < faults.notification_lost:
            self._process.surroundings.hit("notification_lost")
            return
        self._hints.put()

    def make_stale(self) -> bool:
        if self._hints is None or self._stale:
            return False
        self._stale = True
        return True

    def find_out(self) -> None:
        """The connection is found to be lost."""
        self._stale = False
        if self._hints is not None:
            self._hints.is_lost()
            self._hints = None

    async def _connect(self) -> Any:
        if self._process.cut_off:
            raise lost("cut off")
        self._hints, self._stale = Hints(), False
        return self._hints


class Said(NamedTuple):
    payload: str


class Hints:
    """What one connection brings."""

    def __init__(self) -> None:
        self._waiting: deque[Said] = deque()
        self._some = asyncio.Event()
        self._lost = False

    def put(self) -> None:
        if not self._waiting:  # one says as much as many
            self._waiting.append(Said(_SOMETHING))
            self._some.set()

    def is_lost(self) -> None:
        self._lost = True
        self._some.set()

    async def notifies(self) -> AsyncIterator[Said]:
        while True:
            await self._some.wait()
            self._some.clear()
            while self._waiting:
                yield self._waiting.popleft()
            if self._lost:
                raise lost("the listener's")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None: ...
