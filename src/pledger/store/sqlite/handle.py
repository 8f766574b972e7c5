"""How a handle reads and writes, and how it learns that another process did."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, Literal, TypeVar

import apsw

from pledger.errors import StoreError
from pledger.store.sqlfiles import load_queries
from pledger.store.sqlite.database import Database
from pledger.store.sqlite.failures import store_failure
from pledger.store.sqlite.writer import CommitHook, Job, Reader, Rows

T = TypeVar("T")

_NOW: Final = load_queries(__package__, "sessions")["now"]

#: Quiet from when on the log is emptied.
_QUIET_S: Final = 1.0


class SqliteHandle:
    """One opener's view of a `Database`, without the verbs.

    durable: whether its commits wait for the disk. clock: in place of the store's own, for tests.
    """

    #: A look is a few microseconds.
    look_every_s = 1.0
    outlives_s = 0.0

    def __init__(
        self,
        database: Database,
        *,
        durable: bool = True,
        clock: Callable[[], int] | None = None,
        on_commit: CommitHook | None = None,
    ) -> None:
        self._database = database
        self._durable = durable
        self._clock = clock
        self._on_commit = on_commit
        self._commits = 0
        self._closed = False
        self._seen = (0, 0)
        self._seen = self._change_mark()
        self._changed_s = database.host.monotonic()

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._database.leave()

    def _now(self) -> int | None:
        """For statements: None stands for the store's clock, read by the statement itself."""
        return None if self._clock is None else self._clock()

    def _time(self, reader: Reader) -> int:
        """The store's time."""
        return time_of(reader, self._now())

    def _rows(self, sql: str, *bindings: Any) -> Rows:
        self._check_open()
        return self._database.rows(sql, bindings)

    def _row(self, sql: str, *bindings: Any) -> tuple[Any, ...] | None:
        rows = self._rows(sql, *bindings)
        return rows[0] if rows else None

    def _submit(self, job: Job[T], *, durable: bool = False) -> asyncio.Future[T]:
        """A transaction. durable: on disk before the future is done (as far as this handle promises it). Without, a
        power cut may take it, which does for what only concerns processes that it ends too: leases, claims of runs,
        wake-ups, questions."""
        if self._closed:
            refused: asyncio.Future[T] = asyncio.get_running_loop().create_future()
            refused.set_exception(self._closed_error())
            return refused
        return self._database.lane.submit(job, durable=durable and self._durable, hook=self._around_commit)

    def _around_commit(self, phase: Literal["before", "after"]) -> None:
        number = self._commits + 1
        if phase == "after":
            self._commits = number
        if self._on_commit is not None:
            self._on_commit(phase, number)

    def _check_open(self) -> None:
        if self._closed:
            raise self._closed_error()

    def _closed_error(self) -> StoreError:
        return StoreError(f"This store on {self._database.path} is closed. Open it again with open_store().")

    # Changes by others ------------------------------------------------------------------------------------------------

    async def wait_for_change(self, timeout_s: float) -> bool:
        monotonic, patience = self._database.host.monotonic, self._database.host.patience
        deadline_s = monotonic() + timeout_s
        while True:
            self._check_open()
            now_s = monotonic()
            mark = self._change_mark()
            if mark != self._seen:
                self._seen = mark
                self._changed_s = now_s
                return True
            if now_s >= deadline_s:
                return False
            quiet_s = now_s - max(self._changed_s, self._database.writer.last_write_s)
            if quiet_s > _QUIET_S:
                self._database.rest()
            await asyncio.sleep(min(_pause_s(quiet_s) * patience, deadline_s - now_s))

    def _change_mark(self) -> tuple[int, int]:
        """Differs from the one before after another process, or another handle of this one, has committed."""
        writer = self._database.writer
        if not writer.lock.acquire(blocking=False):
            return self._seen  # a commit of this process is on its way: the next look will do
        try:
            return writer.change_counter(), writer.commits - self._commits
        except apsw.Error as error:
            raise store_failure(error, self._database.path) from error
        finally:
            writer.lock.release()


def time_of(reader: Reader, clock: int | None) -> int:
    """The store's time. clock: what is to be taken for it, or None."""
    [(now_ms,)] = reader.rows(_NOW, (clock,))
    return int(now_ms)


def _pause_s(quiet_s: float) -> float:
    """Between two looks at the change counter: 3 ms just after something happened, 50 ms after a second of quiet, and
    100 ms after ten. A look costs microseconds, waking an idle event loop for it a hundred times that."""
    return max(0.003, min(quiet_s / 20, 0.05), min(quiet_s / 100, 0.1))
