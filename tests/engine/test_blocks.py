"""Blocks that end as a whole, and what a run says of them, through workers and every store."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from pledger import Worker, activity, workflow
from pledger.client import WorkflowHandle
from pledger.errors import TimeoutError as TimedOutError
from tests.engine.harness import Ledger, until

LIMIT = timedelta(seconds=30)


@activity.defn
async def time_left(start: str) -> bool:
    """Whether it knows that the block that it is in has half a minute."""
    info = activity.info()
    assert info.time_left is not None
    assert info.deadline == info.schedule_to_close_deadline
    return info.time_left <= LIMIT and info.deadline.isoformat() <= start


@activity.defn(task_queue="nobody-serves-it")
async def unattended() -> None: ...


@workflow.defn(owner="sales", deadline=timedelta(days=30))
class Order:
    def __init__(self) -> None:
        self.answer = ""

    @workflow.run
    async def run(self) -> list[Any]:
        async with workflow.deadline(LIMIT) as block:
            assert block.when is not None
            knows = await time_left(block.when.isoformat())
        try:
            async with workflow.deadline(timedelta(milliseconds=50)):
                await unattended()
        except TimedOutError as error:
            kind = error.kind
        async with workflow.phase("asking", owner="support", deadline=timedelta(milliseconds=1)):
            await workflow.wait_condition(
                lambda: bool(self.answer), name="the answer", owner="ada", deadline=timedelta(milliseconds=1)
            )
        return [knows, kind, self.answer]

    @workflow.signal
    def say(self, answer: str) -> None:
        self.answer = answer


async def test_a_deadline_travels_and_a_run_says_what_it_waits_for(ledger: Ledger) -> None:
    async with ledger.connect() as client:
        async with Worker(client, workflows=[Order], activities=[time_left, unattended]):
            handle: WorkflowHandle[list[Any]] = await client.start_workflow(Order, id="order")

            async def asks() -> bool:
                return len((await handle.describe()).overdue) == 2

            await until(asks)
            run = await handle.describe()
            waiting = run.waiting_for
            assert waiting is not None
            assert (waiting.what, waiting.owner, waiting.phase, waiting.waker) == (
                "'the answer'",
                "ada",
                "asking",
                "message",
            )
            assert waiting.overdue
            assert waiting.problem is None
            assert waiting.since <= run.now
            assert [each.begun.name for each in run.overdue] == ["asking", "the answer"]
            assert str(waiting).startswith("waits for 'the answer' since ")
            assert "in phase 'asking'; ada must act; a message wakes it; overdue since " in str(waiting)
        run = await handle.describe()
        assert run.waiting_for is not None
        assert run.waiting_for.problem == "no live worker serves task queue 'default'"
        async with Worker(client, workflows=[Order], activities=[time_left, unattended]):
            await handle.signal(Order.say, "yes")
            assert await handle.result() == [True, "deadline", "yes"]
            assert (await handle.describe()).waiting_for is None


async def test_a_deadline_passes_while_nobody_works(ledger: Ledger) -> None:
    @workflow.defn
    async def alone() -> str:
        try:
            async with workflow.deadline(timedelta(milliseconds=200)):
                await asyncio.Event().wait()
        except TimedOutError:
            return "late"
        return "in time"

    async with ledger.connect() as client:
        handle = await client.start_workflow(alone, id="alone")
        async with Worker(client, workflows=[alone], activities=[]):

            async def begun() -> bool:
                return bool((await handle.describe()).last_event)

            await until(begun)
        await asyncio.sleep(0.25)  # the deadline passes; nobody is there to see it
        async with Worker(client, workflows=[alone], activities=[]):
            assert await handle.result() == "late"
