"""What workers bring runs into memory with, of all of them by one question."""

from __future__ import annotations

from pledger.engine.port.operations import FinishTask
from pledger.engine.port.records import StoredRun
from pledger.engine.port.verbs import Store
from tests.conformance.harness import (
    append,
    claim_tasks,
    open_session,
    owned_run,
    ownerless_run,
    run_with_tasks,
    signal,
    step,
    write,
)


async def test_each_run_gets_its_own_in_the_order_in_which_they_were_asked_for(store: Store) -> None:
    session = await open_session(store)
    waits = await ownerless_run(store, "waits")
    told = await owned_run(store, session, "told")
    for message_id in ("z", "a"):
        await write(store, signal(told, message_id))
    await write(store, append(told))
    works = await run_with_tasks(store, session, {}, {}, workflow_id="works")
    [row, _] = await claim_tasks(store, session)
    await write(store, FinishTask(row.run_key, row.event_id, row.attempt, session, outcome=b"result"))

    found = await store.read_stored_runs([works.run_key, 77_777, told.run_key, waits.run_key], 10)

    assert [each.run_key for each in found] == [works.run_key, 77_777, told.run_key, waits.run_key]
    of_works, of_nobody, of_told, of_waits = found
    assert of_works == StoredRun(works.run_key, (step(1), step(3)), tasks=tuple(await store.read_tasks(works.run_key)))
    assert [task.state for task in of_works.tasks] == ["done", "started"]
    assert of_nobody == StoredRun(77_777)
    assert of_told == StoredRun(
        told.run_key, (step(1), step(3)), messages=tuple(await store.read_inbox(told.chain_key))
    )
    assert [message.message_id for message in of_told.messages] == ["z", "a"]
    assert of_waits == StoredRun(waits.run_key, messages=tuple(await store.read_inbox(waits.chain_key)))
    assert [message.kind for message in of_waits.messages] == ["start"]


async def test_the_bound_is_of_each_history(store: Store) -> None:
    session = await open_session(store)
    long, short = await owned_run(store, session, "long"), await owned_run(store, session, "short")
    for _ in range(4):
        await write(store, append(long))
        long = await store.read_run(long.run_key)
    found = await store.read_stored_runs([long.run_key, short.run_key], 3)
    assert [each.transitions for each in found] == [(step(1), step(3), step(5)), (step(1),)]


async def test_what_is_settled_is_left_out(store: Store) -> None:
    run = await owned_run(store, await open_session(store))
    await write(store, signal(run))
    [message] = await store.read_inbox(run.chain_key)
    await write(store, append(run, consumed=[(message.message_key, 3)]))
    assert await store.read_stored_runs([run.run_key], 10) == [StoredRun(run.run_key, (step(1), step(3)))]


async def test_nobody_asks_for_nothing(store: Store) -> None:
    assert await store.read_stored_runs([], 10) == []
