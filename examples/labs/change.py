"""Lab 3: new code for old runs.

    python -m examples.labs.change

An order is in flight, waiting to be paid, when the code of its workflow changes: a step is added at the beginning.
Added for everyone, the code no longer asks for what is on record, and the run stands still rather than do something
wrong; nothing is lost. Added behind `workflow.patched`, the old run ends on the old path and new ones take the new.
"""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from examples.labs.versions import before, for_everyone, patched
from examples.labs.versions.steps import STEPS
from pledger import Client, Worker, connect, errors
from pledger.client import WorkflowHandle


async def main(url: str) -> None:
    async with connect(url) as client:
        print("The old code runs, and order-1 begins")
        async with deployed(client, before.Fulfil):
            old = await client.start_workflow(before.Fulfil, "order-1", id="order-1")
            await in_flight(old)

        print("A step is added for everyone, and order-1 is paid")
        await old.signal(before.Fulfil.paid)
        async with deployed(client, for_everyone.Fulfil):
            try:
                print(f"  {await old.result()}")
            except errors.RunBlockedError as blocked:
                print(f"  it is blocked by {blocked.failure_type}:")
        try:
            await (await old.history()).replay(for_everyone.Fulfil)
        except errors.NondeterminismError as error:
            print(f"    recorded at event {error.event_id}: {error.recorded}")
            print(f"    asked by the new code: {error.replayed}")

        print("The step is added behind a patch, and order-2 begins")
        async with deployed(client, patched.Fulfil):
            await tell(old)
            new = await client.start_workflow(patched.Fulfil, "order-2", id="order-2")
            await new.signal(patched.Fulfil.paid)
            await tell(new)


def deployed(client: Client, version: type) -> Worker:
    """A worker with this version of the code."""
    return Worker(client, workflows=[version], activities=STEPS)


async def in_flight(handle: WorkflowHandle[Any]) -> None:
    """Wait until its first step is done."""
    while not (await handle.describe()).state.activities_done:  # noqa: ASYNC110 - another process did it, maybe
        await asyncio.sleep(0.01)


async def tell(handle: WorkflowHandle[Any]) -> None:
    done = await handle.result(wait_while_blocked=True)
    print(f"  {handle.workflow_id} ends: {', '.join(done)}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(f"sqlite:///{Path(folder) / 'ledger.db'}"))
