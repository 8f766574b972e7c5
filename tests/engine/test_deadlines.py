"""Deadlines travel: an attempt knows until when it and its run have time, wherever it is made."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

import pytest

from pledger import RetryPolicy, Worker, activity, errors, workflow
from pledger.client import WorkflowHandle
from tests.engine.harness import Ledger, until

LIMIT = timedelta(minutes=1)
AT_ONCE = RetryPolicy(initial_interval=timedelta(milliseconds=1), maximum_attempts=2)


def seen() -> list[datetime | None]:
    """What the attempt knows; the first one fails, so that the second comes from a row."""
    info = activity.info()
    if info.attempt == 1:
        raise ConnectionError("once more")
    assert info.time_left is not None
    assert info.run_time_left is not None
    assert timedelta(0) < info.time_left <= info.run_time_left <= LIMIT
    return [info.deadline, info.run_deadline]


@activity.defn(retry_policy=AT_ONCE)
async def in_loop() -> list[datetime | None]:
    return seen()


@activity.defn(retry_policy=AT_ONCE)
def in_thread() -> list[datetime | None]:
    return seen()


@activity.defn(executor="process")
def in_process() -> list[datetime | None]:
    info = activity.info()
    assert info.run_time_left is not None
    assert timedelta(0) < info.run_time_left <= LIMIT
    return [info.deadline, info.run_deadline]


@activity.defn(start_to_close_timeout=timedelta(seconds=1))
async def short() -> list[datetime | None]:
    info = activity.info()
    return [info.deadline, info.run_deadline]


@workflow.defn
async def looks() -> list[list[datetime | None]]:
    elsewhere = await workflow.execute_activity(in_loop, task_queue="there")
    return [await in_loop(), await in_thread(), elsewhere, await in_process(), await short()]


async def test_an_attempt_knows_its_own_deadline_and_its_runs(ledger: Ledger) -> None:
    async with (
        ledger.connect() as client,
        ledger.worker(client, looks, in_loop, in_thread, in_process, short),
        Worker(client, activities=[in_loop], task_queue="there", lease=ledger.worker_lease),
    ):
        handle = await client.start_workflow(looks, id="w", execution_timeout=LIMIT)
        *whole, (own, _) = known = await handle.result()
        deadline_ms = (await handle.describe()).state.deadline_ms
    ends = {run for _, run in known}
    assert [round(each.timestamp() * 1000) for each in ends if each is not None] == [deadline_ms]
    # The default of ten minutes is cut to what the run has; a shorter one stays.
    assert {deadline for deadline, _ in whole} == ends
    assert own is not None
    assert all(each is not None and own < each for each in ends)


async def test_an_attempt_elsewhere_stops_with_its_run(ledger: Ledger) -> None:
    began, stopped = asyncio.Event(), asyncio.Event()

    @activity.defn
    async def work() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    @workflow.defn
    async def hands_over() -> None:
        await workflow.execute_activity(work, task_queue="there")

    async with (
        ledger.connect() as client,
        ledger.worker(client, hands_over, work),
        Worker(client, activities=[work], task_queue="there", lease=ledger.worker_lease),
    ):
        handle = await client.start_workflow(hands_over, id="w", execution_timeout=timedelta(seconds=2))
        with pytest.raises(errors.WorkflowFailedError, match="passed its deadline"):
            await handle.result()
        assert began.is_set()
        await until(stopped.is_set)


async def test_no_attempt_starts_when_its_run_has_no_time_left(ledger: Ledger) -> None:
    began: list[int] = []

    @activity.defn
    async def work() -> None:
        began.append(activity.info().attempt)

    @workflow.defn
    async def hands_over() -> None:
        await workflow.execute_activity(work, task_queue="there")

    async with ledger.connect() as client:
        handle = await client.start_workflow(hands_over, id="w", execution_timeout=timedelta(seconds=2))

        async def state_of_the_row() -> list[str]:
            return [each.state for each in (await handle.describe()).pending]

        async def is_queued() -> bool:
            return await state_of_the_row() == ["queued"]

        async def is_settled() -> bool:
            return await state_of_the_row() == ["done"]

        async def is_over() -> bool:
            told = await handle.describe()
            assert told.state.deadline_ms is not None
            return told.now.timestamp() * 1000 > told.state.deadline_ms

        async with ledger.worker(client, hands_over, work):
            await until(is_queued)
        await until(is_over)
        async with Worker(client, activities=[work], task_queue="there", lease=ledger.worker_lease):
            await until(is_settled)
        assert began == []
        async with ledger.worker(client, hands_over, work):
            with pytest.raises(errors.WorkflowFailedError, match="passed its deadline"):
                await handle.result()


@activity.defn(start_to_close_timeout=timedelta.max, retry_policy=RetryPolicy(maximum_interval=timedelta.max))
async def patient() -> datetime | None:
    info = activity.info()
    assert (info.deadline, info.time_left) == (info.run_deadline, info.run_time_left)
    return info.run_deadline


@workflow.defn
class Patient:
    def __init__(self) -> None:
        self.until: datetime | None = None

    @workflow.run
    async def run(self) -> None:
        waits = asyncio.create_task(asyncio.sleep(10**17))
        self.until = await patient()
        await waits

    @workflow.query
    def deadline(self) -> datetime | None:
        return self.until


async def test_what_has_no_end_is_told_as_years_ahead(ledger: Ledger) -> None:
    """There is no datetime after the year 9999: whoever looks at such a run must not be stopped by it."""
    async with ledger.connect() as client, Worker(client, workflows=[Patient], activities=[patient]):
        handle = await client.start_workflow(Patient, id="patient", execution_timeout=timedelta.max)
        await until(lambda: _deadline_of(handle))
        told = await handle.describe()
        assert told.due is not None
        assert told.due.year > 8_800
        assert all(each.time.year < 3_000 for each in told.history.events)
        with pytest.raises(errors.InvalidPolicyError, match=r"execution_timeout of workflow .* 3,000,000 days"):
            await client.start_workflow(Patient, id="other", execution_timeout=timedelta(days=3_000_000))
        await handle.terminate()


async def _deadline_of(handle: WorkflowHandle[None]) -> bool:
    found = await handle.query(Patient.deadline)
    return found is not None and found.year > 8_800
