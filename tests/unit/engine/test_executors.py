"""Threads of activities: used again, bounded, and never waited for by a process that ends."""

from __future__ import annotations

import subprocess
import sys
import threading

from pledger.engine.executors import DaemonThreads

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
