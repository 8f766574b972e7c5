"""Leases: held by the store's clock, and what is left behind when one ends."""

from __future__ import annotations

import threading

import pytest

from pledger.engine.port.answers import Reply
from pledger.engine.port.verbs import Store
from tests.conformance.harness import (
    LEASE_MS,
    NOW,
    Clock,
    append,
    claim_tasks,
    open_session,
    owned_run,
    signal,
    task,
    write,
)


async def test_the_clock_is_the_stores(store: Store, clock: Clock) -> None:
    assert await store.now_ms() == NOW
    clock.now_ms += 1
    assert await store.now_ms() == NOW + 1


async def test_a_session_has_a_lease(store: Store) -> None:
    session = await store.open_session("host:1", "default", "default", "code-1", LEASE_MS)
    assert (session.identity, session.task_queue, session.code) == ("host:1", "default", "code-1")
    assert (session.started_ms, session.expires_ms) == (NOW, NOW + LEASE_MS)
    assert await store.read_sessions("default") == [session]


async def test_a_renewed_lease_counts_from_now(store: Store, clock: Clock) -> None:
    session = await open_session(store)
    clock.now_ms += LEASE_MS - 1
    assert store.renew_session(session, LEASE_MS) == clock.now_ms
    clock.now_ms += LEASE_MS - 1
    assert await store.bury_sessions("default") == []
    [row] = await store.read_sessions("default")
    assert row.expires_ms == clock.now_ms + 1


async def test_a_lease_that_is_over_but_not_buried_can_be_renewed(store: Store, clock: Clock) -> None:
    session = await open_session(store)
    clock.now_ms += 10 * LEASE_MS
    assert store.renew_session(session, LEASE_MS) == clock.now_ms


async def test_a_buried_session_cannot_be_renewed(store: Store, clock: Clock) -> None:
    session = await open_session(store)
    clock.now_ms += LEASE_MS
    buried = await store.bury_sessions("default")
    assert [row.session_key for row in buried] == [session]
    assert store.renew_session(session, LEASE_MS) is None
    assert await store.read_sessions("default") == []
    assert await store.bury_sessions("default") == []


async def test_only_sessions_whose_lease_is_over_are_buried(store: Store, clock: Clock) -> None:
    old = await open_session(store)
    clock.now_ms += 1
    young = await open_session(store, "host:2")
    mine = await owned_run(store, young, "young")
    await owned_run(store, old, "old")
    clock.now_ms = NOW + LEASE_MS
    assert [row.session_key for row in await store.bury_sessions("default")] == [old]
    assert await store.read_run(mine.run_key) == mine


async def test_a_heartbeat_from_a_thread_of_its_own(store: Store, clock: Clock) -> None:
    session = await open_session(store)
    clock.now_ms += 5
    told: list[int | None] = []
    thread = threading.Thread(target=lambda: told.append(store.renew_session(session, LEASE_MS)))
    thread.start()
    thread.join()
    assert told == [NOW + 5]


@pytest.mark.parametrize("end", ["close", "bury"])
async def test_what_a_session_owned_is_orphaned(store: Store, clock: Clock, end: str) -> None:
    session = await open_session(store)
    run = await owned_run(store, session)
    await write(store, append(run, tasks=[task(run, 3), task(run, 4, due_ms=NOW + 10**9)], due_ms=NOW + 10**9))
    await write(store, signal(run))
    [started] = await claim_tasks(store, session)
    if end == "close":
        await store.close_session(session)
    else:
        clock.now_ms += LEASE_MS
        await store.bury_sessions("default")
    orphan = await store.read_run(run.run_key)
    assert (orphan.owner, orphan.due_ms, orphan.claims) == (None, 0, 1)
    assert orphan.fence > run.fence
    lost, untouched = await store.read_tasks(run.run_key)
    assert (lost.state, lost.owner, lost.lost, lost.attempt) == ("queued", None, True, started.attempt)
    assert lost.due_ms <= clock.now_ms
    assert (untouched.state, untouched.lost, untouched.due_ms) == ("queued", False, NOW + 10**9)
    assert await write(store, append(orphan, fence=run.fence)) is Reply.LOST
    next_session = await open_session(store)
    [claimed] = await store.claim_runs(next_session, clock.now_ms, "default", "default", {"fulfil": "code-1"}, 10)
    assert claimed.run_key == run.run_key
    assert await store.woken_runs(next_session) == []


async def test_closing_a_session_that_is_gone_is_no_error(store: Store) -> None:
    session = await open_session(store)
    await store.close_session(session)
    await store.close_session(session)
