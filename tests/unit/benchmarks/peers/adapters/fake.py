"""An engine in memory, for the harness to run: it keeps what it is told in files, so that a killed one is found again.

What it does at a start is the variant: `breaks`, `hangs`, `dies`, or `serves` with a process beside it.
"""

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.peers.rival import Rival


class Adapter(Rival):
    settle_s = 0.0
    watched_s = 0.0

    async def up(self) -> None:
        sys.stdout.write("what libraries print is no message\n")
        self._step_times: list[float] = []
        self._messages: dict[str, asyncio.Event] = {}
        self._asleep = 0
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

    async def counters(self) -> dict[str, float]:
        return {"fsyncs": 2.0 * len(self._step_times)}

    async def _wake(self, file: Path) -> None:
        await self.run_sequence(2)
        file.unlink()  # noqa: ASYNC240 - a fake may block

    def _serve(self) -> None:
        """A server in a session of its own, which the end of the harness's process does not end."""
        command = [sys.executable, "-c", "import time; time.sleep(3600)"]
        server = subprocess.Popen(command, start_new_session=True)
        (self.place.directory / "server").write_text(str(server.pid))
