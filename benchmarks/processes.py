"""Processes of an engine, wherever they came from: what they use, and their end. Linux tells all of it in /proc.

A harness that starts servers must also be sure of their end. Every process that it starts carries a token in its
environment, which all that it starts in turn inherit: whoever carries it can be found and killed, and nobody else.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

#: Name of the variable that holds the token.
TOKEN: Final = "PLEDGER_PEERS_TOKEN"  # noqa: S105 - no secret: a mark

_PROC: Final = Path("/proc")

#: Among the fields of `_stat`: flags of the kernel; when the process was started, in ticks since the machine was.
_FLAGS: Final = 6
_START: Final = 19

#: Flags of those that have no environment for another reason: they are ending, or belong to the kernel.
_NO_PROGRAM: Final = 0x00000004 | 0x00200000

#: How often, each hundredth of a second, a process without environment is looked at again: some have none for ever.
NEWBORN_ROUNDS: Final = 100

_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


def tree(roots: Iterable[int]) -> list[int]:
    """These processes and all that descend from them."""
    children: dict[int, list[int]] = {}
    for pid in _all():
        stat = _stat(pid)
        if stat:
            children.setdefault(int(stat[1]), []).append(pid)
    found, waiting = [], list(roots)
    while waiting:
        pid = waiting.pop()
        if pid not in found:
            found.append(pid)
            waiting += children.get(pid, ())
    return found


def cpu_s(roots: Iterable[int]) -> float:
    """User and system time of the trees, with the children that they have waited for."""
    return sum(sum(map(int, stat[11:15])) for pid in tree(roots) if (stat := _stat(pid))) / _TICKS_PER_S


def pss_mb(roots: Iterable[int]) -> float:
    """Memory of the trees: private pages, and a share of those that others have too."""
    return sum(map(_pss_kb, tree(roots))) * 1024 / 1e6


def marked(token: str) -> list[int]:
    """Living processes whose environment carries the token."""
    entry = f"{TOKEN}={token}".encode()
    return [pid for pid in _all() if is_alive(pid) and entry in _environment(pid).split(b"\0")]


def kill_marked(token: str) -> None:
    """SIGKILL to all that carry the token, and to what they start meanwhile, until all have ended."""
    killed: dict[int, str] = {}
    patience = NEWBORN_ROUNDS
    while True:
        pids = marked(token)
        for pid in pids:
            if stat := _stat(pid):
                killed[pid] = stat[_START]
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        if not pids and _has_newborn() and patience:
            patience -= 1
        # One that is ending has lost its environment before it gives back its files and ports: it is waited for.
        elif not pids and not any(_is_still(pid, start) for pid, start in killed.items()):
            return
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    """Whether it has not ended yet; one that only waits to be asked for its exit code has."""
    stat = _stat(pid)
    return bool(stat) and stat[0] not in "ZX"


def _has_newborn() -> bool:
    """Whether a process younger than this one is about to become another program: its environment is empty until it
    has, so that a token cannot be seen yet."""
    own = _stat(os.getpid())
    return any(
        int(stat[_START]) >= int(own[_START]) and not int(stat[_FLAGS]) & _NO_PROGRAM and not _environment(pid)
        for pid in _all()
        if (stat := _stat(pid))
    )


def _is_still(pid: int, start: str) -> bool:
    """Whether it is alive, and no other one with the same number."""
    stat = _stat(pid)
    return bool(stat) and stat[0] not in "ZX" and stat[_START] == start


def _all() -> Iterator[int]:
    return (int(each.name) for each in _PROC.iterdir() if each.name.isdigit())


def _stat(pid: int) -> list[str]:
    """Fields from the state on; empty when the process has ended."""
    with contextlib.suppress(OSError):
        # The name before them is in parentheses and may hold anything.
        return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    return []


def _environment(pid: int) -> bytes:
    """NAME=value, each with a zero byte behind it. Not empty for a process of somebody else, which is none of ours."""
    try:
        return (_PROC / str(pid) / "environ").read_bytes()
    except PermissionError:
        return b"\0"
    except OSError:
        return b""


def _pss_kb(pid: int) -> int:
    with contextlib.suppress(OSError):
        lines = (_PROC / str(pid) / "smaps_rollup").read_text().splitlines()
        return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)
    return 0
