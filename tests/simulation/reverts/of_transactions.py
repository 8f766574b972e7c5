"""Reverts of what makes the effect of a step in a transaction one with its result."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from pledger.engine.outcomes import Outcomes
from pledger.engine.port.answers import Answer, Reply
from pledger.engine.port.operations import FinishTask
from pledger.store.memory import State, store, tasks
from pledger.store.sqlite import transactions as sqlite_transactions
from pledger.store.sqlite.guest import Guest
from pledger.testing import Faults
from pledger.testing.model_transactions import ModelTransaction, _Transaction
from pledger.testing.sqlite_transactions import SimulatedTransaction
from tests.simulation.reverts.revert import DEATHS, JUMPS, STANDSTILLS, Revert


def results_are_recorded_apart(patch: pytest.MonkeyPatch) -> None:
    """What a step did is committed first, and its result afterwards."""
    finish = ModelTransaction.finish

    async def finish_apart(self: ModelTransaction, op: FinishTask) -> Reply:
        await self.commit()
        self._written.clear()
        return await finish(self, op)

    patch.setattr(ModelTransaction, "finish", finish_apart)


def results_are_recorded_by_another_connection(patch: pytest.MonkeyPatch) -> None:
    """The same on SQLite."""
    finish = SimulatedTransaction.finish

    async def finish_apart(self: SimulatedTransaction, op: FinishTask) -> Reply:
        await self.commit()
        return await finish(self._store.transaction(), op)

    patch.setattr(SimulatedTransaction, "finish", finish_apart)


def effects_do_not_wait_for_the_fence(patch: pytest.MonkeyPatch) -> None:
    """They are committed, whatever the row says."""

    def settle(self: _Transaction, op: FinishTask) -> Reply:
        [answer] = self._store.write_beside([op], lambda: None)
        self._tables.add(self._written)
        assert isinstance(answer, Reply)
        return answer

    patch.setattr(_Transaction, "_settle", settle)


def a_lost_row_is_committed_too(patch: pytest.MonkeyPatch) -> None:
    """The same on SQLite."""

    def finish(guest: Guest, op: FinishTask) -> Reply:
        reply: Reply = guest.write(sqlite_transactions.tasks.finish_task, op)
        guest.commit()
        guest.close()
        return reply

    patch.setattr(sqlite_transactions, "_finish", finish)


def a_transaction_that_a_statement_has_ended_goes_on(patch: pytest.MonkeyPatch) -> None:
    """SQLite may roll all of it back when a statement fails: what comes next stays by itself."""
    patch.setattr(Guest, "_end_if_rolled_back", lambda self, connection: None)


def outcomes_go_past_the_row(patch: pytest.MonkeyPatch) -> None:
    """A run hears of a failure at once, although it may be the answer to the COMMIT that failed."""
    rule = Outcomes.deliver

    def deliver(self: Outcomes, attempt: Any, outcome: Any, records: Any) -> None:
        definition = attempt.definition
        attempt.definition = PlainDefinition()
        try:
            rule(self, attempt, outcome, records)
        finally:
            attempt.definition = definition

    patch.setattr(Outcomes, "deliver", deliver)


class PlainDefinition:
    transaction = None


def what_failed_is_queued_whatever_its_row_says(patch: pytest.MonkeyPatch) -> None:
    """Its commit was in doubt, and it is done once more."""

    def finish_task(state: State, op: FinishTask) -> Answer:
        if op.requeue is None or op.event_id not in state.tasks.get(op.run_key, {}):
            return tasks.finish_task(state, op)
        tasks.change_tasks(state, op.run_key, (op.requeue,), (), ())
        return Reply.WON

    patch.setitem(store._RULES, FinishTask, finish_task)


ONCE = ("steps in transactions write once",)
SELLING = ("selling",) * 4
IN_TIME = ("selling-in-time",) * 6
SOON = {"settle": timedelta(minutes=2)}

REVERTS = [
    Revert(results_are_recorded_apart, ONCE, DEATHS, SELLING),
    Revert(results_are_recorded_by_another_connection, ONCE, DEATHS, SELLING, store="sqlite"),
    Revert(effects_do_not_wait_for_the_fence, ONCE, STANDSTILLS, SELLING),
    Revert(a_lost_row_is_committed_too, ONCE, JUMPS, SELLING, store="sqlite"),
    Revert(
        a_transaction_that_a_statement_has_ended_goes_on,
        ONCE,
        Faults(disk_read_error=0.03),  # and nothing else: a worker that dies repeats it, with nothing wrong
        SELLING,
        store="sqlite",
    ),
    Revert(outcomes_go_past_the_row, ONCE, Faults(reply_lost=0.2), IN_TIME),
    Revert(
        what_failed_is_queued_whatever_its_row_says,
        (*ONCE, "late outcomes are refused"),
        Faults(late_effect=0.2),
        SELLING,
        store="postgres",
        options=SOON,
    ),
]
