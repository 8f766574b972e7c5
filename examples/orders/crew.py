"""The worker processes of the demo, and how they die: by SIGKILL, which no process can catch, prepare for or delay."""

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Self

from examples.orders.worker import AWAY

ROOT = Path(__file__).parents[2]

#: Seconds from one kill to the next, drawn anew each time.
PAUSE_S = (0.5, 1.9)

#: A worker that is told to stop hands its runs back and ends well before this.
GRACE_S = 20


@dataclass
class Crew:
    """A fixed number of workers: one that is killed is replaced at once.

    environment: given to each of them. log: where they all write what they have to say. kills: so far. deserters: how
    many ended by themselves, but for those that found no server when they began.
    """

    size: int
    environment: Mapping[str, str]
    log: Path
    kills: int = 0
    deserters: int = 0
    _workers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _output: IO[bytes] | None = None

    def __enter__(self) -> Self:
        self._output = self.log.open("ab")
        self._workers = [self._hire() for _ in range(self.size)]
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.send_signal(signal.SIGTERM)
        for worker in self._workers:
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.wait(GRACE_S)
            worker.kill()
            worker.wait()
        if self._output:
            self._output.close()

    def _hire(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "examples.orders.worker"],
            cwd=ROOT,
            env={**os.environ, **self.environment},
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
        )

    async def strike(self, times: int, dice: random.Random) -> None:
        """Kill a random worker at a random moment, again and again."""
        for _ in range(times):
            await asyncio.sleep(dice.uniform(*PAUSE_S))
            place = dice.randrange(self.size)
            self._workers[place].kill()
            self._workers[place].wait()
            self._workers[place] = self._hire()
            self.kills += 1

    def replace_deserters(self) -> None:
        """Replace workers that ended without being killed. None should once it has its ledger: each is a bug."""
        for place, worker in enumerate(self._workers):
            if worker.poll() is not None:
                self.deserters += worker.returncode != AWAY
                self._workers[place] = self._hire()
