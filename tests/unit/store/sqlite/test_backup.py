"""`back_up`: a copy that is whole, private and a ledger by itself, or none at all."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from pledger.engine.port.filters import EVERY
from pledger.errors import StoreError, StoreUnavailableError, UsageError
from pledger.store.memory import open_memory
from pledger.store.sqlite import backup, open_sqlite
from tests.conformance.harness import ownerless_run


@pytest.fixture
def copies(tmp_path: Path) -> Path:
    folder = tmp_path / "copies"
    folder.mkdir()
    return folder


def listed(folder: Path) -> list[str]:
    return [each.name for each in folder.iterdir()]


async def test_the_copy_is_a_ledger_with_all_that_was_committed(tmp_path: Path, copies: Path) -> None:
    """What is still in the log alone, too; and nothing that came later."""
    store = open_sqlite(tmp_path / "ledger.db")
    there = [await ownerless_run(store, f"order-{n}") for n in range(20)]
    assert (tmp_path / "ledger.db-wal").stat().st_size > 0
    size = await store.back_up(str(copies / "copy.db"))
    await ownerless_run(store, "later")
    await store.close()
    assert listed(copies) == ["copy.db"], "one file, which can be moved"
    assert (copies / "copy.db").stat().st_size == size
    copy = open_sqlite(copies / "copy.db")
    assert sorted(await copy.list_runs("default", EVERY, 100), key=lambda run: run.run_key) == there
    await copy.close()


async def test_it_is_readable_by_its_owner_only(tmp_path: Path, copies: Path) -> None:
    store = open_sqlite(tmp_path / "ledger.db")
    before = os.umask(0)
    try:
        await store.back_up(str(copies / "copy.db"))
    finally:
        os.umask(before)
    await store.close()
    assert stat.S_IMODE((copies / "copy.db").stat().st_mode) == 0o600


@pytest.mark.parametrize("left", ["copy.db", "copy.db-wal", "copy.db-journal"])
async def test_it_replaces_nothing(tmp_path: Path, copies: Path, left: str) -> None:
    """Nor does it lie down beside the log of a file that was moved away: that would be taken for its own."""
    (copies / left).write_text("mine")
    store = open_sqlite(tmp_path / "ledger.db")
    with pytest.raises(UsageError, match="a backup replaces nothing"):
        await store.back_up(str(copies / "copy.db"))
    await store.close()
    assert (copies / left).read_text() == "mine"
    assert listed(copies) == [left]


async def test_who_was_faster_keeps_the_name(tmp_path: Path, copies: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = backup._name

    def late(partial: Path, to: Path) -> None:
        to.write_text("mine")
        name(partial, to)

    monkeypatch.setattr(backup, "_name", late)
    store = open_sqlite(tmp_path / "ledger.db")
    with pytest.raises(UsageError, match="is there already"):
        await store.back_up(str(copies / "copy.db"))
    await store.close()
    assert (copies / "copy.db").read_text() == "mine"
    assert listed(copies) == ["copy.db"]


async def test_what_is_not_on_the_disk_gets_no_name(
    tmp_path: Path, copies: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(backup.os, "fsync", fail)
    store = open_sqlite(tmp_path / "ledger.db")
    with pytest.raises(StoreUnavailableError, match="Input/output error"):
        await store.back_up(str(copies / "copy.db"))
    await store.close()
    assert listed(copies) == []


async def test_a_damaged_ledger_gives_no_copy(tmp_path: Path, copies: Path) -> None:
    store = open_sqlite(tmp_path / "ledger.db")
    for n in range(200):
        await ownerless_run(store, f"order-{n}")
    await store.close()
    pages = (tmp_path / "ledger.db").stat().st_size // 4096
    with (tmp_path / "ledger.db").open("r+b") as file:
        file.seek((pages - 2) * 4096)
        file.write(b"\xff" * 4096)
    with pytest.raises(StoreError, match="is damaged"):
        backup.back_up(tmp_path / "ledger.db", copies / "copy.db")
    assert listed(copies) == []


async def test_a_place_that_cannot_be(tmp_path: Path) -> None:
    store = open_sqlite(tmp_path / "ledger.db")
    with pytest.raises(UsageError, match="nosuch is not a directory"):
        await store.back_up(str(tmp_path / "nosuch" / "copy.db"))
    await store.close()
    memory = open_memory("")
    with pytest.raises(UsageError, match="in memory"):
        await memory.back_up(str(tmp_path / "copy.db"))
    await memory.close()
