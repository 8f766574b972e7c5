"""The log on disk stays small, and a crash test can stop at any commit."""

from __future__ import annotations

import asyncio
from pathlib import Path

import apsw
import pytest

from pledger.engine.port.operations import Append
from pledger.store.sqlite import SqliteStore, handle, open_sqlite
from pledger.store.sqlite.host import Host
from pledger.store.sqlite.writer import CHECKPOINT_PAGES
from tests.conformance.harness import NOW, append, claim, open_session, owned_run, start, step


def size(path: Path) -> int:
    return path.stat().st_size


def wal_bytes(path: Path) -> int:
    return size(Path(f"{path}-wal"))


async def write_pages(store: SqliteStore, pages: int) -> None:
    session = await open_session(store)
    run = await owned_run(store, session, f"order-{pages}-{session}")
    for n in range(pages // 50):
        at = 2 + 2 * n
        await store.commit([Append(run.run_key, 1, at, step(at + 1, b"x" * 50 * 4096), at + 2, None, NOW)])


async def test_the_log_is_copied_into_the_database_when_it_is_long(store: SqliteStore, path: Path) -> None:
    await write_pages(store, 5 * CHECKPOINT_PAGES)
    assert wal_bytes(path) < 1.2 * CHECKPOINT_PAGES * 4096
    assert size(path) > 4 * CHECKPOINT_PAGES * 4096


async def test_a_reader_in_the_way_makes_the_log_longer_and_harms_nothing(store: SqliteStore, path: Path) -> None:
    reader = apsw.Connection(str(path))
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM pledger_run").fetchall()
    await write_pages(store, 3 * CHECKPOINT_PAGES)
    assert wal_bytes(path) > 2 * CHECKPOINT_PAGES * 4096
    # It is not asked for again at every commit, which would make each of them write to the database too.
    assert store._database.writer._checkpoint_at >= 2 * CHECKPOINT_PAGES
    reader.execute("COMMIT")
    await write_pages(store, 2 * CHECKPOINT_PAGES)
    assert store._database.writer.wal_pages < 1.2 * CHECKPOINT_PAGES


async def test_a_checkpoint_that_fails_does_not_fail_the_commit(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken:
        def __init__(self, connection: apsw.Connection) -> None:
            self.connection = connection

        def wal_checkpoint(self, mode: int) -> tuple[int, int]:
            raise apsw.IOError("disk I/O error")

        def __getattr__(self, name: str) -> object:
            return getattr(self.connection, name)

    writer = store._database.writer
    monkeypatch.setattr(writer, "connection", Broken(writer.connection))
    await write_pages(store, 2 * CHECKPOINT_PAGES)
    monkeypatch.undo()
    writer.rest()
    assert wal_bytes(path) == 0


async def test_after_a_quiet_while_the_log_is_empty(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await write_pages(store, 100)
    assert not await store.wait_for_change(0)
    assert wal_bytes(path) > 0
    monkeypatch.setattr(handle, "_QUIET_S", -1.0)
    assert not await store.wait_for_change(0.001)
    assert wal_bytes(path) == 0
    assert store._database.writer.wal_pages == 0


async def test_the_hook_stands_on_both_sides_of_every_commit(path: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    observer: apsw.Connection | None = None

    def hook(phase: str, number: int) -> None:
        runs = [] if observer is None else observer.execute("SELECT count(*) FROM pledger_run").fetchall()
        seen.append((phase, number, runs[0][0] if runs else 0))

    store = open_sqlite(path, on_commit=hook)
    observer = apsw.Connection(str(path))
    session = await open_session(store)
    await store.commit([start("1"), start("2")])
    store.renew_session(session, 10_000)
    await claim(store, session)
    await claim(store, session)  # nothing to take, nothing to commit
    assert seen == [
        ("before", 1, 0),
        ("after", 1, 0),
        ("before", 2, 0),
        ("after", 2, 2),
        ("before", 3, 2),
        ("after", 3, 2),
    ]
    await store.close()


async def test_looking_for_changes_slows_down(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some 300 looks a second just after a change, 20 once it is quiet, then 10."""
    pauses: list[float] = []
    now = [1_000.0]

    async def sleep(pause_s: float) -> None:
        pauses.append(pause_s)
        now[0] += pause_s

    monkeypatch.setattr(store._database, "host", Host(monotonic=lambda: now[0]))
    monkeypatch.setattr(asyncio, "sleep", sleep)
    store._changed_s = now[0]
    assert not await store.wait_for_change(3.0)
    assert pauses[0] == pytest.approx(0.003)
    assert pauses[-2] == pytest.approx(0.05)
    assert pauses[:-1] == sorted(pauses[:-1])
    assert len(pauses) < 150
    now[0] += 10
    assert not await store.wait_for_change(1.0)
    assert pauses[-2] == pytest.approx(0.1)


async def test_an_append_is_two_statements(store: SqliteStore) -> None:
    run = await owned_run(store, await open_session(store))
    statements: list[str] = []
    store._database.writer.connection.trace_v2(apsw.SQLITE_TRACE_STMT, lambda event: statements.append(event["sql"]))
    await store.commit([append(run)])
    assert [statement.split()[0] for statement in statements] == ["BEGIN", "UPDATE", "INSERT", "COMMIT"]
