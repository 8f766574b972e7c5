"""W9: whether a second worker process makes the whole faster."""

import asyncio
from typing import Final

from benchmarks.bench import Bench
from benchmarks.figures import Figure, Values, Workload
from benchmarks.workloads.w2_throughput import IN_FLIGHT, RUNS, STEPS, run_all


async def measure(bench: Bench) -> Values:
    runs = bench.size(RUNS)
    async with bench.ledger() as client:
        await run_all(client, "warm", IN_FLIGHT)
        with bench.partner("second", "other", str(runs)) as partner:
            async with bench.measured(runs * STEPS) as alone:
                await run_all(client, "alone", runs)
            async with bench.measured(2 * runs * STEPS) as both:
                partner.go()
                await run_all(client, "one", runs)
                await asyncio.to_thread(partner.wait_for, "done")
    alone_per_s, both_per_s = alone.steps / alone.seconds, both.steps / both.seconds
    return {"ratio": both_per_s / alone_per_s, "alone_per_s": alone_per_s, "both_per_s": both_per_s}


WORKLOAD: Final = Workload(
    "W9",
    "W2 in one process, then in two at a time",
    (
        Figure("ratio", "two processes to one", "times", at_least=True, on_postgres=1.0),
        Figure("alone_per_s", "one process", "steps/s"),
        Figure("both_per_s", "two processes", "steps/s"),
    ),
    measure,
)
