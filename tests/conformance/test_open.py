"""What open runs are at, for who counts them: each is at one thing, and one that has ended at none."""

from __future__ import annotations

import pytest

from pledger.engine.port.answers import Reply
from pledger.engine.port.operations import Block, Release
from pledger.engine.port.records import OpenRow
from pledger.engine.port.verbs import Store
from tests.conformance.harness import (
    NOW,
    append,
    claim,
    open_session,
    owned_run,
    ownerless_run,
    signal,
    terminate,
    write,
)

SELECTED = ("blocked", "held", "ready", "sleeping", "waiting")


async def test_open_runs_by_what_they_are_at(store: Store) -> None:
    session = await open_session(store)
    runs = {each: await owned_run(store, session, each) for each in (*SELECTED, "ended", "gone")}
    await ownerless_run(store, "new", started_ms=NOW - 7)
    await ownerless_run(store, "newer")
    await ownerless_run(store, "of-a-type", workflow_type="ship", task_queue="eu")
    await ownerless_run(store, "elsewhere", namespace="staging")
    for name, due_ms in (("ready", NOW), ("sleeping", NOW + 1), ("waiting", None)):
        assert await write(store, Release(runs[name].run_key, runs[name].fence, due_ms)) is Reply.WON
    blocked = runs["blocked"]
    reason = b'{"reason": "bug"}'
    assert await write(store, Block(blocked.run_key, blocked.fence, reason, "code-1", [])) is Reply.WON
    assert await write(store, append(runs["ended"], closed="completed")) is Reply.WON
    assert await write(store, terminate(runs["gone"])) is Reply.WON
    assert await store.count_open("default", NOW) == [
        OpenRow("default", "fulfil", "blocked", 1),
        OpenRow("default", "fulfil", "held", 1),
        OpenRow("default", "fulfil", "ready", 3, NOW - 7),
        OpenRow("default", "fulfil", "waiting", 2),
        OpenRow("eu", "ship", "ready", 1, NOW),
    ]
    assert await store.count_open("staging", NOW) == [OpenRow("default", "fulfil", "ready", 1, NOW)]
    assert await store.count_open("nowhere", NOW) == []
    assert (await store.count_open("default", NOW + 1))[-2:-1] == [OpenRow("default", "fulfil", "waiting", 1)]


async def test_what_wakes_a_run_makes_it_ready(store: Store) -> None:
    """Since when is not known of one that a message has woken."""
    session = await open_session(store)
    run = await owned_run(store, session)
    assert await write(store, Release(run.run_key, run.fence, None)) is Reply.WON
    assert await store.count_open("default", NOW) == [OpenRow("default", "fulfil", "waiting", 1)]
    await write(store, signal(run))
    assert await store.count_open("default", NOW) == [OpenRow("default", "fulfil", "ready", 1)]
    assert len(await claim(store, session)) == 1
    assert await store.count_open("default", NOW) == [OpenRow("default", "fulfil", "held", 1)]


async def test_a_run_of_a_dead_worker_is_held_until_that_is_buried(store: Store) -> None:
    session = await open_session(store)
    await owned_run(store, session)
    assert await store.count_open("default", NOW) == [OpenRow("default", "fulfil", "held", 1)]
    await store.close_session(session)
    assert await store.count_open("default", NOW) == [OpenRow("default", "fulfil", "ready", 1)]


@pytest.mark.parametrize("state", ["held", "ready", "waiting"])
async def test_a_run_that_is_terminated_is_at_nothing(store: Store, state: str) -> None:
    session = await open_session(store)
    run = await owned_run(store, session)
    due = {"ready": NOW, "waiting": NOW + 1}
    if state in due:
        await write(store, Release(run.run_key, run.fence, due[state]))
    assert [each.state for each in await store.count_open("default", NOW)] == [state]
    assert await write(store, terminate(await store.read_run(run.run_key))) is Reply.WON
    assert await store.count_open("default", NOW) == []
