"""The one question of an idle worker: what there is to do for its session."""

from __future__ import annotations

from pledger.engine.port.operations import Block, FinishTask, PutTask, Release
from pledger.engine.port.records import Outlook
from pledger.engine.port.verbs import Store
from tests.conformance.harness import (
    LEASE_MS,
    NOW,
    Clock,
    append,
    claim,
    claim_tasks,
    look,
    open_session,
    owned_run,
    ownerless_run,
    signal,
    task,
    terminate,
    write,
)

NOTHING = Outlook(overdue=False, woken=False, expired=False, unblocked=False, ended=(), due_ms=None)


async def test_nothing_is_to_be_done(store: Store) -> None:
    session = await open_session(store)
    assert await look(store, session) == NOTHING
    run = await owned_run(store, session)
    assert await look(store, session, held=[run.run_key]) == NOTHING


async def test_a_session_that_outlived_its_lease_is_overdue_by_the_stores_clock(store: Store, clock: Clock) -> None:
    session = await open_session(store)
    assert not (await look(store, session, NOW + LEASE_MS)).overdue
    clock.now_ms += LEASE_MS
    assert (await look(store, session)).overdue
    assert not (await look(store, session, namespace="other")).overdue
    await store.bury_sessions("default")
    assert await look(store, session) == NOTHING


async def test_news_are_for_the_session_that_owns_the_run(store: Store) -> None:
    mine, other = await open_session(store), await open_session(store, "host:2")
    run = await owned_run(store, mine)
    await write(store, signal(run))
    assert (await look(store, mine)).woken
    assert await look(store, other) == NOTHING
    await store.woken_runs(mine)
    assert await look(store, mine) == NOTHING


async def test_an_outcome_is_news_too(store: Store) -> None:
    mine, other = await open_session(store), await open_session(store, "host:2")
    run = await owned_run(store, mine)
    await write(store, PutTask(run.fence, task(run)))
    await claim_tasks(store, other)
    await write(store, FinishTask(run.run_key, 1, 1, other, b"outcome"))
    assert (await look(store, mine)).woken


async def test_what_waited_too_long_is_expired_in_whatever_queue(store: Store) -> None:
    session = await open_session(store)
    run = await owned_run(store, session)
    await write(store, PutTask(run.fence, task(run, task_queue="gpu", due_ms=NOW + 9, expires_ms=NOW + 5)))
    assert await look(store, session, NOW + 4) == NOTHING
    assert (await look(store, session, NOW + 5)).expired
    assert not (await look(store, session, NOW + 5, namespace="other")).expired


async def test_a_blocked_run_is_for_other_code_of_its_type_and_queue(store: Store) -> None:
    session = await open_session(store)
    run = await owned_run(store, session)
    await write(store, Block(run.run_key, run.fence, b"{}", "code-1"))
    assert await look(store, session) == NOTHING
    for code in ("code-0", "code-2"):
        assert (await look(store, session, codes={"fulfil": code})).unblocked
    assert not (await look(store, session, codes={"refund": "code-2"})).unblocked
    assert not (await look(store, session, codes={"fulfil": "code-2"}, task_queue="gpu")).unblocked
    assert not (await look(store, session, codes={"fulfil": "code-2"}, namespace="other")).unblocked
    assert len(await claim(store, session, codes={"fulfil": "code-2"})) == 1
    assert await look(store, session, codes={"fulfil": "code-2"}) == NOTHING


async def test_runs_that_ended_are_told_of_those_asked_about(store: Store) -> None:
    session = await open_session(store)
    runs = [await owned_run(store, session, f"order-{n}") for n in range(4)]
    await store.commit([terminate(runs[1]), append(runs[3], closed="completed")])
    keys = [run.run_key for run in runs]
    assert (await look(store, session, held=keys)).ended == (keys[1], keys[3])
    assert (await look(store, session, held=keys[:2])).ended == (keys[1],)
    assert (await look(store, session, held=[])).ended == ()


async def test_the_next_due_time_is_of_ownerless_runs_and_queued_tasks(store: Store) -> None:
    session = await open_session(store)
    run = await owned_run(store, session)
    await write(store, Release(run.run_key, run.fence, NOW + 20))
    assert (await look(store, session)).due_ms == NOW + 20
    other = await owned_run(store, session, "order-3")
    await write(store, PutTask(other.fence, task(other, due_ms=NOW + 10)))
    seen = await look(store, session)
    assert (seen.due_ms, seen.runs_due_ms) == (NOW + 10, NOW + 20)
    await ownerless_run(store, "order-2", workflow_type="unknown here")
    assert (await look(store, session)).due_ms == 0
