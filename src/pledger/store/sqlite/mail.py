"""What waits for runs, gathered: messages, outcomes, requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pledger.engine.port.records import Mail, Message, Request
from pledger.store.mails import gather
from pledger.store.sqlfiles import as_json, load_queries
from pledger.store.sqlite.handle import SqliteHandle
from pledger.store.sqlite.tasks import task_row

_SQL: Final = load_queries(__package__, "mail")


class SqliteMail(SqliteHandle):
    async def read_mail(self, run_keys: Sequence[int]) -> list[Mail]:
        keys = as_json(run_keys)
        return gather(
            [(run_key, Message(*row)) for run_key, *row in self._rows(_SQL["waiting_messages"], keys)],
            [task_row(row) for row in self._rows(_SQL["waiting_outcomes"], keys)],
            [Request(*row) for row in self._rows(_SQL["open_requests"], self._now(), keys)],
        )
