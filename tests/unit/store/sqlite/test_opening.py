"""An opening that fails at any step leaves nothing open: no connection, no lock, no place in the books."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from pathlib import Path

import apsw
import pytest

from pledger.errors import StoreError, StoreUnavailableError
from pledger.store.sqlite import database, open_sqlite
from pledger.store.sqlite.handle import SqliteHandle
from pledger.store.sqlite.host import Host
from pledger.testing.disk import Disk
from pledger.testing.disk_vfs import DiskVfs, Failure, Step


@dataclass
class Nth:
    """Fails the step of that number, from 1. count: steps so far."""

    failing: int
    count: int = 0

    def meet(self, step: Step, name: str) -> Failure | None:
        self.count += 1
        return "error" if self.count == self.failing else None

    def draw(self) -> float:
        return 0.0


def test_an_opening_that_fails_at_its_nth_step(path: Path) -> None:
    failed = []
    for failing in range(1, 1_000):
        fate = Nth(failing)
        vfs = DiskVfs(Disk(), fate)
        open_before = set(apsw.connections())
        try:
            store = open_sqlite(path, host=Host(vfs=vfs.name, threads=False))
        except StoreUnavailableError as error:
            failed.append(error)  # with its traceback, and all that it holds
        else:
            with contextlib.suppress(apsw.Error):  # apsw tells of what SQLite itself ignores when it closes
                asyncio.run(store.close())
            if fate.count < failing:
                break
        assert set(apsw.connections()) == open_before
        assert not [key for key in database._open if key[-1] == vfs.name]
    else:
        pytest.fail("it never came through")
    assert len(failed) > 20


def test_an_opening_that_fails_copies_nothing_of_a_log_that_it_has_not_looked_at(path: Path) -> None:
    """The one before may have died of a failed sync: the log as readers see it may not be on the disk."""
    disk = Disk()
    first = DiskVfs(disk, Nth(0))
    store = open_sqlite(path, host=Host(vfs=first.name, threads=False))
    first.is_dead = True  # killed: nothing of its end reaches the disk
    with contextlib.suppress(apsw.Error, StoreError):
        asyncio.run(store.close())
    log = disk.files[f"{path}-wal"]
    assert log.data
    for failing in range(1, 1_000):
        before = bytes(disk.files[str(path)].data)
        fate = Nth(failing)
        vfs = DiskVfs(disk, fate)
        try:
            store = open_sqlite(path, host=Host(vfs=vfs.name, threads=False))
        except StoreUnavailableError:
            assert disk.files[str(path)].data == before
            continue
        with contextlib.suppress(apsw.Error):
            asyncio.run(store.close())
        break
    else:
        pytest.fail("it never came through")


def test_a_handle_that_fails_gives_its_place_back(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: SqliteHandle) -> tuple[int, int]:
        raise StoreUnavailableError("the disk failed")

    monkeypatch.setattr(SqliteHandle, "_change_mark", fail)
    open_before = set(database._open)
    with pytest.raises(StoreUnavailableError):
        open_sqlite(path)
    assert set(database._open) == open_before
