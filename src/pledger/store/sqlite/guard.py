"""The standard library's `sqlite3` is kept from a ledger that is open in this process.

POSIX locks belong to a process and a file, not to a descriptor: whoever closes *any* descriptor of the file drops all
locks that the process has on it. One SQLite library knows of this and closes late; a second one in the same process
knows nothing of the first. Worse, it takes itself for the last user of the file, and removes the log with commits in it
that were acknowledged. So a connection to a live ledger is refused before it opens anything, by the interpreter's audit
hook: SQLAlchemy, pandas and whatever else stands on `sqlite3` are refused with it.

Out of reach is what does not come by `sqlite3.connect`: other libraries with a SQLite of their own, and a connection
that was there before the ledger was opened.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from pledger.errors import UsageError

_EVENT: Final = "sqlite3.connect"
#: (process, device, inode) of each file that is open, and how often. The process too: a forked child holds none of its
#: parent's locks, and takes none from it.
_live: Final[dict[tuple[int, int, int], int]] = {}


def protect(device: int, inode: int) -> None:
    """From now on a connection to this file is refused, until it is let go of as often."""
    _add_hook()
    key = (os.getpid(), device, inode)
    _live[key] = _live.get(key, 0) + 1


def let_go(device: int, inode: int) -> None:
    key = (os.getpid(), device, inode)
    if _live.get(key, 0) > 1:
        _live[key] -= 1
    else:
        _live.pop(key, None)


@functools.cache
def _add_hook() -> None:
    """Once per process: a hook cannot be taken away. With no ledger open it does next to nothing."""
    sys.addaudithook(_audit)


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if event == _EVENT and _live:
        _check(args[0])


def _check(database: object) -> None:
    """Raises UsageError for the name of a file that is live, whatever it is called: by another path or another link."""
    for path in _paths(database):
        try:
            status = Path(path).stat()
        except (OSError, ValueError):
            continue  # it is no file, or none yet
        if (os.getpid(), status.st_dev, status.st_ino) in _live:
            raise UsageError(
                f"sqlite3.connect({database!r}) is refused: that file is a ledger which this process has open. "
                "A second SQLite library would drop the first one's locks when it closes the file, and commits would "
                "be lost. Reach your own tables in it by `async with client.connection() as connection`, or open the "
                "file from another process"
            )


def _paths(database: object) -> Iterator[str]:
    """The files that the name may stand for. Whether it is read as a URI is not known here: then it may be both."""
    try:
        name = os.fsdecode(database)  # type: ignore[arg-type]
    except TypeError:
        return  # sqlite3 refuses it too
    yield name
    if name.startswith("file:"):
        place = name.removeprefix("file:").partition("#")[0].partition("?")[0]
        if place.startswith("//"):
            # An authority: none, or localhost.
            place = "/" + place.removeprefix("//").partition("/")[2]
        yield unquote(place)
