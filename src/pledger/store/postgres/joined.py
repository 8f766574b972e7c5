"""An operation of ours inside a transaction that is somebody else's: in a savepoint, by the rules of every commit.

What is to be done is a generator of statements, which is carried out on a connection of the loop or on a blocking one:
the two differ in nothing else.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar

import psycopg
from psycopg import errors as pg
from psycopg.adapt import PyFormat
from psycopg.pq import Format
from psycopg.rows import tuple_row

from pledger.engine.port.answers import Answer
from pledger.engine.port.operations import FinishTask, StartRun
from pledger.store.postgres.arrays import Packed, PackedDumper, array_parameters, pack
from pledger.store.postgres.commit import TRIES
from pledger.store.postgres.found import Found
from pledger.store.postgres.links import pipelined
from pledger.store.postgres.rules.every import decide, needs_of
from pledger.store.postgres.writes import Writes

T = TypeVar("T")

Statement: TypeAlias = tuple[str, Sequence[Any]]
"""SQL with $1, and its parameters."""
Rows: TypeAlias = list[tuple[Any, ...]]
Steps: TypeAlias = Generator[Sequence[Statement], list[Rows], T]
"""Asks for statements that go out together, gets the rows of each or an error, and ends with what came of it."""

_SAVEPOINT: Final = "pledger_operation"
_FORGET: Final = ((f"ROLLBACK TO SAVEPOINT {_SAVEPOINT}", ()), (f"RELEASE SAVEPOINT {_SAVEPOINT}", ()))
#: Who says that there is news, in place of a handle: its own process has to hear of it too, once it is committed.
_SIGNED: Final = "-" * 8

#: What a user's connection may have been taught to read and write otherwise.
_LOADED: Final = ("int4", "int8", "text", "bytea", "bool", "oid")
_DUMPED: Final = (int, str, bytes, bool, type(None))


def ask(sql: str) -> Steps[Rows]:
    """The rows of one statement. Whatever is raised, the transaction is as it was before, and goes on."""
    try:
        told = yield [(f"SAVEPOINT {_SAVEPOINT}", ()), (sql, ()), (f"RELEASE SAVEPOINT {_SAVEPOINT}", ())]
    except Exception:
        yield _FORGET
        raise
    return told[1]


def write(sql: Mapping[str, str], channel: str, operation: StartRun | FinishTask) -> Steps[Answer]:
    """The answer to one operation. Whatever is raised, the transaction is as it was before, and goes on.

    Raises PledgerError and psycopg.Error.
    """
    begin: Sequence[Statement] = [(f"SAVEPOINT {_SAVEPOINT}", ())]
    for attempt in range(TRIES):
        try:
            answer = yield from _write(sql, channel, operation, begin)
        except Exception as error:
            yield _FORGET
            # A start that has just lost a race finds the other one's run now, unless the transaction sees no further
            # than its own beginning.
            if not isinstance(error, pg.UniqueViolation) or attempt == TRIES - 1:
                raise
        else:
            return answer
    raise AssertionError("the last try has returned or raised")


def _write(
    sql: Mapping[str, str], channel: str, operation: StartRun | FinishTask, begin: Sequence[Statement]
) -> Steps[Answer]:
    needs, found, writes = needs_of([operation]), Found(), Writes()
    asked = [*needs.locks(), *needs.reads()]
    told = yield [*begin, *((sql[name], _bound(sql[name], parameters)) for name, parameters in asked)]
    for (name, _), rows in zip(asked, told[len(begin) :], strict=True):
        found.take(name, rows)
    answer = decide(operation, found, writes)
    written = writes.statements(channel, _SIGNED)
    done: list[Statement] = [(sql[name], _bound(sql[name], parameters)) for name, parameters in written]
    if writes.said:
        done.append((sql["notify"], [channel, [f"{_SIGNED}{each}" for each in writes.said]]))
    yield [*done, (f"RELEASE SAVEPOINT {_SAVEPOINT}", ())]
    return answer


def _bound(sql: str, parameters: Sequence[Any]) -> Sequence[Any]:
    arrays = array_parameters(sql)
    return [pack(arrays[at], each) if at in arrays else each for at, each in enumerate(parameters)]


# Carrying it out ------------------------------------------------------------------------------------------------------


async def carry_out(connection: psycopg.AsyncConnection[Any], steps: Steps[T]) -> T:
    """Raises what the steps raise."""
    told: list[Rows] | None = None
    failed: psycopg.Error | None = None
    while True:
        try:
            asked = steps.send(told) if failed is None else steps.throw(failed)  # type: ignore[arg-type]
        except StopIteration as ended:
            result: T = ended.value
            return result
        told = failed = None
        try:
            told = await execute(connection, asked)
        except psycopg.Error as error:
            failed = error


def carry_out_blocking(connection: psycopg.Connection[Any], steps: Steps[T]) -> T:
    """The same for a blocking connection."""
    told: list[Rows] | None = None
    failed: psycopg.Error | None = None
    while True:
        try:
            asked = steps.send(told) if failed is None else steps.throw(failed)  # type: ignore[arg-type]
        except StopIteration as ended:
            result: T = ended.value
            return result
        told = failed = None
        try:
            told = execute_blocking(connection, asked)
        except psycopg.Error as error:
            failed = error


async def execute(connection: psycopg.AsyncConnection[Any], statements: Sequence[Statement]) -> list[Rows]:
    # All in one round trip: who is cancelled meanwhile has sent all of it or nothing.
    async with pipelined(connection) as pipeline:
        cursors = []
        for text, parameters in statements:
            cursor = psycopg.AsyncRawCursor(connection, row_factory=tuple_row)
            _speak_plainly(cursor)
            await cursor.execute(text, parameters, prepare=False, binary=True)
            cursors.append(cursor)
        await pipeline.sync()
        return [[] if cursor.description is None else await cursor.fetchall() for cursor in cursors]


def execute_blocking(connection: psycopg.Connection[Any], statements: Sequence[Statement]) -> list[Rows]:
    with connection.pipeline() as pipeline:
        cursors = []
        for text, parameters in statements:
            cursor = psycopg.RawCursor(connection, row_factory=tuple_row)
            _speak_plainly(cursor)
            cursor.execute(text, parameters, prepare=False, binary=True)
            cursors.append(cursor)
        pipeline.sync()
        return [[] if cursor.description is None else cursor.fetchall() for cursor in cursors]


def _speak_plainly(cursor: psycopg.AsyncRawCursor[Any] | psycopg.RawCursor[Any]) -> None:
    """Values go and come as the store has them, whatever the connection was taught; the connection itself is left."""
    ours, usual = cursor.adapters, psycopg.adapters
    for name in _LOADED:
        oid = usual.types[name].oid
        for form in (Format.TEXT, Format.BINARY):
            loader = usual.get_loader(oid, form)
            if loader is not None:
                ours.register_loader(oid, loader)
    for kind in _DUMPED:
        ours.register_dumper(kind, usual.get_dumper(kind, PyFormat.AUTO))
    ours.register_dumper(Packed, PackedDumper)
