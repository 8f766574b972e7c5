"""The PostgreSQL server of a test run: PLEDGER_TEST_POSTGRES, or one out of the wheel that all its processes share.

It is started by the first test that needs one, and stopped where the run was started.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg

from pledger.testing.postgres import PostgresServer

GIVEN = "PLEDGER_TEST_POSTGRES"
#: Names the directory of the run, for the processes that it starts.
_PLACE = "PLEDGER_TEST_POSTGRES_PLACE"
_numbers = itertools.count(1)
#: Kept by the process that started it; it may be stopped by another one.
_started: list[PostgresServer] = []


def url() -> str:
    """Of a database whose schemas are ours to make."""
    given = os.environ.get(GIVEN)
    if given:
        return given
    place = Path(os.environ[_PLACE])
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        told = place / "url"
        if not told.exists():
            # What is tested is what we ask of a server; that its disk keeps it is tested where servers are killed.
            server = PostgresServer(place / "server", fsync="off", max_connections="300")
            pid = server.start()
            _started.append(server)
            (place / "pid").write_text(str(pid))
            told.write_text(server.url)
        return told.read_text()


@contextlib.contextmanager
def schema() -> Iterator[str]:
    """The URL of a ledger of its own, which is gone afterwards."""
    name = f"test_{os.getpid()}_{next(_numbers)}"
    try:
        yield f"{url()}?schema={name}"
    finally:
        with psycopg.connect(url(), autocommit=True) as connection:
            connection.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE")


@contextlib.contextmanager
def directory() -> Iterator[Path]:
    """For servers of a test's own, which run as another user where that is root; pytest's are passable for nobody."""
    place = Path(tempfile.mkdtemp(prefix="pledger-test-postgres-"))
    place.chmod(0o755)
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def begin() -> None:
    """Where a run starts."""
    place = Path(tempfile.mkdtemp(prefix="pledger-test-postgres-"))
    place.chmod(0o755)
    os.environ[_PLACE] = str(place)


def end() -> None:
    place = Path(os.environ.pop(_PLACE))
    if _started:
        _started.pop().stop()
    elif (place / "pid").exists():
        pid = int((place / "pid").read_text())
        os.kill(pid, signal.SIGINT)
        for _ in range(100):
            if not _lives(pid):
                break
            time.sleep(0.05)
    shutil.rmtree(place, ignore_errors=True)


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
