"""W7: whether a step costs the same however long the history already is, and how many bytes it leaves."""

import asyncio
from typing import Final

from benchmarks.bench import Bench
from benchmarks.figures import Figure, Values, Workload
from benchmarks.programs import sequence, step_times

STEPS: Final = 5_000


async def measure(bench: Bench) -> Values:
    steps = bench.size(STEPS)
    async with bench.ledger() as client:
        await client.execute_workflow(sequence, 100, id="warm")
        await asyncio.sleep(2)
        # Without the log, which may or may not be empty by now: rather count the warm-up too than too little.
        bytes_before = bench.ground.bytes_at_rest()
        step_times.clear()
        async with bench.measured(steps) as meter:
            await client.execute_workflow(sequence, steps, id="run")
        bytes_at_once = bench.ground.stored_bytes() - bytes_before
        await asyncio.sleep(2)
        bytes_at_rest = bench.ground.stored_bytes() - bytes_before
    tenth = steps // 10
    first_s = step_times[tenth - 1] - step_times[0]
    last_s = step_times[-1] - step_times[-tenth]
    return {
        "seconds": meter.seconds,
        "bytes_at_rest": bytes_at_rest / steps,
        "last_to_first": last_s / first_s,
        "bytes_at_once": bytes_at_once / steps,
        "step_ms": meter.step_ms,
        "step_cpu_ms": meter.step_cpu_ms,
    }


WORKLOAD: Final = Workload(
    "W7",
    "one workflow of 5,000 sequential steps",
    (
        Figure("seconds", "start to result", "s", target=1.2),
        Figure("bytes_at_rest", "disk per step, log included, 2 s later", "bytes", target=300),
        Figure("last_to_first", "last 500 steps to first 500", "times", target=1.1),
        Figure("bytes_at_once", "disk per step with the log at its longest", "bytes"),
        Figure("step_ms", "per step", "ms"),
        Figure("step_cpu_ms", "CPU per step", "ms CPU"),
    ),
    measure,
)
