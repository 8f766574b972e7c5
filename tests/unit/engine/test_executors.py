"""Threads of activities: used again, bounded, and never waited for by a process that ends. And processes that die."""

from __future__ import annotations

import multiprocessing
import os
import struct
import subprocess
import sys
import threading
from types import SimpleNamespace
from typing import Any, cast

from pledger.engine import processes
from pledger.engine.executors import DaemonThreads
from pledger.errors import WorkerLostError

HANGS = """
import threading
from pledger.engine.executors import DaemonThreads

began = threading.Event()
pool = DaemonThreads(2)
pool.submit(lambda: (began.set(), threading.Event().wait()))
began.wait()
pool.shutdown()
"""


def test_a_process_ends_although_a_thread_hangs() -> None:
    subprocess.run([sys.executable, "-c", HANGS], check=True, timeout=30)


def test_threads_are_used_again_and_are_no_more_than_allowed() -> None:
    pool = DaemonThreads(2)
    assert len({pool.submit(threading.get_ident).result(10) for _ in range(5)}) <= 2
    together = threading.Barrier(2)
    waiting = [pool.submit(lambda: (together.wait(10), threading.get_ident())[1]) for _ in range(6)]
    assert len({each.result(10) for each in waiting}) == 2
    pool.shutdown()


def test_what_a_call_raises_is_the_futures() -> None:
    pool = DaemonThreads(1)
    assert isinstance(pool.submit(sys.exit, 3).exception(10), SystemExit)
    assert pool.submit(int, "5").result(10) == 5
    pool.shutdown()


def test_a_process_that_is_killed_while_it_answers_is_lost() -> None:
    """What it did is done; nobody knows what it came to."""
    ours, theirs = multiprocessing.Pipe()
    os.write(theirs.fileno(), struct.pack("!i", 1) + b"r" + struct.pack("!i", 100_000) + b"half of it")
    theirs.close()
    error, _ = processes._listen(cast("Any", ours), cast("Any", SimpleNamespace(ending=None)))
    assert isinstance(error, WorkerLostError)
