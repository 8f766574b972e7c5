"""Workflows whose code changes while their runs are open: as it was before, and as it is after."""

from __future__ import annotations

import asyncio

from pledger import workflow
from pledger.errors import ActivityError
from tests.reference.activities import linger, once, step


async def _receipt(name: str) -> str:
    """Of an effect that must not be repeated."""
    try:
        return await once(name)
    except ActivityError as error:
        return type(error.__cause__).__name__


@workflow.defn(name="mended")
async def with_a_bug(name: str) -> list[str]:
    beside = asyncio.ensure_future(linger(4.0))
    prices: dict[str, int] = {}
    receipt = await _receipt(name)
    prices[receipt] += 1
    return [receipt, await beside]


@workflow.defn(name="mended")
async def mended(name: str) -> list[str]:
    beside = asyncio.ensure_future(linger(4.0))
    receipt = await _receipt(name)
    return [receipt, await beside]


@workflow.defn(name="extended")
async def with_two_steps(name: str) -> str:
    await step(f"first {name}")
    await asyncio.sleep(2)
    return await step(f"last {name}")


@workflow.defn(name="extended")
async def with_a_step_more(name: str) -> str:
    await step(f"first {name}")
    if workflow.patched("step-between"):
        await step(f"between {name}")
    await asyncio.sleep(2)
    return await step(f"last {name}")


BEFORE = [with_a_bug, with_two_steps]
AFTER = [mended, with_a_step_more]
