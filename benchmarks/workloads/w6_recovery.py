"""W6: a process with 1,000 runs in flight is killed; how long until another has completed them all.

The clock starts with the new process, once the lease of the dead one is over: start-up is in the figure, the wait for
the lease is not. Once the runs were in the middle of a sleep that is over by then (what other engines were measured
with), once in the middle of a step (whose attempt is lost, counted, and made again).
"""

import asyncio
import os
import signal
import subprocess
import sys
import time
from typing import Final

from benchmarks.bench import Bench, BenchmarkError
from benchmarks.figures import Figure, Values, Workload
from benchmarks.machine import ROOT
from pledger import connect

RUNS: Final = 1_000

#: From the kill to the restart. The lease is 5 s by default, and the sleep as long as that.
DEAD_S: Final = 6.0


async def measure(bench: Bench) -> Values:
    runs = bench.size(RUNS)
    values = {}
    async with bench.measured(2 * runs):
        for kind in ("sleeper", "holder"):
            bench.say(f"{runs:,} runs of {kind}, kill -9, recovery")
            url = bench.ground.url(kind)
            _begin_and_kill(url, kind, runs)
            await asyncio.sleep(DEAD_S)
            started = time.perf_counter()
            with _process("finish", url, kind, runs) as process:
                _wait_for(process, "working")
                values[f"{kind}_boot_s"] = time.perf_counter() - started
                _wait_for(process, "done")
                values[f"{kind}_s"] = time.perf_counter() - started
                # Over its own shut-down it may take its time.
                process.wait()
    for kind in ("sleeper", "holder"):
        async with connect(bench.ground.url(kind)) as client:
            await bench.verify(client, "completed")
    return values


def _begin_and_kill(url: str, kind: str, runs: int) -> None:
    with _process("begin", url, kind, runs) as process:
        _wait_for(process, "in flight")
        os.kill(process.pid, signal.SIGKILL)


def _process(what: str, url: str, kind: str, runs: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "benchmarks.mortal", what, url, kind, str(runs)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)  # noqa: S603 - our own module


def _wait_for(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout is not None
    if process.stdout.readline().strip() != word:
        raise BenchmarkError(f"the process that should say {word!r} ended, {process.wait()}")


WORKLOAD: Final = Workload(
    "W6",
    "1,000 runs in flight, kill -9, restart, all complete",
    (
        Figure("sleeper_s", "asleep when killed, timers due", "s", target=1.5),
        Figure("holder_s", "in mid-step when killed", "s", target=1.5),
        Figure("sleeper_boot_s", "of which start-up of the process", "s"),
    ),
    measure,
)
