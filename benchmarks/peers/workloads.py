"""The workloads over an adapter: W1 to W5 and W7. W6 and W8 take several processes: see `runner`."""

import asyncio
import contextlib
import os
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Final, TypeAlias

from benchmarks import processes
from benchmarks.figures import Values, percentile
from benchmarks.load import LoadMeter
from benchmarks.peers.rival import Rival, each, until

#: Steps of a workflow of W1 and of W2.
W1_STEPS: Final = 10
W2_STEPS: Final = 5

#: W4: waiting workflows that get their message late, for each one that gets it at once.
PARKED_SHARE: Final = 0.2

#: W5: for how long they sleep.
SLEEP_S: Final = 3600.0

#: rival, size, in flight.
Measure: TypeAlias = Callable[[Rival, int, int], Awaitable[Values]]


class Meter:
    """What a block took, once it has ended, of all processes of the engine; the harness is one of them."""

    def __init__(self, rival: Rival) -> None:
        pid = rival.place.postgres_pid
        self.roots = [os.getpid()] + ([] if pid is None else [pid])
        self.seconds = 0.0
        self.cpu_s = 0.0
        self.other_cores = 0.0

    def used_s(self) -> float:
        return processes.cpu_s(self.roots)

    @contextlib.contextmanager
    def measured(self) -> Iterator[None]:
        load, cpu_s, started = LoadMeter(self.used_s), self.used_s(), time.perf_counter()
        yield
        self.seconds, self.cpu_s = time.perf_counter() - started, self.used_s() - cpu_s
        self.other_cores = load.other_cores() or 0.0

    def values(self, steps: int) -> Values:
        return {"cpu_ms": self.cpu_s * 1000 / steps, "other_cores": self.other_cores}


async def latency(rival: Rival, size: int, _in_flight: int) -> Values:
    """W1."""
    await each(range(max(3, size // 10)), 1, lambda _: rival.run_sequence(W1_STEPS))
    times_ms = []
    meter = Meter(rival)
    with meter.measured():
        for _ in range(size):
            started = time.perf_counter()
            await rival.run_sequence(W1_STEPS)
            times_ms.append((time.perf_counter() - started) * 1000)
    values = {"step_ms": percentile(times_ms, 50) / W1_STEPS, "run_p99_ms": percentile(times_ms, 99)}
    return values | meter.values(size * W1_STEPS)


async def throughput(rival: Rival, size: int, in_flight: int) -> Values:
    """W2."""
    await each(range(min(in_flight, size)), in_flight, lambda _: rival.run_sequence(W2_STEPS))
    meter = Meter(rival)
    with meter.measured():
        await each(range(size), in_flight, lambda _: rival.run_sequence(W2_STEPS))
    return {"steps_per_s": size * W2_STEPS / meter.seconds} | meter.values(size * W2_STEPS)


async def fan_out(rival: Rival, size: int, _in_flight: int) -> Values:
    """W3."""
    await rival.fan_out(10)
    meter = Meter(rival)
    with meter.measured():
        await rival.fan_out(size)
    return {"activity_ms": meter.seconds * 1000 / size} | meter.values(size)


async def signals(rival: Rival, size: int, _in_flight: int) -> Values:
    """W4."""
    times_ms = []
    for number in range(3):
        await _round_trip_ms(rival, f"warm-{number}", 0)
    meter = Meter(rival)
    with meter.measured():
        for number in range(size):
            started = time.perf_counter()
            await _round_trip_ms(rival, f"run-{number}", 0)
            times_ms.append((time.perf_counter() - started) * 1000)
        parked_ms = [
            await _round_trip_ms(rival, f"parked-{number}", 0.1 + 0.01 * (number % 7))
            for number in range(max(3, round(size * PARKED_SHARE)))
        ]
    return {
        "p50_ms": percentile(times_ms, 50),
        "p99_ms": percentile(times_ms, 99),
        "parked_p50_ms": percentile(parked_ms, 50),
        "other_cores": meter.other_cores,
    }


async def _round_trip_ms(rival: Rival, workflow_id: str, parked_s: float) -> float:
    """From the signal to the result, to a workflow that has waited for so long."""
    await rival.start_waiter(workflow_id)
    if parked_s:
        await asyncio.sleep(parked_s)
    started = time.perf_counter()
    await rival.signal(workflow_id)
    await rival.waiter_result(workflow_id)
    return (time.perf_counter() - started) * 1000


async def sleepers(rival: Rival, size: int, in_flight: int) -> Values:
    """W5."""
    await rival.run_sequence(1)
    await asyncio.sleep(rival.settle_s)
    meter = Meter(rival)
    memory_mb, disk_bytes = processes.pss_mb(meter.roots), rival.disk_bytes()
    with meter.measured():
        await fall_asleep(rival, size, in_flight, SLEEP_S)
    await asyncio.sleep(rival.settle_s)
    watched = Meter(rival)
    with watched.measured():
        await asyncio.sleep(rival.watched_s)
    if await rival.open_sleepers() == 0:
        raise RuntimeError("none of the workflows that should be asleep is open")
    return {
        "sleeper_ms": meter.seconds * 1000 / size,
        "sleeper_kb": max(0.0, processes.pss_mb(meter.roots) - memory_mb) * 1000 / size,
        "memory_mb": processes.pss_mb(meter.roots),
        "sleeper_bytes": max(0, rival.disk_bytes() - disk_bytes) / size,
        "idle_percent": watched.cpu_s / watched.seconds * 100,
    } | meter.values(size)


async def fall_asleep(rival: Rival, size: int, in_flight: int, seconds: float) -> None:
    await each(range(size), in_flight, lambda number: rival.start_sleeper(f"sleeper-{number}", seconds))

    async def all_asleep() -> bool:
        return await rival.asleep() >= size

    await until(all_asleep, 0.05)


async def long_history(rival: Rival, size: int, _in_flight: int) -> Values:
    """W7."""
    await rival.run_sequence(5)
    await asyncio.sleep(rival.settle_s)
    disk_bytes = rival.disk_bytes()
    meter = Meter(rival)
    with meter.measured():
        await rival.run_sequence(size)
    await asyncio.sleep(rival.settle_s)
    times = (await rival.step_times())[-size:]
    if len(times) != size:
        raise RuntimeError(f"{len(times)} of {size} steps have run")
    tenth = size // 10
    return {
        "long_step_ms": meter.seconds * 1000 / size,
        "last_to_first": (times[-1] - times[-tenth]) / (times[tenth - 1] - times[0]),
        "step_bytes": max(0, rival.disk_bytes() - disk_bytes) / size,
    } | meter.values(size)


MEASURES: Final[Mapping[str, Measure]] = {
    "W1": latency,
    "W2": throughput,
    "W3": fan_out,
    "W4": signals,
    "W5": sleepers,
    "W7": long_history,
}
