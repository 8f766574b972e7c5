"""A workflow whose steps all go through a queue, for simulations where nobody dies."""

from __future__ import annotations

import asyncio

from pledger import activity, errors, workflow
from pledger.testing.world import outside


@activity.defn(task_queue="elsewhere")
async def counted(name: str) -> int:
    await outside().apply(name)
    return activity.info().attempt


@workflow.defn
async def crowd(steps: int) -> int:
    """Fails if an attempt was counted that never began: nobody dies, and no attempt fails."""
    attempts = await asyncio.gather(*(counted(f"step {n}") for n in range(steps)))
    if max(attempts) > 1:
        raise errors.ApplicationError(f"attempts {attempts}")
    return len(attempts)


WORKFLOWS = [crowd]
ACTIVITIES = [counted]
