"""W4: a message to a run: to one that has just started, to one that waits, and to one that has left memory."""

import asyncio
import time
from typing import Final

from benchmarks.bench import Bench
from benchmarks.figures import Figure, Values, Workload, percentile
from benchmarks.programs import Done, Waiter
from pledger import Client

ROUND_TRIPS: Final = 300
PARKED: Final = 40
#: How long they wait, on average.
PARKED_S: Final = 0.13

#: A worker keeps 1,000 runs in memory: of these the first have left it.
EVICTING: Final = 1_100


async def measure(bench: Bench) -> Values:
    round_trips = bench.size(ROUND_TRIPS)
    async with bench.ledger() as client:
        await _round_trips(client, "warm", 20)
        async with bench.measured(round_trips):
            times_ms = await _round_trips(client, "run", round_trips)
            parked_ms = await _parked(client)
            evicted_ms = await _evicted(client)
    rested_ms = bench.ground.commit_times_ms(PARKED, PARKED_S)
    return {
        "p50_ms": percentile(times_ms, 50),
        "parked_p50_ms": percentile(parked_ms, 50),
        "evicted_p50_ms": percentile(evicted_ms, 50),
        "rested_commit_ms": percentile(rested_ms, 50),
        "p99_ms": percentile(times_ms, 99),
        "parked_p99_ms": percentile(parked_ms, 99),
    }


async def _round_trips(client: Client, prefix: str, count: int) -> list[float]:
    """Start, signal, result."""
    times_ms = []
    for number in range(count):
        started = time.perf_counter()
        await client.start_workflow(Waiter, id=f"{prefix}-{number}")
        await _wake(client, f"{prefix}-{number}")
        times_ms.append((time.perf_counter() - started) * 1000)
    return times_ms


async def _parked(client: Client) -> list[float]:
    """Signal, result: to runs that have been waiting for 100 to 160 ms, and nothing else has been going on."""
    times_ms = []
    for number in range(PARKED):
        await client.start_workflow(Waiter, id=f"parked-{number}")
        await asyncio.sleep(0.1 + 0.01 * (number % 7))
        times_ms.append(await _wake(client, f"parked-{number}"))
    return times_ms


async def _evicted(client: Client) -> list[float]:
    """Signal, result: to runs that come back by replay."""
    for number in range(EVICTING):
        await client.start_workflow(Waiter, id=f"evicted-{number}")
    await asyncio.sleep(0.2)
    times_ms = [await _wake(client, f"evicted-{number}") for number in range(PARKED)]
    for number in range(PARKED, EVICTING):
        await _wake(client, f"evicted-{number}")
    return times_ms


async def _wake(client: Client, workflow_id: str) -> float:
    """From signal to result, in ms."""
    handle = client.handle(workflow_id, workflow=Waiter)
    started = time.perf_counter()
    await handle.signal(Waiter.go, Done(1))
    await handle.result()
    return (time.perf_counter() - started) * 1000


WORKLOAD: Final = Workload(
    "W4",
    "start, signal, result",
    (
        Figure("p50_ms", "start, signal, result, p50", "ms", target=1.5),
        Figure("parked_p50_ms", "signal and result of a parked run, p50", "ms", target=1.5),
        Figure("evicted_p50_ms", "the same of one that had left memory, p50", "ms", target=1.5),
        Figure("rested_commit_ms", "a bare commit after the rest of a parked run, p50", "ms"),
        Figure("p99_ms", "start, signal, result, p99", "ms"),
        Figure("parked_p99_ms", "parked, p99", "ms"),
    ),
    measure,
)
