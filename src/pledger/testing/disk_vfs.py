"""SQLite on a simulated disk: a VFS for each simulated process, which meets the faults that are drawn for it.

The content of the files is that of the `Disk`, in memory. Beneath each lies an empty real file, for its locks and its
shared memory, which are SQLite's own: apsw cannot implement shared memory in Python, and passes it on to the VFS
that is inherited from. So several connections on one disk exclude each other and share the index of the log as they do
in life.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import Final, Literal, Protocol, TypeAlias

import apsw

from pledger.testing.disk import Disk, DiskFile

Step: TypeAlias = Literal["open", "read", "write", "grow", "sync", "truncate", "delete"]
"""What a process asks of the disk. "grow" is a write that makes the file longer."""

Failure: TypeAlias = Literal["error", "full", "short", "lost", "death"]
"""How that may go: it fails, there is no room, a part is written and then it fails, what was to be synced is lost, the
process dies in the midst of it."""

#: The extended code of each failure; what is not named here is an I/O error without one.
_CODES: Final[dict[str, int]] = {
    "open": apsw.SQLITE_CANTOPEN,
    "read": apsw.SQLITE_IOERR_READ,
    "write": apsw.SQLITE_IOERR_WRITE,
    "grow": apsw.SQLITE_IOERR_WRITE,
    "sync": apsw.SQLITE_IOERR_FSYNC,
    "truncate": apsw.SQLITE_IOERR_TRUNCATE,
    "delete": apsw.SQLITE_IOERR_DELETE,
}
_numbers = itertools.count(1)


class Fate(Protocol):
    """Asked at each step what becomes of it; None lets it pass. Draws in [0, 1) say how much of a write is done."""

    def meet(self, step: Step, name: str) -> Failure | None: ...
    def draw(self) -> float: ...


class Peace:
    """Nothing goes wrong: for those who look from outside."""

    def meet(self, step: Step, name: str) -> Failure | None:  # noqa: ARG002 - as any fate
        return None

    def draw(self) -> float:
        return 0.0


class DiskVfs(apsw.VFS):
    """One process's way to the disk. name: for `Host.vfs` or a connection. is_dead: its process is; nothing that its
    connections still do, such as being closed, reaches the disk or anybody else."""

    def __init__(self, disk: Disk, fate: Fate) -> None:
        self.disk = disk
        self.is_dead = False
        self._fate = fate
        self._calm = 0
        self.name = f"pledger-simulated-{next(_numbers)}"
        super().__init__(self.name, "unix")

    @contextlib.contextmanager
    def calm(self) -> Iterator[None]:
        """Nothing goes wrong meanwhile: whoever asks is no part of the simulated process."""
        self._calm += 1
        try:
            yield
        finally:
            self._calm -= 1

    def meet(self, step: Step, name: str) -> Failure | None:
        """What becomes of the step, when it is for the file's code to bring it about. Raises what ends it at once."""
        if self.is_dead:
            raise _failure(step)
        if self._calm:
            return None
        failure = self._fate.meet(step, name)
        if failure is None or failure in {"short", "lost"}:
            return failure
        if failure == "full":
            raise apsw.exception_for(apsw.SQLITE_FULL)
        raise _failure(step)

    def draw(self) -> float:
        return self._fate.draw()

    # What SQLite asks of a VFS ----------------------------------------------------------------------------------------

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 - SQLite's name
        if name is None:
            return apsw.VFSFile("unix", None, flags)  # a temporary file: nobody's business
        self.meet("open", _text(name))
        return _OpenFile(self, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: FBT001, N802 - as above
        self.meet("delete", filename)
        self.disk.delete(filename, durably=syncdir)

    def xAccess(self, pathname: str, flags: int) -> bool:  # noqa: ARG002, N802 - as above
        return pathname in self.disk.files

    def xSleep(self, microseconds: int) -> int:  # noqa: N802 - as above
        # Nobody else runs meanwhile; SQLite counts what it has slept, and gives up in time.
        return microseconds

    def excepthook(self, *_: object) -> bool:
        """Called by apsw where SQLite has no way to hand on an error: what it means has been said by its code."""
        return True


class _OpenFile(apsw.VFSFile):
    def __init__(self, vfs: DiskVfs, name: str | apsw.URIFilename, flags: list[int]) -> None:
        super().__init__("unix", name, flags)
        self._vfs = vfs
        self._name = _text(name)
        self._file: DiskFile = vfs.disk.open(self._name)
        self._errors_seen = self._file.sync_errors

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802 - as above
        self._vfs.meet("read", self._name)
        return bytes(self._file.data[offset : offset + amount])

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - as above
        step: Step = "grow" if offset + len(data) > len(self._file.data) else "write"
        failure = self._vfs.meet(step, self._name)
        self._vfs.disk.changes += 1
        if failure == "short":
            self._file.write(offset, bytes(data[: int(self._vfs.draw() * len(data))]))
            raise _failure(step)
        self._file.write(offset, bytes(data))

    def xTruncate(self, newsize: int) -> None:  # noqa: N802 - as above
        self._vfs.meet("truncate", self._name)
        self._vfs.disk.changes += 1
        self._file.truncate(newsize)

    def xSync(self, flags: int) -> None:  # noqa: ARG002, N802 - as above
        try:
            failure = self._vfs.meet("sync", self._name)
        except apsw.Error:
            if not self._vfs.is_dead:
                self._fail_sync(lost=False)
            raise
        if failure == "lost":
            self._fail_sync(lost=True)
            raise _failure("sync")
        if self._errors_seen < self._file.sync_errors:
            self._errors_seen = self._file.sync_errors
            raise _failure("sync")
        self._vfs.disk.sync(self._name, self._file)

    def _fail_sync(self, *, lost: bool) -> None:
        self._file.fail_sync(lost=lost)
        self._errors_seen = self._file.sync_errors

    def xFileSize(self) -> int:  # noqa: N802 - as above
        return len(self._file.data)

    def xLock(self, level: int) -> None:  # noqa: N802 - as above
        if self._vfs.is_dead:
            raise apsw.exception_for(apsw.SQLITE_BUSY)
        super().xLock(level)


def _failure(step: Step) -> Exception:
    return apsw.exception_for(_CODES[step])


def _text(name: str | apsw.URIFilename) -> str:
    return name if isinstance(name, str) else name.filename()
