"""Runs, types, queues and namespaces that are paused, and how they go on."""

from __future__ import annotations

import asyncio
import functools
from datetime import timedelta
from typing import Any

import pytest

from pledger import Client, RetryPolicy, SyncClient, Worker, activity, errors, workflow
from tests.engine.harness import Ledger, until, worker_process

#: Longer than two looks of a worker on any store: for what must not happen.
A_WHILE_S = 0.3


class Steps:
    """What activities have done, and a gate that they wait at."""

    def __init__(self) -> None:
        self.began: list[str] = []
        self.gate = asyncio.Event()
        self.failures_left = 0


STEPS = Steps()


@pytest.fixture(autouse=True)
def steps() -> Steps:
    STEPS.__init__()  # type: ignore[misc] # anew for each test
    return STEPS


@activity.defn(retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=1)))
async def step(name: str) -> str:
    STEPS.began.append(name)
    if STEPS.failures_left:
        STEPS.failures_left -= 1
        raise ConnectionError("refused")
    return name


@activity.defn
async def gated(name: str) -> str:
    STEPS.began.append(name)
    await STEPS.gate.wait()
    return name


@workflow.defn
class Stepping:
    """Waits for a message, then takes a step, for each of `rounds`."""

    def __init__(self) -> None:
        self.told = 0

    @workflow.run
    async def run(self, rounds: int) -> list[str]:
        done = []
        for number in range(1, rounds + 1):
            await workflow.wait_condition(lambda number=number: self.told >= number)  # type: ignore[misc]
            done.append(await step(f"{workflow.info().workflow_id} {number}"))
        return done

    @workflow.signal
    def go_on(self) -> None:
        self.told += 1

    @workflow.query
    def so_far(self) -> int:
        return self.told


@workflow.defn
async def two_steps() -> list[str]:
    return [await gated("first"), await step("second")]


@workflow.defn
async def elsewhere() -> str:
    return await workflow.execute_activity(step, "there", task_queue="there")


@workflow.defn
async def sleeper(seconds: float = 0.02) -> str:
    await asyncio.sleep(seconds)
    return "awake"


async def left(client: Client, workflow_id: str) -> bool:
    """Whether its owner has let go of the run."""
    return (await client.handle(workflow_id).describe()).owner is None


# One run --------------------------------------------------------------------------------------------------------------


async def test_a_paused_run_stands_still_keeps_its_messages_and_goes_on(ledger: Ledger, steps: Steps) -> None:
    async with ledger.connect() as client, ledger.worker(client, Stepping, step):
        one = await client.start_workflow(Stepping, 2, id="one")
        other = await client.start_workflow(Stepping, 1, id="other")
        pause = await one.pause("the stock is counted", by="ada@ops")
        assert (pause.kind, pause.name, pause.run_id) == ("run", "one", one.run_id)
        assert (pause.reason, pause.paused_by) == ("the stock is counted", "ada@ops")
        await until(lambda: left(client, "one"))
        await one.signal(Stepping.go_on)
        await other.signal(Stepping.go_on)
        assert await other.result() == ["other 1"]
        await asyncio.sleep(A_WHILE_S)
        assert steps.began == ["other 1"]
        told = await one.describe()
        assert told.pauses == (pause,) == await client.pauses()
        assert told.summary.paused == "by ada@ops: the stock is counted"
        assert [each.name for each in told.inbox] == ["go_on"]
        await one.signal(Stepping.go_on)
        assert await one.resume() == pause
        assert await one.result() == ["one 1", "one 2"]
        assert await client.pauses() == ()
        assert await one.resume() is None


async def test_attempts_in_flight_end_and_what_they_bring_is_kept(ledger: Ledger, steps: Steps) -> None:
    async with ledger.connect() as client, ledger.worker(client, two_steps, gated, step):
        handle = await client.start_workflow(two_steps, id="w")
        await until(lambda: steps.began == ["first"])
        await handle.pause()
        await until(lambda: left(client, "w"))
        steps.gate.set()

        async def is_kept() -> bool:
            return [each.state for each in (await handle.describe()).pending] == ["done"]

        await until(is_kept)
        await asyncio.sleep(A_WHILE_S)
        assert steps.began == ["first"]
        await handle.resume()
        assert await handle.result() == ["first", "second"]
        assert steps.began == ["first", "second"]
        assert (await handle.describe()).attempts == []


async def test_what_another_process_owns_is_paused_too(ledger: Ledger, steps: Steps) -> None:
    with worker_process(ledger, Stepping, step):
        async with ledger.connect() as client:
            handle = await client.start_workflow(Stepping, 1, id="w")
            await until(lambda: left_to_a_worker(client, "w"))
            await handle.pause()
            await until(lambda: left(client, "w"))
            await handle.signal(Stepping.go_on)
            await asyncio.sleep(A_WHILE_S)
            assert steps.began == []
            await handle.resume()
            assert await handle.result() == ["w 1"]


async def left_to_a_worker(client: Client, workflow_id: str) -> bool:
    return (await client.handle(workflow_id).describe()).owner is not None


async def test_a_take_over_forgets_no_pause(ledger: Ledger, steps: Steps) -> None:
    with worker_process(ledger, Stepping, step) as dead:
        async with ledger.connect() as client:
            handle = await client.start_workflow(Stepping, 1, id="w")
            await until(lambda: left_to_a_worker(client, "w"))
            dead.freeze()
            await handle.pause("its worker hangs")
            await handle.signal(Stepping.go_on)
            async with ledger.worker(client, Stepping, step):
                await until(lambda: left(client, "w"))
                await asyncio.sleep(A_WHILE_S)
                assert steps.began == []
                await handle.resume()
                assert await handle.result() == ["w 1"]


async def test_a_retry_waits_while_its_run_is_paused(ledger: Ledger, steps: Steps) -> None:
    steps.failures_left = 1_000_000
    async with ledger.connect() as client, ledger.worker(client, Stepping, step):
        handle = await client.start_workflow(Stepping, 1, id="w")
        await handle.signal(Stepping.go_on)
        await until(lambda: len(steps.began) > 1)
        await handle.pause()
        await until(lambda: left(client, "w"))
        await asyncio.sleep(A_WHILE_S)
        tried = len(steps.began)
        await asyncio.sleep(A_WHILE_S)
        assert len(steps.began) == tried
        steps.failures_left = 0
        await handle.resume()
        assert await handle.result() == ["w 1"]


async def test_a_timer_that_fell_due_meanwhile_fires_afterwards(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, sleeper):
        handle = await client.start_workflow(sleeper, 1.0, id="w")
        await handle.pause()
        await until(lambda: left(client, "w"))

        async def is_overdue() -> bool:
            told = await handle.describe()
            return told.due is not None and told.due < told.now

        await until(is_overdue)
        await asyncio.sleep(A_WHILE_S)
        assert (await handle.describe()).summary.status == "running"
        await handle.resume()
        assert await handle.result() == "awake"


async def test_a_paused_run_can_be_terminated_and_a_cancel_waits(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, Stepping, step):
        one, two = [await client.start_workflow(Stepping, 1, id=name) for name in ("one", "two")]
        await one.pause()
        await two.pause()
        await one.terminate("no more")
        with pytest.raises(errors.WorkflowFailedError):
            await one.result()
        assert [each.name for each in await client.pauses()] == ["two"]
        with pytest.raises(errors.RunClosedError, match="there is nothing left to pause"):
            await one.pause()
        verdict = await two.cancel()
        await asyncio.sleep(A_WHILE_S)
        assert (await two.describe()).summary.status == "running"
        await two.resume()
        with pytest.raises(errors.WorkflowFailedError):
            await two.result()
        assert (await two.cancel_verdict(verdict.request_id)).verdict == "cancelled"


async def test_a_paused_run_answers_no_query_and_says_why(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, Stepping, step):
        handle = await client.start_workflow(Stepping, 1, id="w")
        assert await handle.query(Stepping.so_far) == 0
        await handle.pause("the stock is counted", by="ada@ops")
        await until(lambda: left(client, "w"))
        with pytest.raises(errors.NoWorkerError, match=r"it is paused by ada@ops since .* \(the stock is counted\)"):
            await handle.query(Stepping.so_far)
        await handle.resume()
        assert await handle.query(Stepping.so_far) == 0
        await handle.terminate()


# More than one --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "name"), [("type", "Stepping"), ("queue", "default"), ("namespace", "")])
async def test_what_is_started_meanwhile_is_accepted_and_waits(
    ledger: Ledger, steps: Steps, kind: str, name: str
) -> None:
    async with ledger.connect() as client, ledger.worker(client, Stepping, step):
        before = await client.start_workflow(Stepping, 1, id="before")
        pause = await client.pause(kind, name, reason="an incident")  # type: ignore[arg-type] # parametrized
        assert await client.pauses() == (pause,)
        await until(lambda: left(client, "before"))
        after = await client.start_workflow(Stepping, 1, id="after")
        for handle in (before, after):
            await handle.signal(Stepping.go_on)
            assert (await handle.describe()).pauses == (pause,)
        await asyncio.sleep(A_WHILE_S)
        assert steps.began == []
        assert [each.paused is not None async for each in client.list()] == [True, True]
        assert await client.resume(kind, name) == pause  # type: ignore[arg-type] # parametrized
        assert (await before.result(), await after.result()) == (["before 1"], ["after 1"])


async def test_another_type_goes_on_beside_a_paused_one(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, Stepping, sleeper, step):
        await client.pause("type", "Stepping")
        assert await client.execute_workflow(sleeper, id="s") == "awake"
        await client.resume("type", "Stepping")


async def test_attempts_of_a_paused_queue_wait_and_the_runs_of_others_go_on(ledger: Ledger, steps: Steps) -> None:
    async with (
        ledger.connect() as client,
        ledger.worker(client, elsewhere, sleeper),
        Worker(client, activities=[step], task_queue="there", lease=ledger.worker_lease),
    ):
        await client.pause("queue", "there", reason="a new model is loaded")
        handle = await client.start_workflow(elsewhere, id="w")
        assert await client.execute_workflow(sleeper, id="s") == "awake"
        await asyncio.sleep(A_WHILE_S)
        assert steps.began == []
        await client.resume("queue", "there")
        assert await handle.result() == "there"


async def test_a_pause_that_is_there_keeps_its_first_reason(ledger: Ledger) -> None:
    async with ledger.connect() as client:
        first = await client.pause("namespace", reason="an incident", by="ada@ops")
        assert await client.pause("namespace", reason="again", by="bob@ops") == first
        assert await client.resume("namespace") == first
        assert await client.resume("namespace") is None


async def test_namespaces_are_paused_apart(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.connect("other") as other, ledger.worker(client, sleeper):
        await other.pause("namespace")
        assert await client.execute_workflow(sleeper, id="s") == "awake"
        assert await client.pauses() == ()
        with pytest.raises(errors.UsageError, match="this client is of namespace 'other' and cannot pause 'default'"):
            await other.pause("namespace", "default")


async def test_what_cannot_be_paused(ledger: Ledger) -> None:
    async with ledger.connect() as client:
        with pytest.raises(errors.UsageError, match="kind='worker' cannot be paused by name"):
            await client.pause("worker", "w")
        with pytest.raises(errors.UsageError, match="a queue to be paused has a name"):
            await client.pause("queue")
        with pytest.raises(errors.InvalidPolicyError, match="rate=0 must be at least"):
            await client.resume("namespace", rate=0)


# Going on little by little --------------------------------------------------------------------------------------------


async def test_a_namespace_goes_on_little_by_little(ledger: Ledger, steps: Steps) -> None:
    async with ledger.connect() as client, Worker(client, **ledger.options(Stepping, step), paused=True):
        [pause] = await client.pauses()
        assert pause.kind == "namespace"
        assert "was started paused" in pause.reason
        handles = [await client.start_workflow(Stepping, 1, id=f"w{n}") for n in range(6)]
        for handle in handles:
            await handle.signal(Stepping.go_on)
        await asyncio.sleep(A_WHILE_S)
        assert steps.began == []
        await client.resume("namespace", rate=20)
        [lifted] = await client.pauses()
        assert (lifted.rate, lifted.backlog) == (20, 6)
        for handle in handles:
            await handle.result()
        await until(lambda: is_over(client))


async def test_what_is_let_go_on_starts_though_others_never_leave_a_slot(ledger: Ledger, steps: Steps) -> None:
    """It takes no more than its rate: that comes first, or a backlog of others would hold it up until it is done."""

    @workflow.defn
    async def other(name: str) -> None:
        await gated(name)

    @workflow.defn
    async def lifted() -> None:
        await gated("lifted")

    async with ledger.connect() as client, ledger.worker(client, other, lifted, gated, max_concurrent_activities=1):
        [engine] = client.internals.engines
        handles = [await client.start_workflow(other, "first", id="first")]
        await until(lambda: steps.began)
        handles.append(await client.start_workflow(lifted, id="lifted"))
        handles += [await client.start_workflow(other, f"{n}", id=f"other-{n}") for n in range(9)]
        for handle in handles[1:]:
            await until(functools.partial(waits_in_queue, handle))
        await client.pause("type", "lifted")
        await client.resume("type", "lifted", rate=1_000)
        assert [each.backlog for each in await client.pauses()] == [1]
        await until(lambda: engine.runs.pauses.lift_look_ms() is not None)
        steps.gate.set()
        await asyncio.gather(*(handle.result() for handle in handles))
    assert steps.began[:2] == ["first", "lifted"]


async def waits_in_queue(handle: Any) -> bool:
    return len((await handle.describe()).pending) == 1


async def is_over(client: Client) -> bool:
    return await client.pauses() == ()


async def test_a_worker_that_is_started_paused_lets_a_pause_alone_that_is_being_lifted(ledger: Ledger) -> None:
    async with ledger.connect() as client:
        await client.start_workflow("sleeper", id="s1")
        await client.start_workflow("sleeper", id="s2")
        await client.pause("namespace", reason="an incident", by="ada@ops")
        await client.resume("namespace", rate=0.001)
        async with Worker(client, **ledger.options(sleeper), paused=True):
            [pause] = await client.pauses()
            assert (pause.reason, pause.rate) == ("an incident", 0.001)
            await until(lambda: has_released_one(client))
            await client.resume("namespace")
            assert [await client.handle(name).result() for name in ("s1", "s2")] == ["awake", "awake"]


async def has_released_one(client: Client) -> bool:
    return [each.released for each in await client.pauses()] == [1]


def test_the_blocking_client_pauses_too(file_ledger: Ledger) -> None:
    with SyncClient(file_ledger.url) as client:
        handle = client.start_workflow("sleeper", id="s")
        assert handle.pause("wait").reason == "wait"
        assert client.pause("queue", "default").name == "default"
        assert [each.kind for each in client.pauses()] == ["run", "queue"]
        assert client.resume("queue", "default") is not None
        assert handle.resume() is not None
