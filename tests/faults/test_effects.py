"""F17: an outside system that does what it is asked and does not say so in time, or says it twice.

The simulations draw such answers too (`effect_reply_lost`, `effect_slow`); here each way has a test by its name.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from pledger import RetryPolicy, activity, errors, workflow
from pledger.testing import Environment
from tests.cases.harness import BEGAN, recorded

Virtual = Callable[..., Environment]


class Bank:
    """Its own truth. It knows a key again: the same key is one charge, and gives the first receipt.

    answers: how each call answers, by its number; after those it answers at once.
    """

    def __init__(self, *answers: str) -> None:
        self._answers = dict(enumerate(answers, 1))
        self.calls: list[str] = []
        self.charges: Counter[str] = Counter()

    async def charge(self, key: str) -> str:
        self.calls.append(key)
        if key not in self.charges:
            self.charges[key] += 1
        match self._answers.get(len(self.calls)):
            case "time-out":
                await asyncio.Event().wait()
            case "500":
                raise ConnectionError("500 internal server error")
            case "slow":
                await asyncio.sleep(20)
            case "twice":
                # The answer comes although nobody waits for it any more: the code does not let itself be stopped.
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    await asyncio.sleep(5)
        return f"receipt of call {len(self.calls)}"


def charging(bank: Bank, **options: Any) -> tuple[Any, Any]:
    """(workflow, activity): charge once, and say what came of it."""

    @activity.defn(start_to_close_timeout=timedelta(seconds=30), **options)
    async def charge() -> str:
        return await bank.charge(activity.info().idempotency_key)

    @workflow.defn
    async def pay() -> list[Any]:
        try:
            return ["paid", await charge()]
        except errors.ActivityError as error:
            return ["not known", error.attempt, error.retry_state, type(error.__cause__).__name__]

    return pay, charge


AGAIN = RetryPolicy(initial_interval=timedelta(seconds=1), maximum_attempts=3, jitter=0.0)


#: (attempt, outcome) in the attempt log: what came too late is not hidden.
LOGGED = {
    "time-out": [(1, "timed_out")],
    "500": [(1, "failed")],
    "slow": [],
    "twice": [(1, "timed_out"), (1, "late")],
}


@pytest.mark.parametrize(
    ("answer", "calls"),
    [("time-out", 2), ("500", 2), ("slow", 1), ("twice", 2)],
)
def test_what_was_done_is_done_once_whatever_was_said_of_it(virtual: Virtual, answer: str, calls: int) -> None:
    bank = Bank(answer)
    pay, charge = charging(bank, retry_policy=AGAIN)
    env = virtual(workflows=[pay], activities=[charge], now=BEGAN)
    handle = env.start(pay, id="order-1")
    assert handle.result() == ["paid", f"receipt of call {calls}"]
    env.sleep(timedelta(minutes=5))
    assert len(bank.calls) == calls
    # One key over all attempts, so the bank has charged once.
    assert [*bank.charges.values()] == [1]
    # One outcome is recorded, with the attempt that brought it; a late answer changes nothing.
    history = handle.history()
    assert recorded(history) == ["RunStarted", "ActivityScheduled", "ActivityCompleted", "RunCompleted"]
    assert history.events[2].attributes["attempt"] == calls
    attempts = [(each.attempt, each.outcome) for each in handle.describe().attempts]
    assert attempts == LOGGED[answer]


@pytest.mark.parametrize(
    ("answer", "cause"), [("time-out", "TimeoutError"), ("500", "ApplicationError"), ("twice", "TimeoutError")]
)
def test_at_most_once_is_never_asked_again(virtual: Virtual, answer: str, cause: str) -> None:
    """Whether it happened is not known; that it is not known is what the run is told."""
    bank = Bank(answer)
    pay, charge = charging(bank, retry_policy=RetryPolicy(maximum_attempts=1))
    env = virtual(workflows=[pay], activities=[charge], now=BEGAN)
    handle = env.start(pay, id="order-1")
    assert handle.result() == ["not known", 1, "maximum_attempts", cause]
    env.sleep(timedelta(minutes=5))
    assert len(bank.calls) == 1
    assert [*bank.charges.values()] == [1]
    assert recorded(handle.history()) == ["RunStarted", "ActivityScheduled", "ActivityFailed", "RunCompleted"]


def test_every_answer_of_a_bad_day(virtual: Virtual) -> None:
    """All of them one after the other, for one charge."""
    bank = Bank("500", "time-out", "twice", "slow")
    pay, charge = charging(bank, retry_policy=RetryPolicy(initial_interval=timedelta(0), maximum_attempts=5))
    env = virtual(workflows=[pay], activities=[charge], now=BEGAN)
    assert env.run(pay, id="order-1") == ["paid", "receipt of call 4"]
    assert [*bank.charges.values()] == [1]
    assert len(set(bank.calls)) == 1
