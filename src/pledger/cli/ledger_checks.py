"""What `pledger doctor` finds out about a ledger, by the kind of its store."""

from __future__ import annotations

import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from pledger.cli import words

State: TypeAlias = Literal["ok", "warn", "fail"]

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


def ledger_checks(ledger: dict[str, Any]) -> Iterator[Check]:
    """ledger: as the store describes itself."""
    yield from (_sqlite_checks if ledger["kind"] == "sqlite" else _postgres_checks)(ledger)


def _schema(ledger: dict[str, Any], found: str) -> Check:
    known = ledger["schema_version_known"]
    if ledger["schema_version"] <= known:
        return Check("schema", "ok", found)
    return Check(
        "schema",
        "warn",
        f"{found}: of a newer Pledger, which this one, of version {known}, can live with",
        "nothing while an upgrade is rolled out; else pip install --upgrade pledger",
    )


# PostgreSQL -----------------------------------------------------------------------------------------------------------


def _postgres_checks(ledger: dict[str, Any]) -> Iterator[Check]:
    yield Check("ledger", "ok", ledger["url"])
    yield Check("server", "ok", f"PostgreSQL {ledger['server_version']}")
    yield _commit_durability(ledger)
    yield _schema(ledger, f"{ledger['schema']}, version {ledger['schema_version']}")
    yield Check("size", "ok", f"{_bytes(ledger['database_bytes'])}, the whole database")
    yield _connections(ledger)
    if ledger["loss_declared_ms"] is not None:
        yield _loss(ledger)


def _loss(ledger: dict[str, Any]) -> Check:
    since = datetime.fromtimestamp(ledger["loss_declared_ms"] / 1000, UTC)
    return Check(
        "loss",
        "warn",
        f"the server lost its newest commits, as was noticed at {since:%Y-%m-%d %H:%M:%S} UTC; "
        f"{words.count(ledger['runs_in_doubt'], 'open run')} may have gone on in those",
        "what they may do once only comes out as unknown: see that their code or somebody settles it",
    )


def _connections(ledger: dict[str, Any]) -> Check:
    taken, most = ledger["server_connections"], ledger["server_connections_max"]
    each = ledger["connections_max"] + ledger["listeners_max"]
    found = f"{taken} of the server's {most} are taken; a client with its workers takes {each} at most"
    if most - taken >= each:
        return Check("connections", "ok", found)
    return Check("connections", "warn", found, "raise max_connections before you start another process")


def _commit_durability(ledger: dict[str, Any]) -> Check:
    setting = ledger["synchronous_commit"]
    found = f"{ledger['durability']} (synchronous_commit={setting})"
    if setting == "off":
        return Check(
            "durability",
            "warn",
            f"{found}: a crash of the server may take the last commits",
            "set synchronous_commit=on for the role or the server, unless that is meant",
        )
    return Check("durability", "ok", f"{found}: what is acknowledged survives a crash of the server")


# SQLite ---------------------------------------------------------------------------------------------------------------


def _sqlite_checks(ledger: dict[str, Any]) -> Iterator[Check]:
    path = Path(ledger["path"])
    yield Check("ledger", "ok", str(path))
    yield _sqlite_version(ledger["sqlite_version"])
    yield _durability(ledger)
    yield _journal(ledger)
    yield _file_system(ledger["file_system"])
    yield _schema(ledger, f"version {ledger['schema_version']}")
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


def _bytes(size: int) -> str:
    number = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024:  # noqa: PLR2004 - the units' own ratio
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} TiB"
