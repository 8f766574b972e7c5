"""What a worker claims ahead of its free slots: it begins there in its turn, or goes back as if nobody had taken it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from pledger import Client, Limit, RetryPolicy, Worker, activity, errors, workflow
from pledger.client import WorkflowHandle
from pledger.engine.ahead import Pace
from pledger.engine.connection import Connection
from pledger.engine.held import Held
from pledger.engine.port.answers import Answer
from pledger.engine.port.operations import FinishTask, Operation
from pledger.engine.port.records import TaskRow
from pledger.store.memory import MemoryStore, State
from tests.engine.harness import PATIENCE_S, Ledger, until

AHEAD = 3
#: Longer than any test: whoever waits for this never sees it.
AMPLE = timedelta(seconds=60)


@pytest.fixture(autouse=True)
def kept(monkeypatch: pytest.MonkeyPatch) -> list[TaskRow]:
    """Workers claim so many rows ahead, however slow they are, until that was too much; those that had to wait for a
    slot."""
    rows: list[TaskRow] = []
    keep = Held.keep
    faltered: set[Pace] = set()

    def falter(self: Pace) -> None:
        faltered.add(self)

    def note(self: Held, row: TaskRow) -> None:
        rows.append(row)
        keep(self, row)

    monkeypatch.setattr(Pace, "ahead", lambda self, at_s, slots: 0 if self in faltered else AHEAD)
    monkeypatch.setattr(Pace, "falter", falter)
    monkeypatch.setattr(Held, "keep", note)
    return rows


class Gate:
    """One activity that waits to be let through, others that only say which attempt they are."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.opened = asyncio.Event()
        self.seen: list[tuple[int, int]] = []
        seen = self.seen

        @activity.defn(task_queue="busy")
        async def waits() -> None:
            self.began.set()
            await self.opened.wait()

        @activity.defn(task_queue="busy")
        async def short(number: int) -> int:
            seen.append((number, activity.info().attempt))
            return number

        @workflow.defn
        async def fulfil(count: int) -> list[int]:
            waiting = asyncio.ensure_future(waits())
            return [*(await asyncio.gather(*(short(n) for n in range(count)), waiting))][:count]

        self.waits, self.short, self.fulfil = waits, short, fulfil

    def worker(self, ledger: Ledger, client: Client, **options: Any) -> Worker:
        """One slot."""
        definitions = (self.waits, self.short)
        return ledger.worker(client, *definitions, task_queue="busy", max_concurrent_activities=1, **options)


async def are(handle: WorkflowHandle[Any], *states: str) -> bool:
    """Whether the activities that the run waits for are in these states, in their order."""
    return [each.state for each in (await handle.describe()).pending] == [*states]


async def test_what_waits_begins_in_its_turn(ledger: Ledger, kept: list[TaskRow]) -> None:
    gate = Gate()
    gate.opened.set()
    async with ledger.connect() as client, ledger.worker(client, gate.fulfil), gate.worker(ledger, client):
        handle = await client.start_workflow(gate.fulfil, 20, id="order-1")
        assert await handle.result() == list(range(20))
        assert (await handle.describe()).attempts == []
    assert kept
    assert gate.seen == [(n, 1) for n in range(20)]


async def test_who_leaves_gives_back_what_has_not_begun(
    ledger: Ledger, kept: list[TaskRow], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no attempt: neither lost nor counted."""
    monkeypatch.setattr(Pace, "patience_s", 60.0)
    gate = Gate()
    async with ledger.connect() as client, ledger.worker(client, gate.fulfil):
        worker = gate.worker(ledger, client, grace=AMPLE)
        await worker.__aenter__()
        handle = await client.start_workflow(gate.fulfil, 2, id="order-1")
        await gate.began.wait()
        await until(lambda: len(kept) == 2)
        assert await are(handle, "started", "started", "started")
        leaving = asyncio.create_task(worker.__aexit__(None, None, None))
        await until(lambda: are(handle, "started", "queued", "queued"))
        gate.opened.set()
        await leaving
        assert gate.seen == []
        async with gate.worker(ledger, client):
            assert await handle.result() == [0, 1]
        assert (await handle.describe()).attempts == []
    assert sorted(gate.seen) == [(0, 1), (1, 1)]


async def test_what_waits_is_not_taken_for_lost(
    ledger: Ledger, kept: list[TaskRow], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a worker that looks for claims whose answer it has not heard."""
    monkeypatch.setattr(Pace, "patience_s", 60.0)
    looked = asyncio.Event()
    gate = Gate()
    async with ledger.connect() as client, ledger.worker(client, gate.fulfil):
        async with ledger.connect() as other, gate.worker(ledger, other):
            handle = await client.start_workflow(gate.fulfil, 2, id="order-1")
            await until(lambda: len(kept) == 2)
            store = other.internals.store
            owned_tasks = store.owned_tasks

            async def owned(session_key: int) -> list[TaskRow]:
                rows = await owned_tasks(session_key)
                looked.set()
                return rows

            monkeypatch.setattr(store, "owned_tasks", owned)
            other.internals.engines[0].in_doubt()
            await looked.wait()
            gate.opened.set()
            assert await handle.result() == [0, 1]
        assert (await handle.describe()).attempts == []
    assert gate.seen == [(0, 1), (1, 1)]


async def test_what_waits_too_long_is_for_whoever_is_idle(ledger: Ledger, kept: list[TaskRow]) -> None:
    gate = Gate()
    async with ledger.connect() as client, ledger.worker(client, gate.fulfil), gate.worker(ledger, client):
        handle = await client.start_workflow(gate.fulfil, 2, id="order-1")
        await until(lambda: len(kept) == 2)
        async with ledger.connect() as other, gate.worker(ledger, other):
            await until(lambda: len(gate.seen) == 2)
            gate.opened.set()
            assert await handle.result() == [0, 1]
    assert sorted(gate.seen) == [(0, 1), (1, 1)]


async def test_the_last_attempt_of_an_activity_waits_in_the_queue(ledger: Ledger, kept: list[TaskRow]) -> None:
    """Should the worker die, it would end by an attempt that never began."""
    gate = Gate()
    gate.short.retry_policy = RetryPolicy(maximum_attempts=1)
    async with ledger.connect() as client, ledger.worker(client, gate.fulfil), gate.worker(ledger, client):
        handle = await client.start_workflow(gate.fulfil, 2, id="order-1")
        await gate.began.wait()
        await until(lambda: kept)
        await until(lambda: are(handle, "started", "queued", "queued"))
        gate.opened.set()
        assert await handle.result() == [0, 1]
    assert sorted(gate.seen) == [(0, 1), (1, 1)]


async def test_what_is_limited_is_never_held(ledger: Ledger, kept: list[TaskRow]) -> None:
    """It would take a slot from those who can begin."""
    opened = asyncio.Event()

    @activity.defn(task_queue="busy", limits=[Limit("courier", concurrency=10)])
    async def limited(number: int) -> int:
        await opened.wait()
        return number

    @workflow.defn
    async def fulfil() -> list[int]:
        return list(await asyncio.gather(*(limited(n) for n in range(4))))

    async with (
        ledger.connect() as client,
        ledger.worker(client, fulfil),
        ledger.worker(client, limited, task_queue="busy", max_concurrent_activities=1),
    ):
        handle = await client.start_workflow(fulfil, id="order-1")
        await until(lambda: are(handle, "started", "queued", "queued", "queued"))
        opened.set()
        assert await handle.result() == [0, 1, 2, 3]
    assert kept == []


async def test_what_is_cancelled_while_it_waits_never_begins(
    ledger: Ledger, kept: list[TaskRow], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pace, "patience_s", 60.0)
    gate = Gate()

    @workflow.defn
    class Cancels:
        said = over = False

        @workflow.run
        async def run(self) -> str:
            waiting = asyncio.ensure_future(gate.waits())
            short = asyncio.ensure_future(gate.short(1))
            await workflow.wait_condition(lambda: self.said)
            short.cancel()
            await workflow.wait_condition(short.done)
            self.over = True
            await waiting
            return "cancelled" if short.cancelled() else "done"

        @workflow.signal
        def cancel(self) -> None:
            self.said = True

        @workflow.query
        def is_over(self) -> bool:
            return self.over

    definitions = (Cancels, gate.waits, gate.short)
    async with (
        ledger.connect() as client,
        ledger.worker(client, *definitions, task_queue="busy", max_concurrent_activities=1),
    ):
        handle = await client.start_workflow(Cancels, id="order-1", task_queue="busy")
        await gate.began.wait()
        await until(lambda: kept)
        await handle.signal(Cancels.cancel)
        await until(lambda: handle.query(Cancels.is_over))  # answered when that is recorded, and done
        gate.opened.set()
        assert await handle.result() == "cancelled"
    assert gate.seen == []


async def test_a_wait_that_takes_too_long_ends_as_in_the_queue(ledger: Ledger, kept: list[TaskRow]) -> None:
    gate = Gate()
    bound = timedelta(milliseconds=200)

    @workflow.defn
    async def fulfil() -> str:
        waiting = asyncio.ensure_future(gate.waits())
        try:
            await workflow.execute_activity(gate.short, 1, schedule_to_start_timeout=bound)
        except errors.ActivityError as error:
            return str(error.__cause__)
        finally:
            await waiting
        return "it began"

    async with ledger.connect() as client, ledger.worker(client, fulfil), gate.worker(ledger, client):
        handle = await client.start_workflow(fulfil, id="order-1")
        await until(lambda: kept)
        await until(lambda: are(handle, "started"))
        gate.opened.set()
        assert "schedule" in await handle.result()
    assert gate.seen == []


# Answers that are lost ------------------------------------------------------------------------------------------------


class Unheard(MemoryStore):
    """The first row that goes back is written, or is not; nobody hears which."""

    is_written = True
    is_first = True

    def commit(self, batch: Sequence[Operation]) -> asyncio.Future[list[Answer]]:
        if not (self.is_first and any(isinstance(each, FinishTask) and each.requeue for each in batch)):
            return super().commit(batch)
        self.is_first = False
        if self.is_written:
            super().commit(batch)
        lost: asyncio.Future[list[Answer]] = asyncio.get_running_loop().create_future()
        lost.set_exception(errors.StoreUnavailableError("the answer is lost"))
        return lost


@pytest.mark.parametrize(("is_written", "attempt"), [(True, 1), (False, 2)])
async def test_what_was_given_back_and_not_heard_of_begins_once(
    is_written: bool, attempt: int, kept: list[TaskRow]
) -> None:
    """Written, it is in the queue. Else it is this worker's, which counts it as lost: nobody may repeat what might be
    taken from whoever has claimed it since."""
    gate, state = Gate(), State()
    store = Unheard(state)
    store.is_written = is_written
    here, there = Connection(MemoryStore(state)), Connection(store)
    async with (
        asyncio.timeout(PATIENCE_S),
        Worker(Client(here), workflows=[gate.fulfil]),
        Worker(Client(there), activities=[gate.waits, gate.short], task_queue="busy", max_concurrent_activities=1),
    ):
        handle = await Client(here).start_workflow(gate.fulfil, 1, id="order-1")
        await until(lambda: not store.is_first)
        gate.opened.set()
        assert await handle.result() == [0]
    assert gate.seen == [(0, attempt)]
    for connection in (here, there):
        await connection.close()


async def test_a_claim_that_is_answered_when_its_lease_is_lost_begins_nothing(ledger: Ledger) -> None:
    """What it has claimed has been counted as lost meanwhile, and perhaps cancelled."""
    began: list[int] = []

    @activity.defn(task_queue="nobody's")
    async def charge() -> None:
        began.append(activity.info().attempt)

    @workflow.defn
    async def fulfil() -> None:
        await charge()

    async with ledger.connect() as client, ledger.worker(client, fulfil, charge) as worker:
        handle = await client.start_workflow(fulfil, id="order-1")
        store, engine = client.internals.store, worker._engine

        async def queued() -> list[TaskRow]:
            run = await store.find_run("default", "order-1")
            return [] if run is None else await store.read_tasks(run.run_key)

        [row] = await until(queued)
        late = msgspec.structs.replace(row, state="started", started_ms=1, owner=engine.session.key + 1)
        engine.activities.take_claimed(late)
        assert not engine.activities.under_way.running
        await asyncio.sleep(0)
        assert began == []
        await handle.terminate()
