"""Runs that are brought into memory together: by few questions, and what is wrong with one is no matter of others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from pledger import Client, Worker, workflow
from pledger.engine import claims, intake
from pledger.engine.claims import Claims
from pledger.engine.connection import Connection
from pledger.engine.loading import TOGETHER_EVENTS, TOGETHER_RUNS, together
from pledger.engine.port.records import RunRow, StoredRun
from pledger.errors import CorruptHistoryError, InternalError, RunBlockedError, StoreUnavailableError
from pledger.store.memory import MemoryStore, State
from tests.engine.harness import PATIENCE_S
from tests.unit.store.postgres.rows import a_run


@workflow.defn
class Greets:
    def __init__(self) -> None:
        self.name = ""

    @workflow.run
    async def run(self, number: int) -> str:
        await workflow.wait_condition(lambda: self.name)
        return f"{self.name} {number}"

    @workflow.signal
    def tell(self, name: str) -> None:
        self.name = name


class AskedFor(MemoryStore):
    """asked: by which portions runs were brought into memory. refuse: the error that a portion comes to, or None."""

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self.asked: list[list[int]] = []
        self.singly = 0

    def refuse(self, run_keys: Sequence[int]) -> Exception | None:
        return None

    async def read_stored_runs(self, run_keys: Sequence[int], limit: int) -> list[StoredRun]:
        self.asked.append([*run_keys])
        if (error := self.refuse(run_keys)) is not None:
            raise error
        return await super().read_stored_runs(run_keys, limit)

    async def read_history(self, *args: Any, **kwargs: Any) -> Any:
        self.singly += 1
        return await super().read_history(*args, **kwargs)


async def waiting(state: State, count: int) -> None:
    """So many runs that have begun, belong to nobody, and have been told what they wait for."""
    connection = Connection(MemoryStore(state))
    client = Client(connection)
    async with Worker(client, workflows=[Greets]):
        handles = [await client.start_workflow(Greets, number, id=f"order-{number}") for number in range(count)]
    for handle in handles:
        await handle.signal(Greets.tell, "hello")
    await connection.close()


@asynccontextmanager
async def working(store: MemoryStore, **options: Any) -> AsyncIterator[Client]:
    connection = Connection(store)
    client = Client(connection)
    async with asyncio.timeout(PATIENCE_S), Worker(client, workflows=[Greets], verify=0.0, **options):
        yield client
    await connection.close()


def run_key_of(state: State, workflow_id: str) -> int:
    [run_key] = [row.run_key for row in state.runs.values() if row.workflow_id == workflow_id]
    return run_key


async def all_but(client: Client, count: int, odd: int = -1) -> None:
    for number in range(count):
        if number != odd:
            assert await client.handle(f"order-{number}").result() == f"hello {number}"


async def test_many_runs_are_loaded_by_one_question() -> None:
    state = State()
    await waiting(state, TOGETHER_RUNS + 20)
    store = AskedFor(state)
    async with working(store) as client:
        await all_but(client, TOGETHER_RUNS + 20)
    assert [len(portion) for portion in store.asked] == [TOGETHER_RUNS, 20]
    assert store.singly == 0


async def test_runs_that_wait_for_room_are_taken_as_soon_as_there_is_some(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not when the worker next looks by itself, which here it does not."""
    monkeypatch.setattr(claims, "CLAIM_MAX", 4)
    monkeypatch.setattr(claims, "ROOM_MIN", 2)
    monkeypatch.setattr(intake, "NOT_NOW_MS", 3_600_000)
    state = State()
    await waiting(state, 20)
    store = AskedFor(state)
    store.look_every_s = 3600.0
    async with working(store, max_cached_runs=1, lease=timedelta(hours=1)) as client:
        await all_but(client, 20)
    assert len(store.asked) >= 5


class OneCannotBeRead(AskedFor):
    """What the store has of one run makes every question fail that it is part of."""

    def __init__(self, state: State, odd: int, error: Exception) -> None:
        super().__init__(state)
        self.odd = odd
        self.error = error
        self.mended = False

    def refuse(self, run_keys: Sequence[int]) -> Exception | None:
        return self.error if self.odd in run_keys and not self.mended else None


async def test_a_run_that_the_store_cannot_read_blocks_and_nobody_else_does() -> None:
    state = State()
    await waiting(state, 5)
    async with working(OneCannotBeRead(state, run_key_of(state, "order-2"), InternalError("a torn page"))) as client:
        await all_but(client, 5, 2)
        with pytest.raises(RunBlockedError, match="a torn page"):
            await client.handle("order-2").result()


async def test_a_run_that_cannot_be_read_for_now_keeps_nobody_from_going_on() -> None:
    """A server says of a torn page what it says of any failure: that it may pass."""
    state = State()
    await waiting(state, 5)
    store = OneCannotBeRead(state, run_key_of(state, "order-2"), StoreUnavailableError("a torn page"))
    async with working(store) as client:
        await all_but(client, 5, 2)
        store.mended = True
        await all_but(client, 5)


async def test_a_damaged_history_blocks_its_own_run_alone() -> None:
    state = State()
    await waiting(state, 5)
    odd = run_key_of(state, "order-2")
    [first, *_] = state.histories[odd]
    state.histories[odd][0] = replace(first, body=first.body + b" ")
    async with working(MemoryStore(state)) as client:
        await all_but(client, 5, 2)
        with pytest.raises(RunBlockedError, match="damaged at event 1") as raised:
            await client.handle("order-2").result()
    assert raised.value.failure_type == CorruptHistoryError.__name__


async def test_a_bug_in_the_loading_of_one_run_leaves_the_others_alone(caplog: pytest.LogCaptureFixture) -> None:
    state = State()
    await waiting(state, 5)
    load = Claims.load

    def mistaken(self: Claims, rows: Sequence[RunRow]) -> None:
        load(self, [replace(row, workflow_type="?") if row.workflow_id == "order-2" else row for row in rows])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Claims, "load", mistaken)
        async with working(MemoryStore(state)) as client:
            await all_but(client, 5, 2)
    assert "a run could not be loaded" in caplog.text
    async with working(MemoryStore(state)) as client:
        await all_but(client, 5)


class FailsOnce:
    """As faults of a store: its nth verb that has to do with taking runs fails, before or after it has taken effect."""

    VERBS = frozenset({"claim_runs", "read_stored_runs", "commit", "read_mail"})

    def __init__(self, failing: int, side: str) -> None:
        self.failing = failing
        self.side = side
        self.calls = 0
        self.failed = ""

    def before(self, verb: str, _: tuple[object, ...]) -> None:
        self.calls += verb in self.VERBS
        self._fail("before", verb)

    def after(self, verb: str, _: tuple[object, ...]) -> None:
        self._fail("after", verb)

    def _fail(self, side: str, verb: str) -> None:
        if verb in self.VERBS and side == self.side and self.calls == self.failing:
            self.failed = verb
            raise StoreUnavailableError(f"call {self.calls}, {verb}")


@pytest.mark.parametrize("side", ["before", "after"])
async def test_whichever_call_of_the_store_fails_all_runs_go_on(side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("runs", "leaving", "loading"):
        monkeypatch.setattr(f"pledger.engine.{module}.AGAIN_S", 0.001)
    failed: list[str] = []
    while True:
        state = State()
        await waiting(state, 3)
        faults = FailsOnce(len(failed) + 1, side)
        async with working(MemoryStore(state, faults)) as client:
            await all_but(client, 3)
        if not faults.failed:
            break
        failed.append(faults.failed)
    assert set(failed) == FailsOnce.VERBS


def test_a_portion_has_so_many_runs_and_so_many_events_and_a_long_history_comes_alone() -> None:
    def sizes(*last_events: int) -> list[list[int]]:
        rows = [replace(a_run(), last_event=each) for each in last_events]
        return [[row.last_event for row in portion] for portion in together(rows)]

    assert sizes() == []
    assert [len(portion) for portion in sizes(*[0] * (2 * TOGETHER_RUNS + 1))] == [TOGETHER_RUNS, TOGETHER_RUNS, 1]
    half = TOGETHER_EVENTS // 2
    assert sizes(half, half, 1, 7) == [[half, half], [1, 7]]
    assert sizes(1, 10 * TOGETHER_EVENTS, 2, 3) == [[1], [10 * TOGETHER_EVENTS], [2, 3]]
