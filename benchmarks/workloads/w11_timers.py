"""W11: what a hundred thousand sleeping runs cost a server, and how fast ten thousand of one second wake up."""

import asyncio
import time
from typing import Final

from benchmarks.bench import Bench, BenchmarkError
from benchmarks.figures import Figure, Values, Workload
from benchmarks.programs import until
from pledger import Client
from pledger.client import RunSummary

SLEEPERS: Final = 100_000
DUE: Final = 10_000
STARTERS: Final = 200

#: Far enough ahead that all of a machine's sleepers are asleep by then.
HOUR_S: Final = 3600.0
#: From the last start of those that are to wake up.
AHEAD_S: Final = 20.0
#: They share a second.
SECOND_MS: Final = 1000

#: After the last has fallen asleep: statistics of the server come late, and the worker tidies up.
REST_S: Final = 5.0
WATCHED_S: Final = 20.0


async def measure(bench: Bench) -> Values:
    sleepers, due = bench.size(SLEEPERS), bench.size(DUE)
    async with bench.ledger(which="status = 'completed'") as client:
        bench.say(f"{sleepers:,} runs fall asleep")
        hour = round((time.time() + HOUR_S) * 1000)
        await _start(client, "sleeper", [hour] * sleepers)
        await _asleep(client, f"sleeper-{sleepers - 1}")
        idle = await _idle_per_s(bench)
        async with bench.measured(due):
            # From here: it may have waited for a quiet machine.
            second = round((time.time() + AHEAD_S * due / DUE + 3) * 1000)
            times = {f"timer-{number}": second + number * SECOND_MS // due for number in range(due)}
            bench.say(f"{due:,} timers of one second")
            await _start(client, "timer", list(times.values()))
            if time.time() * 1000 > second:
                raise BenchmarkError("the first timer was due before the last was set: this machine is too slow")
            for workflow_id in times:
                await client.handle(workflow_id).result()
        late_ms = sorted([_late_ms(run, times) async for run in client.list("status = 'completed'")])
    if len(late_ms) != due or late_ms[0] < 0:
        raise BenchmarkError(f"{len(late_ms)} of {due} timers fired, the first {-late_ms[0]} ms too early")
    values = {"last_s": late_ms[-1] / 1000, "median_s": late_ms[due // 2] / 1000}
    return values if idle is None else values | {"idle_per_s": idle}


async def _start(client: Client, prefix: str, times: list[int]) -> None:
    numbered = iter(enumerate(times))

    async def start_some() -> None:
        for number, due_ms in numbered:
            await client.start_workflow(until, due_ms, id=f"{prefix}-{number}")

    async with asyncio.TaskGroup() as group:
        for _ in range(STARTERS):
            group.create_task(start_some())


async def _asleep(client: Client, workflow_id: str) -> None:
    """Until it sleeps, and a while longer."""
    while (await client.handle(workflow_id).describe()).due is None:  # noqa: ASYNC110 - sleeping rings no bell
        await asyncio.sleep(0.2)
    await asyncio.sleep(REST_S)


async def _idle_per_s(bench: Bench) -> float | None:
    before = bench.ground.statements()
    if before is None:
        return None
    await asyncio.sleep(WATCHED_S)
    after = bench.ground.statements()
    assert after is not None
    # The first look at the counter is counted by the second.
    return (after - before - 1) / WATCHED_S


def _late_ms(run: RunSummary, times: dict[str, int]) -> float:
    assert run.closed is not None
    return round(run.closed.timestamp() * 1000) - times[run.workflow_id]


WORKLOAD: Final = Workload(
    "W11",
    "100,000 workflows asleep; 10,000 timers due within one second",
    (
        Figure("idle_per_s", "queries while all sleep", "per second", on_postgres=1),
        Figure("last_s", "the last timer after its time, its run completed", "s", target=5, on_postgres=5),
        Figure("median_s", "the median of the timers", "s"),
    ),
    measure,
    repeats_max=1,
)
