"""Termination: when nothing is left to do, or at a place that says so."""

import asyncio

from examples.patterns.catalogue.pattern import Pattern
from examples.patterns.catalogue.tasks import endless_task, task
from pledger import workflow


@workflow.defn
async def implicit_termination() -> None:
    async with asyncio.TaskGroup() as case:
        case.create_task(archive(case, ["letter", "parcel"]))


async def archive(case: asyncio.TaskGroup, papers: list[str]) -> None:
    await task(f"archive {papers[0]}")
    if papers[1:]:
        case.create_task(archive(case, papers[1:]))


@workflow.defn
async def explicit_termination() -> str:
    asyncio.ensure_future(endless_task("negotiate"))  # noqa: RUF006 - it is dropped, that is the point
    return await task("sold to the first who came")


PATTERNS = [
    Pattern(11, "Implicit Termination", implicit_termination),
    Pattern(43, "Explicit Termination", explicit_termination, result="sold to the first who came"),
]
