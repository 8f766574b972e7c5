"""`pledger doctor`: is this ledger in order, and what is to be done where it is not."""

from __future__ import annotations

import asyncio
import shutil
import stat
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from pledger import errors
from pledger.cli import options, words
from pledger.cli.exits import Exit, NoLedgerError
from pledger.cli.ledger import opened
from pledger.cli.output import Output, Styled
from pledger.client import Client, WorkerSummary
from pledger.version import __version__

State: TypeAlias = Literal["ok", "warn", "fail"]

_STYLES: Final = {"ok": "green", "warn": "yellow", "fail": "bold red"}

#: First SQLite without the WAL-reset bug (https://www.sqlite.org/wal.html#walresetbug), and the older branches that got
#: the fix as well.
_WAL_RESET_FIXED: Final = (3, 51, 3)
_WAL_RESET_BACKPORTS: Final = ((3, 44, 6), (3, 50, 7))
#: File systems that are gone with the machine's power.
_VOLATILE_FILE_SYSTEMS: Final = frozenset({"tmpfs", "ramfs", "devtmpfs"})
#: A log that has grown beyond this is one that cannot be checked in: somebody reads on, or holds a transaction.
_WAL_BYTES_MAX: Final = 256 * 1024 * 1024
#: Less than this, free on the disk, is soon none.
_FREE_BYTES_MIN: Final = 512 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Check:
    """One line. action: what to do next, "" where all is well."""

    name: str
    state: State
    found: str
    action: str = ""


@dataclass(frozen=True, slots=True)
class Crowd:
    """Workers and runs. unserved: open runs of task queues that no live worker serves."""

    workers: tuple[WorkerSummary, ...]
    open_runs: int
    blocked_runs: int
    unserved: int


def doctor(
    *,
    url: options.Url = options.DEFAULT_URL,
    namespace: options.Namespace = "default",
    as_json: options.Json = False,
) -> int:
    """Check the ledger and this installation. Each line is ok, warn or fail, with what to do next.

    The exit code is 1 when a check fails. Nothing is changed.
    """
    output = Output(as_json=as_json)
    checks = [_pledger(), *asyncio.run(_examine(url, namespace))]
    if as_json:
        output.document(
            {"ok": all(each.state != "fail" for each in checks), "checks": [asdict(each) for each in checks]}
        )
    else:
        _show(output, checks)
    return Exit.BAD_NEWS if any(each.state == "fail" for each in checks) else Exit.OK


async def _examine(url: str, namespace: str) -> list[Check]:
    try:
        async with opened(url, namespace) as client:
            ledger = await client.ledger()
            crowd = await _crowd(client)
    except NoLedgerError:
        raise
    except errors.StoreError as error:
        return [Check("ledger", "fail", str(error), "mend this first: everything else needs the ledger")]
    return [*ledger_checks(ledger), *crowd_checks(crowd)]


async def _crowd(client: Client) -> Crowd:
    workers = await client.workers()
    open_runs = await client.count("status = 'running'")
    served = 0
    for queue in {each.task_queue for each in workers if each.live}:
        quoted = queue.replace("'", "''")
        served += await client.count(f"status = 'running' and task_queue = '{quoted}'")
    blocked = await client.count("blocked = true")
    return Crowd(workers, open_runs, blocked, open_runs - served)


# Checks ---------------------------------------------------------------------------------------------------------------


def _pledger() -> Check:
    python = ".".join(str(each) for each in sys.version_info[:3])
    return Check("pledger", "ok", f"{__version__} on Python {python}")


def ledger_checks(ledger: dict[str, Any]) -> Iterator[Check]:
    """About the database. ledger: as the store describes itself."""
    path = Path(ledger["path"])
    yield Check("ledger", "ok", str(path))
    yield _sqlite_version(ledger["sqlite_version"])
    yield _durability(ledger)
    yield _journal(ledger)
    yield _file_system(ledger["file_system"])
    yield Check("schema", "ok", f"version {ledger['schema_version']}")
    yield _file_mode(path)
    yield _size(ledger, path)


def _sqlite_version(version: str) -> Check:
    numbers = tuple(int(part) for part in version.split("."))
    backported = any(numbers[:2] == fixed[:2] and numbers >= fixed for fixed in _WAL_RESET_BACKPORTS)
    if numbers >= _WAL_RESET_FIXED or backported:
        return Check("sqlite", "ok", f"{version}, without the WAL-reset bug")
    return Check(
        "sqlite",
        "fail",
        f"{version} has the WAL-reset bug: two processes that write one file can damage it",
        "pip install --upgrade apsw (it brings SQLite; 3.51.3 or newer)",
    )


def _durability(ledger: dict[str, Any]) -> Check:
    found = f"{ledger['durability']} (synchronous={ledger['synchronous']})"
    if ledger["durability"] == "power":
        return Check("durability", "ok", f"{found}: what is acknowledged survives power loss")
    return Check(
        "durability",
        "warn",
        f"{found}: a power cut may take the last commits",
        'open it with durability="power" unless that is meant',
    )


def _journal(ledger: dict[str, Any]) -> Check:
    mode, wal_bytes = ledger["journal_mode"], ledger["wal_bytes"]
    if mode != "wal":
        return Check("journal", "fail", f"mode {mode}", "put the file on a local disk, where SQLite can use WAL")
    found = f"wal, {_bytes(wal_bytes)}"
    if wal_bytes > _WAL_BYTES_MAX:
        return Check(
            "journal",
            "warn",
            f"{found}: it cannot be checked in",
            f"find who holds a transaction: fuser {ledger['path']}",
        )
    return Check("journal", "ok", found)


def _file_system(kind: str) -> Check:
    if kind in _VOLATILE_FILE_SYSTEMS:
        return Check("file system", "warn", f"{kind}: gone with the machine's power", "put the ledger on a disk")
    if not kind:
        return Check("file system", "ok", "unknown here; it must be a local disk")
    return Check("file system", "ok", kind)


def _file_mode(path: Path) -> Check:
    files = [each for each in (path, Path(f"{path}-wal"), Path(f"{path}-shm")) if each.exists()]
    open_ones = [each for each in files if stat.S_IMODE(each.stat().st_mode) & 0o077]
    if not open_ones:
        return Check("file mode", "ok", f"{stat.S_IMODE(path.stat().st_mode):04o}: readable by its owner only")
    names = " ".join(str(each) for each in open_ones)
    return Check(
        "file mode",
        "warn",
        f"others may read {words.count(len(open_ones), 'of its files', 'of its files')}",
        f"chmod 600 {names}",
    )


def _size(ledger: dict[str, Any], path: Path) -> Check:
    free = shutil.disk_usage(path.parent).free
    found = f"{_bytes(ledger['size_bytes'])}, {_bytes(free)} free on its disk"
    if free < _FREE_BYTES_MIN:
        return Check("size", "warn", found, "free some space: a full disk stops every run, though it loses nothing")
    return Check("size", "ok", found)


def crowd_checks(crowd: Crowd) -> Iterator[Check]:
    """About workers and runs."""
    live = [each for each in crowd.workers if each.live]
    gone = len(crowd.workers) - len(live)
    queues = ", ".join(sorted({each.task_queue for each in live}))
    found = f"{len(live):,} live" + (f" (task queue {queues})" if live else "")
    if crowd.unserved:
        yield Check(
            "workers",
            "warn",
            f"{found}, and {words.count(crowd.unserved, 'open run')} whose task queue none of them serves",
            "start one: pledger worker your_module --task-queue NAME",
        )
    elif gone:
        yield Check(
            "workers",
            "warn",
            f"{found}, and {gone} that died",
            "nothing, if others are live: they take over within a lease period; else start one",
        )
    else:
        yield Check("workers", "ok", found)
    if crowd.blocked_runs:
        yield Check(
            "runs",
            "warn",
            f"{crowd.open_runs:,} open, {crowd.blocked_runs:,} of them blocked",
            'see which: pledger list "blocked = true"; and why: pledger show WORKFLOW_ID',
        )
    else:
        yield Check("runs", "ok", f"{crowd.open_runs:,} open, none blocked")


def _bytes(size: int) -> str:
    number = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024:  # noqa: PLR2004 - the units' own ratio
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} TiB"


def _show(output: Output, checks: list[Check]) -> None:
    rows = [
        (
            each.name,
            Styled(each.state, _STYLES[each.state]),
            f"{each.found} → {each.action}" if each.action else each.found,
        )
        for each in checks
    ]
    output.table(("CHECK", "STATE", "FOUND"), rows)
