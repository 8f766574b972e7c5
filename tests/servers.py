"""The PostgreSQL server of a test run: PLEDGER_TEST_POSTGRES, or one out of the wheel that all its processes share.

The latter is started by the first test that needs one, and stopped where the run was started. The former may be given
with any user, with a password, and with parameters: a test makes other URLs of it with `changed`, and never by hand.
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
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

import psycopg
import pytest

from pledger.testing.postgres import PostgresServer

GIVEN = "PLEDGER_TEST_POSTGRES"
#: Names the directory of the run, for the processes that it starts.
_PLACE = "PLEDGER_TEST_POSTGRES_PLACE"
_numbers = itertools.count(1)
#: Kept by the process that started it; it may be stopped by another one.
_started: list[PostgresServer] = []


def url() -> str:
    """Of a database whose schemas are ours to make: for libpq, and with a schema for Pledger."""
    given = os.environ.get(GIVEN)
    if given:
        return changed(given, schema=None)
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
        yield changed(url(), schema=name)
    finally:
        admin(f"DROP SCHEMA IF EXISTS {name} CASCADE")


# URLs, roles ----------------------------------------------------------------------------------------------------------


def changed(
    url: str,
    *,
    user: str | None = None,
    password: str | None = None,
    dbname: str | None = None,
    **parameters: object | None,
) -> str:
    """The URL with these in place of its own, wherever they stand in it. parameters: of its query; None takes one out.
    Another user has the password that is given, or none."""
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    netloc, path = parts.netloc, parts.path
    if user is not None:
        query.pop("user", None)
        query.pop("password", None)
        secret = "" if password is None else f":{quote(password, safe='')}"
        netloc = f"{quote(user, safe='')}{secret}@{netloc.rpartition('@')[2]}"
    if dbname is not None:
        query.pop("dbname", None)
        path = f"/{quote(dbname, safe='')}"
    for name, value in parameters.items():
        query.pop(name, None)
        if value is not None:
            query[name] = str(value)
    return f"{parts.scheme}://{netloc}{path}{'?' if query else ''}{urlencode(query, quote_via=quote)}"


def user_of(url: str) -> str:
    """Who comes with this URL."""
    parts = urlsplit(url)
    return unquote(parts.netloc.rpartition("@")[0].partition(":")[0]) or dict(parse_qsl(parts.query))["user"]


def admin(sql: str, at: str | None = None) -> list[tuple[object, ...]]:
    """Run it as the user of the server of the test run, or of another one; rows, if there are any."""
    with psycopg.connect(at or url(), autocommit=True) as connection:
        cursor = connection.execute(sql)  # type: ignore[call-overload] # the tests' own text
        return cursor.fetchall() if cursor.description else []


def needs_superuser() -> None:
    """Skips the test where a given server was given with another user."""
    if admin("SELECT rolsuper FROM pg_roles WHERE rolname = current_user") != [(True,)]:
        pytest.skip(f"it makes roles, databases or triggers as a superuser, and the user of {GIVEN} is none")


@contextlib.contextmanager
def role(name: str, at: str | None = None) -> Iterator[Callable[[str], str]]:
    """A role that may log in, and what makes a URL its own; all that it owns in the database goes with it."""
    if at is None:
        needs_superuser()
    password = f"of {name}"
    admin(f"CREATE ROLE {name} LOGIN PASSWORD '{password}'", at)
    try:
        yield lambda url: changed(url, user=name, password=password)
    finally:
        admin(f"DROP OWNED BY {name}; DROP ROLE {name}", at)


# Places ---------------------------------------------------------------------------------------------------------------


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
