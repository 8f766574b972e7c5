"""What is finished is forgotten after a while, and its ids are not."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from pledger import Client, Worker, workflow
from pledger.client import IdReusePolicy, WorkflowHandle
from pledger.engine import sweeper
from pledger.engine.connection import Connection
from pledger.engine.port.retention import Finished, Place
from pledger.errors import InvalidPolicyError, NoLongerKeptError, RunClosedError, WorkflowAlreadyStartedError
from pledger.store.memory import MemoryStore, State
from tests.engine.harness import Ledger, until

SOON = timedelta(milliseconds=1)


@pytest.fixture(autouse=True)
def without_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeper, "REST_S", (0.01, 0.01))


@workflow.defn
class Waits:
    def __init__(self) -> None:
        self.names: list[str] = []

    @workflow.run
    async def run(self, name: str) -> str:
        await workflow.wait_condition(lambda: bool(self.names))
        return f"hello {name}"

    @workflow.signal
    def go(self, name: str) -> None:
        self.names.append(name)


@workflow.defn
async def greet(name: str) -> str:
    return f"hello {name}"


@workflow.defn(name="kept", retention=timedelta.max)
async def kept(name: str) -> str:
    return f"hello {name}"


@workflow.defn(name="short", retention=SOON)
async def short(name: str) -> str:
    return f"hello {name}"


async def is_forgotten(client: Client, handle: WorkflowHandle[Any]) -> bool:
    row = await client.internals.store.find_run("default", handle.workflow_id)
    return row is not None and row.is_forgotten


async def test_a_finished_run_is_forgotten_and_its_id_is_not(ledger: Ledger) -> None:
    async with ledger.connect() as client:
        async with ledger.worker(client, greet):
            handle = await client.start_workflow(greet, "Ada", id="order-1")
            assert await handle.result() == "hello Ada"
        async with ledger.worker(client, greet, retention=SOON):
            await until(lambda: is_forgotten(client, handle))
            again = await client.start_workflow(greet, "Ada", id="order-1")
            assert (again.is_new, again.run_id) == (False, handle.run_id)
            with pytest.raises(NoLongerKeptError, match=r"'order-1' \(greet, run .*\) is completed since") as caught:
                await again.result()
            assert (caught.value.workflow_id, caught.value.run_id, caught.value.status) == (
                "order-1",
                handle.run_id,
                "completed",
            )
            for asked in (again.describe, again.history):
                with pytest.raises(NoLongerKeptError):
                    await asked()
            with pytest.raises(WorkflowAlreadyStartedError, match="with another input"):
                await client.start_workflow(greet, "Bob", id="order-1")
            with pytest.raises(RunClosedError, match="Retention has removed its history"):
                await again.terminate()
            assert await client.count() == 0
        async with ledger.worker(client, greet):
            anew = await client.start_workflow(
                greet, "Bob", id="order-1", id_reuse_policy=IdReusePolicy.ALLOW_DUPLICATE
            )
            assert await anew.result() == "hello Bob"


async def test_a_message_of_a_forgotten_run_is_still_known(ledger: Ledger) -> None:
    async with ledger.connect() as client:
        async with ledger.worker(client, Waits):
            handle = await client.start_workflow(Waits, "Ada", id="order-1")
            await handle.signal(Waits.go, "now", message_id="go-1")
            await handle.result()
        async with ledger.worker(client, Waits, retention=SOON):
            await until(lambda: is_forgotten(client, handle))
        await handle.signal(Waits.go, "now", message_id="go-1")  # it was taken
        with pytest.raises(RunClosedError):
            await handle.signal(Waits.go, "now", message_id="go-2")


async def test_open_runs_and_signals_that_nobody_took_stay(ledger: Ledger) -> None:
    async with ledger.connect() as client:
        async with ledger.worker(client, Waits, greet, retention=SOON):
            waits = await client.start_workflow(Waits, "Ada", id="waits")
            ended = await client.start_workflow(Waits, "Ada", id="ended")
            await ended.terminate()
            await until(lambda: is_forgotten(client, ended))
        late = await client.start_workflow(Waits, "Ada", id="late")
        await late.signal(Waits.go, "now")
        await late.terminate()  # before anybody took the signal
        async with ledger.worker(client, Waits, retention=SOON):
            last = await client.start_workflow(Waits, "Ada", id="last")
            await last.terminate()
            await until(lambda: is_forgotten(client, last))
            assert "go" in [each.name for each in (await late.describe()).undelivered]
            assert (await waits.describe()).summary.status == "running"
            await waits.signal(Waits.go, "now")


async def test_a_workflow_says_how_long_its_runs_are_kept(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, kept, short, greet):
        handles = {each: await client.start_workflow(each, "Ada", id=each.__name__) for each in (kept, short, greet)}
        for handle in handles.values():
            await handle.result() if handle.workflow_id != "short" else None
        await until(lambda: is_forgotten(client, handles[short]))
        assert [await handles[each].result() for each in (kept, greet)] == ["hello Ada"] * 2


async def test_what_a_worker_has_no_code_of_it_lets_alone(ledger: Ledger) -> None:
    async with ledger.connect() as client:
        async with ledger.worker(client, greet):
            handle = await client.start_workflow(greet, "Ada", id="order-1")
            await handle.result()
        async with ledger.worker(client, short):
            other = await client.start_workflow(short, "Ada", id="order-2")
            await until(lambda: is_forgotten(client, other))
        assert await handle.result() == "hello Ada"


async def test_many_are_forgotten_by_whoever_has_the_chore(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeper, "PAGE", 7)
    monkeypatch.setattr(sweeper, "CHAINS_MAX", 3)
    monkeypatch.setattr(sweeper, "PAUSE_S", 0.0)
    async with ledger.connect() as one, ledger.connect() as other:
        async with ledger.worker(one, greet):
            handles = [await one.start_workflow(greet, "Ada", id=f"order-{n}") for n in range(50)]
            await asyncio.gather(*(each.result() for each in handles))
        async with ledger.worker(one, greet, retention=SOON), ledger.worker(other, greet, retention=SOON):

            async def all_are() -> bool:
                return await one.count() == 0

            await until(all_are)
        assert all([await is_forgotten(one, each) for each in handles])


def test_how_long_is_within_reason() -> None:
    with pytest.raises(InvalidPolicyError, match=r"the retention of workflow '.*' is -1 s; it must be 0 or more"):
        workflow.defn(retention=timedelta(seconds=-1))(greet)


async def test_a_worker_keeps_for_0_or_longer(ledger: Ledger) -> None:
    async with ledger.connect() as client:
        with pytest.raises(InvalidPolicyError, match=r"must be 0 or more, or timedelta\.max for ever"):
            ledger.worker(client, greet, retention=timedelta(seconds=-1))


class SlowDuty(MemoryStore):
    """The chore is taken; the answer takes its time."""

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self.taken = asyncio.Event()

    async def take_duty(self, namespace: str, name: str, session_key: int, hold_ms: int) -> bool:
        is_ours = await super().take_duty(namespace, name, session_key, hold_ms)
        self.taken.set()
        await asyncio.sleep(3600)
        return is_ours


async def test_a_worker_that_stops_while_it_takes_the_chore_gives_it_back() -> None:
    state = State()
    store = SlowDuty(state)
    connection = Connection(store)
    async with Worker(Client(connection), workflows=[greet]):
        await store.taken.wait()
    await connection.close()
    assert await MemoryStore(state).take_duty("default", "retention of greet", 99, 1_000)


class Counted(MemoryStore):
    """Counts what sweepers ask."""

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self.asked: Counter[str] = Counter()

    async def take_duty(self, namespace: str, name: str, session_key: int, hold_ms: int) -> bool:
        self.asked[name] += 1
        return await super().take_duty(namespace, name, session_key, hold_ms)

    async def finished_chains(
        self, namespace: str, workflow_type: str, keep_ms: int, after: Place, limit: int
    ) -> list[Finished]:
        self.asked[workflow_type] += 1
        return await super().finished_chains(namespace, workflow_type, keep_ms, after, limit)


async def test_however_many_types_are_kept_equally_long_they_are_one_chore() -> None:
    def named(number: int) -> Any:
        @workflow.defn(name=f"type-{number}")
        async def greets(name: str) -> str:
            return f"hello {name}"

        return greets

    many = [named(number) for number in range(40)]
    store = Counted(State())
    client = Client(Connection(store))
    async with Worker(client, workflows=[*many, short], retention=SOON * 2):
        handle = await client.start_workflow(many[7], "Ada", id="order-1")
        await until(lambda: is_forgotten(client, handle))
        await until(lambda: store.asked["retention of short"] > 1)
    await client.internals.close()
    assert len([name for name in store.asked if name.startswith("retention of")]) == 2
    assert [name for name in store.asked if name.startswith("type-")] == ["type-7"]


def test_workers_of_the_same_types_have_the_same_chores() -> None:
    some, same, more = (sweeper.chores(dict.fromkeys(names, 5)) for names in ("abc", "cab", "abcd"))
    assert some == same != more
    assert sweeper.chores({"a": 1, "b": 2, "c": 1})[0].types == ("a", "c")
    [long] = sweeper.chores({f"{'x' * 200}{number}": 1 for number in range(100)})
    assert len(long.name) < 100
