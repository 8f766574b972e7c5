"""W14: talking to one run: updates and their answers, many signals at once, and queries that a replay comes before."""

import asyncio
import time
from typing import Final

from benchmarks.bench import Bench
from benchmarks.figures import Figure, Values, Workload, percentile
from benchmarks.programs import Tally, sequence
from pledger import Client

UPDATES: Final = 500
SIGNALS: Final = 1_000
QUERIES: Final = 20
STEPS: Final = 2_500
#: Runs that the worker keeps in memory: when another one has done something, the one that is asked leaves.
CACHED: Final = 1
LEAVING_S: Final = 0.05


async def measure(bench: Bench) -> Values:
    updates, signals = bench.size(UPDATES), bench.size(SIGNALS)
    async with bench.ledger(max_cached_runs=CACHED) as client:
        await _updates(client, "warm", 20)
        async with bench.measured(updates):
            times_ms = await _updates(client, "run", updates)
            signals_s = await _signals(client, "signals", signals)
            queries_ms = await _queries(client, bench.size(QUERIES))
            replayed_per_s = await _replay(client, bench.size(STEPS))
    return {
        "update_p50_ms": percentile(times_ms, 50),
        "signals_s": signals_s * SIGNALS / signals,
        "query_p50_ms": percentile(queries_ms, 50),
        "replayed_per_s": replayed_per_s,
        "update_p99_ms": percentile(times_ms, 99),
        "query_p99_ms": percentile(queries_ms, 99),
    }


async def _updates(client: Client, workflow_id: str, count: int) -> list[float]:
    """From sending one to its answer, each behind the other."""
    handle = await client.start_workflow(Tally, id=workflow_id)
    times_ms = []
    for number in range(count):
        started = time.perf_counter()
        await handle.execute_update(Tally.put, number)
        times_ms.append((time.perf_counter() - started) * 1000)
    await _close(client, workflow_id)
    return times_ms


async def _signals(client: Client, workflow_id: str, count: int) -> float:
    """Sent at once, until all are handled."""
    handle = await client.start_workflow(Tally, id=workflow_id)
    started = time.perf_counter()
    await asyncio.gather(*(handle.signal(Tally.add, 1) for _ in range(count)))
    while await handle.query(Tally.count) < count:  # noqa: ASYNC110 - this is what is measured
        await asyncio.sleep(0.001)
    seconds = time.perf_counter() - started
    await _close(client, workflow_id)
    return seconds


async def _queries(client: Client, count: int) -> list[float]:
    """Of a run with 1,000 events, which comes back into memory for each."""
    asked, other = await client.start_workflow(Tally, id="asked"), await client.start_workflow(Tally, id="other")
    await asyncio.gather(*(asked.signal(Tally.add, 1) for _ in range(SIGNALS)))
    times_ms = []
    for _ in range(count):
        for _ in range(2):
            await other.signal(Tally.add, 1)
        await asyncio.sleep(LEAVING_S)
        started = time.perf_counter()
        assert await asked.query(Tally.count) == SIGNALS
        times_ms.append((time.perf_counter() - started) * 1000)
    for each in (asked, other):
        await _close(client, each.workflow_id)
    return times_ms


async def _replay(client: Client, steps: int) -> float:
    """Events per second, of a history that is in memory."""
    handle = await client.start_workflow(sequence, steps, id="replayed")
    await handle.result()
    history = await handle.history()
    started = time.perf_counter()
    events = await history.replay(sequence)
    return events / (time.perf_counter() - started)


async def _close(client: Client, workflow_id: str) -> None:
    handle = client.handle(workflow_id, workflow=Tally)
    await handle.signal(Tally.close)
    await handle.result()


WORKLOAD: Final = Workload(
    "W14",
    "updates, signals and queries of one run, one process",
    (
        Figure("update_p50_ms", "an update and its answer, p50", "ms", target=4.0),
        Figure("signals_s", "1,000 signals sent at once, until all are handled", "s", target=1.0),
        Figure("query_p50_ms", "query of a run with 1,000 events that has left memory, p50", "ms", target=30.0),
        Figure("replayed_per_s", "replay of 2,500 steps", "events/s", target=50_000, at_least=True),
        Figure("update_p99_ms", "an update and its answer, p99", "ms"),
        Figure("query_p99_ms", "query of a run that has left memory, p99", "ms"),
    ),
    measure,
)
