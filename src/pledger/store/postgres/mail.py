"""What waits for runs, gathered: messages, outcomes, requests."""

from __future__ import annotations

from collections.abc import Sequence

from pledger.engine.port.records import Mail, Message, Request, TaskRow
from pledger.store.mails import gather
from pledger.store.postgres.handle import PostgresHandle


class PostgresMail(PostgresHandle):
    async def read_mail(self, run_keys: Sequence[int]) -> list[Mail]:
        keys = list(run_keys)
        messages, outcomes, requests = await self._read_together(
            ("waiting_messages", (keys,)), ("waiting_outcomes", (keys,)), ("open_requests", (self._now(), keys))
        )
        return gather(
            [(run_key, Message(*row)) for run_key, *row in messages],
            [TaskRow(*row) for row in outcomes],
            [Request(*row) for row in requests],
        )
