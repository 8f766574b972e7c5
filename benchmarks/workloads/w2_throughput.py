"""W2: how many steps one process makes when it has much to do."""

import asyncio
from typing import Final

from benchmarks.bench import Bench
from benchmarks.figures import Figure, Values, Workload
from benchmarks.programs import sequence
from pledger import Client

STEPS: Final = 5
RUNS: Final = 2_000

#: Runs that are open at a time: what a busy service has, and what group commit lives from.
IN_FLIGHT: Final = 200


async def measure(bench: Bench) -> Values:
    runs = bench.size(RUNS)
    async with bench.ledger() as client:
        await run_all(client, "warm", IN_FLIGHT)
        async with bench.measured(runs * STEPS) as meter:
            await run_all(client, "run", runs)
    return {
        "steps_per_s": meter.steps / meter.seconds,
        "step_ms": meter.step_ms,
        "step_cpu_ms": meter.step_cpu_ms,
    }


async def run_all(client: Client, prefix: str, runs: int, queue: str = "default") -> None:
    numbers = iter(range(runs))

    async def run_some() -> None:
        for number in numbers:
            await client.execute_workflow(sequence, STEPS, id=f"{prefix}-{number}", task_queue=queue)

    async with asyncio.TaskGroup() as group:
        for _ in range(IN_FLIGHT):
            group.create_task(run_some())


WORKLOAD: Final = Workload(
    "W2",
    "2,000 workflows of 5 steps, 200 of them open at a time, one process",
    (
        Figure("steps_per_s", "throughput", "steps/s", target=15_000, at_least=True, on_postgres=10_000),
        Figure("step_ms", "per step", "ms"),
        Figure("step_cpu_ms", "CPU per step", "ms CPU"),
    ),
    measure,
)
