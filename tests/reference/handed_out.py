"""Reference workflow whose activity is completed from outside, by its token.

Its attempt leaves the token where a client finds it: in its heartbeat. Who completes it is the case's program.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

from pledger import activity, workflow
from tests.reference.activities import QUICK, step


@activity.defn(retry_policy=QUICK, start_to_close_timeout=timedelta(seconds=20), heartbeat_timeout=timedelta(seconds=8))
async def ship(parcel: str) -> str:
    """Its outcome comes from outside, or it is tried again."""
    await asyncio.sleep(0.05)
    activity.heartbeat(parcel, activity.completion_token())
    activity.raise_complete_async()


@workflow.defn
async def delivering(count: int) -> list[str]:
    """Several are out at the same time, and a step comes after each."""

    async def deliver(n: int) -> str:
        return await step(f"signed for {await ship(f'parcel {n}')}")

    return await asyncio.gather(*(deliver(n) for n in range(count)))


WORKFLOWS = [delivering]
ACTIVITIES = [ship]
