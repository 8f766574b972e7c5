"""Migrations: all or nothing, once, and never backwards."""

from __future__ import annotations

import contextlib
from pathlib import Path

import apsw
import pytest

from pledger.engine.port.filters import EVERY
from pledger.errors import SchemaVersionError
from pledger.store.sqlfiles import load_migrations
from pledger.store.sqlite import open_sqlite
from pledger.store.sqlite.schema import migrate, schema_version
from tests.conformance.later import go_on, leave_a_run


def schema(connection: apsw.Connection) -> list[tuple[object, ...]]:
    return connection.execute("SELECT type, name, sql FROM sqlite_schema ORDER BY name").fetchall()


def test_migrating_twice_changes_nothing() -> None:
    connection = apsw.Connection(":memory:")
    assert schema_version(connection) == 0
    assert migrate(connection, "x") == len(load_migrations("pledger.store.sqlite"))
    before = schema(connection)
    assert migrate(connection, "x") == len(load_migrations("pledger.store.sqlite"))
    assert schema(connection) == before


def test_a_newer_schema_is_refused_and_left_alone(path: Path) -> None:
    connection = apsw.Connection(str(path))
    migrate(connection, "x", [*load_migrations("pledger.store.sqlite"), "CREATE TABLE pledger_future (x)"])
    before = schema(connection)
    with pytest.raises(SchemaVersionError) as caught:
        open_sqlite(path)
    for word in (
        str(path),
        f"version {len(load_migrations('pledger.store.sqlite')) + 1}",
        f"up to {len(load_migrations('pledger.store.sqlite'))}",
        "upgrade",
    ):
        assert word in str(caught.value)
    assert schema(connection) == before


def test_steps_that_are_missing_are_added() -> None:
    connection = apsw.Connection(":memory:")
    migrate(connection, "x", ["CREATE TABLE a (x)"])
    assert migrate(connection, "x", ["CREATE TABLE a (x)", "CREATE TABLE b (x)"]) == 2
    assert {row[1] for row in schema(connection)} == {"a", "b", "pledger_meta"}


def test_a_step_that_fails_leaves_nothing_of_any() -> None:
    connection = apsw.Connection(":memory:")
    with pytest.raises(apsw.SQLError):
        migrate(connection, "x", ["CREATE TABLE a (x)", "CREATE TABLE b (x); CREATE NONSENSE"])
    assert schema(connection) == []
    assert not connection.in_transaction


def test_a_process_killed_in_a_migration_leaves_nothing(path: Path) -> None:
    connection = apsw.Connection(str(path))
    connection.pragma("journal_mode", "wal")
    connection.execute("BEGIN IMMEDIATE")
    for step in load_migrations("pledger.store.sqlite"):
        connection.execute(step)
    # What a kill leaves on disk: the files as they are before COMMIT.
    copy = path.parent / "after-kill.db"
    copy.write_bytes(path.read_bytes())
    Path(f"{copy}-wal").write_bytes(Path(f"{path}-wal").read_bytes())
    survivor = apsw.Connection(str(copy))
    assert schema(survivor) == []
    assert migrate(survivor, "x") == len(load_migrations("pledger.store.sqlite"))


@pytest.mark.parametrize("version", range(1, len(load_migrations("pledger.store.sqlite"))))
async def test_a_ledger_of_an_earlier_schema_goes_on(path: Path, version: int) -> None:
    newest = path.parent / "newest.db"
    store = open_sqlite(newest)
    await leave_a_run(store)
    await store.close()
    with contextlib.closing(apsw.Connection(str(path))) as earlier:
        earlier.pragma("journal_mode", "wal")
        migrate(earlier, "x", load_migrations("pledger.store.sqlite")[:version])
        earlier.execute("ATTACH ? AS newest", [str(newest)])
        tables = "SELECT name FROM main.sqlite_schema WHERE type = 'table' AND name <> 'pledger_meta' ORDER BY rowid"
        for table in [name for (name,) in earlier.execute(tables)]:
            names = [name for _, name, *_ in earlier.execute(f"PRAGMA main.table_info({table})")]
            earlier.execute(
                # What a migration has put in by itself is there already.
                f"INSERT OR IGNORE INTO main.{table} ({', '.join(names)}) SELECT {', '.join(names)} FROM newest.{table}"
            )
    store = open_sqlite(path)
    await go_on(store)
    await store.close()


async def test_an_application_may_keep_its_tables_in_the_file(path: Path) -> None:
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE run (x); CREATE TABLE message (x); PRAGMA user_version = 77")
    store = open_sqlite(path)
    assert await store.count_runs("default", EVERY) == 0
    assert connection.pragma("user_version") == 77
    await store.close()
