"""The processes of W6: one that begins runs and is killed, one that finishes them.

    python -m benchmarks.mortal begin|finish DATABASE KIND RUNS

They say what they are at on standard output.
"""

import asyncio
import sys
from typing import Final

from benchmarks import programs
from pledger import Client, Worker, connect

#: Longer than it takes to start all runs; shorter than the time for which the process is dead.
SLEEP_S: Final = 5.0


async def begin(database: str, kind: str, runs: int) -> None:
    programs.holding = True
    async with connect(f"sqlite:///{database}") as client, _worker(client):
        workflow = programs.WORKFLOWS[kind]
        async with asyncio.TaskGroup() as group:
            for number in range(runs):
                group.create_task(client.start_workflow(workflow, SLEEP_S, id=f"run-{number}"))
        await programs.until_nearly_asleep(runs)
        # So that the last of them is in the ledger as asleep.
        await asyncio.sleep(0.2)
        print("in flight", flush=True)
        await asyncio.Event().wait()


async def finish(database: str) -> None:
    async with connect(f"sqlite:///{database}") as client, _worker(client):
        print("working", flush=True)
        while await client.count("status = 'running'"):  # noqa: ASYNC110 - the ledger rings no bell for all of them
            await asyncio.sleep(0.02)
        print("done", flush=True)


def _worker(client: Client) -> Worker:
    return Worker(client, workflows=list(programs.WORKFLOWS.values()), activities=programs.ACTIVITIES)


if __name__ == "__main__":
    what, database, kind, runs = sys.argv[1:]
    asyncio.run(begin(database, kind, int(runs)) if what == "begin" else finish(database))
