"""Which thread commits run on."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from pledger.engine.port.answers import Reply
from pledger.store.sqlite import SqliteStore, lane, open_sqlite
from pledger.store.sqlite.lane import FAST_AGAIN_MS, PROBE_S, SLOW_MS
from tests.conformance.harness import append, open_session, owned_run, start, step, write


def commit_with_thread(store: SqliteStore, threads: list[str]) -> asyncio.Future[object]:
    def job(cursor: object) -> None:
        threads.append(threading.current_thread().name)

    return store._submit(job, durable=True)  # type: ignore[arg-type]


async def test_a_fast_disk_commits_on_the_loops_thread(store: SqliteStore) -> None:
    threads: list[str] = []
    assert commit_with_thread(store, threads).done()
    assert threads == [threading.current_thread().name]


class SlowDisk:
    """Commits take as long as the test says, by the writer's stopwatch."""

    def __init__(self, store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.commit_ms = 0.0
        self.now_s = 1_000.0
        run = store._database.writer.run

        def slow_run(job: object, **options: object) -> object:
            result = run(job, **options)  # type: ignore[arg-type]
            store._database.writer.commit_ms = self.commit_ms
            return result

        monkeypatch.setattr(store._database.writer, "run", slow_run)
        monkeypatch.setattr(lane.time, "monotonic", lambda: self.now_s)


@pytest.fixture
def disk(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> SlowDisk:
    return SlowDisk(store, monkeypatch)


async def leave_the_loop(store: SqliteStore, disk: SlowDisk) -> None:
    disk.commit_ms = 10 * SLOW_MS
    while store._database.lane.inline:
        await commit_with_thread(store, [])


async def test_one_slow_commit_is_no_slow_disk(store: SqliteStore, disk: SlowDisk) -> None:
    disk.commit_ms = 10 * SLOW_MS
    assert store.commit([]).done()
    disk.commit_ms = 0.1
    assert store.commit([]).done()


async def test_a_slow_disk_commits_on_a_thread_of_its_own(store: SqliteStore, disk: SlowDisk) -> None:
    threads: list[str] = []
    disk.commit_ms = 2 * SLOW_MS
    while store._database.lane.inline:
        await store.commit([])
    future = commit_with_thread(store, threads)
    assert not future.done()
    await future
    assert threads[0].startswith("pledger-writer")
    assert (await store.describe())["commits"].startswith("in a thread")


async def test_a_disk_that_is_fast_again_is_noticed_by_the_loop_only(store: SqliteStore, disk: SlowDisk) -> None:
    await leave_the_loop(store, disk)
    disk.commit_ms = FAST_AGAIN_MS - 0.1
    future = store.commit([])
    assert not future.done()
    await future
    assert not store._database.lane.inline
    disk.now_s += PROBE_S
    assert store.commit([]).done()
    assert store.commit([]).done()


async def test_a_disk_that_is_still_slow_is_tried_once_a_second(store: SqliteStore, disk: SlowDisk) -> None:
    await leave_the_loop(store, disk)
    for _ in range(3):
        disk.now_s += PROBE_S
        assert store.commit([]).done()
        future = store.commit([])
        assert not future.done()
        await future


async def test_what_was_queued_first_is_written_first(store: SqliteStore, disk: SlowDisk) -> None:
    run = await owned_run(store, await open_session(store))
    await leave_the_loop(store, disk)
    await store.commit([])
    gate = threading.Event()
    thread = store._database.lane._thread
    assert thread is not None
    thread.submit(gate.wait)
    first = store.commit([append(run)])
    store._database.lane.inline = True
    second = store.commit([append(run, expected_event=4, transition=step(5), last_event=6)])
    gate.set()
    assert await asyncio.gather(first, second) == [[Reply.WON], [Reply.WON]]


async def test_the_loop_does_not_wait_for_a_transaction_of_the_heartbeats_thread(store: SqliteStore) -> None:
    run = await owned_run(store, await open_session(store))
    with store._database.writer.lock:
        future = store.commit([append(run)])
        await asyncio.sleep(0)
        assert not future.done()
    assert await future == [Reply.WON]


async def test_closing_waits_for_what_is_queued(path: Path) -> None:
    store = open_sqlite(path)
    with store._database.writer.lock:
        future = store.commit([start()])
    await store.close()
    await future
    again = open_sqlite(path)
    assert await again.find_run("default", "order-1") is not None
    await again.close()


async def test_two_event_loops_share_a_file(store: SqliteStore, path: Path) -> None:
    run = await owned_run(store, await open_session(store))
    other = open_sqlite(path)
    answers = await asyncio.to_thread(asyncio.run, write(other, append(run)))
    assert answers is Reply.WON
    assert (await store.read_run(run.run_key)).last_event == 4
    await other.close()
