"""The other worker process of a workload that takes several.

    python -m benchmarks.partner URL QUEUE [PREFIX RUNS]

It serves the queue, says `ready`, and stops when its standard input ends. With PREFIX and RUNS it also makes so many
runs of W2 once it reads a line, and says `done`.
"""

import asyncio
import sys

from benchmarks.programs import ACTIVITIES, WORKFLOWS
from benchmarks.workloads.w2_throughput import run_all
from pledger import Worker, connect


async def serve(url: str, queue: str, prefix: str, runs: int) -> None:
    workflows = list(WORKFLOWS.values())
    async with connect(url) as client, Worker(client, workflows=workflows, activities=ACTIVITIES, task_queue=queue):
        print("ready", flush=True)
        while await asyncio.to_thread(sys.stdin.readline):
            await run_all(client, prefix, runs, queue)
            print("done", flush=True)


if __name__ == "__main__":
    url, queue, prefix, runs = [*sys.argv[1:], "", "0"][:4]
    asyncio.run(serve(url, queue, prefix, int(runs)))
