"""Reference workflows of blocks that end as a whole: deadlines, scopes, shields, races and phases."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from pledger import activity, workflow
from pledger.errors import ApplicationError
from pledger.errors import TimeoutError as TimedOutError
from tests.reference.activities import QUICK, step

LIMIT = timedelta(seconds=3)


@activity.defn(retry_policy=QUICK)
async def bounded_step(name: str) -> str:
    """Knows of the deadline of the block that it is in, on whatever worker it runs."""
    end = activity.info().schedule_to_close_deadline
    if end is None or end - activity.info().scheduled_time > LIMIT:
        raise ApplicationError(f"{name} knows no deadline", type="Unbounded", non_retryable=True)
    return await step.fn(name)


@workflow.defn
async def bounded(name: str) -> list[str]:
    """Each block says how it ended. One that ends otherwise than it must fails the run."""
    workflow.set_phase("in blocks", owner="ada", deadline=timedelta(minutes=5))
    told = [await _over_in_time(name)]
    workflow.set_phase("racing")
    race: workflow.Race[Any] = await workflow.first_of(workflow.sleep(0.5), clean=_never(), stubborn=_stubborn(name))
    told += [each.outcome for each in race]
    async with workflow.scope() as block:
        block.cancel()
        await workflow.shield(step(f"undo {name}"))
    told.append("cancelled" if block.cancelled else "not cancelled")
    try:
        async with workflow.phase("hurried", deadline=timedelta(seconds=1), overdue="raise"):
            await _never()
    except TimedOutError as error:
        told.append(error.kind)
    await workflow.sleep(0.2, name="the end")
    return told


async def _over_in_time(name: str) -> str:
    """The block ends at its deadline, with the task that it has begun."""
    other: asyncio.Task[None] | None = None
    kind = "none"
    try:
        async with workflow.deadline(LIMIT):
            other = asyncio.create_task(_never())
            await bounded_step(f"in time {name}")
            await _never()
    except TimedOutError as error:
        kind = error.kind
    assert other is not None
    done, _ = await workflow.wait([other], timeout=1)
    if not (done and other.cancelled()):
        raise ApplicationError("a task went on behind the deadline of its block", type="WentOn")
    return kind


async def _never() -> None:
    await asyncio.Event().wait()


async def _stubborn(name: str) -> str:
    try:
        await _never()
    except asyncio.CancelledError:
        return await step(f"after {name}")
    return "never"


ACTIVITIES = [bounded_step]
WORKFLOWS = [bounded]
