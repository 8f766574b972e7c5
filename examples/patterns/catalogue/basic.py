"""Basic control flow: one after another, side by side, one or the other."""

import asyncio

from examples.patterns.catalogue.pattern import Pattern
from examples.patterns.catalogue.tasks import task
from pledger import workflow

#: Kilos on a bike.
BIKE_MAX = 20


@workflow.defn
async def sequence() -> list[str]:
    picked = await task("pick")
    packed = await task("pack")
    return [picked, packed]


async def billed() -> list[str]:
    return [await task("bill"), await task("collect")]


async def sent() -> list[str]:
    return [await task("pack"), await task("ship")]


@workflow.defn
async def parallel_split() -> list[list[str]]:
    async with asyncio.TaskGroup() as branches:
        bill = branches.create_task(billed())
        ship = branches.create_task(sent())
    return [bill.result(), ship.result()]


@workflow.defn
async def synchronization() -> list[str]:
    parts = await asyncio.gather(task("frame"), task("wheels"))
    return [*parts, await task("assemble")]


@workflow.defn
async def exclusive_choice(kilos: int) -> str:
    if kilos > BIKE_MAX:
        return await task("by lorry")
    return await task("by bike")


@workflow.defn
async def simple_merge(kilos: int) -> list[str]:
    carrier = await (task("by lorry") if kilos > BIKE_MAX else task("by bike"))
    return [carrier, await task("tell the customer")]


PATTERNS = [
    Pattern(1, "Sequence", sequence, result=["pick", "pack"]),
    Pattern(2, "Parallel Split", parallel_split, result=[["bill", "collect"], ["pack", "ship"]]),
    Pattern(3, "Synchronization", synchronization, result=["frame", "wheels", "assemble"]),
    Pattern(4, "Exclusive Choice", exclusive_choice, (30,), result="by lorry"),
    Pattern(5, "Simple Merge", simple_merge, (3,), result=["by bike", "tell the customer"]),
]
