"""Which thread commits run on."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from pledger.engine.port import Reply
from pledger.store.sqlite import SqliteStore, open_sqlite
from pledger.store.sqlite.lane import FAST_AGAIN_MS, SLOW_MS
from tests.conformance.harness import append, open_session, owned_run, start, write


def commit_with_thread(store: SqliteStore, threads: list[str]) -> asyncio.Future[object]:
    def job(cursor: object) -> None:
        threads.append(threading.current_thread().name)

    return store._submit(job, durable=True)  # type: ignore[arg-type]


async def test_a_fast_disk_commits_on_the_loops_thread(store: SqliteStore) -> None:
    threads: list[str] = []
    assert commit_with_thread(store, threads).done()
    assert threads == [threading.current_thread().name]


async def test_a_slow_disk_commits_on_a_thread_of_its_own_until_it_is_fast_again(store: SqliteStore) -> None:
    threads: list[str] = []
    writer = store._database.writer
    writer.commit_ms = SLOW_MS + 1
    future = commit_with_thread(store, threads)
    assert not future.done()
    await future
    assert threads[0].startswith("pledger-writer")
    assert writer.commit_ms < SLOW_MS + 1  # also measured there
    writer.commit_ms = FAST_AGAIN_MS + 0.1
    await commit_with_thread(store, threads)
    assert threads[1].startswith("pledger-writer")
    assert (await store.describe())["commits"].startswith("in a thread")
    writer.commit_ms = FAST_AGAIN_MS - 0.1
    assert commit_with_thread(store, threads).done()
    assert threads[2] == threading.current_thread().name


async def test_what_was_queued_first_is_written_first(store: SqliteStore) -> None:
    run = await owned_run(store, await open_session(store))
    writer, lane = store._database.writer, store._database.lane
    writer.commit_ms = SLOW_MS + 1
    await store.commit([])
    gate = threading.Event()
    assert lane._thread is not None
    lane._thread.submit(gate.wait)
    first = store.commit([append(run)])
    writer.commit_ms = 0.0
    second = store.commit([append(run)])
    gate.set()
    assert await asyncio.gather(first, second) == [[Reply.WON], [Reply.LOST]]


async def test_the_loop_does_not_wait_for_a_transaction_of_the_heartbeats_thread(store: SqliteStore) -> None:
    run = await owned_run(store, await open_session(store))
    with store._database.writer.lock:
        future = store.commit([append(run)])
        await asyncio.sleep(0)
        assert not future.done()
    assert await future == [Reply.WON]


async def test_closing_waits_for_what_is_queued(path: Path) -> None:
    store = open_sqlite(path)
    store._database.writer.commit_ms = SLOW_MS + 1
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
