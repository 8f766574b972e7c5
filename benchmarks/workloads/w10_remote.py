"""W10: activities that another process makes, and messages between processes: what the way through the ledger costs."""

import asyncio
import time
from typing import Final

from benchmarks.bench import Bench
from benchmarks.figures import Figure, Values, Workload, percentile
from benchmarks.programs import REMOTE, Done, Waiter, remote_sequence
from pledger import Client

#: Runs, of so many activities each, and how many of them are open at a time.
RUNS: Final = 400
STEPS: Final = 25
IN_FLIGHT: Final = 200

#: One activity at a time: how many.
ALONE: Final = 300

#: Messages to runs of the other process, each after a rest.
WAKES: Final = 100
REST_S: Final = 0.05


async def measure(bench: Bench) -> Values:
    runs, alone, wakes = bench.size(RUNS), bench.size(ALONE), bench.size(WAKES)
    async with bench.ledger() as client:
        with bench.partner(REMOTE):
            await _run_all(client, "warm", runs // 4)
            async with bench.measured(runs * STEPS) as meter:
                await _run_all(client, "run", runs)
            alone_ms = await client.execute_workflow(remote_sequence, alone, id="alone")
            apart_ms = [await _wake_ms(client, f"apart-{number}", REMOTE) for number in range(wakes)]
            within_ms = [await _wake_ms(client, f"within-{number}", "default") for number in range(wakes)]
    return {
        "activities_per_s": meter.steps / meter.seconds,
        "queue_p50_ms": percentile(alone_ms, 50),
        "queue_p99_ms": percentile(alone_ms, 99),
        "apart_p99_ms": percentile(apart_ms, 99),
        "within_p99_ms": percentile(within_ms, 99),
        "apart_p50_ms": percentile(apart_ms, 50),
        "activity_cpu_ms": meter.step_cpu_ms,
    }


async def _run_all(client: Client, prefix: str, runs: int) -> None:
    numbers = iter(range(runs))

    async def run_some() -> None:
        for number in numbers:
            await client.execute_workflow(remote_sequence, STEPS, id=f"{prefix}-{number}")

    async with asyncio.TaskGroup() as group:
        for _ in range(min(IN_FLIGHT, runs)):
            group.create_task(run_some())


async def _wake_ms(client: Client, workflow_id: str, queue: str) -> float:
    """From a message to the result of the run that waited for it: there and back."""
    handle = await client.start_workflow(Waiter, id=workflow_id, task_queue=queue)
    await asyncio.sleep(REST_S)
    started = time.perf_counter()
    await handle.signal(Waiter.go, Done(1))
    await handle.result()
    return (time.perf_counter() - started) * 1000


WORKLOAD: Final = Workload(
    "W10",
    "400 workflows of 25 activities that a second process makes; messages between the two",
    (
        Figure("activities_per_s", "throughput, 200 runs open", "activities/s", at_least=True, on_postgres=2_500),
        Figure("queue_p50_ms", "in the queue, one at a time, p50", "ms", on_postgres=5),
        Figure("queue_p99_ms", "in the queue, p99", "ms"),
        Figure("apart_p99_ms", "message to a run of the other process and its result back, p99", "ms", on_postgres=150),
        Figure("within_p99_ms", "the same within one process, p99", "ms", on_postgres=50),
        Figure("apart_p50_ms", "to the other process and back, p50", "ms"),
        Figure("activity_cpu_ms", "CPU per activity", "ms CPU"),
    ),
    measure,
)
