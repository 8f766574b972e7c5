"""What a workload is given: a ledger on the shipped defaults, a meter, and the checks that come after it.

A repeat is a process of its own with a new ledger. It warms up, waits for a quiet machine, measures, and then replays
the history of every run that it made: a figure counts only when what was measured also holds.
"""

import contextlib
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from benchmarks import disk, ground
from benchmarks.ground import Ground
from benchmarks.load import LoadMeter, wait_until_quiet
from benchmarks.machine import ROOT
from benchmarks.programs import ACTIVITIES, WORKFLOWS
from pledger import Client, Worker, connect

#: What remains of a workload's size in a quick run.
QUICK_SHARE = 10


class BenchmarkError(Exception):
    """What was measured does not hold."""


class Meter:
    """What a measured block took, once it has ended. steps: by what it is divided."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.seconds = 0.0
        self.cpu_seconds = 0.0

    @property
    def step_ms(self) -> float:
        return self.seconds * 1000 / self.steps

    @property
    def step_cpu_ms(self) -> float:
        return self.cpu_seconds * 1000 / self.steps


class Partner:
    """Another process of a workload."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def wait_for(self, word: str) -> None:
        assert self._process.stdout is not None
        if self._process.stdout.readline().strip() != word:
            raise BenchmarkError(f"the process that should say {word!r} ended, {self._process.wait()}")


class Bench:
    """One repeat.

    ground: where its ledgers lie. lens: entered around what is measured, to look at it closely (a profiler); it makes
    the times worthless. durability: other than the default for counts only, never for times. first: whether it is the
    workload's first repeat. say: takes what the repeat is at, for whoever watches.
    commit_ms, fsync_ms: medians around the measured block. other_cores: what others used during it, None where the
    system does not tell. runs, events: replayed afterwards.
    """

    def __init__(
        self,
        directory: Path,
        ground: Ground,
        *,
        quick: bool,
        first: bool,
        patience_s: float,
        lens: AbstractContextManager[object],
        durability: str = "power",
        say: Callable[[str], None],
    ) -> None:
        self.directory = directory
        self.ground = ground
        self.first = first
        self.say = say
        self.steps = 0
        self.commit_ms = 0.0
        self.fsync_ms = 0.0
        self.other_cores: float | None = None
        self.runs = 0
        self.events = 0
        self._quick = quick
        self._patience_s = patience_s
        self._lens = lens
        self._durability = durability
        self._partners: list[int] = []

    @property
    def url(self) -> str:
        return self.ground.url()

    def cpu_s(self) -> float:
        """Processor time used so far for this repeat, by a server and by partners too."""
        return ground.cpu_s((*self.ground.roots, *self._partners))

    @contextlib.contextmanager
    def partner(self, *arguments: str) -> Iterator["Partner"]:
        """Another worker process (see `benchmarks.partner`), from when it is ready until the block ends."""
        command = [sys.executable, "-m", "benchmarks.partner", self.url, *arguments]
        with subprocess.Popen(  # noqa: S603 - our own module
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            partner = Partner(process)
            partner.wait_for("ready")
            self._partners.append(process.pid)
            try:
                yield partner
            finally:
                self._partners.remove(process.pid)
                process.communicate()

    def size(self, full: int) -> int:
        """How many, in this run."""
        return full // QUICK_SHARE if self._quick else full

    @contextlib.asynccontextmanager
    async def ledger(self, *, ends: str = "completed", which: str = "", **settings: Any) -> AsyncIterator[Client]:
        """A worker on a new ledger and its client; at the end every history is verified. ends: status of every run.
        which: a filter for those that are looked at. settings: of the worker, where other than the defaults."""
        self.say("warming up")
        async with connect(self.url, durability=self._durability) as client:
            async with Worker(client, workflows=list(WORKFLOWS.values()), activities=ACTIVITIES, **settings):
                yield client
            await self.verify(client, ends, which)

    @contextlib.asynccontextmanager
    async def measured(self, steps: int) -> AsyncIterator[Meter]:
        """Measure the block, with the disk's own figures taken just before and just after it."""
        self.say("waiting for a quiet machine")
        wait_until_quiet(self._patience_s, self.cpu_s)
        commits_ms, fsyncs_ms = self.ground.commit_times_ms(), disk.fsync_times_ms(self.directory)
        self.say("measuring")
        self.steps = steps
        meter = Meter(steps)
        load, started, cpu_s = LoadMeter(self.cpu_s), time.perf_counter(), self.cpu_s()
        with self._lens:
            yield meter
        meter.seconds, meter.cpu_seconds = time.perf_counter() - started, self.cpu_s() - cpu_s
        self.other_cores = load.other_cores()
        self.commit_ms = statistics.median(commits_ms + self.ground.commit_times_ms())
        self.fsync_ms = statistics.median(fsyncs_ms + disk.fsync_times_ms(self.directory))

    async def verify(self, client: Client, ends: str, which: str = "") -> None:
        """Replay the whole history of every run (its checksums are followed on the way); all must end as said."""
        async for run in client.list(which):
            if run.status != ends or run.blocked is not None:
                raise BenchmarkError(f"run {run.workflow_id!r} is {run.blocked or run.status}; it should be {ends}")
            history = await client.handle(run.workflow_id, run_id=run.run_id).history()
            events = await history.replay(WORKFLOWS[run.workflow_type])
            if events != len(history.events):
                raise BenchmarkError(f"run {run.workflow_id!r}: {events} of {len(history.events)} events were replayed")
            self.runs += 1
            self.events += events
            if self.runs % 500 == 1:
                self.say(f"verifying by replay, {self.runs:,} runs so far")
