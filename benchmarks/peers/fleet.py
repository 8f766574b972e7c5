"""W10 to W13 over an adapter: several processes, many sleepers, tenants, and what finished runs leave behind."""

import asyncio
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Final, TypeAlias

from benchmarks.figures import Values, percentile
from benchmarks.peers.asked import Request
from benchmarks.peers.rival import FleetRival, each, until
from benchmarks.peers.workloads import Meter

#: W10: activities of a workflow, and of the one that runs alone.
REMOTE_STEPS: Final = 25
REMOTE_ALONE: Final = 100

#: W11: for how long the sleepers sleep, and how many are started at a time.
SLEEP_S: Final = 3600.0
STARTERS: Final = 32
#: From the start of the first of the timers until it is due: how much longer than the sleepers took to start.
AHEAD: Final = 1.5
#: How much longer than those of W5 they are watched: few queries take a while to count.
WATCHED: Final = 4

#: W12: slots of the queue; activities that the noisy tenant has waiting (in a small run so many for each of the quiet
#: one), as many in each workflow, and workflows that it begins with.
SLOTS: Final = 20
NOISY: Final = 1_000
NOISY_PER_QUIET: Final = 20
NOISY_RUNS: Final = 2

#: W13: steps of a workflow, and of those whose time is taken meanwhile; how many of these are alone.
FINISHED_STEPS: Final = 5
WRITE_STEPS: Final = 2
WRITES: Final = 50

#: rival, size, in flight.
Measure: TypeAlias = Callable[[FleetRival, int, int], Awaitable[Values]]


async def remote(rival: FleetRival, size: int, in_flight: int) -> Values:
    """W10. size: workflows."""
    alone = min(REMOTE_ALONE, size * 2)
    async with _partner(rival):
        await each(range(max(1, size // 10)), in_flight, lambda _: rival.run_remote(REMOTE_STEPS))
        meter = Meter(rival)
        with meter.measured():
            await each(range(size), in_flight, lambda _: rival.run_remote(REMOTE_STEPS))
        waited_ms: list[float] = []
        started = time.perf_counter()
        waited_ms += await rival.run_remote(alone)
        alone_s = time.perf_counter() - started
    return {
        "activities_per_s": size * REMOTE_STEPS / meter.seconds,
        "queue_p50_ms": percentile(waited_ms, 50),
        "queue_p99_ms": percentile(waited_ms, 99),
        "alone_ms": alone_s * 1000 / alone,
    } | meter.values(size * REMOTE_STEPS)


@contextlib.asynccontextmanager
async def _partner(rival: FleetRival) -> AsyncIterator[None]:
    """Another process of the engine, which serves."""
    asked = Request.of(type(rival).__module__, "serve", rival.place)
    command = [sys.executable, "-m", "benchmarks.peers.child", asked.to_json()]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # noqa: ASYNC220, S603
    try:
        await asyncio.to_thread(_wait_until_up, process)
        yield
    finally:
        await asyncio.to_thread(process.communicate)


def _wait_until_up(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        told = json.loads(line)
        if told.get("said") == "up":
            return
        if "failed" in told:
            raise RuntimeError(f"the other process: {told['failed']}")
    raise RuntimeError(f"the other process ended with {process.wait()}")


async def timers(rival: FleetRival, size: int, _in_flight: int) -> Values:
    """W11. size: sleepers, and as many timers."""
    await rival.run_sequence(1)
    started = time.time()
    hour = started + SLEEP_S
    await each(range(size), STARTERS, lambda number: rival.start_timer(f"sleeper-{number}", hour))
    ahead_s = rival.ahead_s + AHEAD * (time.time() - started)
    await asyncio.sleep(rival.settle_s)
    idle = await _idle(rival)
    meter = Meter(rival)
    with meter.measured():
        first = time.time() + ahead_s
        due = {f"timer-{number}": first + number * rival.due_within_s / size for number in range(size)}
        await each(due.items(), STARTERS, lambda timer: rival.start_timer(*timer))
        if time.time() > first:
            raise RuntimeError("the first timer was due before the last was set")
        late_s: list[float] = []

        async def end(workflow_id: str, due_s: float) -> None:
            await rival.timer_result(workflow_id)
            late_s.append(time.time() - due_s)

        await asyncio.gather(*(end(*timer) for timer in due.items()))
    if min(late_s) < 0:
        raise RuntimeError(f"a timer fired {-min(late_s):.3f} s too early")
    return idle | {"last_s": max(late_s), "median_s": percentile(late_s, 50)} | meter.values(size)


async def _idle(rival: FleetRival) -> Values:
    """While all sleep."""
    meter, before = Meter(rival), rival.statements()
    with meter.measured():
        await asyncio.sleep(WATCHED * rival.watched_s)
    after = rival.statements()
    values = {"idle_percent": meter.cpu_s / meter.seconds * 100}
    return values if before is None or after is None else values | {"idle_per_s": (after - before) / meter.seconds}


async def tenants(rival: FleetRival, size: int, _in_flight: int) -> Values:
    """W12. size: activities of the quiet tenant."""
    meter = Meter(rival)
    noisy = min(NOISY, size * NOISY_PER_QUIET)
    with meter.measured():
        async with rival.shared(SLOTS):
            await _quiet(rival, 5)
            alone_ms = await _quiet(rival, size)
        async with _noise(rival, noisy), rival.shared(SLOTS):
            await _quiet(rival, 5)
            beside_ms = await _quiet(rival, size)
    alone, beside = percentile(alone_ms, 99), percentile(beside_ms, 99)
    return {
        "ratio": beside / max(1.0, alone),
        "alone_p99_ms": alone,
        "beside_p99_ms": beside,
        "alone_p50_ms": percentile(alone_ms, 50),
        "beside_p50_ms": percentile(beside_ms, 50),
        "other_cores": meter.other_cores,
    }


async def _quiet(rival: FleetRival, size: int) -> list[float]:
    waited_ms: list[float] = []
    for _ in range(size):
        waited_ms += await rival.run_tenant("quiet", 1)
        await asyncio.sleep(rival.rest_s)
    return waited_ms


@contextlib.asynccontextmanager
async def _noise(rival: FleetRival, noisy: int) -> AsyncIterator[None]:
    """The block is entered when all that the noisy tenant has asked for waits. When that is less, it asks for more.

    Nobody serves the queue before: an engine that asks no faster than it works would never have anything waiting.
    """
    runs = {asyncio.create_task(rival.run_tenant("noisy", noisy)) for _ in range(NOISY_RUNS)}
    await until(lambda: rival.has_waiting(noisy * NOISY_RUNS), 0.1)

    async def go_on() -> None:
        while True:
            await asyncio.sleep(0.5)
            if not await rival.has_waiting(noisy):
                runs.add(asyncio.create_task(rival.run_tenant("noisy", noisy)))
                # Asked for one after another, and not more and more of them while the first is not even there.
                await until(lambda: rival.has_waiting(noisy), 0.5)

    runs.add(asyncio.create_task(go_on()))
    try:
        yield
    finally:
        for run in runs:
            run.cancel()
        await asyncio.gather(*runs, return_exceptions=True)


async def retention(rival: FleetRival, size: int, in_flight: int) -> Values:
    """W13. size: finished workflows."""
    await rival.run_sequence(FINISHED_STEPS)
    await asyncio.sleep(rival.settle_s)
    empty = rival.disk_bytes()
    await each(range(size), in_flight, lambda _: rival.run_sequence(FINISHED_STEPS))
    await asyncio.sleep(rival.settle_s)
    full = rival.disk_bytes()
    alone_ms = [await _write_ms(rival) for _ in range(min(WRITES, size))]
    meter = Meter(rival)
    with meter.measured():
        started = time.perf_counter()
        forgetting = asyncio.create_task(rival.forget_finished())
        during_ms = [await _write_ms(rival)]
        while not forgetting.done():
            during_ms.append(await _write_ms(rival))
            await asyncio.sleep(0)
        forgotten, seconds = await forgetting, time.perf_counter() - started
    if forgotten < size:
        raise RuntimeError(f"{forgotten} of {size} workflows were removed")
    await asyncio.sleep(rival.settle_s)
    left = rival.disk_bytes()
    again = max(1, size // 10)
    await each(range(again), in_flight, lambda _: rival.run_sequence(FINISHED_STEPS))
    await asyncio.sleep(rival.settle_s)
    return {
        "removed_per_s": forgotten / seconds,
        "full_bytes": max(0, full - empty) / size,
        "left_bytes": max(0, left - empty) / size,
        "grown_bytes": max(0, rival.disk_bytes() - left) / again,
        "alone_p50_ms": percentile(alone_ms, 50),
        "during_p50_ms": percentile(during_ms, 50),
        "other_cores": meter.other_cores,
    }


async def _write_ms(rival: FleetRival) -> float:
    started = time.perf_counter()
    await rival.fan_out(WRITE_STEPS)
    return (time.perf_counter() - started) * 1000


MEASURES: Final[Mapping[str, Measure]] = {"W10": remote, "W11": timers, "W12": tenants, "W13": retention}
