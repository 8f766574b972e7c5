"""Every statement of a transaction as a place to die: before it, which is after the one before; of those that psycopg
sends by itself, COMMIT among them, also once it is sent and not answered yet, and once it is answered."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator
from typing import Any
from weakref import WeakSet

import apsw
import psycopg
from psycopg import AsyncConnection, AsyncPipeline, Connection, Pipeline

from pledger.store.postgres.places import Place
from pledger.store.sqlite import guest


class Points:
    """deadly: the number of the point at which the process dies, counted from 1; 0: it lives."""

    def __init__(self) -> None:
        self.deadly = 0
        self._passed = 0
        self._counted: WeakSet[Any] = WeakSet()

    def pass_one(self) -> None:
        self._passed += 1
        if self._passed == self.deadly:
            os.kill(os.getpid(), signal.SIGKILL)

    def count(self, connection: Any) -> Any:
        """Statements of this one are points from now on."""
        self._counted.add(connection)
        return connection

    def pass_for(self, connection: Any) -> None:
        if connection in self._counted:
            self.pass_one()


def watch_sqlite(points: Points) -> None:
    """Connections for transactions of users, in this process. SQLite answers at once: what is sent is done."""
    made = guest.connect_guest

    def connect_guest(*args: Any, **options: Any) -> apsw.Connection:
        connection = made(*args, **options)

        def trace(_cursor: apsw.Cursor, _sql: str, _bindings: Any) -> bool:
            points.pass_one()
            return True

        connection.exec_trace = trace
        return connection

    def commit(self: guest.Guest) -> None:
        committed(self)
        points.pass_one()

    committed = guest.Guest.commit
    guest.connect_guest = connect_guest
    guest.Guest.commit = commit  # type: ignore[method-assign]


def watch_postgres(points: Points) -> None:
    """Connections that the points count, and those that are handed out to steps."""
    connect, connect_blocking = Place.connection, Place.blocking_connection

    async def connection(self: Place, url: str | None) -> Any:
        return points.count(await connect(self, url))

    def blocking_connection(self: Place, url: str | None) -> Any:
        return points.count(connect_blocking(self, url))

    Place.connection = connection  # type: ignore[method-assign]
    Place.blocking_connection = blocking_connection  # type: ignore[method-assign]
    _watch_commands(points)
    _watch_cursors(points)


def _watch_commands(points: Points) -> None:
    """BEGIN, SAVEPOINT, COMMIT and their like, which psycopg sends by itself."""
    for kind in (AsyncConnection, Connection):
        send = kind._exec_command

        def exec_command(self: Any, *args: Any, send: Any = send, **options: Any) -> Generator[Any, Any, Any]:
            points.pass_for(self)
            steps = send(self, *args, **options)
            try:
                wanted = next(steps)
                points.pass_for(self)  # it is sent
                while True:
                    wanted = steps.send((yield wanted))
            except StopIteration as ended:
                points.pass_for(self)
                return ended.value

        kind._exec_command = exec_command  # type: ignore[method-assign]


def _watch_cursors(points: Points) -> None:
    for kind in (psycopg.AsyncCursor, psycopg.AsyncRawCursor):
        execute = kind.execute

        async def execute_counted(self: Any, *args: Any, execute: Any = execute, **options: Any) -> Any:
            points.pass_for(self.connection)
            return await execute(self, *args, **options)

        kind.execute = execute_counted  # type: ignore[assignment]
    for blocking in (psycopg.Cursor, psycopg.RawCursor):
        execute_blocking = blocking.execute

        def blocking_counted(self: Any, *args: Any, execute: Any = execute_blocking, **options: Any) -> Any:
            points.pass_for(self.connection)
            return execute(self, *args, **options)

        blocking.execute = blocking_counted  # type: ignore[assignment]
    sync, sync_blocking = AsyncPipeline.sync, Pipeline.sync

    async def sync_counted(self: Any) -> None:
        points.pass_for(self._conn)
        await sync(self)

    def sync_counted_blocking(self: Any) -> None:
        points.pass_for(self._conn)
        sync_blocking(self)

    AsyncPipeline.sync = sync_counted  # type: ignore[method-assign]
    Pipeline.sync = sync_counted_blocking  # type: ignore[method-assign]
