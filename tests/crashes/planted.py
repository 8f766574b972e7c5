"""Bugs planted into the processes that are killed: the sweep of a case has to find each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pledger.engine import secrets
from pledger.engine.port.answers import Reply
from pledger.engine.port.operations import FinishTask
from pledger.store.sqlite.guest import Guest
from pledger.store.sqlite.transactions import SqliteTransaction


def record_apart() -> None:
    """What a step did is committed first, and its result afterwards."""
    finish = SqliteTransaction.finish

    async def finish_apart(self: SqliteTransaction, op: FinishTask) -> Reply:
        await self.commit()
        before = self._guest
        self._guest = Guest(before.database, before._loop, durable=True, hook=before._hook)
        return await finish(self, op)

    SqliteTransaction.finish = finish_apart  # type: ignore[method-assign]


def redact_nothing() -> None:
    """Values of secrets are learnt, and looked for in nothing."""
    setattr(secrets, "remember", lambda name, value: None)  # noqa: B010 - it is imported there


PLANTED: Final[dict[str, Callable[[], None]]] = {"apart": record_apart, "unredacted": redact_nothing}
