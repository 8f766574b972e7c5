"""W5: what runs cost that wait."""

import asyncio
import time
from typing import Final

from benchmarks.bench import Bench
from benchmarks.figures import Figure, Values, Workload
from benchmarks.machine import resident_mb
from benchmarks.programs import nearly_asleep, sleeper, until_nearly_asleep
from pledger import Client

SLEEPERS: Final = 10_000
STARTERS: Final = 200
SLEEP_S: Final = 3600.0

#: How long they are watched while they sleep, once the worker has had time to tidy up.
WATCHED_S: Final = 5.0


async def measure(bench: Bench) -> Values:
    count = bench.size(SLEEPERS)
    async with bench.ledger(ends="running") as client:
        await _fall_asleep(client, "warm", 20)
        await asyncio.sleep(2)
        # Without the log, which may or may not be empty by now: rather count the warm-up too than too little.
        bytes_before = bench.ground.bytes_at_rest()
        async with bench.measured(count) as meter:
            await _fall_asleep(client, "run", count)
        await asyncio.sleep(2)
        started, cpu_s = time.perf_counter(), bench.cpu_s()
        await asyncio.sleep(WATCHED_S)
        cpu_percent = (bench.cpu_s() - cpu_s) / (time.perf_counter() - started) * 100
        memory_mb = resident_mb()
        bytes_each = (bench.ground.stored_bytes() - bytes_before) / count
    values = {
        "seconds": meter.seconds,
        "disk_bytes": bytes_each,
        "cpu_percent": cpu_percent,
        "run_ms": meter.step_ms,
        "run_cpu_ms": meter.step_cpu_ms,
    }
    return values if memory_mb is None else values | {"memory_mb": memory_mb}


async def _fall_asleep(client: Client, prefix: str, count: int) -> None:
    """Until all of them sleep, and the ledger says so of the last."""
    nearly_asleep.clear()
    numbers = iter(range(count))

    async def start_some() -> None:
        for number in numbers:
            await client.start_workflow(sleeper, SLEEP_S, id=f"{prefix}-{number}")

    async with asyncio.TaskGroup() as group:
        for _ in range(STARTERS):
            group.create_task(start_some())
    await until_nearly_asleep(count)
    last = client.handle(nearly_asleep[-1])
    while (await last.describe()).due is None:  # noqa: ASYNC110 - sleeping is nothing that one can wait for
        await asyncio.sleep(0.01)


WORKLOAD: Final = Workload(
    "W5",
    "10,000 workflows asleep after two steps each",
    (
        Figure("seconds", "until all sleep", "s", target=5),
        Figure("memory_mb", "memory of the whole process (PSS)", "MB", target=100),
        Figure("disk_bytes", "disk per sleeper, log included", "bytes", target=2048),
        Figure("cpu_percent", "CPU while they sleep", "% of a core", target=1),
        Figure("run_ms", "per sleeper", "ms"),
        Figure("run_cpu_ms", "CPU per sleeper", "ms CPU"),
    ),
    measure,
)
