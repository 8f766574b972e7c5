"""The environment for tests on a SQLite file: the same virtual time, on the other store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from pledger.engine.port.records import RunRow, TaskRow
from pledger.errors import StoreUnavailableError
from pledger.history.transition import StoredTransition
from pledger.store.memory import State
from pledger.store.sqlite.database import enter_database
from pledger.store.sqlite.store import BUSY_TIMEOUT_MS, SqliteStore
from pledger.testing import Environment
from pledger.testing.alone import LonelyStore

_HISTORIES = "SELECT run_key, first_event_id, body, checksum FROM pledger_history ORDER BY run_key, first_event_id"


class LonelySqlite(SqliteStore):
    """Only this process writes to it: no look at the file's change counter, which would go by real time."""

    wait_for_change = LonelyStore.wait_for_change


class InAFile:
    """A ledger in the file, whose time is the environment's.

    It does not wait for the disk: no test here loses power, and a commit that counts as slow would move to a thread,
    where it takes real time.
    """

    def __init__(self, path: Path, clock: Callable[[], int]) -> None:
        database = enter_database(path, allow_network_fs=False, busy_timeout_ms=BUSY_TIMEOUT_MS)
        self.store = LonelySqlite(database, durable=False, clock=clock)

    @property
    def state(self) -> State:
        """What an environment looks at: runs, their histories, their tasks."""
        database = self.store._database
        state = State()
        state.runs = {
            run.run_key: run for run in (RunRow(*row) for row in database.rows("SELECT * FROM pledger_run_row", ()))
        }
        state.open_runs = {run.run_key for run in state.runs.values() if run.status == "running"}
        for run_key, *row in database.rows(_HISTORIES, ()):
            state.histories.setdefault(run_key, []).append(StoredTransition(*row))
        for row in database.rows("SELECT * FROM pledger_placed_task", ()):
            task = TaskRow(*row)
            state.tasks.setdefault(task.run_key, {})[task.event_id] = task
        return state


@contextmanager
def out_of_reach(env: Environment) -> Iterator[None]:
    """The ledger of the environment cannot be reached: every verb fails before it took effect."""
    store: Any = env._inner._ledger.store

    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise StoreUnavailableError("the database is away")

    def refused(*args: Any, **kwargs: Any) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        future.set_exception(StoreUnavailableError("the database is away"))
        return future

    if isinstance(store, SqliteStore):
        away = {"_rows": refuse, "_row": refuse, "_submit": refused, "renew_session": refuse}
    else:
        away = {"_call": refuse, "_change": refuse, "commit": refused, "renew_session": refuse}
    vars(store).update(away)
    try:
        yield
    finally:
        for name in away:
            del vars(store)[name]
