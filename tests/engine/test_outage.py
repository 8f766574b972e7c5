"""The store fails for a while: runs wait, go on by themselves, and the log says so once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import pytest

from pledger import Client, Worker, activity, errors, workflow
from pledger.engine import loading
from pledger.engine.connection import Connection
from pledger.engine.port.answers import Answer
from pledger.engine.port.operations import Append, Operation
from pledger.engine.port.records import StoredRun
from pledger.store.memory import MemoryStore, State
from tests.engine.harness import PATIENCE_S, until

RUNS = 5
FAILURES = 3


class FullForAWhile(MemoryStore):
    """Transitions of runs are refused so many times."""

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self.refused = 0

    def commit(self, batch: Sequence[Operation]) -> asyncio.Future[list[Answer]]:
        if self.refused < FAILURES and any(isinstance(each, Append) for each in batch):
            self.refused += 1
            failed: asyncio.Future[list[Answer]] = asyncio.get_running_loop().create_future()
            failed.set_exception(errors.StoreUnavailableError("the disk is full"))
            return failed
        return super().commit(batch)


async def test_an_outage_is_told_once_however_many_runs_wait(caplog: pytest.LogCaptureFixture) -> None:
    all_started = asyncio.Event()

    @activity.defn
    async def step(name: str) -> str:
        await all_started.wait()
        return name

    @workflow.defn
    async def order(name: str) -> str:
        return await step(name)

    store = FullForAWhile(State())
    connection = Connection(store)
    client = Client(connection)
    async with asyncio.timeout(PATIENCE_S), Worker(client, workflows=[order], activities=[step]):
        handles = [await client.start_workflow(order, f"{n}", id=f"order-{n}") for n in range(RUNS)]
        all_started.set()
        assert [await each.result() for each in handles] == [f"{n}" for n in range(RUNS)]
    await connection.close()
    assert store.refused == FAILURES
    begun, over = (each.getMessage() for each in caplog.records if each.levelname == "WARNING")
    assert begun.endswith("go on by themselves once it is back: the disk is full")
    assert over.startswith("the store is back after ")


class FullOnceTold(FullForAWhile):
    """Transitions are refused from then on, until it is told otherwise."""

    is_full = False

    def commit(self, batch: Sequence[Operation]) -> asyncio.Future[list[Answer]]:
        self.refused = 0 if self.is_full else FAILURES
        return super().commit(batch)


async def test_a_query_of_a_run_that_cannot_be_written_gives_up_in_time() -> None:
    @workflow.defn
    class Order:
        def __init__(self) -> None:
            self.paid = False

        @workflow.run
        async def run(self) -> None:
            await workflow.wait_condition(lambda: self.paid)
            await workflow.wait_condition(lambda: False)

        @workflow.signal
        def pay(self) -> None:
            self.paid = True

        @workflow.query
        def is_paid(self) -> bool:
            return self.paid

    store = FullOnceTold(State())
    connection = Connection(store)
    client = Client(connection)
    async with asyncio.timeout(PATIENCE_S), Worker(client, workflows=[Order]):
        handle = await client.start_workflow(Order, id="order-1")
        store.is_full = True
        await handle.signal(Order.pay)
        (run,) = connection.engines[0].runs.active.values()
        await until(lambda: run.in_flight)
        with pytest.raises(errors.NoWorkerError, match=r"was not durable within 0\.01 s: the query 'is_paid'"):
            await handle.query(Order.is_paid, timeout=timedelta(milliseconds=10))
        store.is_full = False
        assert await handle.query(Order.is_paid)
        await handle.terminate()
    await connection.close()


class FullForOneAnswer(MemoryStore):
    def __init__(self, state: State) -> None:
        super().__init__(state)
        self.refused = 0

    async def answer_request(
        self, request_key: int, answer: bytes | None, failure: bytes | None, fence: int | None = None
    ) -> None:
        if not self.refused:
            self.refused += 1
            raise errors.StoreUnavailableError("the disk is full")
        await super().answer_request(request_key, answer, failure, fence)


async def test_an_answer_that_the_store_could_not_take_is_given_again(caplog: pytest.LogCaptureFixture) -> None:
    @workflow.defn
    class Waits:
        @workflow.run
        async def run(self) -> None:
            await asyncio.Event().wait()

        @workflow.query
        def mood(self) -> str:
            return "patient"

    state = State()
    store = FullForOneAnswer(state)
    here, there = Connection(store), Connection(MemoryStore(state))
    async with asyncio.timeout(PATIENCE_S), Worker(Client(here), workflows=[Waits]):
        await Client(here).start_workflow(Waits, id="order-1")
        assert await Client(there).handle("order-1").query("mood") == "patient"
    await there.close()
    await here.close()
    assert store.refused == 1
    assert not caplog.records


class UnreadableForAWhile(MemoryStore):
    """Histories cannot be read, while all else goes on."""

    is_unreadable = False
    refused = 0

    async def read_stored_runs(self, run_keys: Sequence[int], limit: int) -> list[StoredRun]:
        if self.is_unreadable:
            self.refused += 1
            raise errors.StoreUnavailableError("the connection was refused")
        return await super().read_stored_runs(run_keys, limit)


async def test_a_run_that_cannot_be_read_is_not_handed_to_and_fro_without_a_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @workflow.defn
    class Order:
        def __init__(self) -> None:
            self.calls = 0

        @workflow.run
        async def run(self) -> int:
            await workflow.wait_condition(lambda: self.calls == RUNS)
            return self.calls

        @workflow.signal
        def call(self) -> None:
            self.calls += 1

    monkeypatch.setattr(loading, "AGAIN_S", 3600.0)
    store = UnreadableForAWhile(State())
    connection = Connection(store)
    client = Client(connection)
    async with asyncio.timeout(PATIENCE_S):
        async with Worker(client, workflows=[Order]):
            handle = await client.start_workflow(Order, id="order-1")
            await handle.signal(Order.call)
            await until(lambda: not next(iter(connection.engines[0].runs.active.values())).in_flight)
        store.is_unreadable = True
        async with Worker(client, workflows=[Order]):
            await handle.signal(Order.call)
            await until(lambda: store.refused > 0)
            for _ in range(RUNS - 2):
                await handle.signal(Order.call)
            assert store.refused == 1
            (load,) = connection.engines[0].intake.claims.loads
            load.cancel()  # nobody waits for the hour
        store.is_unreadable = False
        async with Worker(client, workflows=[Order]):
            assert await handle.result() == RUNS
    await connection.close()
