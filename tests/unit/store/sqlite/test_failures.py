"""A place that fails: nothing is written, the message says what to do, and the store goes on once it is mended."""

from __future__ import annotations

import os
from pathlib import Path

import apsw
import pytest

from pledger.engine.port.answers import Reply, Started
from pledger.errors import InternalError, PayloadTooLargeError, StoreError, StoreUnavailableError, UsageError
from pledger.store.sqlite import SqliteStore, open_sqlite
from tests.conformance.harness import append, claim, open_session, owned_run, ownerless_run, start, step, write


async def test_a_full_disk(store: SqliteStore) -> None:
    run = await owned_run(store, await open_session(store))
    connection = store._database.writer.connection
    connection.pragma("max_page_count", connection.pragma("page_count") + 2)
    batch = [append(run), start("order-2"), append(run, expected_event=4, transition=step(5, b"x" * 100_000))]
    with pytest.raises(StoreUnavailableError, match="full") as caught:
        await store.commit(batch)
    assert "Free some space" in str(caught.value)
    assert await store.read_run(run.run_key) == run
    assert await store.find_run("default", "order-2") is None
    connection.pragma("max_page_count", 1_000_000)
    assert (await store.commit(batch))[0] is Reply.WON


async def test_a_lock_held_by_another_process(store: SqliteStore, path: Path) -> None:
    run = await owned_run(store, await open_session(store))
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailableError, match="write lock") as caught:
        await store.commit([append(run)])
    assert str(path) in str(caught.value)
    assert "Try again" in str(caught.value)
    with pytest.raises(StoreUnavailableError):
        store.renew_session(1, 10_000)
    assert await store.read_run(run.run_key) == run
    other.execute("ROLLBACK")
    assert await write(store, append(run)) is Reply.WON


async def test_the_loop_goes_on_while_another_process_holds_the_lock(path: Path) -> None:
    store = open_sqlite(path, busy_timeout_ms=10_000)
    run = await owned_run(store, await open_session(store))
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")
    future = store.commit([append(run)])
    assert not future.done()  # handed to the writer's thread after a few milliseconds
    assert await store.read_run(run.run_key) == run
    other.execute("ROLLBACK")
    assert await future == [Reply.WON]
    await store.close()


async def test_a_database_that_became_read_only(store: SqliteStore) -> None:
    run = await owned_run(store, await open_session(store))
    connection = store._database.writer.connection
    connection.pragma("query_only", 1)
    with pytest.raises(StoreUnavailableError, match="cannot be written"):
        await store.commit([append(run)])
    connection.pragma("query_only", 0)
    assert await write(store, append(run)) is Reply.WON


async def test_claims_fail_like_commits(store: SqliteStore, path: Path) -> None:
    session = await open_session(store)
    run = await ownerless_run(store)
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailableError):
        await claim(store, session)
    other.execute("ROLLBACK")
    assert [claimed.run_key for claimed in await claim(store, session)] == [run.run_key]


# Operations that are themselves at fault ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad",
    [
        {"time_ms": "noon", "closed": "completed"},
        {"last_event": -1},
        {"closed": "asleep"},
        {"transition": step(1)},  # taken
        {"tasks": ["no task"]},
    ],
)
async def test_a_bad_operation_alone_is_refused(store: SqliteStore, bad: dict[str, object]) -> None:
    session = await open_session(store)
    runs = [await owned_run(store, session, f"order-{n}") for n in range(3)]
    operations = [append(runs[0]), append(runs[1], **bad), append(runs[2]), start("order-3")]
    answers = await store.commit(operations)
    assert [answers[0], answers[2]] == [Reply.WON, Reply.WON]
    assert isinstance(answers[1], InternalError)
    assert "Append" in str(answers[1])
    assert isinstance(answers[3], Started)
    assert await store.read_run(runs[1].run_key) == runs[1]
    assert await store.read_history(runs[1].run_key) == [step(1)]


async def test_a_value_that_is_too_large(store: SqliteStore) -> None:
    run = await owned_run(store, await open_session(store))
    store._database.writer.connection.limit(apsw.SQLITE_LIMIT_LENGTH, 10_000)
    answer = await write(store, append(run, transition=step(3, b"x" * 20_000)))
    assert isinstance(answer, PayloadTooLargeError)


async def test_a_damaged_page_concerns_the_runs_on_it_only(path: Path) -> None:
    store = open_sqlite(path)
    session = await open_session(store)
    runs = [await owned_run(store, session, f"order-{n}") for n in range(2_000)]
    root = store._database.rows("SELECT rootpage FROM sqlite_schema WHERE name = 'pledger_run'", ())[0][0]
    await store.close()
    leaf = damage_last_child(path, root)
    store = open_sqlite(path)
    answers = await store.commit([append(runs[0]), append(runs[-1]), append(runs[1])])
    assert [answers[0], answers[2]] == [Reply.WON, Reply.WON], leaf
    assert isinstance(answers[1], StoreError)
    assert "damaged" in str(answers[1])
    with pytest.raises(StoreError, match="damaged"):
        await store.read_run(runs[-1].run_key)
    await store.close()


def damage_last_child(path: Path, root: int) -> int:
    """Overwrite the page that the root page of a table points to last."""
    content = bytearray(path.read_bytes())
    page = content[(root - 1) * 4096 :]
    assert page[0] == 5, "an interior page"
    child = int.from_bytes(page[8:12], "big")
    content[(child - 1) * 4096 : child * 4096] = b"\xaa" * 4096
    path.write_bytes(content)
    return child


async def test_a_connection_is_not_used_after_a_fork(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getpid", lambda: 1)
    with pytest.raises(UsageError, match="forked"):
        await store.commit([start()])
