"""Places that cannot hold a ledger are refused, with the way out."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from pledger.errors import StoreError, StoreUnavailableError, UsageError
from pledger.store.sqlite import files, open_sqlite


def test_a_directory_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a directory") as caught:
        open_sqlite(tmp_path / "nowhere" / "ledger.db")
    assert str(tmp_path / "nowhere") in str(caught.value)


def test_a_directory_in_place_of_a_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a directory"):
        open_sqlite(tmp_path)


@pytest.mark.parametrize("content", [b"name,amount\n" * 1_000, b"SQLite format 3\0" + b"\xff" * 4_080])
def test_a_file_that_is_not_a_database(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(StoreError, match=r"not a SQLite database|is damaged") as caught:
        open_sqlite(path)
    assert str(path) in str(caught.value)
    assert path.read_bytes() == content


def test_an_empty_file_becomes_a_ledger(path: Path) -> None:
    path.touch()
    open_sqlite(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_directory(path: Path) -> None:
    path.parent.chmod(0o500)
    with pytest.raises(StoreUnavailableError, match="cannot be made"):
        open_sqlite(path)


def test_a_directory_that_nobody_can_write() -> None:
    with pytest.raises(StoreUnavailableError, match="cannot be made") as caught:
        open_sqlite("/proc/ledger.db")
    assert "owner and mode" in str(caught.value)


def mounts(tmp_path: Path, *lines: str) -> Path:
    table = tmp_path / "mounts"
    table.write_text("".join(f"{line}\n" for line in lines))
    return table


def test_the_deepest_mount_holds_a_file(tmp_path: Path) -> None:
    directory = tmp_path / "srv data"
    (directory / "share").mkdir(parents=True)
    escaped = str(directory).replace(" ", "\\040")
    table = mounts(
        tmp_path,
        "/dev/sda / ext4 rw 0 0",
        f"server:/x {escaped}/share nfs4 rw 0 0",
        f"tmpfs {escaped} tmpfs rw 0 0",
        f"other {escaped}/sha cifs rw 0 0",
    )
    assert files.file_system(directory / "share" / "ledger.db", table) == "nfs4"
    assert files.file_system(directory / "ledger.db", table) == "tmpfs"
    assert files.file_system(tmp_path / "ledger.db", table) == "ext4"


def test_of_two_mounts_on_one_point_the_last_counts(tmp_path: Path) -> None:
    table = mounts(tmp_path, "/dev/sda / ext4 rw 0 0", "server:/x / nfs rw 0 0")
    assert files.file_system(tmp_path / "ledger.db", table) == "nfs"


def test_no_mount_table(tmp_path: Path) -> None:
    assert files.file_system(tmp_path / "ledger.db", tmp_path / "missing") == ""


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "fuse.sshfs"])
def test_network_file_systems_are_refused_unless_allowed(
    path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(files, "file_system", lambda _: kind)
    with pytest.raises(UsageError, match="allow_network_fs=1") as caught:
        open_sqlite(path)
    assert kind in str(caught.value)
    assert not path.exists()
    asyncio.run(open_sqlite(path, allow_network_fs=True).close())
