"""The settings that the promises rest on are really in force."""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path

import apsw
import pytest

from pledger.engine.port.filters import EVERY
from pledger.errors import StoreError
from pledger.store.sqlite import SqliteStore, open_sqlite
from tests.conformance.harness import append, claim, claim_tasks, owned_run, ownerless_run, task, write


@pytest.mark.parametrize(
    ("pragma", "value"),
    [
        ("journal_mode", "wal"),
        ("synchronous", 2),
        ("fullfsync", 1),
        ("checkpoint_fullfsync", 1),
        ("wal_autocheckpoint", 0),
        ("trusted_schema", 0),
    ],
)
def test_the_writers_settings(store: SqliteStore, pragma: str, value: object) -> None:
    assert store._database.writer.connection.pragma(pragma) == value


async def test_commits_are_synchronous_and_housekeeping_is_not(store: SqliteStore) -> None:
    connection = store._database.writer.connection
    await ownerless_run(store)
    assert connection.pragma("synchronous") == 2
    session = await store.open_session("host:1", "default", "default", "code-1", 10_000)
    assert connection.pragma("synchronous") == 1
    run = await owned_run(store, session.session_key, "order-2")
    assert connection.pragma("synchronous") == 2
    await write(store, append(run, tasks=[task(run, 3)]))
    await claim(store, session.session_key)
    assert connection.pragma("synchronous") == 1
    # A claim of a task is the record of an attempt: intent before effect.
    assert len(await claim_tasks(store, session.session_key)) == 1
    assert connection.pragma("synchronous") == 2


def test_the_reader_cannot_write(store: SqliteStore) -> None:
    assert store._database._reader.pragma("journal_mode") == "wal"
    with pytest.raises(apsw.ReadOnlyError):
        store._database._reader.execute("DELETE FROM pledger_run")


def test_sqlite_has_no_wal_reset_bug() -> None:
    assert tuple(int(part) for part in apsw.sqlite_lib_version().split(".")) >= (3, 51, 3)


def test_plans_do_not_depend_on_values(store: SqliteStore) -> None:
    for connection in (store._database.writer.connection, store._database._reader):
        assert connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, -1) == 1


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def test_only_the_owner_may_read_the_files(path: Path) -> None:
    before = os.umask(0)
    try:
        store = open_sqlite(path)
    finally:
        os.umask(before)
    await ownerless_run(store)
    for name in ("ledger.db", "ledger.db-wal", "ledger.db-shm"):
        assert mode(path.parent / name) == 0o600, name
    await store.close()


def test_the_mode_of_an_existing_file_is_left_alone(path: Path) -> None:
    path.touch()
    path.chmod(0o640)
    store = open_sqlite(path)
    assert mode(path) == 0o640
    asyncio.run(store.close())


def test_closing_leaves_one_file(path: Path) -> None:
    store = open_sqlite(path)
    asyncio.run(ownerless_run(store))
    asyncio.run(store.close())
    assert [file.name for file in path.parent.iterdir()] == ["ledger.db"]


@pytest.fixture
def link(path: Path) -> Path:
    """Another name for the same file."""
    link = path.parent / "link.db"
    link.symlink_to(path)
    return link


async def test_handles_of_one_file_share_one_database(path: Path, link: Path) -> None:
    one = open_sqlite(path)
    two = open_sqlite(link)
    assert one._database is two._database
    await one.close()
    await ownerless_run(two)
    await two.close()
    three = open_sqlite(path)
    assert three._database is not two._database
    assert await three.count_runs("default", EVERY) == 1
    await three.close()


async def test_a_closed_store_says_so(path: Path) -> None:
    store = open_sqlite(path)
    await store.close()
    with pytest.raises(StoreError, match="open_store"):
        await store.now_ms()


async def test_description(store: SqliteStore, path: Path) -> None:
    await ownerless_run(store)
    about = await store.describe()
    assert about["path"] == str(path)
    assert about["size_bytes"] > 0
    assert about["wal_bytes"] > 0
    assert {key: about[key] for key in ("kind", "durability", "synchronous", "journal_mode", "commits")} == {
        "kind": "sqlite",
        "durability": "power",
        "synchronous": "FULL",
        "journal_mode": "wal",
        "commits": "inline",
    }
    assert about["schema_version"] >= 1
    assert about["sqlite_version"] == apsw.sqlite_lib_version()
    assert about["page_size"] == 4096
