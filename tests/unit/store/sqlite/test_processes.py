"""A second process on the same file: it sees what this one commits, and can die at any commit."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pledger.engine.port.answers import Started
from pledger.engine.port.filters import EVERY
from pledger.store.sqlite import open_sqlite
from tests.conformance.harness import append, claim, open_session, ownerless_run, start, write

ROOT = Path(__file__).parents[4]

CLAIMER = """
import asyncio, sys
from pledger.store.sqlite import open_sqlite

async def main():
    store = open_sqlite(sys.argv[1])
    session = await store.open_session("other", "default", "default", "code-1", 10_000)
    print("ready", flush=True)
    key = session.session_key
    while not (runs := await store.claim_runs(key, await store.now_ms(), "default", "default", {"fulfil": "c"}, 9)):
        assert await store.wait_for_change(20.0), "nothing was heard"
    print(runs[0].run_key, runs[0].fence, flush=True)
    await store.close()

asyncio.run(main())
"""

#: Starts ten runs, one commit each, and kills itself at the given side of the given commit.
SUICIDE = """
import asyncio, os, signal, sys
from pledger.store.sqlite import open_sqlite
from tests.conformance.harness import start

def hook(phase, number):
    if (phase, number) == (sys.argv[2], int(sys.argv[3])):
        os.kill(os.getpid(), signal.SIGKILL)

async def main():
    store = open_sqlite(sys.argv[1], on_commit=hook)
    for n in range(1, 11):
        await store.commit([start(f"order-{n}")])
        print(n, flush=True)

asyncio.run(main())
"""


def python(code: str, *args: object) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([*sys.path, str(ROOT)])}
    command = [sys.executable, "-c", code, *map(str, args)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT)


async def test_another_process_hears_of_a_commit_and_acts_on_it(path: Path) -> None:
    store = open_sqlite(path)
    with python(CLAIMER, path) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "ready\n"
        while await store.wait_for_change(0):
            pass
        run = await ownerless_run(store)
        assert await store.wait_for_change(20.0)
        run_key, fence = map(int, other.stdout.readline().split())
    assert (run_key, fence) == (run.run_key, 1)  # it may have been claimed before it was read here
    claimed = await store.read_run(run_key)
    assert claimed.owner is not None
    assert await claim(store, await open_session(store)) == []
    await store.close()


@pytest.mark.parametrize("number", [1, 2, 5, 10])
@pytest.mark.parametrize("phase", ["before", "after"])
async def test_a_process_killed_at_a_commit_loses_nothing_it_acknowledged(path: Path, phase: str, number: int) -> None:
    with python(SUICIDE, path, phase, number) as process:
        out, _ = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    assert out.split() == [str(n) for n in range(1, number)]
    store = open_sqlite(path)
    assert await store.count_runs("default", EVERY) == (number - 1 if phase == "before" else number)
    assert store._database.rows("PRAGMA integrity_check", ()) == [("ok",)]
    await store.close()


async def test_many_processes_take_turns(path: Path) -> None:
    """Four writers at once: nobody sees a lock error, nothing is lost."""
    code = SUICIDE.replace('f"order-{n}"', 'f"order-{sys.argv[2]}-{n}"')
    processes = [python(code, path, number, 0) for number in range(4)]
    for process in processes:
        out, _ = await asyncio.to_thread(process.communicate, timeout=60)
        assert (process.returncode, len(out.split())) == (0, 10)
    store = open_sqlite(path)
    assert await store.count_runs("default", EVERY) == 40
    await store.close()


async def test_two_processes_opening_a_new_file_at_once(path: Path) -> None:
    processes = [python(SUICIDE, path, "none", 0) for _ in range(3)]
    for process in processes:
        await asyncio.to_thread(process.communicate, timeout=60)
        assert process.returncode == 0
    store = open_sqlite(path)
    assert isinstance(await write(store, start("another")), Started)
    session = await open_session(store)
    runs = await claim(store, session, 10**15)
    assert len(runs) == 11
    assert await write(store, append(runs[0])) is not None
    await store.close()
