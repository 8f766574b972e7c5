"""The tasks of the catalogue's processes: what they do is not the point."""

import asyncio

from pledger import activity

SLOW_S = 0.5


@activity.defn
async def task(name: str) -> str:
    return name


@activity.defn
async def slow_task(name: str) -> str:
    await asyncio.sleep(SLOW_S)
    return name


@activity.defn
async def endless_task(name: str) -> str:
    """Until it is cancelled."""
    await asyncio.sleep(500)
    return name


ACTIVITIES = [task, slow_task, endless_task]
