"""W12: how long a tenant's activity waits in a queue while another tenant has a thousand times as much to do."""

import asyncio
import contextlib
from typing import Final

from benchmarks.bench import Bench
from benchmarks.figures import Figure, Values, Workload, percentile
from benchmarks.programs import SHARED, busy_fan_out, queued_ms_after_work
from pledger import Client, Priority, Worker

#: Activities of the quiet tenant, one after another, with a rest between them.
QUIET: Final = 300
REST_S: Final = 0.02

#: Activities that the noisy one has waiting at any moment, and attempts at a time in the queue that both share.
NOISY: Final = 1_000
NOISY_RUNS: Final = 2
SLOTS: Final = 20


async def measure(bench: Bench) -> Values:
    quiet = bench.size(QUIET)
    async with (
        bench.ledger() as client,
        Worker(client, activities=[queued_ms_after_work], task_queue=SHARED, max_concurrent_activities=SLOTS),
    ):
        await _quiet(client, "warm", 20)
        async with bench.measured(2 * quiet):
            alone_ms = await _quiet(client, "alone", quiet)
            noise = asyncio.create_task(_noise(client))
            await asyncio.sleep(0.5)
            beside_ms = await _quiet(client, "beside", quiet)
            noise.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await noise
        while await client.count("status = 'running'"):  # noqa: ASYNC110 - of all of them nobody tells
            await asyncio.sleep(0.1)
    return {
        "ratio": percentile(beside_ms, 99) / max(1, percentile(alone_ms, 99)),
        "alone_p99_ms": percentile(alone_ms, 99),
        "beside_p99_ms": percentile(beside_ms, 99),
        "alone_p50_ms": percentile(alone_ms, 50),
        "beside_p50_ms": percentile(beside_ms, 50),
    }


async def _quiet(client: Client, prefix: str, count: int) -> list[int]:
    """How long each has waited for its start."""
    waited_ms = []
    for number in range(count):
        waited_ms += await client.execute_workflow(
            busy_fan_out, 1, id=f"{prefix}-{number}", priority=Priority(fairness_key="quiet")
        )
        await asyncio.sleep(REST_S)
    return waited_ms


async def _noise(client: Client) -> None:
    """Never less than so many waiting."""
    number = 0
    open_runs: set[asyncio.Task[object]] = set()
    while True:
        while len(open_runs) < NOISY_RUNS:
            start = client.execute_workflow(
                busy_fan_out, NOISY, id=f"noise-{number}", priority=Priority(fairness_key="noisy")
            )
            open_runs.add(asyncio.create_task(start))
            number += 1
        _, open_runs = await asyncio.wait(open_runs, return_when=asyncio.FIRST_COMPLETED)


WORKLOAD: Final = Workload(
    "W12",
    "a tenant with one activity at a time beside one with a thousand, in a queue of 20 slots",
    (
        Figure("ratio", "wait of the quiet one, p99: beside the noisy one to alone", "times", target=2, on_postgres=2),
        Figure("alone_p99_ms", "alone, p99", "ms"),
        Figure("beside_p99_ms", "beside, p99", "ms"),
        Figure("alone_p50_ms", "alone, p50", "ms"),
        Figure("beside_p50_ms", "beside, p50", "ms"),
    ),
    measure,
)
