"""The machine: what it is, and the memory of this process. Linux tells all of it; elsewhere the answer is None."""

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Final

import apsw
import psycopg

from benchmarks.ground import Server

ROOT: Final = Path(__file__).parents[1]

_PROC: Final = Path("/proc")


def resident_mb() -> float | None:
    """Memory of this process: private pages, and its share of those shared with others (PSS)."""
    rollup = _PROC / "self/smaps_rollup"
    if not rollup.exists():
        return None
    kilobytes = next(line.split()[1] for line in rollup.read_text().splitlines() if line.startswith("Pss:"))
    return int(kilobytes) * 1024 / 1e6


def facts(directory: Path, server: Server | None = None) -> dict[str, str]:
    """What a figure depends on besides the code. directory: where the ledgers are, or the data of the server."""
    store = {"postgresql": _server_version(server.url), "psycopg": metadata.version("psycopg")} if server else {}
    return {
        **store,
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


def _server_version(url: str) -> str:
    with psycopg.connect(url, autocommit=True) as connection:
        [version] = connection.execute("SHOW server_version").fetchone() or ["unknown"]
        return str(version)


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
