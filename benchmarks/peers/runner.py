"""Starts the processes of the engines, each task on its own time limit, and collects what they say."""

import os
import secrets
import shutil
import signal
import socket
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, Final, Self

import msgspec

from benchmarks import processes
from benchmarks.figures import Values
from benchmarks.ground import Server
from benchmarks.machine import ROOT
from benchmarks.peers.asked import Request
from benchmarks.peers.catalogue import Peer
from benchmarks.peers.install import Installed

#: How many ports an engine may use.
PORTS: Final = 4

#: How long a process may take over its own end, before it is killed.
END_S: Final = 20.0


class TaskError(Exception):
    """A task did not come to its end. The message says why, in a line."""


@dataclass(frozen=True, slots=True)
class Harness:
    """place: below it are the directories of the engines. limit_s: for one task. postgres: a server, where one is
    needed (its URL is without the name of a database); postgres_failure: why there is none. adapters: the package of
    the adapters. sleep: waits."""

    place: Path
    limit_s: float
    say: Callable[[str], None]
    postgres: Server | None = None
    postgres_failure: str = ""
    adapters: str = "benchmarks.peers.rivals"
    sleep: Callable[[float], None] = time.sleep


@dataclass
class Task:
    """A process at work. Use it as a context: at its end nothing that it started is left."""

    request: Request
    python: Path
    harness: Harness
    prefix: tuple[str, ...] = ()
    started: float = 0.0
    _token: str = field(default_factory=lambda: secrets.token_hex(8))
    _process: subprocess.Popen[str] = field(init=False)
    _log: IO[bytes] = field(init=False)
    _timer: threading.Timer = field(init=False)
    _is_late: bool = False

    def __enter__(self) -> Self:
        harness = self.harness
        self._log = (harness.place / "log").open("ab")
        command = [*self.prefix, str(self.python), "-m", "benchmarks.peers.child", self.request.to_json()]
        environment = process_environment(harness.place) | {processes.TOKEN: self._token}
        self.started = time.perf_counter()
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=self._log, text=True
        )
        self._timer = threading.Timer(harness.limit_s, self._stop)
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self.kill()
        self._log.close()

    def _stop(self) -> None:
        self._is_late = True
        self.kill()

    def kill(self) -> None:
        """SIGKILL to the process and all that it started."""
        processes.kill_marked(self._token)
        self._process.wait()

    def wait_for(self, key: str, value: object = None) -> Any:
        """What it says under that key (the first such, or that value). Raises TaskError when it says it no more."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            told: Mapping[str, Any] = msgspec.json.decode(line)
            if "failed" in told:
                raise TaskError(str(told["failed"]))
            if key in told and value in (None, told[key]):
                return told[key]
            if "said" in told:
                self.harness.say(str(told["said"]))
        if self._is_late:
            raise TaskError(f"not done in {self.harness.limit_s:g} s")
        raise TaskError(f"its process ended with {self._process.wait()} and said nothing")

    def wait_for_end(self) -> None:
        """Let it and its servers end by themselves for a while."""
        deadline = time.monotonic() + END_S
        while time.monotonic() < deadline and processes.marked(self._token):
            time.sleep(0.05)


def request(peer: Peer, task: str, harness: Harness, directory: Path, size: int) -> Request:
    server = harness.postgres if peer.on_postgres else None
    return Request(
        adapter=f"{harness.adapters}.{peer.adapter}",
        task=task,
        directory=str(directory.absolute()),
        size=size,
        in_flight=peer.in_flight,
        sleep_s=peer.sleep_for(size),
        ports=tuple(free_ports(PORTS)),
        postgres=None if server is None else server.url,
        postgres_pid=None if server is None else server.pid,
        variant=peer.variant,
    )


def measure(peer: Peer, workload: str, installed: Installed, harness: Harness, size: int) -> Values:
    """One repeat of a workload, in a process and on a directory of its own. Raises TaskError."""
    with new_directory(harness.place) as directory:
        asked = request(peer, workload, harness, directory, size)
        if workload == "W6":
            return recover(asked, installed.python, harness)
        if workload == "W8":
            return footprint(peer, installed, harness, size)
        with Task(asked, installed.python, harness) as task:
            return dict(task.wait_for("values"))


def recover(asked: Request, python: Path, harness: Harness) -> Values:
    """W6: from the start of a process until all sleepers that the killed one had are complete. All timers are due."""
    with Task(replace(asked, task="begin"), python, harness) as task:
        task.wait_for("values")
        asleep = time.monotonic()
        harness.say("kill -9")
        task.kill()
    harness.say("dead until all timers are due")
    harness.sleep(max(0.0, asked.sleep_s + 1 - (time.monotonic() - asleep)))
    with Task(replace(asked, task="finish"), python, harness) as task:
        task.wait_for("said", "up")
        boot_s = time.perf_counter() - task.started
        harness.say("recovering")
        task.wait_for("values")
        seconds = time.perf_counter() - task.started
    return {"sleeper_ms": seconds * 1000 / asked.size, "boot_s": boot_s}


def footprint(peer: Peer, installed: Installed, harness: Harness, starts: int) -> Values:
    """W8. Starts and imports in turns; the first of each is not counted: it compiles what is not yet compiled."""
    bare_s, imported_s, first_s = [], [], []
    for number in range(starts + 1):
        harness.say(f"start {number} of {starts}")
        bare_s.append(_run_s(installed.python, "pass", harness))
        imported_s.append(_run_s(installed.python, f"import {peer.imports}", harness))
        with new_directory(harness.place) as directory:
            asked = request(peer, "first", harness, directory, 1)
            with Task(asked, installed.python, harness) as task:
                task.wait_for("values")
                first_s.append(time.perf_counter() - task.started)
                task.wait_for_end()
    return {
        "import_s": max(0.0, statistics.median(imported_s[1:]) - statistics.median(bare_s[1:])),
        "first_s": statistics.median(first_s[1:]),
        "installed_mb": installed.megabytes,
        "distributions": installed.distributions,
    }


def _run_s(python: Path, code: str, harness: Harness) -> float:
    started = time.perf_counter()
    ended = subprocess.run(  # noqa: S603 - code of ours
        [str(python), "-c", code],
        cwd=harness.place,
        env=process_environment(harness.place),
        check=False,
        capture_output=True,
        timeout=harness.limit_s,
    )
    if ended.returncode:
        raise TaskError(f"{code!r} ended with {ended.returncode}")
    return time.perf_counter() - started


def process_environment(place: Path) -> dict[str, str]:
    """As users have it: with byte code kept, outside of the checkout; without what a shell says to Python."""
    forbidden = ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    kept = {name: value for name, value in os.environ.items() if name not in forbidden}
    return kept | {"PYTHONPYCACHEPREFIX": str((place / "byte-code").absolute())}


@contextmanager
def new_directory(place: Path) -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="store-", dir=place))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that nobody uses at this moment, all different."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def stop_on_signals() -> None:
    """Let SIGTERM end us as Ctrl-C does, so that contexts are left and servers end."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
