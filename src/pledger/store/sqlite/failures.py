"""What SQLite's errors mean to us: whose fault, what was written, and what to do next."""

from __future__ import annotations

from typing import Final

import apsw

from pledger.errors import InternalError, PayloadTooLargeError, PledgerError, StoreError, StoreUnavailableError

#: Errors of the place, not of a statement: they fail a whole batch. A damaged page is not among them: it concerns the
#: runs that lie on it, and the others go on.
_OF_THE_PLACE: Final = (
    apsw.BusyError,
    apsw.LockedError,
    apsw.FullError,
    apsw.ReadOnlyError,
    apsw.PermissionsError,
    apsw.IOError,
    apsw.CantOpenError,
    apsw.NotADBError,
    apsw.NoMemError,
    apsw.ProtocolError,
    apsw.NoLFSError,
)


def is_of_the_place(error: BaseException) -> bool:
    return isinstance(error, _OF_THE_PLACE)


def store_failure(error: apsw.Error, path: str) -> StoreError:
    """The failure of a whole transaction or of a read. Nothing was written."""
    match error:
        case apsw.BusyError() | apsw.LockedError():
            return StoreUnavailableError(
                f"{path}: another process holds the database's write lock; nothing was written. Try again. If it stays "
                f"so, look for a process that is stopped inside a transaction: fuser {path}"
            )
        case apsw.FullError():
            return StoreUnavailableError(
                f"{path}: the disk (or the database's page limit) is full; nothing was written. Free some space; "
                "what was refused can simply be tried again."
            )
        case apsw.ReadOnlyError() | apsw.PermissionsError():
            return StoreUnavailableError(
                f"{path} cannot be written ({error}). Pledger must be able to write the file, its -wal and -shm "
                "files, and their directory: check their owner and mode, and whether the file system is read-only."
            )
        case apsw.CantOpenError() | apsw.NoLFSError():
            return StoreUnavailableError(f"{path} cannot be opened ({error}). Check that it exists and is readable.")
        case apsw.IOError():
            return StoreUnavailableError(
                f"{path}: the disk failed ({error}); nothing was acknowledged. Check the disk and the system's log, "
                "then try again."
            )
        case apsw.NotADBError():
            return StoreError(f"{path} is not a SQLite database. Correct the URL, or move that file away.")
        case apsw.CorruptError():
            return StoreError(
                f"{path} is damaged ({error}). Stop every process that uses it, keep a copy of all three files, and "
                "restore a backup or try SQLite's `.recover`."
            )
        case _:
            return StoreUnavailableError(f"{path}: {type(error).__name__}: {error}")


def operation_failure(error: Exception, operation: object, path: str) -> PledgerError:
    """The answer to one operation that is itself at fault. Nothing of it was written."""
    name = type(operation).__name__
    match error:
        case apsw.TooBigError():
            return PayloadTooLargeError(f"{name}: a value is over SQLite's limit of one billion bytes.")
        case apsw.CorruptError():
            return store_failure(error, path)
        case _:
            failure = InternalError(f"The store refused {name}: {type(error).__name__}: {error}. Please report this.")
            failure.__cause__ = error
            return failure
