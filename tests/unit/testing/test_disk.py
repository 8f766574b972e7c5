"""A disk whose power may be cut: what was synced stays, of everything else each sector stays or goes."""

from __future__ import annotations

import random

import pytest

from pledger.testing.disk import SECTOR_BYTES, Disk, DiskFile

A, B = b"a" * SECTOR_BYTES, b"b" * SECTOR_BYTES


def file(content: bytes = b"") -> DiskFile:
    made = DiskFile()
    made.write(0, content)
    made.sync()
    return made


def outcomes(made: DiskFile) -> set[bytes]:
    """What a power cut may leave of it."""
    seen = set()
    for seed in range(200):
        copy = DiskFile(bytearray(made.data), bytearray(made.synced), list(made.unsynced), made.is_durable)
        copy.lose_power(random.Random(seed), kept=0.5)
        assert copy.data == copy.synced
        assert not copy.unsynced
        seen.add(bytes(copy.data))
    return seen


def test_a_write_is_read_at_once() -> None:
    made = file(b"12345")
    made.write(1, b"xy")
    made.write(7, b"z")
    assert made.data == b"1xy45\0\0z"
    made.truncate(2)
    assert made.data == b"1x"
    assert made.synced == b"12345"


def test_what_was_synced_stays() -> None:
    made = file(A)
    made.write(SECTOR_BYTES, B)
    made.sync()
    assert outcomes(made) == {A + B}


def test_each_sector_stays_or_goes() -> None:
    made = file(A + A)
    made.write(0, B + B)
    assert outcomes(made) == {A + A, A + B, B + A, B + B}


def test_a_write_is_torn_at_the_sectors_of_the_disk() -> None:
    made = file(A + A)
    made.write(SECTOR_BYTES - 1, b"xy")
    torn = {bytes(A + A)[: SECTOR_BYTES - 1] + pair + A[1:] for pair in (b"aa", b"ay", b"xa", b"xy")}
    assert outcomes(made) == torn


def test_a_truncation_may_be_lost() -> None:
    made = file(A)
    made.truncate(0)
    assert outcomes(made) == {A, b""}


def test_a_sync_that_failed_may_be_made_good_by_the_next() -> None:
    made = file(A)
    made.write(0, B)
    made.fail_sync(lost=False)
    made.sync()
    assert outcomes(made) == {B}


def test_a_sync_that_lost_something_is_not_made_good_by_the_next() -> None:
    made = file(A)
    made.write(0, B)
    made.fail_sync(lost=True)
    made.sync()
    assert made.data == B
    assert outcomes(made) == {A}
    made.write(0, B)
    made.sync()
    assert outcomes(made) == {B}


def cut(disk: Disk, name: str, seeds: int = 100) -> set[bytes | None]:
    """What power cuts leave of the file of that name; None where it is gone."""
    seen: set[bytes | None] = set()
    for seed in range(seeds):
        copy = Disk()
        copy.files = {each: file(bytes(its.synced)) for each, its in disk.files.items()}
        for each, its in copy.files.items():
            its.is_durable = disk.files[each].is_durable
        copy._deleted = dict(disk._deleted)
        copy.lose_power(random.Random(seed))
        left = copy.files.get(name)
        seen.add(None if left is None else bytes(left.data))
    return seen


def test_a_new_file_may_be_gone_until_it_is_synced() -> None:
    disk = Disk()
    disk.open("ledger.db")
    assert cut(disk, "ledger.db") == {None, b""}
    disk.sync("ledger.db", disk.files["ledger.db"])
    assert cut(disk, "ledger.db") == {b""}


@pytest.mark.parametrize(("durably", "left"), [(True, {None}), (False, {None, A})])
def test_a_deleted_file_may_come_back(durably: bool, left: set[bytes | None]) -> None:
    disk = Disk()
    disk.files["ledger.db-wal"] = file(A)
    disk.delete("ledger.db-wal", durably=durably)
    assert "ledger.db-wal" not in disk.files
    assert cut(disk, "ledger.db-wal") == left


def test_the_first_sync_of_a_log_syncs_the_folder() -> None:
    disk = Disk()
    disk.files["ledger.db-journal"] = file(A)
    disk.delete("ledger.db-journal", durably=False)
    log = disk.open("ledger.db-wal")
    disk.sync("ledger.db-wal", log)
    assert cut(disk, "ledger.db-journal") == {None}
