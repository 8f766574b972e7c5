"""Namespaces are apart: under the same ids and queue names, nobody sees or takes what belongs to another one."""

from __future__ import annotations

from pledger.engine.port.answers import Reply
from pledger.engine.port.filters import EVERY, Match
from pledger.engine.port.operations import Block, Release
from pledger.engine.port.records import RunRow
from pledger.engine.port.verbs import Store
from tests.conformance.harness import (
    LEASE_MS,
    NOW,
    Clock,
    append,
    claim,
    claim_tasks,
    next_due_ms,
    open_session,
    owned_run,
    ownerless_run,
    task,
    write,
)

ALL = 10**9


async def let_go(store: Store, run: RunRow, due_ms: int | None) -> None:
    assert await write(store, Release(run.run_key, run.fence, due_ms)) is Reply.WON


async def run_with_tasks(store: Store, session: int, namespace: str) -> RunRow:
    """A run of its own namespace: event 3 waits to be started, event 4 has waited too long."""
    run = await owned_run(store, session, namespace=namespace)
    tasks = [task(run, 3, due_ms=NOW), task(run, 4, due_ms=NOW + ALL, expires_ms=NOW)]
    assert await write(store, append(run, tasks=tasks)) is Reply.WON
    return await store.read_run(run.run_key)


async def test_a_run_is_claimed_in_its_namespace_only(store: Store) -> None:
    here, there = await open_session(store, namespace="a"), await open_session(store, namespace="b")
    run = await ownerless_run(store, namespace="a")
    assert await claim(store, there, NOW + ALL, namespace="b") == []
    assert [row.run_key for row in await claim(store, here, namespace="a")] == [run.run_key]


async def test_the_due_of_others_take_no_place_in_a_claim(store: Store) -> None:
    session = await open_session(store, namespace="b")
    for n in range(3):
        await ownerless_run(store, f"order-{n}", namespace="a")
    mine = await ownerless_run(store, "order-1", namespace="b")
    assert [row.run_key for row in await claim(store, session, namespace="b", limit=1)] == [mine.run_key]


async def test_a_blocked_run_is_taken_up_in_its_namespace_only(store: Store) -> None:
    here, there = await open_session(store, namespace="a"), await open_session(store, namespace="b")
    run = await owned_run(store, here, namespace="a")
    assert await write(store, Block(run.run_key, run.fence, b"{}", "code-1")) is Reply.WON
    fixed = {"fulfil": "code-2"}
    assert await claim(store, there, namespace="b", codes=fixed) == []
    assert (await store.read_run(run.run_key)).blocked == b"{}"
    assert [row.run_key for row in await claim(store, here, namespace="a", codes=fixed)] == [run.run_key]


async def test_a_task_is_started_in_its_namespace_only(store: Store) -> None:
    here, there = await open_session(store, namespace="a"), await open_session(store, namespace="b")
    run = await run_with_tasks(store, here, "a")
    assert await claim_tasks(store, there, NOW + ALL, namespace="b") == []
    [started] = await claim_tasks(store, here, namespace="a")
    assert (started.run_key, started.event_id, started.namespace) == (run.run_key, 3, "a")


async def test_what_waits_too_long_is_ended_in_its_namespace_only(store: Store) -> None:
    await run_with_tasks(store, await open_session(store, namespace="a"), "a")
    assert await store.expired_tasks("b", NOW, 10) == []
    assert [row.event_id for row in await store.expired_tasks("a", NOW, 10)] == [4]


async def test_what_is_due_next_is_that_of_the_namespace(store: Store) -> None:
    session = await open_session(store, namespace="a")
    await let_go(store, await owned_run(store, session, namespace="a"), NOW + 5)
    assert await next_due_ms(store, "b", "default") is None
    await let_go(store, await owned_run(store, await open_session(store, namespace="b"), namespace="b"), NOW + 9)
    assert (await next_due_ms(store, "a", "default"), await next_due_ms(store, "b", "default")) == (NOW + 5, NOW + 9)
    await run_with_tasks(store, await open_session(store, namespace="c"), "c")
    assert await next_due_ms(store, "c", "default") == NOW
    assert await next_due_ms(store, "b", "default") == NOW + 9


async def test_sessions_are_shown_and_buried_in_their_namespace_only(store: Store, clock: Clock) -> None:
    here, there = await open_session(store, namespace="a"), await open_session(store, namespace="b")
    run = await run_with_tasks(store, here, "a")
    await claim_tasks(store, here, namespace="a")
    clock.now_ms += LEASE_MS
    assert [row.session_key for row in await store.bury_sessions("b")] == [there]
    assert await store.bury_sessions("b") == []
    assert await store.read_sessions("b") == []
    [session] = await store.read_sessions("a")
    assert (session.session_key, session.namespace) == (here, "a")
    assert (await store.read_run(run.run_key)).owner == here
    assert [row.session_key for row in await store.bury_sessions("a")] == [here]
    assert (await store.read_run(run.run_key)).owner is None
    assert [row.lost for row in await store.read_tasks(run.run_key)] == [True, False]


async def test_lists_and_counts_show_their_namespace_only(store: Store) -> None:
    runs = [await ownerless_run(store, f"order-{n}", namespace=namespace) for n in range(2) for namespace in "ab"]
    assert await store.list_runs("a", EVERY, 10) == [runs[2], runs[0]]
    assert await store.list_runs("b", EVERY, 1) == [runs[3]]
    before = Match("run_key", None, (("<", runs[3].run_key),))
    assert await store.list_runs("b", before, 1) == [runs[1]]
    assert (await store.count_runs("a", EVERY), await store.count_runs("c", EVERY)) == (2, 0)


async def test_one_workflow_id_is_another_run_in_each_namespace(store: Store) -> None:
    one, two = await ownerless_run(store, namespace="a"), await ownerless_run(store, namespace="b")
    assert one.workflow_id == two.workflow_id
    assert one.run_id == two.run_id  # as far as a store is concerned, that too is a namespace's own affair
    assert await store.find_run("a", one.workflow_id) == one
    assert await store.find_run("b", two.workflow_id, two.run_id) == two
    assert await store.find_run("c", one.workflow_id) is None
