"""Bounded by default: payloads of every kind, and what is left in memory of runs that are over."""

from __future__ import annotations

import asyncio
import gc
from datetime import timedelta
from typing import Any

import pytest

from pledger import RetryPolicy, activity, connect, workflow
from pledger.errors import (
    ActivityError,
    ApplicationError,
    InvalidPolicyError,
    PayloadTooLargeError,
    RunBlockedError,
    WorkflowFailedError,
)
from pledger.history import payloads
from pledger.machine.machine import Machine
from tests.engine.harness import Ledger, until

ONCE = RetryPolicy(maximum_attempts=1)


@activity.defn(retry_policy=ONCE)
async def step(name: str) -> str:
    return name


async def test_a_heartbeat_over_the_limit_is_refused_at_its_line(ledger: Ledger) -> None:
    @activity.defn(retry_policy=ONCE)
    async def reports() -> str:
        try:
            activity.heartbeat("x" * payloads.PAYLOAD_BYTES_MAX)
        except PayloadTooLargeError as error:
            return str(error)
        return "accepted"

    @workflow.defn
    async def fulfil() -> str:
        return await reports()

    async with ledger.connect() as client, ledger.worker(client, fulfil, reports):
        told = await client.execute_workflow(fulfil, id="order-1")
    assert told.startswith("the heartbeat of activity 'reports' in workflow 'order-1'")


async def test_details_over_the_limit_do_not_keep_the_failure_from_the_ledger(ledger: Ledger) -> None:
    @activity.defn(retry_policy=ONCE)
    async def fails() -> None:
        raise ApplicationError("too much to say", "x" * payloads.PAYLOAD_BYTES_MAX, type="Verbose")

    @workflow.defn
    async def fulfil() -> None:
        await fails()

    async with ledger.connect() as client, ledger.worker(client, fulfil, fails):
        handle = await client.start_workflow(fulfil, id="order-1")
        with pytest.raises(WorkflowFailedError) as caught:
            await handle.result()
        error = caught.value.__cause__
        assert isinstance(error, ActivityError)
        assert isinstance(error.__cause__, ApplicationError)
        assert error.__cause__.type == "Verbose"
        assert "characters left out" in error.__cause__.details[0]
        assert sum(len(each.failure or b"") for each in (await handle.describe()).attempts) < 100_000


async def test_a_step_over_the_limit_blocks_with_its_line_and_goes_on_once_it_is_mended(ledger: Ledger) -> None:
    size = {"is": 5_000}

    @workflow.defn
    async def fulfil() -> int:
        return len(await step("x" * size["is"]))

    async with ledger.connect() as client:
        async with ledger.worker(client, fulfil, step, payload_bytes_max=4_000, build_id="v1"):
            handle = await client.start_workflow(fulfil, id="order-1")
            with pytest.raises(RunBlockedError) as caught:
                await handle.result()
            assert caught.value.failure_type == "PayloadTooLargeError"
            assert "the input of activity 'step' in workflow 'order-1'" in str(caught.value)
            assert "in fulfil" in caught.value.traceback
        size["is"] = 1_000
        async with ledger.worker(client, fulfil, step, payload_bytes_max=4_000, build_id="v2"):
            assert await handle.result(wait_while_blocked=True) == 1_000


async def test_the_bound_of_the_client_is_that_of_its_workers_and_their_verification(ledger: Ledger) -> None:
    ledger.replay_at_end = False  # which knows nothing of a raised bound
    large = "x" * (payloads.PAYLOAD_BYTES_MAX + 1)

    @workflow.defn
    async def fulfil(text: str) -> str:
        return await step(text)

    async with connect(ledger.url, payload_bytes_max=400_000) as client:
        async with ledger.worker(client, fulfil, step):
            handle = await client.start_workflow(fulfil, large, id="order-1")
            assert await handle.result() == large
            (engine,) = client.internals.engines
            await until(lambda: engine._verification.verified)
            assert engine._verification.failures == []
        history = await handle.history()
        assert await history.replay(fulfil, payload_bytes_max=400_000) == len(history.events)
        with pytest.raises(PayloadTooLargeError):
            await client.start_workflow(fulfil, large * 2, id="order-2")


@pytest.mark.parametrize("bytes_max", [0, -1])
async def test_a_bound_that_lets_nothing_through_is_refused(ledger: Ledger, bytes_max: int) -> None:
    with pytest.raises(InvalidPolicyError, match="must be at least 1"):
        async with connect(ledger.url, payload_bytes_max=bytes_max):
            pass
    async with ledger.connect() as client:
        with pytest.raises(InvalidPolicyError, match="must be at least 1"):
            ledger.worker(client, step, payload_bytes_max=bytes_max)


async def test_a_deadline_holds_for_a_run_that_left_memory(ledger: Ledger) -> None:
    @workflow.defn(deadline=timedelta(milliseconds=100))
    async def waits() -> None:
        await asyncio.Event().wait()

    @workflow.defn
    async def sleeps() -> None:
        await asyncio.sleep(0.001)

    async with ledger.connect() as client, ledger.worker(client, waits, sleeps, max_cached_runs=1):
        handles = [await client.start_workflow(waits, id=f"order-{n}") for n in range(3)]
        await client.execute_workflow(sleeps, id="order-9")
        for handle in handles:
            with pytest.raises(WorkflowFailedError) as caught:
                await handle.result()
            assert caught.value.status == "timed_out"


async def test_nothing_of_a_finished_run_stays_with_its_worker(ledger: Ledger) -> None:
    @workflow.defn
    class Order:
        done = False

        @workflow.run
        async def run(self) -> list[str]:
            await workflow.wait_condition(lambda: self.done, timeout=60)
            return list(await asyncio.gather(step("a"), step("b")))

        @workflow.signal
        def finish(self) -> None:
            self.done = True

    async with ledger.connect() as client, ledger.worker(client, Order, step, verify=0.0):
        for n in range(50):
            handle = await client.start_workflow(Order, id=f"order-{n}")
            await handle.signal(Order.finish)
            await handle.result()
        (engine,) = client.internals.engines
        await until(lambda: not engine.runs.active)
        assert engine.activities.under_way.running == 0
        assert client.internals._watchers == {}
        del handle
        gc.collect()
        machines: list[Any] = [
            each for each in gc.get_objects() if isinstance(each, Machine) and each.definition.target is Order
        ]
        assert machines == []
