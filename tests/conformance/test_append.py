"""Appending: the compare-and-set, and that a closed run never changes."""

from __future__ import annotations

from typing import Any

import pytest

from pledger.engine.port.answers import Reply
from pledger.engine.port.operations import Block, ConfirmClaim, PutTask, Release
from pledger.engine.port.verbs import Store
from pledger.errors import WorkflowNotFoundError
from tests.conformance.harness import (
    NOW,
    append,
    claim,
    next_due_ms,
    open_session,
    owned_run,
    ownerless_run,
    signal,
    step,
    task,
    terminate,
    write,
)


async def test_a_winning_append_moves_the_run_on(store: Store) -> None:
    run = await owned_run(store, await open_session(store))
    assert await write(store, append(run, due_ms=NOW + 5)) is Reply.WON
    after = await store.read_run(run.run_key)
    assert (after.last_event, after.head, after.due_ms) == (4, step(3).checksum, NOW + 5)
    assert (after.owner, after.fence) == (run.owner, run.fence)
    assert await store.read_history(run.run_key) == [step(1), step(3)]
    assert await store.read_last_transitions(run.run_key) == [step(1), step(3)]


@pytest.mark.parametrize("change", [{"fence": 0}, {"fence": 2}, {"expected_event": 1}, {"expected_event": 3}])
async def test_a_wrong_expectation_loses_and_writes_nothing(store: Store, change: dict[str, Any]) -> None:
    run = await owned_run(store, await open_session(store))
    await write(store, signal(run))
    [message] = await store.read_inbox(run.chain_key)
    lost = append(run, **change, consumed=[(message.message_key, 3)], tasks=[task(run)], closed="completed")
    assert await write(store, lost) is Reply.LOST
    assert await store.read_run(run.run_key) == run
    assert await store.read_history(run.run_key) == [step(1)]
    assert await store.read_inbox(run.chain_key) == [message]
    assert await store.read_tasks(run.run_key) == []


async def test_an_append_to_nothing_loses(store: Store) -> None:
    run = await owned_run(store, await open_session(store))
    assert await write(store, append(run, run_key=run.run_key + 1_000)) is Reply.LOST
    with pytest.raises(WorkflowNotFoundError):
        await store.read_run(run.run_key + 1_000)


async def test_an_append_that_is_repeated_has_won_and_is_there_once(store: Store) -> None:
    run = await owned_run(store, await open_session(store))
    assert await store.commit([append(run), append(run)]) == [Reply.WON, Reply.WON]
    assert await store.read_history(run.run_key) == [step(1), step(3)]
    after = await store.read_run(run.run_key)
    assert await write(store, append(after, closed="completed")) is Reply.WON
    assert await write(store, append(after, closed="completed")) is Reply.WON
    assert await write(store, append(after)) is Reply.LOST
    assert len(await store.read_history(run.run_key)) == 3


async def test_only_its_owner_can_repeat_an_append(store: Store) -> None:
    session = await open_session(store)
    old = await owned_run(store, session)
    await store.commit([append(old), Release(old.run_key, old.fence, 0)])
    await claim(store, session)
    assert await write(store, append(old)) is Reply.LOST


async def test_an_ownerless_run_takes_no_append_even_with_its_fence(store: Store) -> None:
    run = await ownerless_run(store)
    assert await write(store, append(run)) is Reply.LOST


async def test_closing_lets_go_of_the_run(store: Store) -> None:
    run = await owned_run(store, await open_session(store))
    await write(store, append(run, due_ms=NOW + 5, closed="compensated", time_ms=NOW + 1))
    after = await store.read_run(run.run_key)
    assert (after.status, after.closed_ms, after.owner, after.due_ms) == ("compensated", NOW + 1, None, None)
    assert after.fence > run.fence


async def test_nothing_changes_a_closed_run(store: Store) -> None:
    session = await open_session(store)
    run = await owned_run(store, session)
    await write(store, append(run, closed="completed"))
    closed = await store.read_run(run.run_key)
    history = await store.read_history(run.run_key)
    for fence in (run.fence, closed.fence):
        answers = await store.commit(
            [
                append(closed, fence=fence),
                append(run, fence=fence),
                Release(run.run_key, fence, NOW),
                Block(run.run_key, fence, b"{}", "code"),
                ConfirmClaim(run.run_key, fence),
                PutTask(fence, task(run)),
            ]
        )
        assert answers == [Reply.LOST] * 6
    assert await write(store, terminate(closed)) is Reply.LOST
    assert await write(store, signal(run)) is Reply.CLOSED
    await store.ask(run.run_key, "query", "status", b"[]", NOW + 1_000)
    await store.close_session(session)
    assert await claim(store, await open_session(store), NOW + 10**9) == []
    assert await next_due_ms(store, "default", "default") is None
    assert await store.read_run(run.run_key) == closed
    assert await store.read_history(run.run_key) == history
    assert await store.read_tasks(run.run_key) == []


@pytest.mark.parametrize("owned", [True, False])
async def test_terminate_wins_whoever_owns_the_run(store: Store, *, owned: bool) -> None:
    run = await owned_run(store, await open_session(store))
    if not owned:
        await write(store, Release(run.run_key, run.fence, None))
        run = await store.read_run(run.run_key)
    assert await write(store, terminate(run, time_ms=NOW + 3)) is Reply.WON
    after = await store.read_run(run.run_key)
    assert (after.status, after.closed_ms, after.last_event, after.owner) == ("terminated", NOW + 3, 3, None)
    assert after.fence > run.fence
    assert after.head == step(3, b"terminated").checksum
    assert (await store.read_history(run.run_key))[-1] == step(3, b"terminated")
    assert await write(store, append(run)) is Reply.LOST


async def test_terminate_loses_where_the_run_came_as_far_by_another_way(store: Store) -> None:
    """What was read was taken back by a fail-over: written all the same, it would break the chain of checksums."""
    run = await owned_run(store, await open_session(store))
    assert await write(store, terminate(run, expected_head=b"another!")) is Reply.LOST
    assert (await store.read_run(run.run_key)) == run
    assert await write(store, terminate(run)) is Reply.WON


async def test_terminate_loses_against_a_step_in_between(store: Store) -> None:
    run = await owned_run(store, await open_session(store))
    await write(store, append(run))
    assert await write(store, terminate(run)) is Reply.LOST
    assert (await store.read_run(run.run_key)).status == "running"


async def test_terminate_ends_a_blocked_run(store: Store) -> None:
    run = await owned_run(store, await open_session(store))
    await write(store, Block(run.run_key, run.fence, b"{}", "code-1"))
    assert await write(store, terminate(run)) is Reply.WON
    after = await store.read_run(run.run_key)
    assert (after.blocked, after.blocked_code, after.due_ms) == (None, None, None)


async def test_terminate_can_name_another_end(store: Store) -> None:
    run = await owned_run(store, await open_session(store))
    await write(store, terminate(run, status="timed_out"))
    assert (await store.read_run(run.run_key)).status == "timed_out"
