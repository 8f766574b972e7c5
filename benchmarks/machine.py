"""The machine: what it is, and what it does besides. Linux tells all of it; elsewhere the answer is None."""

import os
import platform
import subprocess
import time
from importlib import metadata
from pathlib import Path
from typing import Final

import apsw

ROOT: Final = Path(__file__).parents[1]

#: Cores that others may use before a figure is called disturbed.
QUIET_CORES: Final = 0.2

_PROC: Final = Path("/proc")


def own_cpu_s() -> float:
    """User and system time of this process and the children it has waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def busy_cpu_s() -> float | None:
    """Time that all cores together have been busy, since the machine started."""
    if not (_PROC / "stat").exists():
        return None
    fields = [int(each) for each in (_PROC / "stat").read_text().split("\n", 1)[0].split()[1:]]
    user, nice, system, _idle, _iowait, irq, softirq, steal = fields[:8]
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def resident_mb() -> float | None:
    """Memory of this process: private pages, and its share of those shared with others (PSS)."""
    rollup = _PROC / "self/smaps_rollup"
    if not rollup.exists():
        return None
    kilobytes = next(line.split()[1] for line in rollup.read_text().splitlines() if line.startswith("Pss:"))
    return int(kilobytes) * 1024 / 1e6


class LoadMeter:
    """How many cores everything else has used since this was made."""

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self._busy_s = busy_cpu_s()
        self._own_s = own_cpu_s()

    def other_cores(self) -> float | None:
        busy_s = busy_cpu_s()
        if busy_s is None or self._busy_s is None:
            return None
        others_s = (busy_s - self._busy_s) - (own_cpu_s() - self._own_s)
        # The kernel counts in hundredths of a second: a short wait can come out a little below nothing.
        return max(0.0, others_s / (time.perf_counter() - self._started))


def wait_until_quiet(patience_s: float) -> None:
    """Wait until others leave the machine alone for half a second, or patience is at its end."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        meter = LoadMeter()
        time.sleep(0.5)
        others = meter.other_cores()
        if others is None or others <= QUIET_CORES:
            return


def facts(directory: Path) -> dict[str, str]:
    """What a figure depends on besides the code. directory: where the ledgers are."""
    return {
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "file system": _file_system(directory),
        "system": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "sqlite": apsw.sqlite_lib_version(),
        "apsw": apsw.apsw_version(),
        "msgspec": metadata.version("msgspec"),
        "pledger": metadata.version("pledger"),
        "commit": _commit(),
    }


def _processor() -> str:
    cpuinfo = _PROC / "cpuinfo"
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def _file_system(directory: Path) -> str:
    mounts = _PROC / "mounts"
    found = {"/": "unknown"}
    for line in mounts.read_text().splitlines() if mounts.exists() else []:
        _device, point, kind, *_ = line.split()
        if directory.absolute().is_relative_to(point):
            found[point] = kind
    return found[max(found, key=len)]


def _commit() -> str:
    """The checked-out commit; with a plus sign when the library's files differ from it."""
    try:
        commit = _git("rev-parse", "--short=12", "HEAD")
        return commit + ("+" if _git("status", "--porcelain", "--", "src") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 - arguments of this module
    return ended.stdout.strip()
