"""What a database stands on: the machine's own disk, clock and threads, or those that a simulation hands in."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """vfs: the name of the SQLite VFS that the connections go through, None for the system's. Handles of one process
    and file with the same one share their connections; another one stands for another process.

    monotonic: seconds from any start. threads: whether a transaction may wait in a thread of its own; without, all run
    on the caller's, whatever they take. patience: how many times the usual a handle waits between two looks for changes
    by others; in virtual time a look costs as much as anything.
    """

    vfs: str | None = None
    monotonic: Callable[[], float] = time.monotonic
    threads: bool = True
    patience: float = 1.0


MACHINE: Final = Host()
