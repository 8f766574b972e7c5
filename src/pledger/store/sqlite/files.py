"""The place of a database: made private, and refused where SQLite cannot keep its promises."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from pledger.errors import StoreUnavailableError, UsageError

#: File systems on which locks and shared memory do not hold between machines; WAL needs both. Not 9p: some container
#: runtimes serve every local file by it.
NETWORK_FILE_SYSTEMS: Final = frozenset(
    {
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "fuse.ceph",
        "fuse.glusterfs",
        "fuse.sshfs",
        "glusterfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "smb3",
        "smbfs",
    }
)


def prepare_file(path: Path, *, allow_network_fs: bool = False) -> None:
    """Make the database's file if there is none, readable by its owner only; SQLite gives -wal and -shm the same mode.

    Raises UsageError where the place cannot hold a database.
    """
    directory = path.parent
    if not directory.is_dir():
        raise UsageError(f"{directory} is not a directory, so {path} cannot be made. Create it or correct the URL.")
    if path.is_dir():
        raise UsageError(f"{path} is a directory. Name a file in it, such as sqlite:///{path}/ledger.db.")
    kind = file_system(path)
    if kind in NETWORK_FILE_SYSTEMS and not allow_network_fs:
        raise UsageError(
            f"{path} lies on a network file system ({kind}), where SQLite's locks do not hold and commits can be lost. "
            "Use a local disk. If exactly one machine ever opens the file and you know that its locks work there, add "
            "?allow_network_fs=1 to the URL."
        )
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        pass
    except OSError as error:
        raise StoreUnavailableError(
            f"{path} cannot be made: {error.strerror}. Check the owner and mode of {directory} and whether its file "
            "system is read-only."
        ) from error


def file_system(path: Path, mounts: Path = Path("/proc/self/mounts")) -> str:
    """The type of the file system that holds `path`, as Linux names it; "" where that cannot be found out."""
    try:
        table = mounts.read_text("utf-8", "surrogateescape")
    except OSError:
        return ""
    here = os.path.realpath(path.parent)
    found, kind = "", ""
    for line in table.splitlines():
        _, mount_point, fs_type, *_ = line.split(" ")
        mount_point = mount_point.replace("\\040", " ")
        # The deepest mount holds the file; of several on one point, the last is on top.
        if _contains(mount_point, here) and len(mount_point) >= len(found):
            found, kind = mount_point, fs_type
    return kind


def _contains(mount_point: str, directory: str) -> bool:
    return directory == mount_point or directory.startswith(mount_point.rstrip("/") + "/")
