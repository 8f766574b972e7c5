"""The answer to a commit takes its time, and others are faster: forced interleavings."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest

from pledger import Client, RetryPolicy, Worker, activity, workflow
from pledger.engine.claims import Claims
from pledger.engine.connection import Connection
from pledger.engine.port.answers import Answer
from pledger.engine.port.operations import FinishTask, Operation, PutTask, Release, Send, StartRun
from pledger.engine.port.records import RunRow, TaskRow
from pledger.errors import ActivityError, StoreUnavailableError
from pledger.store.memory import MemoryStore, State, sessions
from tests.engine.harness import PATIENCE_S, until
from tests.unit.store.postgres.rows import a_run


@activity.defn(task_queue="elsewhere")
async def distant(name: str) -> str:
    return name


@workflow.defn
async def far_away(name: str) -> str:
    return await distant(name)


class LateBirths(MemoryStore):
    """What became of a start is heard of once its worker was told of mail."""

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self.told = asyncio.Event()

    def commit(self, batch: Sequence[Operation]) -> asyncio.Future[list[Answer]]:
        done = super().commit(batch)
        return asyncio.ensure_future(self._late(done)) if any(isinstance(each, StartRun) for each in batch) else done

    async def _late(self, done: asyncio.Future[list[Answer]]) -> list[Answer]:
        await self.told.wait()
        await asyncio.sleep(0.01)
        return await done

    async def woken_runs(self, session_key: int) -> list[int]:
        woken = await super().woken_runs(session_key)
        if woken:
            self.told.set()
        return woken


async def test_an_outcome_that_is_faster_than_the_news_of_the_birth() -> None:
    """The run is born, its activity done elsewhere and the owner told, before the owner hears that it has a new run."""
    state = State()
    here, there = Connection(LateBirths(state)), Connection(MemoryStore(state))
    async with (
        asyncio.timeout(PATIENCE_S),
        Worker(Client(here), workflows=[far_away]),
        Worker(Client(there), activities=[distant], task_queue="elsewhere"),
    ):
        handle = await Client(here).start_workflow(far_away, "news", id="far")
        assert await handle.result() == "news"
    for connection in (here, there):
        await connection.close()


class SlowClaims(MemoryStore):
    async def claim_tasks(self, *args: Any) -> list[TaskRow]:
        rows = await super().claim_tasks(*args)
        await asyncio.sleep(0.02)  # the ledger's clock goes on
        return rows


async def test_an_attempt_begins_when_its_code_does_and_not_when_its_claim_did() -> None:
    """The claim may wait for others in the store: that is no part of the time that the attempt has."""
    began: list[tuple[datetime, int | None]] = []

    @activity.defn(name="distant", task_queue="elsewhere")
    async def looks_at_the_clock(name: str) -> str:
        [row] = await connection.store.owned_tasks(connection.engines[0].session.key)
        began.append((activity.info().started_time, row.started_ms))
        return name

    connection = Connection(SlowClaims(State()))
    async with (
        asyncio.timeout(PATIENCE_S),
        Worker(Client(connection), activities=[looks_at_the_clock], task_queue="elsewhere"),
        Worker(Client(connection), workflows=[far_away]),
    ):
        assert await Client(connection).execute_workflow(far_away, "late", id="far") == "late"
    [(started, claimed_ms)] = began
    assert claimed_ms is not None
    assert started.timestamp() * 1000 > claimed_ms + 10
    await connection.close()


@workflow.defn
class Waits:
    def __init__(self) -> None:
        self.told = ""

    @workflow.run
    async def run(self) -> str:
        await workflow.wait_condition(lambda: self.told)
        return self.told

    @workflow.signal
    def tell(self, what: str) -> None:
        self.told = what


class SlowMessages(MemoryStore):
    """A message is stored; the answer comes once the test lets it, or is an error."""

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self.stored = asyncio.Event()
        self.answer = asyncio.Event()
        self.lost = False

    def commit(self, batch: Sequence[Operation]) -> asyncio.Future[list[Answer]]:
        done = super().commit(batch)
        return asyncio.ensure_future(self._slow(done)) if any(isinstance(each, Send) for each in batch) else done

    async def _slow(self, done: asyncio.Future[list[Answer]]) -> list[Answer]:
        answers = await done
        self.stored.set()
        await self.answer.wait()
        if self.lost:
            raise StoreUnavailableError("the answer is lost")
        return answers


async def test_a_message_whose_answer_is_lost_is_delivered_all_the_same() -> None:
    """Its sender and the run's owner are one process: no wake-up is stored, and the sender may never try again."""
    store = SlowMessages(State())
    store.lost = True
    store.answer.set()
    connection = Connection(store)
    async with asyncio.timeout(PATIENCE_S), Worker(Client(connection), workflows=[Waits]):
        handle = await Client(connection).start_workflow(Waits, id="waits")
        await until(lambda: connection.engines[0].runs.active)
        with pytest.raises(StoreUnavailableError):
            await handle.signal(Waits.tell, "news", message_id="1")
        assert await handle.result() == "news"
    await connection.close()


async def test_a_message_whose_sender_gave_up_waiting_is_delivered_all_the_same() -> None:
    store = SlowMessages(State())
    connection = Connection(store)
    async with asyncio.timeout(PATIENCE_S), Worker(Client(connection), workflows=[Waits]):
        handle = await Client(connection).start_workflow(Waits, id="waits")
        sending = asyncio.create_task(handle.signal(Waits.tell, "news"))
        await store.stored.wait()
        sending.cancel()
        await asyncio.wait([sending])
        store.answer.set()
        assert await handle.result() == "news"
    await connection.close()


class TwiceLost(MemoryStore):
    """The row of attempt `lost` is written and its answer is lost; then it is claimed, and that answer is lost too,
    while the write is being repeated: until the worker has looked for what it may have missed."""

    def __init__(self, state: State, lost: int) -> None:
        super().__init__(state)
        self._lost = lost
        self._written = self._claimed = self._looked = False

    def commit(self, batch: Sequence[Operation]) -> asyncio.Future[list[Answer]]:
        if self._looked or not any(self._writes_it(each) for each in batch):
            return super().commit(batch)
        refused: asyncio.Future[list[Answer]] = asyncio.get_running_loop().create_future()
        refused.set_exception(StoreUnavailableError("the answer is lost"))
        if not self._written:
            self._written = True
            super().commit(batch)
        return refused

    def _writes_it(self, operation: Operation) -> bool:
        if isinstance(operation, PutTask):
            return operation.task.attempt == self._lost
        return isinstance(operation, FinishTask) and getattr(operation.requeue, "attempt", 0) == self._lost

    async def claim_tasks(self, *args: Any) -> list[TaskRow]:
        rows = await super().claim_tasks(*args)
        if not self._claimed and any(row.attempt == self._lost for row in rows):
            self._claimed = True
            raise StoreUnavailableError("the answer is lost")
        return rows

    async def owned_tasks(self, session_key: int) -> list[TaskRow]:
        self._looked = self._claimed
        return await super().owned_tasks(session_key)


@pytest.mark.parametrize("lost", [2, 3])  # the row of a retry of an eager attempt, and of one that has a row
async def test_an_attempt_whose_row_and_claim_are_heard_of_by_nobody_counts_as_lost(lost: int) -> None:
    begun: list[int] = []

    @activity.defn(retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=1), maximum_attempts=10))
    async def stumble() -> int:
        attempt = activity.info().attempt
        begun.append(attempt)
        if attempt < lost:
            raise ConnectionError("not yet")
        return attempt

    @workflow.defn
    async def stumbles() -> int:
        return await stumble()

    connection = Connection(TwiceLost(State(), lost))
    async with (
        asyncio.timeout(PATIENCE_S),
        Worker(Client(connection), workflows=[stumbles], activities=[stumble], lease=timedelta(minutes=5)),
    ):
        assert await (await Client(connection).start_workflow(stumbles, id="stumbles")).result() == lost + 1
    assert begun == [*range(1, lost), lost + 1]
    await connection.close()


class LostClaim(MemoryStore):
    """The answer to the first claim is lost. While the worker looks for what it may have missed, the row changes."""

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self.looked = asyncio.Event()
        self.changed = asyncio.Event()
        self._claimed = False

    async def claim_tasks(self, *args: Any) -> list[TaskRow]:
        rows = await super().claim_tasks(*args)
        if rows and not self._claimed:
            self._claimed = True
            raise StoreUnavailableError("the answer is lost")
        return rows

    async def owned_tasks(self, session_key: int) -> list[TaskRow]:
        rows = await super().owned_tasks(session_key)
        if rows:
            self.looked.set()
        return rows

    async def read_tasks(self, run_key: int) -> list[TaskRow]:
        await self.changed.wait()
        return await super().read_tasks(run_key)


@workflow.defn
class Stops:
    """Waits for what becomes of a step that it stops."""

    def __init__(self) -> None:
        self.stopping = False

    @workflow.run
    async def run(self) -> str:
        step = workflow.start_activity(distant, "step", cancellation_type="wait")
        await workflow.wait_condition(lambda: self.stopping)
        step.cancel()
        try:
            return await step
        except ActivityError as error:
            return str(error)

    @workflow.signal
    def stop(self) -> None:
        self.stopping = True


async def test_an_attempt_that_is_cancelled_while_it_is_looked_for_counts_as_lost_too() -> None:
    state = State()
    store = LostClaim(state)
    here, there = Connection(MemoryStore(state)), Connection(store)
    async with (
        asyncio.timeout(PATIENCE_S),
        Worker(Client(here), workflows=[Stops]),
        Worker(Client(there), activities=[distant], task_queue="elsewhere", lease=timedelta(minutes=5)),
    ):
        handle = await Client(here).start_workflow(Stops, id="stops")
        await store.looked.wait()
        await handle.signal(Stops.stop)
        await until(lambda: any(row.cancel_requested for rows in state.tasks.values() for row in rows.values()))
        store.changed.set()
        assert "the worker was lost during attempt 1" in await handle.result()
    for connection in (here, there):
        await connection.close()


@workflow.defn
async def nothing_to_do() -> None: ...


class LateClaim(MemoryStore):
    """The connection of the first claim is lost, and the server goes on with it."""

    outlives_s = 0.2

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self.late: tuple[Any, ...] = ()

    async def claim_runs(self, *claim: Any) -> list[RunRow]:
        if not self.late:
            self.late = claim
            raise StoreUnavailableError("the connection is lost")
        return await super().claim_runs(*claim)

    def arrive(self) -> list[RunRow]:
        return self._apply(sessions.claim_runs, *self.late)


class Meanwhile(MemoryStore):
    """What is to happen comes with the next start, before anybody else acts."""

    act: Callable[[], list[RunRow]] | None = None

    def commit(self, batch: Sequence[Operation]) -> asyncio.Future[list[Answer]]:
        done = super().commit(batch)
        if self.act is not None and any(isinstance(each, StartRun) for each in batch):
            assert len(self.act()) == 1
            self.act = None
        return done


async def test_a_claim_that_takes_effect_after_it_has_failed_is_found() -> None:
    """It takes a run that is born just then, for a worker that has looked for lost answers long before."""
    state = State()
    store, clients = LateClaim(state), Meanwhile(state)
    here, there = Connection(store), Connection(clients)
    async with asyncio.timeout(PATIENCE_S), Worker(Client(here), workflows=[nothing_to_do]):
        assert await (await Client(there).start_workflow(nothing_to_do, id="first")).result() is None
        clients.act = store.arrive
        assert await (await Client(there).start_workflow(nothing_to_do, id="second")).result() is None
    for connection in (here, there):
        await connection.close()


@workflow.defn
class Tells:
    def __init__(self) -> None:
        self.told: list[str] = []

    @workflow.run
    async def run(self) -> list[str]:
        await workflow.wait_condition(lambda: len(self.told) == 2)
        return self.told

    @workflow.signal
    def tell(self, what: str) -> None:
        self.told.append(what)


async def test_a_history_that_went_on_while_it_was_loaded_is_not_damaged() -> None:
    """Row and history are two questions. What was written between them is no damage, and the run is not blocked."""
    connection = Connection(MemoryStore(State()))
    client = Client(connection)
    async with asyncio.timeout(PATIENCE_S), Worker(client, workflows=[Tells]):
        handle = await client.start_workflow(Tells, id="order-1")
        earlier = await connection.store.find_run("default", "order-1")
        assert earlier is not None
        await handle.signal(Tells.tell, "first")

        async def has_gone_on() -> bool:
            return (await connection.store.read_run(earlier.run_key)).last_event > earlier.last_event

        await until(has_gone_on)
        claims = connection.engines[0].intake.claims
        claims.load([earlier])
        await until(lambda: not claims.loading)
        await handle.signal(Tells.tell, "second")
        assert await handle.result() == ["first", "second"]
    await connection.close()


async def test_the_end_of_a_load_of_an_earlier_lease_hides_no_later_one() -> None:
    """Else the run, which is on its way, is found among those that this worker has and does not know, and is loaded
    once more: of two loads of one lease the slower finds a history that has gone on."""
    row = a_run()
    loads: list[asyncio.Future[None]] = []

    class Loader:
        async def load(self, _: Sequence[RunRow]) -> None:
            loads.append(asyncio.get_running_loop().create_future())
            await loads[-1]

    fields: dict[str, Any] = dict.fromkeys(inspect.signature(Claims).parameters)
    told: list[int] = []
    claims = Claims(**fields | {"loader": Loader(), "loop": asyncio.get_running_loop(), "loaded": told.append})
    claims.load([row])
    claims.load([row])
    await until(lambda: len(loads) == 2)
    loads[0].set_result(None)
    await until(lambda: len(told) == 1)
    assert row.run_key in claims.loading
    loads[1].set_result(None)
    await until(lambda: len(told) == 2)
    assert not claims.loading


class LosesLeaving(MemoryStore):
    """The run is let go, and claimed again: what is heard of neither."""

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self.let_go = self.claimed = False

    def commit(self, batch: Sequence[Operation]) -> asyncio.Future[list[Answer]]:
        done = super().commit(batch)
        if self.let_go or not any(isinstance(each, Release) for each in batch):
            return done
        self.let_go = True
        lost = asyncio.get_running_loop().create_future()
        lost.set_exception(StoreUnavailableError("the answer is lost"))
        return lost

    async def claim_runs(self, *args: Any) -> list[RunRow]:
        rows = await super().claim_runs(*args)
        if rows and not self.claimed:
            self.claimed = True
            raise StoreUnavailableError("the answer is lost")
        return rows


async def test_a_run_that_comes_back_while_it_is_leaving_is_found() -> None:
    """Its owner looks for what it may have been given as long as it takes the run for one that goes."""
    store = LosesLeaving(State())
    connection = Connection(store)
    async with asyncio.timeout(PATIENCE_S), Worker(Client(connection), workflows=[Waits]):
        handle = await Client(connection).start_workflow(Waits, id="waits")
        runs = connection.engines[0].runs
        [run] = await until(lambda: [each for each in runs.active.values() if each.at_rest])
        runs.leaving.release(run)
        await until(lambda: store.let_go)
        await handle.signal(Waits.tell, "news")
        assert await handle.result() == "news"
        assert store.claimed
    await connection.close()
