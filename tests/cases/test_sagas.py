"""The cases about effects that sagas are made of: whose key is it, and what becomes of an effect without a record.

What needs compensations, or an operator's decision, waits: see waiting.toml.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from pledger import RetryPolicy, activity, errors, workflow
from pledger.client import History
from pledger.history.events import ActivityCompleted, ScheduleActivity
from pledger.store.postgres import PostgresStore
from tests.cases.harness import asked_again
from tests.engine.harness import Ledger, until, worker_process

AT_ONCE = RetryPolicy(maximum_attempts=5, initial_interval=timedelta(0))
ONCE = RetryPolicy(maximum_attempts=1)
HOUR = timedelta(hours=1)


class Gateway:
    """One client object that all threads share. It takes each key once; calls: (order, key) of every call."""

    def __init__(self, lost_answers: dict[str, int] | None = None, failing: set[str] | None = None) -> None:
        self.charges: Counter[str] = Counter()
        self.calls: list[tuple[str, str]] = []
        self._lost = dict(lost_answers or {})
        self._failing = set(failing or ())
        self._lock = threading.Lock()

    def charge(self, order: str, key: str) -> str:
        with self._lock:
            self.calls.append((order, key))
            if order in self._failing:
                self._failing.discard(order)
                raise ConnectionError("refused, before anything was done")
            self.charges[key] = 1
            if self._lost.get(order):
                self._lost[order] -= 1
                raise ConnectionError("the answer is lost, after it was done")
        return f"receipt of {order}"

    def keys_of(self, order: str) -> list[str]:
        return [key for called, key in self.calls if called == order]


def scheduled(history: History) -> dict[int, ScheduleActivity]:
    """The steps of a run, by their positions."""
    every = itertools.chain.from_iterable(transition.events() for transition in history.transitions)
    return {position: event for position, event in enumerate(every, 1) if isinstance(event, ScheduleActivity)}


def default_key(history: History, position: int) -> str:
    return f"{history.identity.run_id}/1/{position}"


# SAG-06 ---------------------------------------------------------------------------------------------------------------


async def test_SAG_06_each_order_has_one_key_and_no_two_share_one(ledger: Ledger) -> None:
    """Twenty at a time in threads of one worker, over one client; every tenth first call fails."""
    orders = [f"order-{number}" for number in range(40)]
    gateway = Gateway(failing=set(orders[::10]))

    @activity.defn(retry_policy=AT_ONCE)
    def charge(order: str) -> str:
        return gateway.charge(order, activity.info().idempotency_key)

    @workflow.defn
    async def pays(order: str) -> str:
        return await charge(order)

    async with ledger.connect() as client, ledger.worker(client, pays, charge, max_concurrent_activities=20):
        handles = {order: await client.start_workflow(pays, order, id=order) for order in orders}
        for order, handle in handles.items():
            assert await handle.result() == f"receipt of {order}"
        histories = {order: await handle.history() for order, handle in handles.items()}
    keys = {order: set(gateway.keys_of(order)) for order in orders}
    assert [len(gateway.keys_of(order)) for order in orders[:11]] == [2, *[1] * 9, 2]
    assert {len(each) for each in keys.values()} == {1}
    assert len(set.union(*keys.values())) == len(orders)
    assert gateway.charges == Counter({key: 1 for each in keys.values() for key in each})
    for order, history in histories.items():
        # Of the run and of the step's place in it: what is recorded says it, and a replay asks for the same.
        [position] = scheduled(history)
        assert keys[order] == {default_key(history, position)}
        [command, _] = asked_again(history, pays)
        assert isinstance(command, ScheduleActivity)
        assert command.idempotency_key is None, "what the default is made of is the place"


# SAG-07 ---------------------------------------------------------------------------------------------------------------


async def test_SAG_07_a_key_of_the_operation_makes_one_effect_of_three_attempts(ledger: Ledger) -> None:
    """v2 of the key: the challenge alone. Each attempt fetches a new token, which is no part of it."""
    gateway = Gateway(lost_answers={"challenge-1": 2})
    tokens: list[int] = []

    @activity.defn(retry_policy=AT_ONCE, idempotency_key=lambda challenge: f"charge-{challenge}")
    async def charge(challenge: str) -> str:
        tokens.append(len(tokens))
        return gateway.charge(challenge, activity.info().idempotency_key)

    @workflow.defn
    async def pays(challenge: str) -> str:
        return await charge(challenge)

    async with ledger.connect() as client, ledger.worker(client, pays, charge):
        handle = await client.start_workflow(pays, "challenge-1", id="order-1")
        assert await handle.result() == "receipt of challenge-1"
        history, attempts = await handle.history(), (await handle.describe()).attempts
    assert tokens == [0, 1, 2]
    assert gateway.charges == {"charge-challenge-1": 1}
    assert gateway.keys_of("challenge-1") == ["charge-challenge-1"] * 3
    [(position, command)] = scheduled(history).items()
    assert command.idempotency_key == "charge-challenge-1"
    [outcome] = [each for transition in history.transitions for each in transition.inputs if of(each, position)]
    assert outcome.attempt == 3
    assert [(each.event_id, each.attempt, each.outcome) for each in attempts] == [
        (position, 1, "failed"),
        (position, 2, "failed"),
    ]


def of(event: Any, position: int) -> bool:
    return isinstance(event, ActivityCompleted) and event.scheduled_event_id == position


async def test_SAG_07_the_default_key_knows_the_place_and_nothing_else(ledger: Ledger) -> None:
    """Neither the attempt, nor the time, nor the arguments."""
    seen: dict[tuple[str, int], list[tuple[int, str]]] = {}

    @activity.defn(retry_policy=AT_ONCE)
    async def charge(amount: int) -> None:
        info = activity.info()
        calls = seen.setdefault((info.workflow_id, amount), [])
        calls.append((info.attempt, info.idempotency_key))
        if info.attempt < 3:
            raise ConnectionError

    @workflow.defn
    async def pays_twice(first: int, second: int) -> None:
        await charge(first)
        await charge(second)

    async with ledger.connect() as client, ledger.worker(client, pays_twice, charge):
        histories = {}
        for workflow_id, amounts in {"order-1": (1, 2), "order-2": (3, 1)}.items():
            handle = await client.start_workflow(pays_twice, *amounts, id=workflow_id)
            await handle.result()
            histories[workflow_id] = await handle.history()
    assert [*scheduled(histories["order-1"])] == [*scheduled(histories["order-2"])], "the same places in both"
    for (workflow_id, amount), calls in seen.items():
        place = [*scheduled(histories[workflow_id])][
            {("order-1", 1): 0, ("order-2", 3): 0}.get((workflow_id, amount), 1)
        ]
        assert calls == [(attempt, default_key(histories[workflow_id], place)) for attempt in (1, 2, 3)]


async def test_SAG_07_a_step_is_never_seen_with_two_keys(ledger: Ledger) -> None:
    """v1 of the key, made of what is new each time: it is made once, when the step is scheduled, and recorded."""
    gateway, tokens = Gateway(lost_answers={"challenge-1": 2}), itertools.count()

    @activity.defn(retry_policy=AT_ONCE, idempotency_key=lambda challenge: f"{challenge}-{next(tokens)}")
    async def charge(challenge: str) -> str:
        return gateway.charge(challenge, activity.info().idempotency_key)

    @workflow.defn
    async def pays(challenge: str) -> str:
        return await charge(challenge)

    async with ledger.connect() as client, ledger.worker(client, pays, charge):
        handle = await client.start_workflow(pays, "challenge-1", id="order-1")
        assert await handle.result() == "receipt of challenge-1"
        history = await handle.history()
    assert gateway.keys_of("challenge-1") == ["challenge-1-0"] * 3
    # The code would ask for another one by now; what is recorded counts, and the replay at the end finds no difference.
    [command, _] = asked_again(history, pays)
    assert isinstance(command, ScheduleActivity)
    assert command.idempotency_key != "challenge-1-0"


# SAG-09 ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody looks for the dead more often than every four seconds."""
    monkeypatch.setattr(PostgresStore, "look_every_s", 0.1)


class Backend:
    """Rows by a unique key. The first insert holds its caller for as long as the host lives."""

    def __init__(self, retry_policy: RetryPolicy) -> None:
        self.rows: dict[str, str] = {}
        self.inserts: list[tuple[int, str]] = []
        self.written, self.hold = threading.Event(), threading.Event()

        @activity.defn(retry_policy=retry_policy, start_to_close_timeout=HOUR)
        async def insert(row: str) -> str:
            info = activity.info()
            self.inserts.append((info.attempt, info.idempotency_key))
            self.rows.setdefault(info.idempotency_key, row)
            if len(self.inserts) == 1:
                self.written.set()
                await until(self.hold.is_set)
            return f"attempt {info.attempt}"

        self.insert = insert


@pytest.mark.usefixtures("_soon")
async def test_SAG_09_the_attempt_after_a_stop_has_the_same_key_and_both_show(ledger: Ledger) -> None:
    backend = Backend(AT_ONCE)

    @workflow.defn
    async def stores(row: str) -> str:
        return await backend.insert(row)

    async with ledger.connect() as client:
        handle = await client.start_workflow(stores, "row", id="order-1")
        with worker_process(ledger, stores, backend.insert) as host:
            await until(backend.written.is_set)
            host.freeze()
            async with ledger.worker(client, stores, backend.insert):
                assert await handle.result() == "attempt 2"
            # The stopped one never comes to its end: it wakes up, and has lost what it would have told.
            backend.hold.set()
        history, attempts = await handle.history(), (await handle.describe()).attempts
    [position] = scheduled(history)
    assert backend.inserts == [(number, default_key(history, position)) for number in (1, 2)]
    assert [*backend.rows.values()] == ["row"]
    assert [(each.attempt, each.outcome) for each in attempts if each.outcome != "late"] == [(1, "lost")]
    # Once, and as that of the second attempt.
    [told] = [each for transition in history.transitions for each in transition.inputs if of(each, position)]
    assert told.attempt == 2


@pytest.mark.usefixtures("_soon")
async def test_SAG_09_what_may_run_once_is_not_run_again(ledger: Ledger) -> None:
    backend = Backend(ONCE)

    @workflow.defn
    async def stores(row: str) -> str:
        try:
            return await backend.insert(row)
        except errors.ActivityError as error:
            return f"unknown: {type(error.__cause__).__name__}"

    async with ledger.connect() as client:
        handle = await client.start_workflow(stores, "row", id="order-1")
        with worker_process(ledger, stores, backend.insert) as host:
            await until(backend.written.is_set)
            host.freeze()
            async with ledger.worker(client, stores, backend.insert):
                assert await handle.result() == "unknown: WorkerLostError"
            backend.hold.set()
    assert len(backend.inserts) == 1


@pytest.mark.parametrize("grace", [HOUR, timedelta(0)], ids=["within the grace period", "beyond it"])
async def test_SAG_09_a_graceful_stop_waits_for_running_steps(ledger: Ledger, grace: timedelta) -> None:
    backend = Backend(AT_ONCE)

    @workflow.defn
    async def stores(row: str) -> str:
        return await backend.insert(row)

    async with ledger.connect() as client:
        handle = await client.start_workflow(stores, "row", id="order-1")
        worker = ledger.worker(client, stores, backend.insert, grace=grace)
        await worker.__aenter__()
        await until(backend.written.is_set)
        stopping = asyncio.create_task(worker.__aexit__(None, None, None))
        if grace:
            await asyncio.sleep(0)
            assert not stopping.done()
            backend.hold.set()
        await stopping
        if grace:
            assert (await handle.describe()).attempts == []
        async with ledger.worker(client, stores, backend.insert):
            assert await handle.result() == ("attempt 1" if grace else "attempt 2")
    assert len({key for _, key in backend.inserts}) == 1
    assert len(backend.rows) == 1
