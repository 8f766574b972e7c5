"""A ledger that has gone back behind what it had acknowledged: nothing that is known from before counts any more."""

from __future__ import annotations

import pytest

from pledger.engine.port.answers import Reply, Started
from pledger.engine.port.operations import Release
from pledger.engine.port.verbs import Store
from tests.conformance.harness import (
    LEASE_MS,
    NOW,
    Clock,
    append,
    claim,
    claim_tasks,
    open_session,
    owned_run,
    ownerless_run,
    signal,
    start,
    task,
    write,
)


async def test_every_session_ends_and_what_it_owned_is_due(store: Store) -> None:
    session = await open_session(store)
    run = await owned_run(store, session)
    assert await store.declare_loss() == 1
    assert await store.read_sessions("default") == []
    assert store.renew_session(session, LEASE_MS) is None
    row = await store.read_run(run.run_key)
    assert (row.owner, row.due_ms, row.last_event, row.status) == (None, 0, run.last_event, "running")
    other = await open_session(store)
    [claimed] = await claim(store, other)
    assert (claimed.run_key, claimed.owner) == (run.run_key, other)


async def test_what_was_known_before_is_refused(store: Store) -> None:
    """Also that of claims which are gone: their fences were never given by the ledger as it is now."""
    session = await open_session(store)
    run = await owned_run(store, session)
    await store.declare_loss()
    other = await open_session(store)
    [claimed] = await claim(store, other)
    for fence in range(run.fence, run.fence + 100):
        assert await write(store, append(claimed, fence=fence)) is Reply.LOST
    assert claimed.fence > run.fence + 100
    assert await write(store, append(claimed)) is Reply.WON


async def test_keys_that_were_given_are_not_given_again(store: Store) -> None:
    """Those that were given in the part that is gone are a little higher than any that is there."""
    session = await open_session(store)
    run = await owned_run(store, session)
    await store.declare_loss()
    assert await open_session(store) > session + 1_000
    born = await write(store, start("order-2"))
    assert isinstance(born, Started)
    assert born.run_key > run.run_key + 1_000
    assert born.chain_key > run.chain_key + 1_000


async def test_runs_that_were_in_motion_are_told_from_those_that_slept(store: Store, clock: Clock) -> None:
    session = await open_session(store)
    owned = await owned_run(store, session, "owned")
    due = await ownerless_run(store, "due")
    asleep, woken, closed = [await owned_run(store, session, each) for each in ("asleep", "woken", "closed")]
    for each in (asleep, woken):
        assert await write(store, Release(each.run_key, each.fence, NOW + 60_000)) is Reply.WON
    await write(store, signal(woken))
    assert await write(store, append(closed, closed="completed")) is Reply.WON
    clock.now_ms += 1_000
    assert await store.declare_loss() == 3
    every = [each.run_key for each in (owned, due, asleep, woken, closed)]
    moved = {owned.run_key: True, due.run_key: True, asleep.run_key: False, woken.run_key: True}
    assert await store.read_losses(every) == moved
    assert await store.read_losses([closed.run_key]) == {}
    assert (await store.read_run(asleep.run_key)).due_ms == NOW + 60_000
    later = await ownerless_run(store, "later")
    assert await store.read_losses([later.run_key]) == {}


async def test_a_second_loss_is_declared_like_the_first(store: Store) -> None:
    run = await ownerless_run(store)
    assert [await store.declare_loss(), await store.declare_loss()] == [1, 1]
    assert await store.read_losses([run.run_key]) == {run.run_key: True}


async def test_a_run_that_moved_once_has_moved_though_it_slept_at_the_next_loss(store: Store, clock: Clock) -> None:
    run = await owned_run(store, await open_session(store))
    assert await store.declare_loss() == 1
    [claimed] = await claim(store, await open_session(store))
    assert await write(store, Release(run.run_key, claimed.fence, NOW + 60_000)) is Reply.WON
    clock.now_ms += 1_000
    assert await store.declare_loss() == 1
    assert await store.read_losses([run.run_key]) == {run.run_key: True}


@pytest.mark.parametrize("claimed", [True, False])
async def test_attempts_that_may_have_begun_are_lost(store: Store, clock: Clock, claimed: bool) -> None:
    """Those that run, and those that were due: somebody may have claimed them in the part that is gone."""
    session = await open_session(store)
    run = await owned_run(store, session)
    later = task(run, event_id=3, due_ms=NOW + 60_000)
    assert await write(store, append(run, tasks=[task(run, event_id=2), later])) is Reply.WON
    clock.now_ms += 1_000
    if claimed:
        [taken] = await claim_tasks(store, session)
        assert taken.event_id == 2
    await store.declare_loss()
    found = {each.event_id: each for each in await store.read_tasks(run.run_key)}
    assert (found[2].state, found[2].lost, found[2].owner) == ("queued", True, None)
    assert (found[3].state, found[3].lost, found[3].due_ms) == ("queued", False, NOW + 60_000)
