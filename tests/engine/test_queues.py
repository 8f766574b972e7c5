"""Task queues with priorities, fairness keys and limits: whole workers, several of them."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pledger import Limit, Priority, RetryPolicy, Worker, activity, connect, workflow
from pledger.errors import InvalidPolicyError, UsageError
from pledger.store.memory import MemoryStore
from pledger.store.postgres import PostgresStore
from pledger.store.sqlite import SqliteStore
from pledger.testing import environment
from tests.engine.harness import Ledger, until, worker_process


class Meter:
    """How many run at a time, of each key and in all."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.now: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.order: list[str] = []
        self.gate = threading.Event()

    def __call__(self, key: str) -> _Running:
        return _Running(self, key)


class _Running:
    def __init__(self, meter: Meter, key: str) -> None:
        self.meter = meter
        self.key = key

    async def __aenter__(self) -> None:
        with self.meter.lock:
            self.meter.order.append(self.key)
            for key in (self.key, ""):
                self.meter.now[key] += 1
                self.meter.most[key] = max(self.meter.most[key], self.meter.now[key])

    async def __aexit__(self, *_: object) -> None:
        with self.meter.lock:
            for key in (self.key, ""):
                self.meter.now[key] -= 1


async def let_others_run() -> None:
    """So that attempts overlap where nothing keeps them apart."""
    for _ in range(20):
        await asyncio.sleep(0)


# Limits ---------------------------------------------------------------------------------------------------------------


async def test_a_limit_holds_over_all_workers(ledger: Ledger) -> None:
    meter = Meter()

    @activity.defn(limits=[Limit("courier-api", concurrency=2)])
    async def deliver(number: int) -> int:
        async with meter("courier"):
            await let_others_run()
        return number

    @workflow.defn
    async def deliveries(count: int) -> int:
        return sum(await asyncio.gather(*(deliver(n) for n in range(count))))

    with worker_process(ledger, deliveries, deliver), worker_process(ledger, deliveries, deliver):
        async with ledger.connect() as client:
            handles = [await client.start_workflow(deliveries, 8, id=f"round-{n}") for n in range(3)]
            assert [await each.result() for each in handles] == [28, 28, 28]
    assert meter.most["courier"] == 2


async def test_a_limit_by_key_holds_for_each_key(ledger: Ledger) -> None:
    meter = Meter()

    @activity.defn(limits=[Limit("customer", concurrency=1, key=lambda customer, _: customer)])
    async def serve(customer: str, number: int) -> int:
        async with meter(customer):
            await let_others_run()
        return number

    @workflow.defn
    async def services() -> int:
        return sum(await asyncio.gather(*(serve(customer, n) for n in range(6) for customer in ("ada", "bob"))))

    async with ledger.connect() as client, ledger.worker(client, services, serve):
        assert await client.execute_workflow(services, id="s-1") == 30
    assert (meter.most["ada"], meter.most["bob"]) == (1, 1)


async def test_two_activities_share_a_limit(ledger: Ledger) -> None:
    meter, shared = Meter(), Limit("bank", concurrency=1)

    @activity.defn(limits=[shared])
    async def debit() -> None:
        async with meter("bank"):
            await let_others_run()

    @activity.defn(limits=[shared])
    async def credit() -> None:
        async with meter("bank"):
            await let_others_run()

    @workflow.defn
    async def transfers() -> None:
        await asyncio.gather(*(step() for _ in range(4) for step in (debit, credit)))

    async with ledger.connect() as client, ledger.worker(client, transfers, debit, credit):
        await client.execute_workflow(transfers, id="t-1")
    assert meter.most["bank"] == 1


async def test_a_limit_of_a_queue_holds_for_all_its_activities(ledger: Ledger) -> None:
    meter = Meter()

    @activity.defn(task_queue="gpu")
    async def render(number: int) -> int:
        async with meter("gpu"):
            await let_others_run()
        return number

    @workflow.defn
    async def film() -> int:
        return sum(await asyncio.gather(*(render(n) for n in range(9))))

    limits = {"queue_limits": [Limit("gpu", concurrency=2)]}
    with (
        worker_process(ledger, render, task_queue="gpu", **limits),
        worker_process(ledger, render, task_queue="gpu", **limits),
    ):
        async with ledger.connect() as client, ledger.worker(client, film):
            assert await client.execute_workflow(film, id="f-1") == 36
    assert meter.most["gpu"] == 2


async def test_a_limited_activity_that_is_called_by_its_name_is_limited(ledger: Ledger) -> None:
    """The caller's repository knows a name and a type, and nothing of limits."""
    meter = Meter()

    @activity.defn(name="charge", limits=[Limit("bank", concurrency=1)])
    async def implemented(number: int) -> int:
        async with meter("bank"):
            await let_others_run()
        return number

    @workflow.defn
    async def shopping() -> int:
        calls = [workflow.start_activity("charge", n, result_type=int, task_queue="cards") for n in range(6)]
        return sum(await asyncio.gather(*calls))

    with worker_process(ledger, implemented, task_queue="cards"):
        async with ledger.connect() as client, ledger.worker(client, shopping):
            assert await client.execute_workflow(shopping, id="s-1") == 15
    assert meter.most["bank"] == 1


async def test_an_activity_of_another_repository_is_called_through_a_stub(ledger: Ledger) -> None:
    """A stub has the name, the types and the key of a limit; the other side has the code and the numbers."""
    meter = Meter()
    customer = Limit("customer", concurrency=1, key=lambda name: name)

    @activity.defn(name="greet", task_queue="greeters", limits=[customer])
    async def stub(name: str) -> str:
        raise AssertionError("only the other side runs it")

    @activity.defn(name="greet", limits=[customer])
    async def implemented(name: str) -> str:
        async with meter(name):
            await let_others_run()
        return f"Hello, {name}!"

    @workflow.defn
    async def party() -> list[str]:
        return list(await asyncio.gather(*(stub(name) for name in ("ada", "bob", "ada", "ada"))))

    with worker_process(ledger, implemented, task_queue="greeters"):
        async with ledger.connect() as client, ledger.worker(client, party):
            assert await client.execute_workflow(party, id="p-1") == [
                f"Hello, {n}!" for n in ("ada", "bob", "ada", "ada")
            ]
    assert meter.most["ada"] == 1


async def test_a_worker_that_dies_gives_its_slots_to_others(ledger: Ledger) -> None:
    entered = threading.Event()

    @activity.defn(limits=[Limit("api", concurrency=1)], retry_policy=RetryPolicy(initial_interval=timedelta(0)))
    async def call(who: str) -> str:
        if who == "first" and activity.info().attempt == 1:
            entered.set()
            await asyncio.sleep(3600)
        return who

    @workflow.defn
    async def calls(who: str) -> str:
        return await call(who)

    with worker_process(ledger, calls, call) as doomed:
        async with ledger.connect() as client:
            first = await client.start_workflow(calls, "first", id="first")
            await until(entered.is_set)
            second = await client.start_workflow(calls, "second", id="second")
            doomed.freeze()
            async with ledger.connect() as other, ledger.worker(other, calls, call):
                assert [await first.result(), await second.result()] == ["first", "second"]
            doomed.thaw()


async def test_what_waits_for_its_next_attempt_holds_no_slot(ledger: Ledger) -> None:
    order: list[str] = []

    @activity.defn(
        limits=[Limit("api", concurrency=1)],
        retry_policy=RetryPolicy(initial_interval=timedelta(hours=1), maximum_interval=timedelta(hours=1), jitter=0),
    )
    async def call(who: str) -> str:
        order.append(who)
        if who == "flaky":
            raise ConnectionError("not yet")
        return who

    @workflow.defn
    async def calls() -> list[str]:
        return list(await asyncio.gather(call("flaky"), call("steady")))

    async with ledger.connect() as client, ledger.worker(client, calls, call):
        handle = await client.start_workflow(calls, id="c-1")
        await until(lambda: len(order) == 2)
        assert order == ["flaky", "steady"]

        async def only_flaky_waits() -> bool:
            return [(row.state, row.attempt) for row in (await handle.describe()).pending] == [("queued", 2)]

        await until(only_flaky_waits)
        await handle.terminate()


def test_a_rate_bounds_the_starts() -> None:
    """Two at once, then one each half second: in virtual time, to the millisecond that the waking clock is behind."""

    @activity.defn(limits=[Limit("api", rate=2)])
    async def call(number: int) -> float:
        return activity.info().started_time.timestamp()

    @workflow.defn
    async def calls() -> list[float]:
        return list(await asyncio.gather(*(call(n) for n in range(6))))

    with environment(workflows=[calls], activities=[call], now=datetime(2026, 3, 1, tzinfo=UTC)) as env:
        began = env.now().timestamp()
        started = sorted(each - began for each in env.run(calls, id="c-1"))
    assert started == pytest.approx([0, 0, 0.5, 1.0, 1.5, 2.0], abs=0.02)


async def test_an_operator_may_stop_a_limit_and_let_it_go_on(ledger: Ledger) -> None:
    began: list[str] = []

    @activity.defn(limits=[Limit("api", concurrency=5)])
    async def call() -> None:
        began.append("call")

    @activity.defn(limits=[Limit("other", concurrency=5)])
    async def pass_by() -> None:
        began.append("pass by")

    @workflow.defn
    async def calls() -> None:
        await asyncio.gather(call(), pass_by())

    async with ledger.connect() as client, ledger.worker(client, calls, call, pass_by):
        await client.set_limit("api", concurrency=0)
        handle = await client.start_workflow(calls, id="c-1")

        async def only_one_waits() -> bool:
            return [row.activity_type for row in (await handle.describe()).pending] == ["call"]

        await until(only_one_waits)
        assert began == ["pass by"]
        await client.reset_limit("api")
        await handle.result()
    assert began == ["pass by", "call"]


async def test_a_timer_fires_while_an_activity_waits_for_its_limit(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody looks but when something is due: of the timers of runs that are not in memory only a look tells."""
    for store in (MemoryStore, SqliteStore, PostgresStore):
        monkeypatch.setattr(store, "look_every_s", 3_600.0)

    @activity.defn(limits=[Limit("api", concurrency=1)])
    async def call() -> None: ...

    @workflow.defn
    async def calls_by_name() -> None:
        await workflow.execute_activity("call")

    @workflow.defn
    async def sleeps() -> str:
        await asyncio.sleep(0.3)
        return "awake"

    lease = timedelta(hours=1)
    async with ledger.connect() as client, ledger.worker(client, calls_by_name, sleeps, call, lease=lease):
        await client.set_limit("api", concurrency=0)
        waiting = await client.start_workflow(calls_by_name, id="waits")
        await until(lambda: waits_in_queue(waiting))
        sleeping = await client.start_workflow(sleeps, id="sleeps")
        [engine] = client.internals.engines
        run = next(each for each in engine.runs.active.values() if each.identity.workflow_id == "sleeps")
        await until(lambda: run.at_rest)
        engine.runs.leaving.release(run)
        await until(lambda: run.run_key not in engine.runs.active)
        engine.changed()  # it looks once more, finds an activity that is due, and may not take it
        assert await sleeping.result() == "awake"
        await waiting.terminate()


@pytest.mark.parametrize("by_another", [False, True], ids=["by this process", "by another"])
async def test_who_waits_for_a_slot_is_told_when_the_run_that_has_it_is_terminated(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, *, by_another: bool
) -> None:
    """Its attempt ends with the run, and nothing is written of it: nobody looks without a hint."""
    for store in (MemoryStore, SqliteStore, PostgresStore):
        monkeypatch.setattr(store, "look_every_s", 3_600.0)
    entered, over = asyncio.Event(), asyncio.Event()

    @activity.defn(limits=[Limit("api", concurrency=1)])
    async def call(who: str) -> str:
        if who == "first":
            entered.set()
            await over.wait()
        return who

    @workflow.defn
    async def calls(who: str) -> str:
        return await call(who)

    lease = timedelta(hours=1)
    async with ledger.connect() as client, ledger.connect() as other, ledger.worker(client, calls, call, lease=lease):
        first = await client.start_workflow(calls, "first", id="first")
        await entered.wait()
        second = await client.start_workflow(calls, "second", id="second")
        [engine] = client.internals.engines
        await until(lambda: engine.intake.claims.limits_wait)
        if by_another:
            await other.handle("first").terminate()
        else:
            await first.terminate()
        assert await second.result() == "second"
        over.set()


async def waits_in_queue(handle: Any) -> bool:
    return [row.state for row in (await handle.describe()).pending] == ["queued"]


# Order ----------------------------------------------------------------------------------------------------------------


async def held_up(ledger: Ledger, steps: list[tuple[str, Priority | None]]) -> list[str]:
    """In which order a worker of one slot takes these, which have all been there before it came."""
    order: list[str] = []

    @activity.defn(task_queue="narrow")
    async def step(name: str) -> None:
        order.append(name)

    @workflow.defn
    async def all_at_once() -> None:
        handles = [
            workflow.start_activity(step, name, priority=priority) if priority else workflow.start_activity(step, name)
            for name, priority in steps
        ]
        await asyncio.gather(*handles)

    async with ledger.connect() as client, ledger.worker(client, all_at_once):
        handle = await client.start_workflow(all_at_once, id="a-1")

        async def queued() -> bool:
            return len((await handle.describe()).pending) == len(steps)

        await until(queued)
        async with ledger.worker(client, step, task_queue="narrow", max_concurrent_activities=1):
            await handle.result()
    return order


async def test_what_is_urgent_comes_first(ledger: Ledger) -> None:
    steps = [("low", Priority(5)), ("plain", None), ("high", Priority(1)), ("plain 2", None), ("high 2", Priority(1))]
    assert await held_up(ledger, steps) == ["high", "high 2", "plain", "plain 2", "low"]


async def test_tenants_take_turns(ledger: Ledger) -> None:
    greedy = [(f"greedy {n}", Priority(fairness_key="greedy")) for n in range(20)]
    modest = [(f"modest {n}", Priority(fairness_key="modest")) for n in range(2)]
    order = await held_up(ledger, [*greedy, *modest])
    assert order.index("modest 1") <= 4


async def test_a_run_gives_its_priority_to_its_activities(ledger: Ledger) -> None:
    @activity.defn(priority=Priority(fairness_weight=2.0), task_queue="nobody", schedule_to_start_timeout=None)
    async def step() -> None: ...

    @workflow.defn
    async def stepping() -> None:
        await asyncio.gather(step(), workflow.start_activity(step, priority=Priority(priority_key=1)))

    async with ledger.connect() as client, ledger.worker(client, stepping):
        urgent = Priority(priority_key=2, fairness_key="tenant")
        handle = await client.start_workflow(stepping, id="s-1", priority=urgent)

        async def lanes() -> list[tuple[str | None, float]]:
            return sorted((row.lane, row.weight) for row in (await handle.describe()).pending)

        assert await until(lanes) == [('[1,"tenant",[]]', 2.0), ('[2,"tenant",[]]', 2.0)]
        await handle.terminate()


# Where activities start -----------------------------------------------------------------------------------------------


async def started_from_a_row(ledger: Ledger, call: Any, **options: Any) -> bool:
    """Whether the first attempt had a task row, as one from the queue has."""
    seen: list[int] = []

    @workflow.defn
    async def calling() -> None:
        await call()

    async with ledger.connect() as client, ledger.worker(client, calling, call, **options):
        store = client.internals.store
        claim_tasks, claim_queued = store.claim_tasks, store.claim_queued

        async def claim(*args: Any) -> Any:
            rows = await claim_tasks(*args)
            seen.extend(row.event_id for row in rows)
            return rows

        async def claim_limited(*args: Any) -> Any:
            found = await claim_queued(*args)
            seen.extend(row.event_id for row in found.tasks)
            return found

        store.claim_tasks, store.claim_queued = claim, claim_limited
        await client.execute_workflow(calling, id="c-1")
        del store.claim_tasks, store.claim_queued
    return bool(seen)


async def test_what_is_limited_is_never_started_eagerly(ledger: Ledger) -> None:
    @activity.defn(limits=[Limit("api", concurrency=9)])
    async def limited() -> None: ...

    assert await started_from_a_row(ledger, limited)


async def test_what_is_not_limited_is_started_eagerly(ledger: Ledger) -> None:
    @activity.defn
    async def plain() -> None: ...

    assert not await started_from_a_row(ledger, plain)


async def test_what_has_a_priority_is_started_eagerly_where_nobody_waits(ledger: Ledger) -> None:
    @activity.defn(priority=Priority(priority_key=1))
    async def urgent() -> None: ...

    assert not await started_from_a_row(ledger, urgent)


async def test_what_has_a_place_does_not_pass_by_those_who_wait(ledger: Ledger) -> None:
    """When its run asks for it there is a free slot: that of the step before, which those in the queue wait for."""
    order: list[str] = []
    gate = asyncio.Event()

    @activity.defn
    async def step(name: str) -> None:
        order.append(name)
        if name == "first":
            await gate.wait()

    @workflow.defn
    async def two_steps() -> None:
        await step("first")
        await workflow.execute_activity(step, "late", priority=Priority(priority_key=5))

    @workflow.defn
    async def one_step() -> None:
        await step("early")

    options: dict[str, Any] = {"max_concurrent_activities": 1}
    async with ledger.connect() as client, ledger.worker(client, two_steps, one_step, step, **options):
        first = await client.start_workflow(two_steps, id="first")
        await until(lambda: order)
        second = await client.start_workflow(one_step, id="second")

        async def waits() -> bool:
            [engine] = client.internals.engines
            return bool((await second.describe()).pending) and engine.activities.admission.queue_waits

        await until(waits)
        store = client.internals.store
        look = store.look

        async def look_late(*args: Any) -> Any:
            await let_others_run()  # the run is faster than the worker that looks for what is due
            return await look(*args)

        store.look = look_late
        gate.set()
        await asyncio.gather(first.result(), second.result())
        del store.look
    assert order == ["first", "early", "late"]


async def test_nothing_of_a_limited_queue_is_started_eagerly(ledger: Ledger) -> None:
    @activity.defn
    async def plain() -> None: ...

    assert await started_from_a_row(ledger, plain, queue_limits=[Limit("all", concurrency=3)])


async def test_what_finds_no_slot_here_goes_to_the_queue(ledger: Ledger) -> None:
    """Eager attempts spill over: the second one is taken by another worker."""
    meter = Meter()

    @activity.defn
    async def step(name: str) -> str:
        async with meter(name):
            await until(lambda: meter.most[""] == 2)
        return name

    @workflow.defn
    async def both() -> list[str]:
        return list(await asyncio.gather(step("one"), step("two")))

    options: dict[str, Any] = {"max_concurrent_activities": 1}
    async with ledger.connect() as client, ledger.worker(client, both, step, **options):
        with worker_process(ledger, step, **options):
            assert await client.execute_workflow(both, id="b-1") == ["one", "two"]


# What cannot be -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Limit("", concurrency=1),
        lambda: Limit("api"),
        lambda: Limit("api", concurrency=0),
        lambda: Limit("api", rate=0),
        lambda: Limit("api", rate=float("inf")),
        lambda: Limit("api", rate=1, per=timedelta(0)),
        lambda: Limit("x" * 201, concurrency=1),
        lambda: Limit("a\0b", concurrency=1),
        lambda: Priority(0),
        lambda: Priority(6),
        lambda: Priority(fairness_weight=0),
        lambda: Priority(fairness_key="x" * 201),
    ],
)
def test_numbers_out_of_range_are_refused_where_they_are_stated(wrong: Any) -> None:
    with pytest.raises(InvalidPolicyError):
        wrong()


async def test_one_limit_with_two_numbers_is_refused() -> None:
    @activity.defn(limits=[Limit("api", concurrency=1)])
    async def one() -> None: ...

    @activity.defn(limits=[Limit("api", concurrency=2)])
    async def two() -> None: ...

    async with connect("memory://") as client:
        with pytest.raises(
            UsageError, match=r"'one' and activity 'two' state the limit 'api' .*: concurrency 1 and 2\."
        ):
            Worker(client, activities=[one, two])
        with pytest.raises(UsageError, match=r"'one' and queue_limits state the limit 'api' .*: rate none and 5"):
            Worker(client, activities=[one], queue_limits=[Limit("api", concurrency=1, rate=5)])


@pytest.mark.parametrize(
    ("key", "says"), [("x" * 201, "has 201 characters, the most is 200"), ("a\1b", "holds characters that cannot be")]
)
def test_a_key_that_cannot_stand_in_an_index_says_whose_it_is(key: str, says: str) -> None:
    @activity.defn(limits=[Limit("customer", concurrency=1, key=lambda name: name)])
    async def serve(name: str) -> None: ...

    with pytest.raises(InvalidPolicyError, match=f"key of limit 'customer' of activity 'serve'.* {says}.*use a digest"):
        serve.uses((key,), {})


async def test_a_limit_of_a_queue_has_no_key() -> None:
    @activity.defn
    async def one() -> None: ...

    async with connect("memory://") as client:
        with pytest.raises(UsageError, match="a queue knows no arguments"):
            Worker(client, activities=[one], queue_limits=[Limit("all", concurrency=1, key=str)])
