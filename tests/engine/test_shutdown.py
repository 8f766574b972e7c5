"""Graceful shutdown: what is finished is kept, what is not goes on elsewhere, and the lease is given up."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from datetime import timedelta
from typing import Any

import pytest

from pledger import RetryPolicy, activity, errors, workflow
from tests.engine.harness import Ledger, until

NONE = timedelta(0)
#: Longer than any test: an attempt that is given this ends by itself.
AMPLE = timedelta(seconds=60)


async def test_a_lease_that_cannot_be_given_up_is_no_error_of_the_program(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    @workflow.defn
    async def done() -> str:
        return "done"

    async def full(session_key: int) -> None:
        raise errors.StoreUnavailableError("the disk is full")

    async def program() -> None:
        async with ledger.connect() as client, ledger.worker(client, done):
            monkeypatch.setattr(client.internals.store, "close_session", full)
            raise LookupError("the program's own")

    with pytest.raises(LookupError, match="the program's own"):
        await program()
    assert "the lease could not be given up; others take over once it is over: the disk is full" in caplog.text


async def test_an_attempt_at_work_is_let_finish_and_its_result_is_kept(ledger: Ledger) -> None:
    began, released = asyncio.Event(), asyncio.Event()
    made: list[int] = []

    @activity.defn
    async def works() -> str:
        made.append(activity.info().attempt)
        began.set()
        await released.wait()
        return "finished"

    @workflow.defn
    async def fulfil() -> str:
        return await works()

    async with ledger.connect() as client:
        worker = ledger.worker(client, fulfil, works, grace=AMPLE)
        await worker.__aenter__()
        handle = await client.start_workflow(fulfil, id="order-1")
        await began.wait()
        stopping = asyncio.create_task(worker.__aexit__(None, None, None))
        await asyncio.sleep(0)
        released.set()
        await stopping
        state = (await handle.describe()).state
        assert (state.activities_done, state.status) == (1, "completed")
    assert made == [1]


async def test_a_sequence_of_steps_is_not_cut_short_by_the_pause_between_two(ledger: Ledger) -> None:
    """Between two steps of a run nothing runs for a moment; that is no end of the grace period."""
    made: list[int] = []
    began = asyncio.Event()

    @activity.defn(retry_policy=RetryPolicy(maximum_attempts=1))
    async def step(number: int) -> int:
        made.append(number)
        began.set()
        await asyncio.sleep(0.002)
        return number

    @workflow.defn
    async def fulfil() -> list[int]:
        return [await step(number) for number in range(50)]

    async with ledger.connect() as client:
        async with ledger.worker(client, fulfil, step, grace=AMPLE):
            handle = await client.start_workflow(fulfil, id="order-1")
            await began.wait()
        # The worker has gone at once rather than doing all that was still to come; the rest is done by the next one.
        # No attempt was lost: with one attempt at most, the run would have failed by it.
        assert (await handle.describe()).attempts == []
        async with ledger.worker(client, fulfil, step, grace=AMPLE):
            assert await handle.result() == list(range(50))
    assert made == list(range(50))


async def test_an_attempt_that_outlasts_the_grace_is_tried_again_elsewhere(ledger: Ledger) -> None:
    began = asyncio.Event()
    seen: list[str] = []

    @activity.defn
    async def works() -> str:
        attempt = activity.info().attempt
        seen.append(f"attempt {attempt}")
        if attempt > 1:
            return "finished"
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            seen.append("cleaned up")
        return "never"

    @workflow.defn
    async def fulfil() -> str:
        return await works()

    async with ledger.connect() as client:
        async with ledger.worker(client, fulfil, works, grace=NONE):
            handle = await client.start_workflow(fulfil, id="order-1")
            await began.wait()
        (pending,) = (await handle.describe()).pending
        assert (pending.state, pending.attempt) == ("queued", 2)
        async with ledger.worker(client, fulfil, works):
            assert await handle.result() == "finished"
        attempts = (await handle.describe()).attempts
    assert seen == ["attempt 1", "cleaned up", "attempt 2"]
    assert [(each.attempt, each.outcome) for each in attempts] == [(1, "lost")]


async def test_a_thread_that_outlasts_the_grace_does_not_hold_the_worker(ledger: Ledger) -> None:
    began, released = threading.Event(), threading.Event()

    @activity.defn
    def works() -> str:
        if activity.info().attempt > 1:
            return "finished"
        began.set()
        released.wait()
        return "too late"

    @workflow.defn
    async def fulfil() -> str:
        return await works()

    async with ledger.connect() as client:
        async with ledger.worker(client, fulfil, works, grace=NONE):
            handle = await client.start_workflow(fulfil, id="order-1")
            await until(began.is_set)
        async with ledger.worker(client, fulfil, works):
            assert await handle.result() == "finished"
            released.set()


async def test_runs_are_handed_back_and_go_on_with_the_next_worker(ledger: Ledger) -> None:
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

    async with ledger.connect() as client:
        async with ledger.worker(client, Waits):
            handles = [await client.start_workflow(Waits, id=f"order-{n}") for n in range(10)]
        for handle in handles:
            described = await handle.describe()
            assert (described.owner, described.state.status) == (None, "running")
        assert await client.internals.store.read_sessions("default") == []
        async with ledger.worker(client, Waits):
            for handle in handles:
                await handle.signal(Waits.say, "hello")
            assert [await handle.result() for handle in handles] == ["hello"] * 10


async def test_a_start_while_the_worker_stops_waits_for_the_next_one(ledger: Ledger) -> None:
    began, released = asyncio.Event(), asyncio.Event()

    @activity.defn
    async def works() -> None:
        began.set()
        await released.wait()

    @workflow.defn
    async def fulfil() -> str:
        await works()
        return "done"

    async with ledger.connect() as client:
        worker = ledger.worker(client, fulfil, works, grace=AMPLE)
        await worker.__aenter__()
        first = await client.start_workflow(fulfil, id="order-1")
        await began.wait()
        stopping = asyncio.create_task(worker.__aexit__(None, None, None))
        await asyncio.sleep(0)
        second = await client.start_workflow(fulfil, id="order-2")
        released.set()
        await stopping
        assert (await second.describe()).state.status == "running"
        async with ledger.worker(client, fulfil, works):
            assert [await first.result(), await second.result()] == ["done", "done"]


async def test_a_worker_stops_on_a_signal_of_the_system(file_ledger: Ledger) -> None:
    @workflow.defn
    async def fulfil() -> str:
        return "done"

    async with file_ledger.connect() as client:
        worker = file_ledger.worker(client, fulfil)
        running = asyncio.create_task(worker.run())
        await until(lambda: bool(client.internals.engines))
        assert await client.execute_workflow(fulfil, id="order-1") == "done"
        os.kill(os.getpid(), signal.SIGTERM)
        await running
        assert client.internals.engines == []


async def test_a_worker_stops_when_it_is_told_to(file_ledger: Ledger) -> None:
    @workflow.defn
    async def fulfil() -> str:
        return "done"

    async with file_ledger.connect() as client:
        worker = file_ledger.worker(client, fulfil)
        running = asyncio.create_task(worker.run())
        await until(lambda: bool(client.internals.engines))
        worker.shutdown()
        await running


async def test_an_error_in_the_block_of_a_worker_stops_it_all_the_same(file_ledger: Ledger) -> None:
    @workflow.defn
    async def fulfil() -> str:
        return "done"

    async def breaks() -> Any:
        async with file_ledger.connect() as client, file_ledger.worker(client, fulfil):
            raise KeyError("the caller's own")

    with pytest.raises(KeyError, match="the caller's own"):
        await breaks()
    async with file_ledger.connect() as client:
        assert await client.internals.store.read_sessions("default") == []
