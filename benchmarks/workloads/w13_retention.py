"""W13: what a hundred thousand finished runs take on the disk, and how fast retention removes them under load."""

import asyncio
import time
from datetime import timedelta
from typing import Final

from benchmarks.bench import Bench, BenchmarkError
from benchmarks.figures import Figure, Values, Workload, percentile
from benchmarks.programs import sequence
from benchmarks.workloads.w2_throughput import STEPS, run_all
from pledger import Client
from pledger.engine.port.retention import FROM_THE_START, in_batches

RUNS: Final = 100_000

#: Chains of one transaction, and events.
CHAINS_MAX: Final = 500
EVENTS_MAX: Final = 10_000
PAGE: Final = 5_000

#: Runs, one after another, whose time is taken before and during.
WRITES: Final = 200


async def measure(bench: Bench) -> Values:
    runs = bench.size(RUNS)
    # What is removed cannot be replayed afterwards: of what is left all is.
    async with bench.ledger(which="workflow_id >= 'kept'", retention=timedelta.max) as client:
        await client.execute_workflow(sequence, STEPS, id="warm")
        await asyncio.sleep(2)
        before = bench.ground.bytes_at_rest()
        bench.say(f"{runs:,} runs")
        await run_all(client, "done", runs)
        await asyncio.sleep(2)
        full = bench.ground.bytes_at_rest()
        alone_ms = await _write(client, "kept-alone", bench.size(WRITES))
        async with bench.measured(runs):
            started = time.perf_counter()
            forgetting = asyncio.create_task(_forget_all(client))
            during_ms: list[float] = []
            while not forgetting.done():
                during_ms += await _write(client, f"kept-during-{len(during_ms)}", 5)
            forgotten = await forgetting
            seconds = time.perf_counter() - started
        await asyncio.sleep(2)
        left = bench.ground.bytes_at_rest()
        await run_all(client, "kept-later", runs // 10)
        reused = bench.ground.bytes_at_rest()
    if forgotten < runs:
        raise BenchmarkError(f"{forgotten} of {runs} runs were removed")
    return {
        "removed_per_s": forgotten / seconds,
        "full_bytes": (full - before) / runs,
        "left_bytes": (left - before) / runs,
        "grown_bytes": (reused - left) / (runs // 10),
        "alone_p50_ms": percentile(alone_ms, 50),
        "during_p50_ms": percentile(during_ms, 50),
        "during_p99_ms": percentile(during_ms, 99),
    }


async def _forget_all(client: Client) -> int:
    """As an operator's `pledger prune` does, without pauses."""
    store, place, forgotten = client.internals.store, FROM_THE_START, 0
    while page := await store.finished_chains("default", "sequence", 0, place, PAGE):
        place = page[-1].place
        for batch in in_batches(page, CHAINS_MAX, EVENTS_MAX):
            forgotten += await store.forget_chains([each.chain_key for each in batch], 0)
            await asyncio.sleep(0)
    return forgotten


async def _write(client: Client, prefix: str, runs: int) -> list[float]:
    """How long each of so many runs takes, one after another, of another type than what is removed."""
    times_ms = []
    for number in range(runs):
        started = time.perf_counter()
        await client.execute_workflow("fan_out", 2, id=f"{prefix}-{number}")
        times_ms.append((time.perf_counter() - started) * 1000)
    return times_ms


WORKLOAD: Final = Workload(
    "W13",
    "100,000 finished runs of 5 steps, and their removal",
    (
        Figure("removed_per_s", "removed", "runs/s", target=5_000, at_least=True, on_postgres=5_000),
        Figure("full_bytes", "tables and indices per finished run", "bytes"),
        Figure("left_bytes", "the same after their removal", "bytes"),
        Figure("grown_bytes", "growth per run of the next 10,000", "bytes"),
        Figure("alone_p50_ms", "a run of 2 steps meanwhile: alone, p50", "ms"),
        Figure("during_p50_ms", "during the removal, p50", "ms"),
        Figure("during_p99_ms", "during the removal, p99", "ms"),
    ),
    measure,
    repeats_max=1,
)
