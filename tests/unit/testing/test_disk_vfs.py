"""SQLite through the simulated disk: every failure arrives as SQLite's own, and the dead do no harm."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import apsw
import pytest

from pledger.testing.disk import Disk
from pledger.testing.disk_vfs import DiskVfs, Failure, Peace, Step


@dataclass
class Script:
    """failures: what becomes of the next step of a kind, once."""

    failures: dict[Step, Failure] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)

    def meet(self, step: Step, name: str) -> Failure | None:
        self.steps.append(step)
        return self.failures.pop(step, None)

    def draw(self) -> float:
        return 0.5


@dataclass
class Site:
    path: Path
    disk: Disk = field(default_factory=Disk)
    made: list[tuple[DiskVfs, apsw.Connection]] = field(default_factory=list)

    def open(self, script: Script | None = None) -> tuple[DiskVfs, apsw.Connection]:
        self.path.touch()
        vfs = DiskVfs(self.disk, script or Peace())
        connection = apsw.Connection(str(self.path), vfs=vfs.name)
        self.made.append((vfs, connection))
        connection.pragma("journal_mode", "wal")
        connection.pragma("synchronous", "FULL")
        connection.execute("CREATE TABLE IF NOT EXISTS t (x)")
        return vfs, connection


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path / "t.db")
    yield site
    for vfs, connection in site.made:
        connection.close()
        vfs.unregister()


def rows(connection: apsw.Connection) -> list[int]:
    return [x for (x,) in connection.execute("SELECT x FROM t")]


def test_processes_share_the_disk_and_exclude_each_other(site: Site) -> None:
    _, one = site.open()
    _, other = site.open()
    one.execute("BEGIN IMMEDIATE; INSERT INTO t VALUES (1)")
    assert rows(other) == []
    with pytest.raises(apsw.BusyError):
        other.execute("BEGIN IMMEDIATE")
    one.execute("COMMIT")
    assert rows(other) == [1]
    assert site.path.read_bytes() == b""  # the content is elsewhere


@pytest.mark.parametrize(
    ("step", "failure", "error", "code"),
    [
        ("grow", "error", apsw.IOError, apsw.SQLITE_IOERR_WRITE),
        ("grow", "short", apsw.IOError, apsw.SQLITE_IOERR_WRITE),
        ("grow", "full", apsw.FullError, apsw.SQLITE_FULL),
        ("sync", "error", apsw.IOError, apsw.SQLITE_IOERR_FSYNC),
        ("sync", "lost", apsw.IOError, apsw.SQLITE_IOERR_FSYNC),
    ],
)
def test_a_commit_that_fails(site: Site, step: Step, failure: Failure, error: type[apsw.Error], code: int) -> None:
    script = Script()
    _, connection = site.open(script)
    script.failures[step] = failure
    with pytest.raises(error) as raised:
        connection.execute("INSERT INTO t VALUES (1)")
    assert raised.value.extendedresult == code
    assert rows(connection) == []
    connection.execute("INSERT INTO t VALUES (2)")
    assert rows(connection) == [2]


def test_a_read_and_an_opening_that_fail(site: Site) -> None:
    script = Script()
    site.open()[1].execute("INSERT INTO t VALUES (1)")
    _, connection = site.open(script)
    connection.execute("PRAGMA cache_size = 0")
    script.failures["read"] = "error"
    with pytest.raises(apsw.IOError):
        rows(connection)
    assert rows(connection) == [1]
    vfs = DiskVfs(site.disk, Script({"open": "error"}))
    with pytest.raises(apsw.CantOpenError):
        apsw.Connection(str(site.path), vfs=vfs.name)
    vfs.unregister()


def test_every_open_file_is_told_once_of_a_failed_sync(site: Site) -> None:
    script = Script()
    _, one = site.open(script)
    _, other = site.open()
    other.execute("INSERT INTO t VALUES (1)")
    script.failures["sync"] = "error"
    with pytest.raises(apsw.IOError):
        one.execute("INSERT INTO t VALUES (2)")
    with pytest.raises(apsw.IOError):
        other.execute("INSERT INTO t VALUES (3)")
    other.execute("INSERT INTO t VALUES (4)")
    one.execute("INSERT INTO t VALUES (5)")
    assert rows(one) == [1, 4, 5]


def test_nothing_goes_wrong_in_calm(site: Site) -> None:
    script = Script()
    vfs, connection = site.open(script)
    script.steps.clear()
    with vfs.calm():
        connection.execute("INSERT INTO t VALUES (1)")
    assert script.steps == []


def test_the_dead_release_their_locks_and_write_nothing(site: Site) -> None:
    vfs, dying = site.open()
    _, other = site.open()
    dying.execute("BEGIN IMMEDIATE; INSERT INTO t VALUES (1)")
    before = {name: bytes(file.data) for name, file in site.disk.files.items()}
    vfs.is_dead = True
    dying.close()
    assert {name: bytes(file.data) for name, file in site.disk.files.items()} == before
    other.execute("INSERT INTO t VALUES (2)")
    assert rows(other) == [2]


def test_the_last_one_to_die_leaves_its_log(site: Site) -> None:
    vfs, dying = site.open()
    dying.execute("INSERT INTO t VALUES (1)")
    vfs.is_dead = True
    dying.close()
    assert site.disk.files[f"{site.path}-wal"].data
    assert rows(site.open()[1]) == [1]
