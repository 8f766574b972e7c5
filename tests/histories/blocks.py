"""The workflows of golden histories on blocks that end as a whole. As in `workflows.py`: they may not change."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from pledger import activity, workflow
from pledger.errors import TimeoutError as TimedOutError
from tests.histories.workflows import step, take_s


@activity.defn(cancellation_type="wait")
async def patient(name: str, seconds: float) -> str:
    """Its outcome is waited for, also where it is cancelled."""
    await asyncio.sleep(seconds)
    return f"did {name}"


@workflow.defn
async def deadlines() -> list[str]:
    """One that passes, one that does not, and one inside of another that comes first."""
    told = []
    try:
        async with workflow.deadline(timedelta(seconds=20)):
            await step("first")
            await take_s("too long", 60.0)
    except TimedOutError as error:
        told.append(error.kind)
    until = workflow.now() + timedelta(seconds=30)
    async with workflow.deadline(until) as outer, workflow.deadline(timedelta(minutes=5)) as inner:
        await step("in time")
    told.append(f"{outer.expired} {inner.expired}")
    return told


@workflow.defn
class Stoppable:
    """A scope that a signal cancels, with the task and the activities that were begun in it."""

    def __init__(self) -> None:
        self.block: workflow.Scope | None = None

    @workflow.run
    async def run(self) -> str:
        async with workflow.scope() as self.block:
            asyncio.create_task(take_s("in a task", 300.0))  # noqa: RUF006 - the scope knows it
            workflow.start_activity(take_s, "not awaited", 300.0)
            await take_s("awaited", 300.0)
        return await step(f"stopped: {self.block.cancelled}")

    @workflow.signal
    def stop(self) -> None:
        assert self.block is not None
        self.block.cancel()


@workflow.defn
async def shielded() -> str:
    """Cancelled while it cleans up."""
    try:
        await workflow.sleep(600)
    finally:
        await workflow.shield(clean_up())
    return "never"


async def clean_up() -> None:
    await take_s("clean up", 20.0)
    await step("tell somebody")


@workflow.defn
async def race() -> list[str]:
    found: workflow.Race[Any] = await workflow.first_of(
        workflow.sleep(10), careless=take_s("given up", 60.0), patient=patient("in the end", 60.0), unneeded=never()
    )
    return [f"{each.name} {each.outcome}" for each in found]


async def never() -> None:
    await asyncio.Event().wait()


@workflow.defn
class Phases:
    def __init__(self) -> None:
        self.answer = ""

    @workflow.run
    async def run(self) -> list[str]:
        told = []
        workflow.set_phase("ordering", owner="sales")
        await step("order")
        workflow.set_phase("fulfilling", owner="warehouse", deadline=timedelta(hours=4))
        await workflow.wait_condition(lambda: bool(self.answer), name="answer", owner="ada", deadline=timedelta(days=2))
        told.append(self.answer)
        try:
            async with workflow.phase("packing", deadline=timedelta(seconds=5), overdue="raise"):
                await workflow.sleep(60, name="glue", owner="nobody in person")
        except TimedOutError as error:
            told.append(error.kind)
        workflow.set_phase(None)
        await step("the rest")
        return told

    @workflow.signal
    def say(self, answer: str) -> None:
        self.answer = answer
