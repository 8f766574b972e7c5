"""Runs as a worker brings them into memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pledger.engine.port.records import Message, StoredRun
from pledger.history.transition import StoredTransition
from pledger.store.loads import gather
from pledger.store.sqlfiles import as_json, load_queries
from pledger.store.sqlite.handle import SqliteHandle
from pledger.store.sqlite.tasks import task_row

_SQL: Final = load_queries(__package__, "loads")
_MESSAGES: Final = load_queries(__package__, "mail")["waiting_messages"]
_HISTORY: Final = load_queries(__package__, "ledger")["read_history"]


class SqliteLoads(SqliteHandle):
    async def read_stored_runs(self, run_keys: Sequence[int], limit: int) -> list[StoredRun]:
        keys = as_json(run_keys)
        messages = [(run_key, Message(*row)) for run_key, *row in self._rows(_MESSAGES, keys)]
        tasks = [task_row(row) for row in self._rows(_SQL["tasks_of_runs"], keys)]
        # A question each, which costs no round trip here: SQLite has no way to bound what it reads of each of many.
        transitions = [
            (run_key, StoredTransition(*row)) for run_key in run_keys for row in self._rows(_HISTORY, run_key, 0, limit)
        ]
        return gather(run_keys, transitions, messages, tasks)
