"""Transactions of users on the model of a store: their rows are there together with what the ledger wrote, or not at
all.

A model runs no SQL. It takes rows for tables, which is enough to see what a step has done, and how often; statements of
every kind run where there is a database: with store="sqlite".
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeAlias

from pledger.engine.port.answers import Answer, Reply
from pledger.engine.port.operations import FinishTask, Operation
from pledger.errors import StoreUnavailableError, UsageError

Row: TypeAlias = tuple[Any, ...]

_INSERT: Final = re.compile(r"INSERT INTO (\w+) VALUES \((\?(?:, ?\?)*)\)")
_CREATE: Final = re.compile(r"CREATE TABLE IF NOT EXISTS \w+ \([^;]*\)")


class Tables:
    """rows: what users have written, by table, in the order of the commits."""

    def __init__(self) -> None:
        self.rows: dict[str, list[Row]] = {}

    def add(self, written: Sequence[tuple[str, Row]]) -> None:
        for table, row in written:
            self.rows.setdefault(table, []).append(row)

    def remember(self) -> dict[str, int]:
        """How many rows each has."""
        return {table: len(rows) for table, rows in self.rows.items()}

    def went_back(self, known: dict[str, int], _: object) -> None:
        """They lie in the ledger's own database, and are lost with it."""
        for table, rows in self.rows.items():
            del rows[known.get(table, 0) :]


class Store(Protocol):
    """See `SimulatedStore`."""

    async def in_weather(self, side: str, verb: str, detail: tuple[object, ...], /) -> None: ...
    def in_weather_blocking(self, side: str, verb: str, detail: tuple[object, ...], /) -> None: ...
    def write_beside(self, batch: Sequence[Operation], write: Callable[[], None]) -> list[Answer]: ...


class _Transaction:
    """What both kinds share: the rows that it has written, and its end."""

    def __init__(self, store: Store, tables: Tables) -> None:
        self._store = store
        self._tables = tables
        self._written: list[tuple[str, Row]] = []
        self._is_over = False

    def _check(self) -> None:
        """Raises StoreUnavailableError once it cannot go on."""
        if self._is_over:
            raise StoreUnavailableError("simulated: the transaction was lost, or is over")

    def _take(self, sql: str, parameters: Sequence[Any]) -> None:
        found = _INSERT.fullmatch(sql)
        if found is not None and found[2].count("?") == len(parameters):
            self._written.append((found[1], tuple(parameters)))
        elif not _CREATE.fullmatch(sql):
            raise UsageError(
                f"the model of a store cannot do {sql!r}: it takes rows (`INSERT INTO` a table, `VALUES (?, ...)`) "
                "and `CREATE TABLE IF NOT EXISTS`. Use Simulation(store='sqlite'), which has a database"
            )

    def _settle(self, finish: FinishTask) -> Reply:
        """The commit point."""
        [answer] = self._store.write_beside([finish], lambda: self._tables.add(self._written))
        assert isinstance(answer, Reply)
        return answer


class ModelConnection:
    def __init__(self, transaction: ModelTransaction) -> None:
        self._transaction = transaction

    async def execute(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        """Raises UsageError for what a model cannot do."""
        await self._transaction.execute(sql, parameters)


class ModelTransaction(_Transaction):
    def __init__(self, store: Store, tables: Tables) -> None:
        super().__init__(store, tables)
        self.connection = ModelConnection(self)

    async def open(self) -> None:
        await self._trip("begin")

    async def execute(self, sql: str, parameters: Sequence[Any]) -> None:
        await self._trip("execute")
        self._take(sql, parameters)

    async def _trip(self, verb: str) -> None:
        """There and back. Who could not be asked, or has not answered, has lost the transaction."""
        try:
            await self._pause("before", verb)
            await self._pause("after", verb)
        except BaseException:
            self._is_over = True
            raise

    async def _pause(self, side: str, verb: str, *detail: object) -> None:
        self._check()
        await self._store.in_weather(side, verb, detail)
        self._check()

    async def commit(self) -> None:
        await self._pause("before", "commit", ())
        self._tables.add(self._written)
        await self._pause("after", "commit", ())

    async def finish(self, finish: FinishTask) -> Reply:
        await self._pause("before", "commit", [finish])
        reply = self._settle(finish)
        await self._pause("after", "commit", [finish])
        return reply

    async def close(self) -> None:
        self._is_over = True


class BlockingModelConnection:
    def __init__(self, transaction: BlockingModelTransaction) -> None:
        self._transaction = transaction

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        """As `ModelConnection.execute`."""
        self._transaction.execute(sql, parameters)


class BlockingModelTransaction(_Transaction):
    """Of code that is run as in a thread: nothing else happens meanwhile."""

    def __init__(self, store: Store, tables: Tables) -> None:
        super().__init__(store, tables)
        self.connection = BlockingModelConnection(self)

    def open(self) -> None:
        self._trip("begin")

    def execute(self, sql: str, parameters: Sequence[Any]) -> None:
        self._trip("execute")
        self._take(sql, parameters)

    def _trip(self, verb: str) -> None:
        self._check()
        try:
            self._store.in_weather_blocking("before", verb, ())
            self._store.in_weather_blocking("after", verb, ())
        except BaseException:
            self._is_over = True
            raise

    def commit(self) -> None:
        self._trip("commit")
        self._tables.add(self._written)

    def finish(self, finish: FinishTask) -> Reply:
        self._check()
        self._store.in_weather_blocking("before", "commit", ([finish],))
        reply = self._settle(finish)
        self._store.in_weather_blocking("after", "commit", ([finish],))
        return reply

    def close(self) -> None:
        self._is_over = True


def let_go(pause: object) -> None:
    """Of a wait that cannot be had where code blocks."""
    if inspect.iscoroutine(pause):
        pause.close()
