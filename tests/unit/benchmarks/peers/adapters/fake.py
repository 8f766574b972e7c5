"""An engine in memory, for the harness to run: it keeps what it is told in files, so that a killed one is found again.

What it does at a start is the variant: `breaks`, `hangs`, `dies`, or `serves` with a process beside it. Of the
variant `early` timers fire too soon, and `deaf` is its other process, which else answers by files.
"""

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path

from benchmarks.peers.rival import FleetRival

#: More waiting than a quiet tenant ever has.
MANY = 100

_numbers = count()


class Adapter(FleetRival):
    settle_s = 0.0
    watched_s = 0.0
    rest_s = 0.0
    ahead_s = 0.05
    due_within_s = 0.01

    async def up(self) -> None:
        sys.stdout.write("what libraries print is no message\n")
        self._step_times: list[float] = []
        self._messages: dict[str, asyncio.Event] = {}
        self._asleep = 0
        self._timers: dict[str, float] = {}
        self._waiting = 0
        self._sleepers: list[asyncio.Task[None]] = []
        match self.place.variant:
            case "breaks":
                raise ValueError("it is broken")
            case "dies":
                os._exit(3)
            case "serves":
                self._serve()
            case "hangs":
                self._serve()
                await asyncio.Event().wait()
        for file in self.place.directory.glob("sleeper-*"):
            self._sleepers.append(asyncio.create_task(self._wake(file)))

    async def serve(self) -> None:
        if self.place.variant == "deaf":
            raise ValueError("it hears nothing")
        self._serving = asyncio.create_task(self._answer())

    async def down(self) -> None:
        pass

    async def run_sequence(self, steps: int) -> None:
        self._step_times += [time.perf_counter() for _ in range(steps)]

    async def fan_out(self, width: int) -> None:
        await self.run_sequence(width)

    async def start_waiter(self, workflow_id: str) -> None:
        self._messages[workflow_id] = asyncio.Event()

    async def signal(self, workflow_id: str) -> None:
        self._messages[workflow_id].set()

    async def waiter_result(self, workflow_id: str) -> None:
        await self._messages[workflow_id].wait()

    async def start_sleeper(self, workflow_id: str, seconds: float) -> None:
        (self.place.directory / workflow_id).write_text("asleep")
        self._asleep += 1

    async def asleep(self) -> int:
        return self._asleep

    async def open_sleepers(self) -> int:
        return len(list(self.place.directory.glob("sleeper-*")))

    async def step_times(self) -> list[float]:
        return self._step_times

    async def run_remote(self, activities: int) -> list[float]:
        question = self.place.directory / f"question-{next(_numbers)}"
        question.touch()
        while question.exists():  # noqa: ASYNC110 - the other process rings no bell
            await asyncio.sleep(0.001)
        return [1.0] * activities

    async def start_timer(self, workflow_id: str, due_s: float) -> None:
        self._timers[workflow_id] = 0.0 if self.place.variant == "early" else due_s

    async def timer_result(self, workflow_id: str) -> None:
        await asyncio.sleep(self._timers[workflow_id] - time.time())

    @contextlib.asynccontextmanager
    async def shared(self, slots: int) -> AsyncIterator[None]:
        yield

    async def run_tenant(self, tenant: str, width: int) -> list[float]:
        self._waiting += width
        if tenant == "noisy":
            await asyncio.Event().wait()
        return [5.0 if self._waiting > MANY else 1.0] * width

    async def has_waiting(self, activities: int) -> bool:
        return self._waiting >= activities

    async def forget_finished(self) -> int:
        return 10**6

    def statements(self) -> int | None:
        return len(self._timers)

    async def counters(self) -> dict[str, float]:
        return {"fsyncs": 2.0 * len(self._step_times)}

    async def _wake(self, file: Path) -> None:
        await self.run_sequence(2)
        file.unlink()  # noqa: ASYNC240 - a fake may block

    async def _answer(self) -> None:
        while True:
            for question in self.place.directory.glob("question-*"):
                question.unlink()
            await asyncio.sleep(0.001)

    def _serve(self) -> None:
        """A server in a session of its own, which the end of the harness's process does not end."""
        command = [sys.executable, "-c", "import time; time.sleep(3600)"]
        server = subprocess.Popen(command, start_new_session=True)
        (self.place.directory / "server").write_text(str(server.pid))
