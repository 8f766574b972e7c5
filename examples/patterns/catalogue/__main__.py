"""Run all of them, at the same time, and print what came of each."""

import asyncio
import sys

from examples.patterns.catalogue.index import PATTERNS, WORKFLOWS
from examples.patterns.catalogue.pattern import Pattern
from examples.patterns.catalogue.tasks import ACTIVITIES
from pledger import Client, Worker, connect, errors


async def main(url: str) -> None:
    async with connect(url) as client, Worker(client, workflows=WORKFLOWS, activities=ACTIVITIES):
        for pattern, told in zip(
            PATTERNS, await asyncio.gather(*(end_of(client, each) for each in PATTERNS)), strict=True
        ):
            print(f"{pattern.workflow_id:<7} {pattern.name}: {told}")


async def end_of(client: Client, pattern: Pattern) -> object:
    """Its result, or how else it ended."""
    handle = await client.start_workflow(pattern.workflow, *pattern.args, id=pattern.workflow_id)
    if pattern.outside is not None:
        await pattern.outside(handle)
    try:
        return await handle.result()
    except errors.WorkflowFailedError as error:
        return error.status


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "memory://"))
