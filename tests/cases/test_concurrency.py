"""The cases about who runs what: work that is not due yet, long steps, and workers that act on an old list."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from pledger import Client, Limit, Priority, RetryPolicy, activity, workflow
from pledger.engine.limits import Limits
from pledger.engine.port.answers import Reply
from pledger.engine.port.operations import ConfirmClaim, FinishTask, PutTask, Release
from pledger.history.placement import LimitRule
from pledger.testing import Environment, Simulation
from tests.cases.harness import BEGAN
from tests.conformance.harness import (
    LEASE_MS,
    NOW,
    append,
    claim,
    claim_queued,
    claim_tasks,
    open_session,
    owned_run,
    placed,
    task,
    with_statistics,
    write,
)
from tests.conformance.harness import Ledger as PortLedger
from tests.engine.harness import Ledger, until, worker_process

# CON-01 ---------------------------------------------------------------------------------------------------------------


@activity.defn(retry_policy=RetryPolicy(maximum_attempts=5))
async def job(number: int) -> int:
    return number


@activity.defn(start_to_close_timeout=timedelta(minutes=1), retry_policy=RetryPolicy(maximum_attempts=5))
async def ten_seconds() -> None:
    await asyncio.sleep(10)


@workflow.defn
async def due_in(seconds: int) -> int:
    await workflow.sleep(seconds)
    return await job(seconds)


@workflow.defn
async def long_step() -> None:
    await ten_seconds()


STORES = pytest.mark.parametrize("store", ["memory", "sqlite", "postgres"])


def simulated(seed: int, lease_s: int, store: str) -> Simulation:
    return Simulation(
        seed,
        store=store,
        workflows=[due_in, long_step],
        activities=[job, ten_seconds],
        workers=4,
        limits=Limits(lease_ms=lease_s * 1000),
        settle=timedelta(hours=2),
    )


def executions(sim: Simulation) -> Counter[str]:
    sim.run_until_idle()
    sim.check()
    assert {len(each.attempts) for each in sim.world.activities.values()} == {1}
    return Counter(each.activity_type for each in sim.world.activities.values())


@STORES
@pytest.mark.parametrize("seed", range(5))
def test_CON_01_what_is_due_after_the_lease_runs_once(seed: int, store: str) -> None:
    """A job in 5 s and a step of 10 s, under leases of 2 s, with four workers."""
    sim = simulated(seed, 2, store)
    sim.start(due_in, 5, id="job-1", within_s=0.1)
    sim.start(long_step, id="long-1", within_s=0.1)
    assert executions(sim) == {"job": 1, "ten_seconds": 1}


@STORES
def test_CON_01_a_hundred_jobs_due_after_several_leases_run_once_each(store: str) -> None:
    """In two minutes, under leases of twenty seconds; the hour of the case is below."""
    sim = simulated(0, 20, store)
    for number in range(100):
        sim.start(due_in, 120, id=f"job-{number}", within_s=0.1)
    assert executions(sim) == {"job": 100}
    assert sim.now_s >= 120


def test_CON_01_a_hundred_jobs_due_in_an_hour_run_once_each_and_then(virtual: Callable[..., Environment]) -> None:
    ran: list[datetime] = []
    env = virtual(workflows=[due_in], activities=[job], now=BEGAN)
    env.fake(job, lambda number: ran.append(env.now()) or number)
    handles = [env.start(due_in, 3_600, id=f"job-{number}") for number in range(100)]
    assert [handle.result() for handle in handles] == [3_600] * 100
    assert len(ran) == 100
    assert min(ran) >= BEGAN + timedelta(hours=1)


async def test_CON_01_nothing_is_claimable_before_it_is_due_and_then_by_one(port_ledger: PortLedger) -> None:
    """Neither a run that sleeps nor a retry that waits is anybody's while it does: waiting costs no lease."""
    stores = [port_ledger.open() for _ in range(4)]
    sessions = [await open_session(store) for store in stores]
    first, due_ms = stores[0], NOW + 5_000
    run = await owned_run(first, sessions[0])
    await write(first, PutTask(run.fence, task(run, due_ms=due_ms)))
    await write(first, Release(run.run_key, run.fence, due_ms))
    for store, session in zip(stores, sessions, strict=True):
        assert await claim(store, session, due_ms - 1) == []
        assert await claim_tasks(store, session, due_ms - 1) == []
        assert (await store.read_run(run.run_key)).owner is None
    runs = [await claim(store, session, due_ms) for store, session in zip(stores, sessions, strict=True)]
    tasks = [await claim_tasks(store, session, due_ms) for store, session in zip(stores, sessions, strict=True)]
    assert [len(each) for each in runs] == [len(each) for each in tasks] == [1, 0, 0, 0]


# CON-02 ---------------------------------------------------------------------------------------------------------------


@activity.defn(limits=[Limit("workers", concurrency=5)], start_to_close_timeout=timedelta(minutes=1))
async def second_of_work(tenant: str) -> datetime:
    """Of a second, for five workers."""
    started = activity.info().started_time
    await asyncio.sleep(1)
    return started


@activity.defn(
    limits=[Limit("workers", concurrency=5), Limit("flow", concurrency=1, key=lambda tenant, flow: f"{tenant}/{flow}")],
    start_to_close_timeout=timedelta(minutes=1),
)
async def second_of_a_flow(tenant: str, flow: int) -> datetime:
    started = activity.info().started_time
    await asyncio.sleep(1)
    return started


@workflow.defn
async def tenants_run(tenant: str, number: int, flows: int) -> datetime:
    if flows == 1:
        return await second_of_work(tenant)
    return await second_of_a_flow(tenant, number % flows)


@pytest.mark.parametrize("flows", [1, 100])
def test_CON_02_a_run_of_another_tenant_starts_at_once(virtual: Callable[..., Environment], flows: int) -> None:
    """A hundred and fifty runs of tenant A, on one key or on a hundred; B comes when they have begun."""
    env = virtual(workflows=[tenants_run], activities=[second_of_work, second_of_a_flow], now=BEGAN)
    greedy = [
        env.start(tenants_run, "A", n, flows, id=f"A-{n}", priority=Priority(fairness_key="A")) for n in range(150)
    ]
    env.sleep(timedelta(seconds=3))
    asked = env.now()
    modest = env.start(tenants_run, "B", 0, flows, id="B", priority=Priority(fairness_key="B"))
    assert modest.result() - asked <= timedelta(seconds=2)
    begun = sorted(handle.result() for handle in greedy)
    # Work-conserving: five at a time but for the second that was B's, and 150 take thirty seconds.
    assert begun[-1] - BEGAN <= timedelta(seconds=32)


@pytest.mark.parametrize("keys", [1, 100])
async def test_CON_02_ten_thousand_waiting_rows_are_not_looked_through(port_ledger: PortLedger, keys: int) -> None:
    """Five workers of one slot each claim what comes next: B's row is among the first of them."""
    store = port_ledger.open()
    session = await open_session(store)
    run = await owned_run(store, session)
    rows = [task(run, n, **placed(3, "A", 1.0, ("flow", f"{n % keys}"))) for n in range(3, 10_003)]
    await write(store, append(run, tasks=rows))
    await with_statistics(store)
    rule = LimitRule(concurrency=10_000)
    for _ in range(5):
        assert len((await claim_queued(store, session, limit=1, flow=rule)).tasks) == 1
    other = await owned_run(store, session, "order-2")
    await write(store, append(other, tasks=[task(other, 3, due_ms=NOW + 1, **placed(3, "B", 1.0, ("flow", "b")))]))
    claims = [await claim_queued(store, session, NOW + 1, limit=1, flow=rule) for _ in range(2)]
    assert other.run_key in [row.run_key for each in claims for row in each.tasks]


# CON-03 ---------------------------------------------------------------------------------------------------------------


async def test_CON_03_a_recoverer_with_an_old_list_does_nothing(port_ledger: PortLedger) -> None:
    """B and C both know w1 as the dead worker's. B gives it back, D takes it, and then C acts."""
    dead, b, c, d = (port_ledger.open() for _ in range(4))
    owner = await open_session(dead)
    stale = await owned_run(dead, owner, "w1")
    await write(dead, PutTask(stale.fence, task(stale)))
    [started] = await claim_tasks(dead, owner)
    port_ledger.clock.now_ms += LEASE_MS + 1
    assert [each.session_key for each in await b.bury_sessions("default")] == [owner]
    [taken] = await claim(d, await open_session(d), port_ledger.clock.now_ms)

    assert await c.bury_sessions("default") == []
    assert await claim(c, await open_session(c), port_ledger.clock.now_ms) == []
    for operation in (
        append(stale),
        Release(stale.run_key, stale.fence, None),
        ConfirmClaim(stale.run_key, stale.fence),
        PutTask(stale.fence, task(stale, event_id=2)),
    ):
        assert await write(c, operation) is Reply.LOST
    # Nor can the dead one, should it wake up: neither its transition nor its result is taken.
    assert await write(dead, append(stale)) is Reply.LOST
    late = FinishTask(stale.run_key, started.event_id, started.attempt, owner, b"outcome")
    assert await write(dead, late) is Reply.LOST
    assert await c.read_run(stale.run_key) == taken


class Step:
    """An activity that says which attempts were made; the first one holds until it is let go."""

    def __init__(self) -> None:
        self.began, self.hold = threading.Event(), threading.Event()
        self.attempts: list[int] = []

        @activity.defn(retry_policy=RetryPolicy(maximum_attempts=5))
        async def step() -> str:
            attempt = activity.info().attempt
            self.attempts.append(attempt)
            if attempt == 1:
                self.began.set()
                await until(self.hold.is_set)
            return f"attempt {attempt}"

        self.activity = step


async def test_CON_03_a_dead_workers_run_is_executed_once_more_and_by_one(ledger: Ledger) -> None:
    step = Step()

    @workflow.defn
    async def w1() -> str:
        return await step.activity()

    async with ledger.connect() as client:
        handle = await client.start_workflow(w1, id="w1")
        with worker_process(ledger, w1, step.activity) as dying:
            await until(step.began.is_set)
            dying.freeze()
            with worker_process(ledger, w1, step.activity), worker_process(ledger, w1, step.activity):
                assert await handle.result() == "attempt 2"
                before = len((await handle.history()).events)
                # The late writer wakes up, and has lost what it would store.
                step.hold.set()
                dying.thaw()
                await until(lambda: _owners(client, 3))
        assert step.attempts == [1, 2]
        assert await handle.result() == "attempt 2"
        assert len((await handle.history()).events) == before


async def _owners(client: Client, count: int) -> bool:
    """Whether so many workers have a lease: the one that lost its own has seen it, and begun anew."""
    return len(await client.internals.store.read_sessions("default")) == count


async def test_CON_03_runs_that_start_while_workers_look_for_dead_ones_run_once(ledger: Ledger) -> None:
    """With explicit ids, by clients and by the workers' own processes."""
    done: Counter[str] = Counter()

    @activity.defn
    async def count() -> None:
        done[activity.info().workflow_id] += 1

    @workflow.defn
    async def w2() -> None:
        await count()

    ids = [f"w2-{number}" for number in range(30)]
    async with ledger.connect() as client:
        starting = asyncio.gather(*(client.start_workflow(w2, id=each) for each in ids[:10]))
        with worker_process(ledger, w2, count) as one, worker_process(ledger, w2, count) as other:
            for process, own in ((one, ids[10:20]), (other, ids[20:])):
                for each in own:
                    process.call(process.client.start_workflow(w2, id=each))
            await starting
            for each in ids:
                await client.handle(each).result()
    assert done == dict.fromkeys(ids, 1)
