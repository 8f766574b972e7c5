"""Reverts of what the engine, and the PostgreSQL store, do about a server that is not always there."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace
from psycopg import errors as pg

from pledger.engine import building
from pledger.engine.limits import Limits
from pledger.engine.port.answers import Answer, Reply, Sent
from pledger.engine.port.operations import Append, ExpireTask, Operation, Send
from pledger.engine.runs import Runs
from pledger.store.memory import State, ledger, store
from pledger.store.postgres import news
from pledger.store.postgres.commit import Committer, Doubt
from pledger.store.postgres.listening import Listener
from pledger.testing import Faults
from pledger.testing.server_ledger import ServerStore
from tests.simulation.reverts.revert import Revert


def nobody_looks_without_a_hint(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ServerStore, "look_every_s", NEVER_S)


def a_listener_that_comes_back_says_nothing(patch: pytest.MonkeyPatch) -> None:
    """Nobody looks for what was said while it was away."""
    rule = Listener._hear

    def hear(self: Listener, payload: str) -> None:
        if payload != news.OF_ANYTHING:
            rule(self, payload)

    patch.setattr(Listener, "_hear", hear)


def a_commit_in_doubt_is_taken_for_written(patch: pytest.MonkeyPatch) -> None:
    async def resolve(self: Committer, _: Any, doubt: Doubt) -> list[Answer] | None:
        await asyncio.sleep(0.01)
        return doubt.answers or None

    patch.setattr(Committer, "resolve", resolve)


def a_commit_that_still_runs_is_taken_for_lost(patch: pytest.MonkeyPatch) -> None:
    """So that it is written again, and the first time may come after the second."""

    async def resolve(self: Committer, connection: Any, doubt: Doubt) -> list[Answer] | None:
        found = await (await connection.execute(self._sql["read_mark"], [self._interest.name])).fetchall()
        return doubt.answers if found == [(doubt.mark,)] else None

    patch.setattr(Committer, "resolve", resolve)


def a_start_that_is_asked_again_does_not_know_its_run(patch: pytest.MonkeyPatch) -> None:
    """Its answer was lost: the run is this worker's, which never hears of it."""
    patch.setattr(ledger, "began", lambda existing, start: None)


def what_takes_effect_late_is_not_looked_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ServerStore, "outlives_s", 0.0)


def the_victim_of_a_deadlock_is_taken_for_written(patch: pytest.MonkeyPatch) -> None:
    rule = Committer.write

    async def write(self: Committer, connection: Any, batch: Sequence[Operation]) -> list[Answer]:
        if not all(isinstance(each, Append | Send) for each in batch):
            return await rule(self, connection, batch)
        try:
            return await self._write(connection, batch)
        except pg.DeadlockDetected:
            self.doubt = None
            return [Reply.WON if isinstance(each, Append) else Sent(None) for each in batch]

    patch.setattr(Committer, "write", write)


def what_has_timed_out_is_not_written_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Runs, "failed", lambda self, built, error: None)


def what_may_run_once_is_run_again_after_a_loss(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(building, "is_once", lambda command: False)


def what_ends_in_the_queue_is_not_asked_why(patch: pytest.MonkeyPatch) -> None:
    """A fail-over may have lost the cancellation that it was ended for."""
    rule = store._RULES[ExpireTask]

    def expire(state: State, op: ExpireTask) -> Answer:
        row = state.tasks.get(op.run_key, {}).get(op.event_id)
        return rule(state, op if row is None else replace(op, expires_ms=row.expires_ms))

    patch.setitem(store._RULES, ExpireTask, expire)


NEVER_S = 1e9
FINISHES = ("everything finishes",)
#: What does not finish then never will, and costs less than ten minutes of it.
SOON = {"settle": timedelta(minutes=2)}
#: A lease bounds how long nobody looks; here nobody dies.
ALONE = {**SOON, "limits": Limits(lease_ms=10**9)}
ON_A_SERVER: dict[str, Any] = {"store": "postgres", "options": SOON}

REVERTS = [
    Revert(nobody_looks_without_a_hint, FINISHES, Faults(notification_lost=1.0), options=ALONE, store="postgres"),
    Revert(
        a_listener_that_comes_back_says_nothing,
        FINISHES,
        Faults(listener_stale=1.0),
        options=ALONE,
        settings={"pledger.testing.server_ledger.ServerStore.look_every_s": NEVER_S},
        store="postgres",
    ),
    Revert(
        a_commit_in_doubt_is_taken_for_written,
        # Or a client that is told of a run finds none.
        ("nothing acknowledged is lost", "intent before effect", "clients are not surprised", *FINISHES),
        Faults(late_effect=0.1),
        **ON_A_SERVER,
    ),
    Revert(
        a_commit_that_still_runs_is_taken_for_lost,
        ("attempts are counted",),
        Faults(late_effect=0.3, effect_refused=0.5),
        **ON_A_SERVER,
    ),
    Revert(
        a_start_that_is_asked_again_does_not_know_its_run,
        ("one start, one run", "every open run has a waker", *FINISHES),
        Faults(reply_lost=0.1),
        options={"settle": timedelta(minutes=2), "limits": Limits(lease_ms=10**9)},
        store="postgres",
    ),
    Revert(what_takes_effect_late_is_not_looked_for, FINISHES, Faults(late_effect=0.05), **ON_A_SERVER),
    Revert(
        the_victim_of_a_deadlock_is_taken_for_written,
        ("nothing acknowledged is lost", "intent before effect", *FINISHES),
        Faults(deadlock_victim=0.1),
        **ON_A_SERVER,
    ),
    Revert(what_has_timed_out_is_not_written_again, FINISHES, Faults(statement_timeout=0.1), **ON_A_SERVER),
    Revert(
        what_may_run_once_is_run_again_after_a_loss,
        ("what may run once runs once",),
        Faults(tail_lost=0.3),
        ("at-most-once",) * 6,
        **ON_A_SERVER,
    ),
    Revert(
        what_ends_in_the_queue_is_not_asked_why,
        ("race-lost-",),
        Faults(tail_lost=0.3, slow_store=0.3),
        ("race-lost",) * 12,
        **ON_A_SERVER,
    ),
]
