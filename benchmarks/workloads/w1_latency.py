"""W1: how long a step takes when nothing else goes on."""

import time
from typing import Final

from benchmarks.bench import Bench
from benchmarks.figures import Figure, Values, Workload, percentile
from benchmarks.programs import sequence

STEPS: Final = 10
RUNS: Final = 200


async def measure(bench: Bench) -> Values:
    runs = bench.size(RUNS)
    times_ms = []
    async with bench.ledger() as client:
        for number in range(20):
            await client.execute_workflow(sequence, STEPS, id=f"warm-{number}")
        async with bench.measured(runs * STEPS) as meter:
            for number in range(runs):
                started = time.perf_counter()
                await client.execute_workflow(sequence, STEPS, id=f"run-{number}")
                times_ms.append((time.perf_counter() - started) * 1000)
    step_ms = percentile(times_ms, 50) / STEPS
    return {
        "step_commits": step_ms / bench.commit_ms,
        "step_ms": step_ms,
        "run_p99_ms": percentile(times_ms, 99),
        "step_cpu_ms": meter.step_cpu_ms,
    }


WORKLOAD: Final = Workload(
    "W1",
    "one workflow of 10 sequential no-op activities at a time",
    (
        Figure("step_commits", "p50 per step, start and result included", "commits", target=2, on_postgres=3),
        Figure("step_ms", "p50 per step", "ms"),
        Figure("run_p99_ms", "p99 per workflow", "ms"),
        Figure("step_cpu_ms", "CPU per step", "ms CPU"),
    ),
    measure,
)
