"""W3: one workflow that does much at once."""

from typing import Final

from benchmarks.bench import Bench
from benchmarks.figures import Figure, Values, Workload
from benchmarks.programs import fan_out

WIDTH: Final = 1_000


async def measure(bench: Bench) -> Values:
    width = bench.size(WIDTH)
    async with bench.ledger() as client:
        for number in range(3):
            await client.execute_workflow(fan_out, width // 10, id=f"warm-{number}")
        async with bench.measured(width) as meter:
            await client.execute_workflow(fan_out, width, id="run")
    return {"seconds": meter.seconds, "step_ms": meter.step_ms, "step_cpu_ms": meter.step_cpu_ms}


WORKLOAD: Final = Workload(
    "W3",
    "one workflow, 1,000 parallel activities",
    (
        Figure("seconds", "start to result", "s", target=0.1),
        Figure("step_ms", "per activity", "ms"),
        Figure("step_cpu_ms", "CPU per activity", "ms CPU"),
    ),
    measure,
)
