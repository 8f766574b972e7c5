"""Real processes on a real SQLite file, killed by SIGKILL just before and just after every commit, then run again; or
stopped there for longer than their lease while another one takes over.

The commits are gone through as they come: the first, the second, and so on until a run is not hit any more.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import apsw
import pytest

from pledger import connect
from pledger.history.events import SignalReceived
from pledger.testing import replay
from tests.acceptance.mortal import Order

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60


def begin(folder: Path, *fate: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.acceptance.mortal", *fate]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def end(process: subprocess.Popen[str]) -> int:
    _, told = process.communicate(timeout=PATIENCE_S)
    assert process.returncode in {0, -signal.SIGKILL}, told
    return process.returncode


def live(folder: Path, *fate: str) -> bool:
    """Run the program; whether it was killed."""
    return end(begin(folder, *fate)) != 0


def lines(folder: Path, file: str) -> list[str]:
    path = folder / file
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


async def check(folder: Path) -> None:
    """The ledger, the outside world and what the client was told tell one story."""
    async with connect(f"sqlite:///{folder}/ledger.db") as client:
        [run] = [each async for each in client.list()]
        history = await client.handle("order").history()
        result = await client.handle("order", workflow=Order).result()
    replay(history, Order)
    acknowledged = lines(folder, "acknowledged")
    assert {line for line in acknowledged if line.startswith("start")} == {f"start {run.run_id}"}
    assert acknowledged[-1] == f"result {result}"
    assert [each.event.message_id for each in history.events if isinstance(each.event, SignalReceived)] == ["dispatch"]
    attempts = Counter(lines(folder, "attempts"))
    assert set(attempts.values()) == {1}, "no attempt is made twice"
    charged = sum(line.startswith("charge ") for line in attempts)
    assert charged <= 1, "at most once"
    assert result in (
        ["reserved 1", "reserved 2", "charged 42", "booked bike"],
        ["reserved 1", "reserved 2", "WorkerLostError", "booked bike"],
    )
    assert charged == 1 or result[2] == "WorkerLostError"
    database = apsw.Connection(str(folder / "ledger.db"))
    assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    database.close()


@pytest.mark.parametrize("phase", ["before", "after"])
def test_killed_at_every_commit(tmp_path: Path, phase: str) -> None:
    for number in itertools.count(1):
        folder = tmp_path / str(number)
        folder.mkdir()
        killed = live(folder, phase, str(number))
        if killed:
            assert not live(folder)
        asyncio.run(check(folder))
        if not killed:
            assert number > 5, "there are more commits than that"
            return


@pytest.mark.parametrize("phase", ["before", "after"])
def test_killed_at_every_commit_of_the_recovery_too(tmp_path: Path, phase: str) -> None:
    for number in itertools.count(1):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert live(folder, "after", "5")
        killed = live(folder, phase, str(number))
        if killed:
            assert not live(folder)
        asyncio.run(check(folder))
        if not killed:
            return


def test_stopped_past_the_lease_at_every_commit(tmp_path: Path) -> None:
    for number in itertools.count(1):
        folder = tmp_path / str(number)
        folder.mkdir()
        process = begin(folder, "stop", str(number))
        found = os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        stopped = found is not None and found.si_code == os.CLD_STOPPED
        if stopped:
            assert not live(folder), "another one takes over"
            process.send_signal(signal.SIGCONT)
        assert end(process) == 0, "one that goes on finds that it has lost the run, and hears of its end"
        asyncio.run(check(folder))
        if not stopped:
            return
