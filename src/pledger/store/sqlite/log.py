"""The write-ahead log after a failed sync.

A system that could not write what it was to sync may take it for written all the same: it tells every open file of it
once, and the next sync succeeds without it. What a reader sees is then not what a power cut leaves. SQLite writes anew
what the failed COMMIT had in the log, but not what earlier ones had there that did not wait for the disk; a durable
commit that follows would be acknowledged and yet be lost, since the log is good up to its first gap only. A checkpoint
is no way out: the part of the log that comes back would be older than the database that it is applied to. So the whole
log is written once more as it is.
"""

from __future__ import annotations

from typing import Final

import apsw

#: SQLite writes no more than 128 KiB at a time.
_CHUNK_BYTES: Final = 1 << 16


class Log:
    """path: of the database. vfs: as in `Host`.

    is_doubtful: whether a part of the log may not be on disk although a sync would succeed. So it is at first: whoever
    had the file open before may have been told of a failure and have died of it.
    """

    def __init__(self, path: str, vfs: str | None) -> None:
        self._path = f"{path}-wal"
        self._vfs = vfs or ""
        self.is_doubtful = True

    def failed(self, error: BaseException) -> None:
        """A transaction or a checkpoint did."""
        if isinstance(error, apsw.IOError):
            self.is_doubtful = True

    def mend(self) -> None:
        """Bring all of it to the disk, if that is in doubt. The write lock must be held. Raises apsw.Error."""
        if not self.is_doubtful:
            return
        flags = apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
        # Through SQLite's own layer: it takes no locks on a log, so that closing this drops none of the process's.
        log = apsw.VFSFile(self._vfs, self._path, [flags, 0])
        try:
            size = log.xFileSize()
            for offset in range(0, size, _CHUNK_BYTES):
                log.xWrite(log.xRead(min(_CHUNK_BYTES, size - offset), offset), offset)
            if size:
                log.xSync(apsw.SQLITE_SYNC_FULL)
        finally:
            log.xClose()
        self.is_doubtful = False
