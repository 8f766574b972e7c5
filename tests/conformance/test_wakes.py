"""Wake-ups: an owner in another process is told once, a run without an owner becomes due."""

from __future__ import annotations

from pledger.engine.port.answers import Reply
from pledger.engine.port.operations import Block, FinishTask, Release
from pledger.engine.port.verbs import Store
from tests.conformance.harness import (
    NOW,
    append,
    claim,
    claim_tasks,
    open_session,
    owned_run,
    signal,
    task,
    write,
)


async def test_a_message_wakes_the_owner_once(store: Store) -> None:
    session = await open_session(store)
    run = await owned_run(store, session)
    await store.commit([signal(run), signal(run, "m-2")])
    assert await store.woken_runs(session) == [run.run_key]
    assert await store.woken_runs(session) == []
    await write(store, signal(run, "m-3"))
    assert await store.woken_runs(session) == [run.run_key]


async def test_only_the_owner_is_told(store: Store) -> None:
    mine, other = await open_session(store), await open_session(store, "host:2")
    run = await owned_run(store, mine)
    await write(store, signal(run))
    assert await store.woken_runs(other) == []
    assert await store.woken_runs(mine) == [run.run_key]


async def test_a_sender_of_the_owners_process_stores_no_wake_up(store: Store) -> None:
    mine, other = await open_session(store), await open_session(store, "host:2")
    run = await owned_run(store, mine)
    await write(store, signal(run, local=[mine]))
    assert await store.woken_runs(mine) == []
    await write(store, signal(run, "m-2", local=[other]))
    assert await store.woken_runs(mine) == [run.run_key]


async def test_a_duplicate_wakes_nobody(store: Store) -> None:
    session = await open_session(store)
    run = await owned_run(store, session)
    await write(store, signal(run))
    await store.woken_runs(session)
    assert await write(store, signal(run)) is Reply.DUPLICATE
    assert await store.woken_runs(session) == []


async def test_an_outcome_wakes_the_owner(store: Store) -> None:
    mine, other = await open_session(store), await open_session(store, "host:2")
    run = await owned_run(store, mine)
    await write(store, append(run, tasks=[task(run, 3)]))
    [started] = await claim_tasks(store, other)
    await write(store, FinishTask(run.run_key, 3, started.attempt, other, outcome=b"done"))
    assert await store.woken_runs(mine) == [run.run_key]


async def test_a_question_wakes_the_owner(store: Store) -> None:
    session = await open_session(store)
    run = await owned_run(store, session)
    await store.ask(run.run_key, "query", "status", b"[]", NOW + 1_000)
    assert await store.woken_runs(session) == [run.run_key]


async def test_a_message_makes_a_sleeping_run_due(store: Store) -> None:
    session = await open_session(store)
    run = await owned_run(store, session)
    await write(store, Release(run.run_key, run.fence, NOW + 10**9))
    assert await claim(store, session) == []
    await write(store, signal(run))
    assert [row.run_key for row in await claim(store, session)] == [run.run_key]


async def test_a_question_makes_a_sleeping_run_due(store: Store) -> None:
    session = await open_session(store)
    run = await owned_run(store, session)
    await write(store, Release(run.run_key, run.fence, None))
    await store.ask(run.run_key, "query", "status", b"[]", NOW + 1_000)
    assert [row.run_key for row in await claim(store, session)] == [run.run_key]


async def test_an_outcome_makes_a_sleeping_run_due(store: Store) -> None:
    session = await open_session(store)
    run = await owned_run(store, session)
    await store.commit([append(run, tasks=[task(run, 3)]), Release(run.run_key, run.fence, None)])
    [started] = await claim_tasks(store, session)
    assert await claim(store, session) == []
    await write(store, FinishTask(run.run_key, 3, started.attempt, session, outcome=b"done"))
    assert [row.run_key for row in await claim(store, session)] == [run.run_key]


# A local sender stores no wake-up, since the owner is told in memory. If the owner lets go before it has heard of it,
# only what lies in the store can save the message.


async def test_a_run_let_go_with_mail_is_due_at_once(store: Store) -> None:
    session = await open_session(store)
    run = await owned_run(store, session)
    await store.commit([signal(run, local=[session]), Release(run.run_key, run.fence, NOW + 10**9)])
    assert (await store.read_run(run.run_key)).due_ms == 0
    assert [row.run_key for row in await claim(store, session)] == [run.run_key]


async def test_a_run_let_go_with_its_mail_read_sleeps(store: Store) -> None:
    session = await open_session(store)
    run = await owned_run(store, session)
    await write(store, signal(run, local=[session]))
    [message] = await store.read_inbox(run.chain_key)
    consumed = append(run, consumed=[(message.message_key, 3)])
    await store.commit([consumed, Release(run.run_key, run.fence, None)])
    assert await claim(store, session, NOW + 10**9) == []


async def test_a_run_let_go_with_an_outcome_is_due_at_once(store: Store) -> None:
    session = await open_session(store)
    run = await owned_run(store, session)
    await write(store, append(run, tasks=[task(run, 3)]))
    [started] = await claim_tasks(store, session)
    await write(store, FinishTask(run.run_key, 3, started.attempt, session, outcome=b"done"))
    await store.woken_runs(session)
    await write(store, Release(run.run_key, run.fence, None))
    assert [row.run_key for row in await claim(store, session)] == [run.run_key]


async def test_a_run_let_go_with_an_open_question_is_due_at_once(store: Store) -> None:
    session = await open_session(store)
    run = await owned_run(store, session)
    await store.ask(run.run_key, "query", "status", b"[]", NOW + 1_000)
    await store.woken_runs(session)
    await write(store, Release(run.run_key, run.fence, None))
    assert [row.run_key for row in await claim(store, session)] == [run.run_key]


async def test_a_wake_up_for_the_owner_before_is_not_told_to_the_next(store: Store) -> None:
    """Whoever claims the run reads its mail anyway."""
    session = await open_session(store)
    released, blocked = await owned_run(store, session, "released"), await owned_run(store, session, "blocked")
    await store.commit([signal(released), signal(blocked)])
    await write(store, Release(released.run_key, released.fence, None))
    await write(store, Block(blocked.run_key, blocked.fence, b"{}", "code-1"))
    assert len(await claim(store, session, codes={"fulfil": "code-2"})) == 2
    assert await store.woken_runs(session) == []
