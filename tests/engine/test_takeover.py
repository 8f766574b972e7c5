"""Several workers on one ledger: who runs what, and what becomes of it when one of them dies or sleeps."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest

from pledger import RetryPolicy, activity, workflow
from pledger.errors import ActivityError, RunBlockedError, WorkerLostError, WorkflowFailedError
from tests.engine.harness import Ledger, WorkerProcess, until, worker_process


class World:
    """What the outside saw, whoever did it. Threads of several workers write here."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.began = threading.Event()
        self.hold = threading.Event()

    def steps(self, **options: Any) -> Any:
        """An activity that says what it does and holds on its first attempt, until it is let go."""

        @activity.defn(**options)
        async def charge(order: str) -> str:
            attempt = activity.info().attempt
            self.seen.append(f"{order} attempt {attempt}")
            if attempt == 1:
                self.began.set()
                await until(self.hold.is_set)
            return f"charged in attempt {attempt}"

        return charge


@pytest.fixture
def world() -> Any:
    world = World()
    yield world
    world.hold.set()


def charging(charge: Any) -> Any:
    @workflow.defn
    async def fulfil(order: str) -> str:
        result: str = await charge(order)
        return result

    return fulfil


# Two workers ----------------------------------------------------------------------------------------------------------


async def test_several_workers_share_the_runs_of_one_ledger(ledger: Ledger) -> None:
    done_by: dict[str, set[str]] = {}

    @activity.defn
    async def where(order: str) -> str:
        done_by.setdefault(order, set()).add(threading.current_thread().name)
        return order

    @workflow.defn
    async def fulfil(order: str) -> list[str]:
        return [await where(order) for _ in range(3)]

    async with ledger.connect() as client:
        handles = [await client.start_workflow(fulfil, f"order-{n}", id=f"order-{n}") for n in range(40)]
        with worker_process(ledger, fulfil, where), worker_process(ledger, fulfil, where):
            for n, handle in enumerate(handles):
                assert await handle.result() == [f"order-{n}"] * 3
    # A run is one worker's at a time: nothing was done by both.
    assert all(len(names) == 1 for names in done_by.values())


async def test_an_activity_of_one_worker_serves_the_runs_of_another(ledger: Ledger) -> None:
    @activity.defn(task_queue="steps")
    async def step(number: int) -> int:
        return number * 2

    @workflow.defn
    async def fulfil() -> list[int]:
        return list(await asyncio.gather(*(step(n) for n in range(20))))

    with worker_process(ledger, step, task_queue="steps"):
        async with ledger.connect() as client, ledger.worker(client, fulfil):
            assert await client.execute_workflow(fulfil, id="order-1") == [2 * n for n in range(20)]


async def test_workflows_and_activities_may_live_in_different_processes(ledger: Ledger) -> None:
    """On one queue: each takes what it knows."""

    @activity.defn
    async def step(number: int) -> int:
        return number * 2

    @workflow.defn
    async def fulfil() -> list[int]:
        return [await step(n) for n in range(3)] + list(await asyncio.gather(*(step(n) for n in range(3, 20))))

    with worker_process(ledger, step):
        async with ledger.connect() as client, ledger.worker(client, fulfil):
            assert await client.execute_workflow(fulfil, id="order-1") == [2 * n for n in range(20)]


async def test_a_long_history_is_taken_over_page_by_page(ledger: Ledger) -> None:
    @activity.defn
    async def step(number: int) -> int:
        return number

    @workflow.defn
    class Long:
        go = False

        @workflow.run
        async def run(self) -> int:
            total = 0
            for number in range(1_200):
                total += await step(number)
            await workflow.wait_condition(lambda: self.go)
            return total + await step(1_200)

        @workflow.signal
        def finish(self) -> None:
            self.go = True

    async with ledger.connect() as client:
        async with ledger.worker(client, Long, step):
            handle = await client.start_workflow(Long, id="order-1")
            await until(lambda: _activities_done(handle, 1_200))
        with worker_process(ledger, Long, step):
            await handle.signal(Long.finish)
            assert await handle.result() == sum(range(1_201))


async def _activities_done(handle: Any, count: int) -> bool:
    return bool((await handle.describe()).state.activities_done == count)


async def test_messages_reach_a_run_wherever_it_is(ledger: Ledger) -> None:
    @workflow.defn
    class Collects:
        def __init__(self) -> None:
            self.got: list[str] = []

        @workflow.run
        async def run(self) -> list[str]:
            await workflow.wait_condition(lambda: len(self.got) == 6)
            return self.got

        @workflow.signal
        def note(self, text: str) -> None:
            self.got.append(text)

    async with ledger.connect() as client:
        handle = await client.start_workflow(Collects, id="order-1")
        for n in range(3):
            with worker_process(ledger, Collects):
                await handle.signal(Collects.note, f"{n} up")
                await until(lambda n=n: _recorded(handle, 2 * n + 1))
            await handle.signal(Collects.note, f"{n} down")
        with worker_process(ledger, Collects):
            assert await handle.result() == ["0 up", "0 down", "1 up", "1 down", "2 up", "2 down"]


async def _recorded(handle: Any, signals: int) -> bool:
    return bool((await handle.describe()).state.signals == signals)


# A worker dies --------------------------------------------------------------------------------------------------------


async def test_a_dead_workers_run_is_taken_over_and_its_attempt_counts(ledger: Ledger, world: World) -> None:
    charge = world.steps(retry_policy=RetryPolicy(maximum_attempts=3))
    fulfil = charging(charge)
    with worker_process(ledger, fulfil, charge) as dead:
        async with ledger.connect() as client:
            handle = await client.start_workflow(fulfil, "A1", id="order-1")
            await until(world.began.is_set)
            dead.freeze()
            with worker_process(ledger, fulfil, charge):
                assert await handle.result() == "charged in attempt 2"
            attempts = (await handle.describe()).attempts
    assert world.seen == ["A1 attempt 1", "A1 attempt 2"]
    assert [(each.attempt, each.outcome) for each in attempts] == [(1, "lost")]


async def test_an_at_most_once_activity_of_a_dead_worker_is_unknown(ledger: Ledger, world: World) -> None:
    """Nobody knows whether it happened, so nobody does it again, and the run is told."""
    charge = world.steps(retry_policy=RetryPolicy(maximum_attempts=1))
    fulfil = charging(charge)
    with worker_process(ledger, fulfil, charge) as dead:
        async with ledger.connect() as client:
            handle = await client.start_workflow(fulfil, "A1", id="order-1")
            await until(world.began.is_set)
            dead.freeze()
            with worker_process(ledger, fulfil, charge), pytest.raises(WorkflowFailedError) as caught:
                await handle.result()
    error = caught.value.__cause__
    assert isinstance(error, ActivityError)
    assert isinstance(error.__cause__, WorkerLostError)
    assert (error.attempt, error.retry_state) == (1, "maximum_attempts")
    assert world.seen == ["A1 attempt 1"]


@pytest.mark.parametrize("attempts", [1, 2])
async def test_the_attempts_of_a_task_row_count_across_deaths(ledger: Ledger, world: World, attempts: int) -> None:
    """The same for an activity that another worker does than the run's."""

    @activity.defn(task_queue="steps", retry_policy=RetryPolicy(maximum_attempts=attempts))
    async def charge() -> str:
        world.seen.append(f"attempt {activity.info().attempt}")
        world.began.set()
        await until(world.hold.is_set)
        return "charged"

    @workflow.defn
    async def fulfil() -> str:
        return await charge()

    async with ledger.connect() as client, ledger.worker(client, fulfil):
        handle = await client.start_workflow(fulfil, id="order-1")
        processes: list[WorkerProcess] = []
        try:
            for _ in range(attempts):
                world.began.clear()
                processes.append(WorkerProcess(ledger, charge, task_queue="steps"))
                await until(world.began.is_set)
                processes[-1].freeze()
            with (
                worker_process(ledger, charge, task_queue="steps"),
                pytest.raises(WorkflowFailedError) as caught,
            ):
                await handle.result()
        finally:
            world.hold.set()
            for process in processes:
                process.thaw()
                process.end()
    assert isinstance(caught.value.__cause__, ActivityError)
    assert isinstance(caught.value.__cause__.__cause__, WorkerLostError)
    assert caught.value.__cause__.attempt == attempts
    assert world.seen == [f"attempt {n}" for n in range(1, attempts + 1)]


async def test_what_a_dead_worker_reported_is_read_by_the_next_attempt(ledger: Ledger, world: World) -> None:
    read: list[Any] = []

    @activity.defn(heartbeat_timeout=timedelta(seconds=30))
    async def pages() -> str:
        info = activity.info()
        read.append(info.heartbeat_details)
        if info.attempt == 1:
            activity.heartbeat({"page": 7})
            await asyncio.sleep(0.05)  # for the heartbeat to be written, by the real clock
            world.began.set()
            await until(world.hold.is_set)
        return "done"

    @workflow.defn
    async def fulfil() -> str:
        return await pages()

    with worker_process(ledger, fulfil, pages) as dead:
        async with ledger.connect() as client:
            handle = await client.start_workflow(fulfil, id="order-1")
            await until(world.began.is_set)
            dead.freeze()
            with worker_process(ledger, fulfil, pages):
                assert await handle.result() == "done"
    assert read == [(), ({"page": 7},)]


async def test_a_timer_of_a_dead_worker_fires_elsewhere(ledger: Ledger) -> None:
    @workflow.defn
    async def sleeps() -> str:
        await asyncio.sleep(0.5)  # long enough that a busy machine sees the timer before it fires
        return "rested"

    with worker_process(ledger, sleeps) as dead:
        async with ledger.connect() as client:
            handle = await client.start_workflow(sleeps, id="order-1")
            await until(lambda: _timers(handle))
            dead.freeze()
            with worker_process(ledger, sleeps):
                assert await handle.result() == "rested"


async def _timers(handle: Any) -> bool:
    return bool((await handle.describe()).state.timers)


async def test_a_signal_to_a_dead_workers_run_is_not_lost(ledger: Ledger) -> None:
    @workflow.defn
    class Waits:
        said = ""

        @workflow.run
        async def run(self) -> str:
            await workflow.wait_condition(lambda: self.said != "")
            return self.said

        @workflow.signal
        def say(self, text: str) -> None:
            self.said = text

    with worker_process(ledger, Waits) as dead:
        async with ledger.connect() as client:
            handle = await client.start_workflow(Waits, id="order-1")
            await until(lambda: _owner(handle))
            dead.freeze()
            await handle.signal(Waits.say, "hello")
            with worker_process(ledger, Waits):
                assert await handle.result() == "hello"


async def _owner(handle: Any) -> bool:
    return (await handle.describe()).owner is not None


# A worker sleeps ------------------------------------------------------------------------------------------------------


async def test_a_worker_that_lost_its_lease_appends_nothing_and_begins_anew(ledger: Ledger, world: World) -> None:
    charge = world.steps(retry_policy=RetryPolicy(maximum_attempts=3))
    fulfil = charging(charge)
    with worker_process(ledger, fulfil, charge) as sleeper:
        async with ledger.connect() as client:
            handle = await client.start_workflow(fulfil, "A1", id="order-1")
            await until(world.began.is_set)
            sleeper.freeze()
            with worker_process(ledger, fulfil, charge):
                assert await handle.result() == "charged in attempt 2"
            # It wakes, and its attempt comes to its end: too late.
            world.hold.set()
            sleeper.thaw()
            events_before = len((await handle.history()).events)
            # It takes new work under a new lease.
            assert await (await client.start_workflow(fulfil, "A2", id="order-2")).result() == "charged in attempt 1"
            assert len((await handle.history()).events) == events_before
            sessions = await client.internals.store.read_sessions("default")
            assert len(sessions) == 1


async def test_starts_and_signals_work_while_the_worker_gets_a_new_lease(ledger: Ledger) -> None:
    """The store has buried the session of a worker that is alive, and that does not know it yet."""

    @workflow.defn
    class Waits:
        said = ""

        @workflow.run
        async def run(self) -> str:
            await workflow.wait_condition(lambda: self.said != "")
            return self.said

        @workflow.signal
        def say(self, text: str) -> None:
            self.said = text

    async with ledger.connect() as client, ledger.worker(client, Waits):
        before = await client.start_workflow(Waits, id="order-1")
        (engine,) = client.internals.engines
        await client.internals.store.close_session(engine.session.key)
        after = await client.start_workflow(Waits, id="order-2")
        for handle in (before, after):
            await handle.signal(Waits.say, "hello")
        for handle in (before, after):
            assert await handle.result() == "hello"


# Runs that end their workers ------------------------------------------------------------------------------------------


async def test_a_run_that_ends_its_workers_again_and_again_is_parked(ledger: Ledger) -> None:
    """Poison is parked, not passed on; other code may take it up."""
    taken: list[int] = []

    @workflow.defn(name="fulfil")
    async def kills() -> str:
        taken.append(1)
        return "done"

    async with ledger.connect() as client:
        handle = await client.start_workflow(kills, id="order-1")
        store = client.internals.store
        for _ in range(6):
            session = await store.open_session("doomed", "default", "default", "v1", 60_000)
            (row,) = await store.claim_runs(
                session.session_key, await store.now_ms(), "default", "default", {"fulfil": "v1"}, 10
            )
            assert row.workflow_id == "order-1"
            await store.close_session(session.session_key)  # as burial would: with the run still in its hands
        async with ledger.worker(client, kills, build_id="v1"):
            with pytest.raises(RunBlockedError) as caught:
                await handle.result()
            assert caught.value.failure_type == "PoisonRun"
            assert "workers in a row took this run and ended before it made progress" in str(caught.value)
            assert taken == []
        async with ledger.worker(client, kills, build_id="v2"):
            assert await handle.result(wait_while_blocked=True) == "done"


# Cancelled meanwhile --------------------------------------------------------------------------------------------------


@workflow.defn
class Revoked:
    """Cancels a step when it is told to, and says what became of it."""

    told = False

    @workflow.run
    async def run(self, queue: str) -> str:
        handle = workflow.start_activity("charge", "A1", task_queue=queue, cancellation_type="wait")
        await workflow.wait_condition(lambda: self.told)
        handle.cancel()
        try:
            return str(await handle)
        except asyncio.CancelledError:
            return "cancelled"
        except ActivityError as error:
            return type(error.__cause__).__name__

    @workflow.signal
    def revoke(self) -> None:
        self.told = True


async def test_a_cancelled_attempt_that_dies_with_its_worker_is_not_tried_again(ledger: Ledger, world: World) -> None:
    """And nobody has to serve its queue to tell."""
    charge = world.steps()
    async with ledger.connect() as client, ledger.worker(client, Revoked):
        with worker_process(ledger, charge, task_queue="cards") as doomed:
            handle = await client.start_workflow(Revoked, "cards", id="order-1")
            await until(world.began.is_set)
            doomed.freeze()
            await handle.signal(Revoked.revoke)
            assert await handle.result() == "WorkerLostError"
            world.hold.set()
    assert world.seen == ["A1 attempt 1"]


async def test_a_run_that_cancelled_a_step_and_dies_with_it_remembers(ledger: Ledger, world: World) -> None:
    charge = world.steps()
    with worker_process(ledger, Revoked, charge) as doomed:
        async with ledger.connect() as client:
            handle = await client.start_workflow(Revoked, "default", id="order-1")
            await until(world.began.is_set)

            # The attempt does not hear of it: it is busy cleaning up, as it were, when its worker dies.
            doomed.client.internals.engines[0].activities.cancel = lambda *_: False  # type: ignore[method-assign]
            await handle.signal(Revoked.revoke)
            await until(lambda: _asked_to_cancel(handle))
            doomed.freeze()
            async with ledger.worker(client, Revoked, charge):
                assert await handle.result() == "WorkerLostError"
                world.hold.set()
    assert world.seen == ["A1 attempt 1"]


async def _asked_to_cancel(handle: Any) -> bool:
    return any(each.cancel_requested for each in (await handle.describe()).state.activities.values())


async def test_a_step_that_nobody_can_take_is_cancelled_all_the_same(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, Revoked):
        handle = await client.start_workflow(Revoked, "nobody-serves-it", id="order-1")
        await handle.signal(Revoked.revoke)
        assert await handle.result() == "cancelled"
