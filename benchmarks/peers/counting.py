"""What a step asks of the disk: counted, not timed.

A process that owns its store is traced with `strace -c` through a short and a longer workflow; the difference is the
steps'. A PostgreSQL server is no child of the process, and counts by itself (pg_stat_io or pg_stat_wal,
pg_stat_database).
"""

import re
import shutil
from pathlib import Path
from typing import Final

from benchmarks.peers.catalogue import Peer
from benchmarks.peers.install import Installed
from benchmarks.peers.results import Terms
from benchmarks.peers.runner import Harness, Task, TaskError, new_directory, request

#: Steps of the two workflows; few in the first, and enough between them to drown what happens once in a while.
SHORT: Final = 10
LONG: Final = 110

#: With which a program makes writes durable. (Files opened for synchronous writes would escape; none does that here.)
CALLS: Final = ("fsync", "fdatasync", "sync_file_range", "msync")

#: A row of the table of `strace -c`: share, seconds, microseconds per call, calls, maybe errors, name.
_ROW: Final = re.compile(r"^\s*[\d.]+\s+[\d.]+\s+\d+\s+(?P<calls>\d+)\s+(?:\d+\s+)?(?P<name>\w+)\s*$", re.MULTILINE)


def count(peer: Peer, installed: Installed, harness: Harness, terms: Terms) -> None:
    """Fill in what a step costs, and how that was found out; or why it was not."""
    try:
        if peer.on_postgres:
            terms.per_step = _by_the_database(peer, installed, harness)
            terms.counted = "by PostgreSQL"
        elif shutil.which("strace") is None:
            terms.counted = "not counted: strace is not installed"
        else:
            terms.per_step = {"fsyncs": _by_strace(peer, installed, harness)}
            terms.counted = "by strace"
    except TaskError as error:
        terms.counted = f"not counted: {error}"


def _by_the_database(peer: Peer, installed: Installed, harness: Harness) -> dict[str, float]:
    with new_directory(harness.place) as directory:
        asked = request(peer, "steps", harness, directory, LONG)
        with Task(asked, installed.python, harness) as task:
            found: dict[str, float] = task.wait_for("values")
            task.wait_for_end()
            return found


def _by_strace(peer: Peer, installed: Installed, harness: Harness) -> float:
    counts = []
    for steps in (SHORT, LONG):
        harness.say(f"tracing {steps} steps")
        with new_directory(harness.place) as directory, new_directory(harness.place) as aside:
            summary = aside / "table"
            asked = request(peer, "steps", harness, directory, steps)
            # With execve, which is always called: a table without rows means that there is no table.
            prefix = ("strace", "-f", "-c", "-o", str(summary), "-e", f"trace={','.join((*CALLS, 'execve'))}")
            with Task(asked, installed.python, harness, prefix) as task:
                task.wait_for("values")
                # The table is written when the last of the traced processes has ended.
                task.wait_for_end()
            counts.append(synced(summary))
    return (counts[1] - counts[0]) / (LONG - SHORT)


def synced(summary: Path) -> int:
    """Calls in a table of `strace -c`. Raises TaskError when there is none."""
    rows = list(_ROW.finditer(summary.read_text() if summary.exists() else ""))
    if not rows:
        raise TaskError("strace wrote no table")
    return sum(int(row["calls"]) for row in rows if row["name"] in CALLS)
