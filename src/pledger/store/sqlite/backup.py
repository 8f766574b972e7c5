"""A copy of a live ledger, as of one instant: whole or not there at all.

SQLite's online backup copies the pages of one snapshot, whoever writes meanwhile; in a write-ahead log a snapshot stops
no writer, and only keeps the log from being emptied. What makes a backup of it is the rest: the copy is checked, is on
the disk, and only then gets its name.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path
from typing import Final

import apsw

from pledger.errors import StoreError, StoreUnavailableError, UsageError
from pledger.store.sqlite.connection import connect_reader
from pledger.store.sqlite.failures import store_failure

#: What SQLite may leave beside a file.
_COMPANIONS: Final = ("-wal", "-shm", "-journal")


def back_up(path: Path, to: Path, vfs: str | None = None) -> int:
    """Copy the ledger at `path`, with all that is committed now, to the new file `to`; how many bytes that has.

    Raises UsageError when there is something at `to` or its folder is none, StoreError when it cannot be written or
    what was copied is damaged.
    """
    to = to.absolute()
    if not to.parent.is_dir():
        raise UsageError(f"{to.parent} is not a directory, so {to} cannot be made. Create it or name another place.")
    left = [each for each in (to, *_companions(to)) if os.path.lexists(each)]
    if left:
        raise _taken(left[0])
    partial = to.with_name(f".{to.name}.{secrets.token_hex(4)}.partial")
    try:
        _make(partial)
        _copy(path, partial, vfs)
        _sync(partial)
        _name(partial, to)
        _sync(to.parent)
        return to.stat().st_size
    except OSError as error:
        raise StoreUnavailableError(
            f"{to} cannot be written: {error.strerror}. Check the owner and mode of {to.parent} and the space that is "
            "left, or name another place."
        ) from error
    finally:
        for each in (partial, *_companions(partial)):
            each.unlink(missing_ok=True)


def _make(partial: Path) -> None:
    """Private from its first byte on: payloads are in it in plain text."""
    os.close(os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def _copy(path: Path, partial: Path, vfs: str | None) -> None:
    # A connection of its own: the ledger's reader serves everybody else meanwhile.
    with contextlib.closing(_open_source(path, vfs)) as source:
        copy = apsw.Connection(str(partial), flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_EXRESCODE)
        with contextlib.closing(copy):
            try:
                with copy.backup("main", source, "main") as backup:
                    backup.step()  # all pages in one step: one snapshot
                # A copy is one file, which may be moved; whoever opens it as a ledger gives it its log again.
                copy.pragma("journal_mode", "delete")
                found = copy.execute("PRAGMA integrity_check(3)").fetchall()
            except apsw.CorruptError as error:
                raise store_failure(error, str(path)) from error
            except apsw.Error as error:
                raise store_failure(error, str(partial)) from error
    if found != [("ok",)]:
        told = "; ".join(str(each) for (each,) in found)
        raise StoreError(
            f"{path} is damaged, and so would its copy be: {told}. Keep the copies that you have, stop every process "
            "that uses it, and restore one of them or try SQLite's `.recover`."
        )


def _open_source(path: Path, vfs: str | None) -> apsw.Connection:
    try:
        return connect_reader(path, vfs)
    except apsw.Error as error:
        raise store_failure(error, str(path)) from error


def _name(partial: Path, to: Path) -> None:
    """At once, and never over another file, which a mere rename would."""
    try:
        os.link(partial, to)
    except FileExistsError:
        raise _taken(to) from None
    except OSError:
        # A file system without links: somebody who makes the same file in this very moment loses it.
        if os.path.lexists(to):
            raise _taken(to) from None
        partial.rename(to)


def _sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _companions(path: Path) -> list[Path]:
    return [path.with_name(path.name + each) for each in _COMPANIONS]


def _taken(place: Path) -> UsageError:
    return UsageError(f"{place} is there already, and a backup replaces nothing. Name another file, or move that away.")
