"""What is counted of runs, attempts, caches, take-overs and outages: exactly, once, and without a name of any run."""

# ruff: noqa: SIM117 - a worker stands in its client
from __future__ import annotations

import asyncio
import threading
import urllib.request
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from pledger import Client, RetryPolicy, SyncClient, activity, connect, workflow
from pledger.engine.census import Census
from pledger.engine.port.records import QueueRow
from pledger.errors import (
    ApplicationError,
    ApplicationErrorCategory,
    InvalidPolicyError,
    RunBlockedError,
    StoreUnavailableError,
    UsageError,
    WorkflowFailedError,
    WorkflowNotFoundError,
)
from pledger.metrics import Metrics, families
from pledger.metrics import ledger as watched
from pledger.metrics.scraping import QUEUES_MAX, ledger_samples
from pledger.testing import environment
from tests.cases.virtual import InAFile
from tests.engine.harness import Ledger, until, worker_process
from tests.engine.steps import AT_ONCE, ONCE


class Scraped(Metrics):
    """Metrics of a registry of their own. `of` is what a scrape has, summed over all labels that are not asked for."""

    def __init__(self, **options: Any) -> None:
        super().__init__(CollectorRegistry(), **options)

    def samples(self) -> Iterator[tuple[str, dict[str, str], float]]:
        for family in self.registry.collect():
            for each in family.samples:
                yield each.name, each.labels, each.value

    def of(self, name: str, **labels: str) -> float:
        found = [
            value for each, has, value in self.samples() if each == f"pledger_{name}" and labels.items() <= has.items()
        ]
        return sum(found)

    async def off_the_loop(self, name: str, **labels: str) -> float:
        """The same in another thread, as a server scrapes."""
        return await asyncio.to_thread(self.of, name, **labels)


@activity.defn(retry_policy=AT_ONCE)
async def third_time(order: str) -> str:
    """It fails twice, and once as is to be expected."""
    if activity.info().attempt == 1:
        raise ConnectionError("not there")
    if activity.info().attempt == 2:
        raise ApplicationError("not yet", category=ApplicationErrorCategory.BENIGN)
    return order


@activity.defn(retry_policy=ONCE, start_to_close_timeout=timedelta(milliseconds=20))
async def slow(order: str) -> str:
    await asyncio.sleep(60)
    return order


@workflow.defn
async def completes(order: str) -> str:
    return await third_time(order)


@workflow.defn
async def fails(order: str) -> str:
    try:
        await slow(order)
    finally:
        raise ApplicationError("declined")


@workflow.defn
async def waits() -> None:
    await asyncio.sleep(3600)


@workflow.defn(deadline=timedelta(milliseconds=50))
async def dies() -> None:
    await asyncio.sleep(3600)


@workflow.defn
async def rolls(rounds: int) -> int:
    if rounds:
        workflow.continue_as_new(rounds - 1)
    return rounds


@workflow.defn
async def breaks() -> None:
    raise KeyError("a bug")


@workflow.defn
class Listens:
    def __init__(self) -> None:
        self.heard = 0

    @workflow.run
    async def run(self, often: int) -> int:
        await workflow.wait_condition(lambda: self.heard == often)
        return self.heard

    @workflow.signal
    def hear(self, text: str) -> None:
        self.heard += 1

    @workflow.query
    def count(self) -> int:
        return self.heard


@pytest.fixture(autouse=True)
def looked_at_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a ledger that is slow on a busy machine is looked at every few seconds."""
    monkeypatch.setattr(watched, "SHARE_MAX", 1.0)


@pytest.fixture
def ledger(ledger: Ledger) -> Ledger:
    """What is counted here must not be counted anew since a busy machine lost a lease."""
    ledger.worker_lease = timedelta(minutes=1)
    return ledger


ALL = (completes, fails, waits, dies, rolls, breaks, Listens, third_time, slow)


async def end_in_every_way(client: Client) -> None:
    assert await client.execute_workflow(completes, "o1", id="completes") == "o1"
    with pytest.raises(WorkflowFailedError):
        await client.execute_workflow(fails, "o1", id="fails")
    handle = await client.start_workflow(waits, id="waits")
    await handle.cancel()
    with pytest.raises(WorkflowFailedError):
        await handle.result()
    with pytest.raises(WorkflowFailedError):
        await client.execute_workflow(dies, id="dies")
    assert await client.execute_workflow(rolls, 2, id="rolls") == 0
    with pytest.raises(RunBlockedError):
        await client.execute_workflow(breaks, id="breaks")
    with pytest.raises(WorkflowNotFoundError):
        await client.handle("nobody").terminate()


async def test_each_end_is_counted_once_and_by_its_name(ledger: Ledger) -> None:
    """What verification replays at the end, which is all of it, counts for nothing."""
    metrics = Scraped()
    async with connect(ledger.url, metrics=metrics) as client:
        async with ledger.worker(client, *ALL):
            await end_in_every_way(client)
    of = metrics.of
    ends = {name: of(f"workflow_{name}_total") for name in ("completed", "failed", "canceled", "timed_out")}
    assert ends == {"completed": 2, "failed": 1, "canceled": 1, "timed_out": 1}
    assert of("workflow_continue_as_new_total", workflow_type="rolls") == 2
    assert of("workflow_endtoend_latency_seconds_count") == 7
    assert of("workflow_task_execution_failed_total", workflow_type="breaks", failure_reason="bug") == 1
    assert of("workflow_task_execution_failed_total") == 1
    assert of("workflow_task_execution_latency_seconds_count", workflow_type="completes") == 2
    assert of("activity_execution_failed_total", activity_type="third_time", failure_reason="application") == 1
    assert of("activity_execution_failed_total", activity_type="slow", failure_reason="timeout") == 1
    assert of("activity_execution_failed_total") == 2
    assert of("activity_schedule_to_start_latency_seconds_count") == 4
    assert of("activity_execution_latency_seconds_count", activity_type="third_time") == 3
    assert of("activity_succeed_endtoend_latency_seconds_count") == 1
    assert of("request_total", operation="StartWorkflow") == 6
    assert of("request_failure_total") == 1
    assert of("request_failure_total", operation="TerminateWorkflow", failure="WorkflowNotFoundError") == 1
    assert of("request_total") == of("request_latency_seconds_count") == 8
    assert of("store_commit_operations_sum") >= of("store_commit_latency_seconds_count") > 8


async def test_no_run_has_a_series_of_its_own(ledger: Ledger) -> None:
    """However many there are, and whatever they are called."""
    metrics = Scraped(ledger_every=None)
    sizes = []
    async with connect(ledger.url, metrics=metrics) as client:
        async with ledger.worker(client, completes, third_time):
            for n in range(30):
                await client.execute_workflow(completes, f"o{n}", id=f"order-{n}")
                if n in {4, 29}:
                    sizes.append(len(generate_latest(metrics.registry).splitlines()))
    assert sizes[0] == sizes[1]
    labels = {(name, value) for _, has, _ in metrics.samples() for name, value in has.items()}
    bounded = {"namespace", "task_queue", "workflow_type", "activity_type", "operation", "failure_reason"}
    assert {name for name, _ in labels} - {"le"} <= bounded
    assert not any("order-" in value for _, value in labels)


async def test_a_run_that_is_taken_over_ends_once(ledger: Ledger) -> None:
    """Its worker dies in the midst of an attempt. What the other one replays it does not count again, and what the dead
    one would still tell, thawed, is never counted."""
    first, second = Scraped(ledger_every=None), Scraped()
    stuck = threading.Event()

    @activity.defn(retry_policy=RetryPolicy(maximum_attempts=2))
    async def charge(order: str) -> str:
        if activity.info().attempt == 1:
            stuck.set()
            await asyncio.sleep(3600)
        return order

    @workflow.defn
    async def orders(order: str) -> str:
        return await charge(order)

    async with connect(ledger.url, metrics=second) as client:
        with worker_process(ledger, orders, charge, metrics=first, grace=timedelta(milliseconds=1)) as dying:
            handle = await client.start_workflow(orders, "o1", id="order-1")
            await asyncio.to_thread(stuck.wait, 30)
            dying.freeze()
            async with ledger.worker(client, orders, charge):
                assert await handle.result() == "o1"
            dying.thaw()
            await until(lambda: first.of("worker_lease_lost_total") == 1)
    ends = [each.of("workflow_completed_total") for each in (first, second)]
    assert ends == [0, 1]
    assert second.of("workflow_task_execution_latency_seconds_count") == 1, "what was replayed is not counted"
    assert second.of("workflow_task_replay_latency_seconds_count") == second.of("sticky_cache_miss_total") == 1
    assert second.of("activity_execution_failed_total", failure_reason="worker_lost") == 1
    assert first.of("workflow_task_execution_latency_seconds_count") == 1
    assert first.of("activity_succeed_endtoend_latency_seconds_count") == 0
    assert second.of("worker_lease_lost_total") == 0


async def test_what_leaves_memory_and_comes_back(ledger: Ledger) -> None:
    metrics = Scraped()
    async with connect(ledger.url, metrics=metrics) as client:
        async with ledger.worker(client, Listens, max_cached_runs=1):
            handles = [await client.start_workflow(Listens, 2, id=f"listens-{n}") for n in range(3)]
            await until(lambda: metrics.of("sticky_cache_size") == 1)
            await until(lambda: metrics.of("sticky_cache_total_forced_eviction_total") == 2)
            assert await handles[0].query(Listens.count) == 0
            assert metrics.of("sticky_cache_miss_total") == 1
            for handle in handles:
                await handle.signal(Listens.hear, "one")
                await handle.signal(Listens.hear, "two")
                assert await handle.result() == 2
            assert (
                metrics.of("sticky_cache_miss_total") == metrics.of("workflow_task_replay_latency_seconds_count") >= 3
            )
            assert metrics.of("workflow_completed_total", workflow_type="Listens") == 3
        assert metrics.of("sticky_cache_size") == 0
        assert metrics.of("worker_task_slots_available") == 0, "a worker that is gone has none"


async def test_slots_and_what_waits_for_one(ledger: Ledger) -> None:
    metrics = Scraped(ledger_every=timedelta(milliseconds=1))
    begun, done = asyncio.Event(), asyncio.Event()

    @activity.defn
    async def hold() -> None:
        begun.set()
        await done.wait()

    @workflow.defn
    async def holds() -> None:
        await asyncio.gather(*[hold() for _ in range(3)])

    async with connect(ledger.url, metrics=metrics) as client:
        async with ledger.worker(client, holds, hold, max_concurrent_activities=1, task_queue="q", verify=0.0):
            await client.pause("type", "elsewhere")
            handle = await client.start_workflow(holds, id="h", task_queue="q")
            await begun.wait()
            slots = {"worker_type": "ActivityWorker", "task_queue": "q"}
            await until(lambda: metrics.of("worker_task_slots_used", **slots) == 1)
            assert metrics.of("worker_task_slots_available", **slots) == 0
            waiting = {"task_queue": "q", "task_type": "Activity"}
            assert await metrics.off_the_loop("approximate_backlog_count", **waiting) >= 1
            await until(lambda: metrics.of("approximate_backlog_age_seconds", **waiting) > 0)
            assert metrics.of("worker_sessions", task_queue="q", state="live") == 1
            assert metrics.of("paused", kind="type") == 1
            assert metrics.of("ledger_up") == 1
            done.set()
            await handle.result()
            await until(lambda: metrics.of("worker_task_slots_used", **slots) == 0)


async def test_what_open_runs_are_at(ledger: Ledger) -> None:
    metrics = Scraped(ledger_every=timedelta(milliseconds=1))

    async def states() -> dict[str, float]:
        found = {"ready", "held", "waiting", "blocked"}
        return {each: count for each in found if (count := await metrics.off_the_loop("open_workflows", state=each))}

    async def are(**expected: float) -> bool:
        return await states() == expected

    async with connect(ledger.url, metrics=metrics) as client:
        handle = await client.start_workflow(Listens, 1, id="listens")
        await client.start_workflow(breaks, id="breaks")
        await until(lambda: are(ready=2))
        await until(lambda: metrics.of("approximate_backlog_age_seconds", task_type="Workflow") > 0)
        assert metrics.of("approximate_backlog_count", task_type="Workflow", task_queue="default") == 2
        async with ledger.worker(client, Listens, breaks):
            await until(lambda: are(held=1, blocked=1))
            assert metrics.of("open_workflows", state="blocked", workflow_type="breaks") == 1
            assert metrics.of("approximate_backlog_count", task_type="Workflow") == 0
        await until(lambda: are(waiting=1, blocked=1))
        async with ledger.worker(client, Listens):
            await handle.signal(Listens.hear, "one")
            await handle.result()
            await until(lambda: are(blocked=1))


# Scrapes --------------------------------------------------------------------------------------------------------------


async def test_a_scrape_while_the_ledger_is_away(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has what the worker knows, and says that the rest is not known; the worker goes on."""
    metrics = Scraped(ledger_every=timedelta(milliseconds=1))
    async with connect(ledger.url, metrics=metrics) as client:
        async with ledger.worker(client, completes, third_time):
            await until(lambda: _is(metrics, "ledger_up", 1))
            with monkeypatch.context() as away:

                async def refuse(*_: Any) -> Any:
                    raise StoreUnavailableError("the database is away")

                away.setattr(client.internals.store, "read_queues", refuse)
                await until(lambda: _is(metrics, "ledger_up", 0))
                assert await metrics.off_the_loop("worker_sessions") == 0
                assert await metrics.off_the_loop("worker_start_total") == 1
                assert await client.execute_workflow(completes, "o1", id="order-1") == "o1"
            await until(lambda: _is(metrics, "ledger_up", 1))
            assert await metrics.off_the_loop("worker_sessions", state="live") == 1


async def _is(metrics: Scraped, name: str, value: float) -> bool:
    return await metrics.off_the_loop(name) == value


async def test_a_scrape_does_not_wait_for_a_ledger_that_hangs(
    file_ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched, "WAIT_S", 0.02)
    metrics = Scraped(ledger_every=timedelta(milliseconds=1))
    asked = 0

    async def hang(*_: Any) -> Any:
        nonlocal asked
        asked += 1
        await asyncio.Event().wait()

    async with connect(file_ledger.url, metrics=metrics) as client:
        monkeypatch.setattr(client.internals.store, "read_queues", hang)
        for _ in range(3):
            assert await metrics.off_the_loop("ledger_up") == 0
        assert asked == 1, "a question that has no answer is not asked again"
    assert metrics.of("ledger_up") == 0
    assert not [name for name, *_ in metrics.samples() if name == "pledger_ledger_up"], "a connection that is closed"


async def test_the_ledger_is_not_looked_at_more_often_than_it_may_be(
    file_ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics, asked = Scraped(ledger_every=timedelta(hours=1)), 0
    async with connect(file_ledger.url, metrics=metrics) as client, connect(file_ledger.url, metrics=metrics):
        read = client.internals.store.read_queues

        async def counted(*given: Any) -> Any:
            nonlocal asked
            asked += 1
            return await read(*given)

        monkeypatch.setattr(client.internals.store, "read_queues", counted)
        await asyncio.gather(*[metrics.off_the_loop("ledger_up") for _ in range(5)])
        assert await metrics.off_the_loop("ledger_up", namespace="default") == 1, "one figure of one ledger"
    assert asked == 1


def test_of_many_queues_those_with_most_are_told() -> None:
    rows = [QueueRow(f"q{n:03}", n, None, 0, 0) for n in range(QUEUES_MAX + 50)]
    told = list(ledger_samples("default", Census(0, rows, [], {}, {})))
    queues = {labels[1] for _, labels, _ in told}
    assert len(queues) == QUEUES_MAX
    assert "q149" in queues
    assert "q000" not in queues


async def test_metrics_are_served(file_ledger: Ledger) -> None:
    metrics = Scraped()
    async with connect(file_ledger.url, metrics=metrics) as client:
        with metrics.serve(0) as port:
            await client.start_workflow("fulfil", id="order-1")
            url = f"http://127.0.0.1:{port}/metrics"
            page = await asyncio.to_thread(lambda: urllib.request.urlopen(url).read().decode())
            with pytest.raises(UsageError, match=f"cannot be served at 127.0.0.1:{port}"), metrics.serve(port):
                pass
    assert 'pledger_request_total{namespace="default",operation="StartWorkflow"} 1.0' in page
    assert 'pledger_ledger_up{namespace="default"} 1.0' in page


# Times ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_times_are_those_of_the_ledger(store: str, tmp_path: Path) -> None:
    """In virtual time they are exact: an hour asleep, two attempts with a minute between them, a message that waits."""
    metrics = Scraped()

    @activity.defn(retry_policy=RetryPolicy(initial_interval=timedelta(minutes=1), backoff_coefficient=1))
    async def work() -> None:
        await asyncio.sleep(2)
        if activity.info().attempt == 1:
            raise ConnectionError("not yet")

    @workflow.defn
    async def sleeps() -> None:
        await asyncio.sleep(3600)
        await work()

    setup = environment(workflows=[sleeps], activities=[work], metrics=metrics)
    if store == "sqlite":
        setup.new_ledger = lambda clock: InAFile(tmp_path / "ledger.db", clock)
    with setup as env:
        env.execute_workflow(sleeps, id="sleeps")
        of = metrics.of
        delay = of("activity_succeed_endtoend_latency_seconds_sum") - 4
        assert 0 < delay <= 60, "jitter draws from none of it to all"
        assert of("activity_execution_latency_seconds_sum") == pytest.approx(4)
        assert of("activity_execution_latency_seconds_count") == 2
        assert of("activity_schedule_to_start_latency_seconds_sum") == pytest.approx(0, abs=0.01)
        assert of("workflow_endtoend_latency_seconds_sum") == pytest.approx(3604 + delay, abs=0.01)
        assert of("workflow_task_schedule_to_start_latency_seconds_sum") == pytest.approx(0, abs=0.01)
        assert of("workflow_task_schedule_to_start_latency_seconds_count") == 3


async def test_how_long_a_run_has_waited_for_a_worker(file_ledger: Ledger) -> None:
    metrics = Scraped()
    async with connect(file_ledger.url, metrics=metrics) as client:
        handle = await client.start_workflow(rolls, 0, id="order-1")
        await asyncio.sleep(0.15)  # real time: the ledger's clock is the machine's
        async with file_ledger.worker(client, rolls):
            await handle.result()
    waited_s = metrics.of("workflow_task_schedule_to_start_latency_seconds_sum")
    assert 0.14 <= waited_s <= metrics.of("workflow_endtoend_latency_seconds_sum") + 0.1
    assert metrics.of("sticky_cache_miss_total") == 0, "there was nothing to replay"


# What is refused ------------------------------------------------------------------------------------------------------


def test_one_registry_has_one_of_them() -> None:
    registry = CollectorRegistry()
    Metrics(registry)
    with pytest.raises(UsageError, match="give the same one to each connect"):
        Metrics(registry)
    Metrics(registry, prefix="other_")


def test_how_often_is_more_than_never() -> None:
    with pytest.raises(InvalidPolicyError, match="ledger_every"):
        Scraped(ledger_every=timedelta(0))


async def test_what_is_no_metrics_is_told(file_ledger: Ledger) -> None:
    with pytest.raises(UsageError, match=r"must be a pledger\.metrics\.Metrics"):
        async with connect(file_ledger.url, metrics=CollectorRegistry()):  # type: ignore[arg-type]
            pass


def test_the_blocking_client_has_them_too(file_ledger: Ledger) -> None:
    metrics = Scraped()
    with SyncClient(file_ledger.url, metrics=metrics) as client:
        client.start_workflow("fulfil", id="order-1")
        assert metrics.of("request_total", operation="StartWorkflow") == 1
        assert metrics.of("ledger_up") == 1


# All of them ----------------------------------------------------------------------------------------------------------


async def test_every_metric_there_is_moves(file_ledger: Ledger) -> None:
    """None of the table is for show."""
    metrics = Scraped(ledger_every=timedelta(milliseconds=1))

    @workflow.defn
    async def many() -> None:
        for _ in range(8):
            await workflow.sleep(0.001)

    moved: set[str] = set()

    def look() -> set[str]:
        names = {name for name, _, value in metrics.samples() if value}
        moved.update(each.name for each in families.ALL if _is_in(each, names))
        return moved

    cancelled = asyncio.Event()

    @activity.defn
    async def until_cancelled() -> None:
        cancelled.set()
        await asyncio.sleep(3600)

    @workflow.defn
    async def gives_up() -> None:
        await until_cancelled()

    async with connect(file_ledger.url, metrics=metrics) as client:
        with worker_process(file_ledger, completes, third_time, metrics=metrics, task_queue="other") as dying:
            options = {"max_cached_runs": 1, "max_concurrent_activities": 1, "max_history_events": 40}
            async with file_ledger.worker(client, *ALL, many, gives_up, until_cancelled, **options):
                await client.pause("type", "elsewhere")
                await end_in_every_way(client)
                await client.execute_workflow(many, id="many")
                handle = await client.start_workflow(gives_up, id="gives-up")
                await cancelled.wait()
                waiting = await client.start_workflow(completes, "o1", id="second")
                await until(lambda: metrics.of("approximate_backlog_age_seconds") > 0)
                look()
                await handle.cancel()
                await waiting.result()
                listens = [await client.start_workflow(Listens, 1, id=f"listens-{n}") for n in range(2)]
                await until(lambda: "sticky_cache_total_forced_eviction" in look())
                for each in listens:
                    await client.handle(each.workflow_id).signal("unknown")
                    await each.signal(Listens.hear, "one")
                    await each.result()
                dying.freeze()
                # Till it is buried: one that wakes before that renews its lease, and has lost nothing.
                await until(lambda: metrics.of("ledger_up") and not metrics.of("worker_sessions", task_queue="other"))
                client.internals.store_told("reads", StoreUnavailableError("the database is away"))
                client.internals.store_told("reads", None)
                dying.thaw()
                await until(lambda: "worker_lease_lost" in look())
                look()
    assert {each.name for each in families.ALL} - moved == set()


def _is_in(family: families.Family, names: set[str]) -> bool:
    exposed = family.exposed("pledger_")
    return (f"{exposed}_count" if family.kind == "histogram" else exposed) in names
