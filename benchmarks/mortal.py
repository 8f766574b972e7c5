"""The processes of W6: one that begins runs and is killed, one that finishes them.

    python -m benchmarks.mortal begin|finish URL KIND RUNS

They say what they are at on standard output.
"""

import asyncio
import sys
from typing import Final

from benchmarks import programs
from pledger import Client, Worker, connect

#: Longer than it takes to start all runs; shorter than the time for which the process is dead.
SLEEP_S: Final = 5.0

#: Calls of `step` that a run still makes after the restart, by kind.
STEPS_LEFT: Final = {"sleeper": 2, "holder": 1}


async def begin(url: str, kind: str, runs: int) -> None:
    programs.holding = True
    async with connect(url) as client, _worker(client):
        workflow = programs.WORKFLOWS[kind]
        async with asyncio.TaskGroup() as group:
            for number in range(runs):
                group.create_task(client.start_workflow(workflow, SLEEP_S, id=f"run-{number}"))
        await programs.until_nearly_asleep(runs)
        # So that the last of them is in the ledger as asleep.
        await asyncio.sleep(0.2)
        print("in flight", flush=True)
        await asyncio.Event().wait()


async def finish(url: str, kind: str, runs: int) -> None:
    async with connect(url) as client, _worker(client):
        print("working", flush=True)
        # First by what the steps say, which costs nothing; then by the ledger.
        while len(programs.step_times) < STEPS_LEFT[kind] * runs:  # noqa: ASYNC110 - as `until_nearly_asleep`
            await asyncio.sleep(0.005)
        while await _has_open_runs(client):  # noqa: ASYNC110 - the ledger rings no bell for all of them
            await asyncio.sleep(0.005)
        print("done", flush=True)


async def _has_open_runs(client: Client) -> bool:
    # Without a filter: the first one imports a parser, which this process has no other use for.
    return "running" in [run.status async for run in client.list()]


def _worker(client: Client) -> Worker:
    return Worker(client, workflows=list(programs.WORKFLOWS.values()), activities=programs.ACTIVITIES)


if __name__ == "__main__":
    what, url, kind, runs = sys.argv[1:]
    main = {"begin": begin, "finish": finish}[what]
    asyncio.run(main(url, kind, int(runs)))
