"""A disk in memory that remembers what was synced: what a power cut leaves of it can be drawn.

A write is seen by every reader at once, as through a page cache, and is durable once its file was synced. A power cut
keeps or loses what was not: each sector on its own, in any order, so that a page may be torn. The fault model is that
of Linux: a file is durably there from its first sync on, a deletion once its folder was synced; and a sync that failed
may have lost what it was to write although readers still see it, which every open file is told once.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Final

#: What a disk writes as a whole.
SECTOR_BYTES: Final = 512


@dataclass(slots=True)
class Write:
    """data at offset; with None in place of data the file is cut to `offset` bytes."""

    offset: int
    data: bytes | None


@dataclass(slots=True)
class DiskFile:
    """data: what readers see. synced: what surely survives. unsynced: the difference, in order. is_durable: whether it
    is there after a power cut. sync_errors: how many syncs failed; whoever has the file open is told of each, once."""

    data: bytearray = field(default_factory=bytearray)
    synced: bytearray = field(default_factory=bytearray)
    unsynced: list[Write] = field(default_factory=list)
    is_durable: bool = False
    sync_errors: int = 0

    def write(self, offset: int, data: bytes) -> None:
        self._do(Write(offset, data))

    def truncate(self, size: int) -> None:
        self._do(Write(size, None))

    def sync(self) -> None:
        """Its content, and that it is there. `Disk.sync` does more."""
        for each in self.unsynced:
            _apply(self.synced, each)
        self.unsynced.clear()
        self.is_durable = True

    def fail_sync(self, *, lost: bool) -> None:
        """lost: the cache takes what it could not write for written. Nobody will write it again."""
        self.sync_errors += 1
        if lost:
            self.unsynced.clear()

    def lose_power(self, dice: random.Random, kept: float) -> None:
        """kept: the share of what was not synced that survives."""
        for each in self.unsynced:
            for part in _sectors(each):
                if dice.random() < kept:
                    _apply(self.synced, part)
        self.unsynced.clear()
        self.data = bytearray(self.synced)
        self.is_durable = True

    def _do(self, write: Write) -> None:
        _apply(self.data, write)
        self.unsynced.append(write)


class Disk:
    """files: by name. changes: counts what was written, so that two looks can tell whether anything was."""

    def __init__(self) -> None:
        self.files: dict[str, DiskFile] = {}
        self.changes = 0
        self._deleted: dict[str, DiskFile] = {}

    def open(self, name: str) -> DiskFile:
        """The file of this name, made if there is none."""
        return self.files.setdefault(name, DiskFile())

    def sync(self, name: str, file: DiskFile) -> None:
        """As SQLite's VFS does it: the first sync of a new log or journal syncs the folder too."""
        if not file.is_durable and name.endswith(("-wal", "-journal")):
            self._deleted.clear()
            for each in self.files.values():
                each.is_durable = True
        file.sync()

    def delete(self, name: str, *, durably: bool) -> None:
        gone = self.files.pop(name, None)
        self.changes += 1
        if durably:
            self._deleted.pop(name, None)
        elif gone is not None and gone.is_durable:
            self._deleted[name] = gone

    def damage(self, name: str, content: bytes, at: int, bit: int) -> bool:
        """Flip a bit of the byte `at` of the place where the file has `content`, for good. Returns whether there is
        such a place."""
        file = self.files.get(name)
        offset = -1 if file is None else file.synced.find(content)
        if file is None or offset < 0 or file.data[offset : offset + len(content)] != content:
            return False
        for copy in (file.data, file.synced):
            copy[offset + at] ^= 1 << bit
        self.changes += 1
        return True

    def lose_power(self, dice: random.Random) -> bool:
        """Whatever was not synced is lost, kept, or in part. Returns whether there was anything to lose."""
        self.changes += 1
        had_something = any(each.unsynced for each in self.files.values())
        # All, nothing, and every mix: each of them has found something that the others cannot.
        kept = dice.choice([0.0, 1.0, dice.random()])
        for name, file in list(self.files.items()):
            if not file.is_durable and dice.random() >= kept:
                del self.files[name]
        for name, file in self._deleted.items():
            if name not in self.files and dice.random() >= kept:
                self.files[name] = file
        self._deleted.clear()
        for file in self.files.values():
            file.lose_power(dice, kept)
        return had_something


def _apply(content: bytearray, write: Write) -> None:
    if write.data is None:
        del content[write.offset :]
        return
    if len(content) < write.offset:
        content.extend(bytes(write.offset - len(content)))
    content[write.offset : write.offset + len(write.data)] = write.data


def _sectors(write: Write) -> list[Write]:
    """The write as the disk carries it out."""
    if write.data is None:
        return [write]
    parts = []
    at, end = write.offset, write.offset + len(write.data)
    while at < end:
        until = min(end, (at // SECTOR_BYTES + 1) * SECTOR_BYTES)
        parts.append(Write(at, write.data[at - write.offset : until - write.offset]))
        at = until
    return parts
