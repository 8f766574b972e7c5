"""One batch, many operations: each gets its own answer."""

from __future__ import annotations

import asyncio

from pledger.engine.port.answers import Reply, Started
from pledger.engine.port.operations import Send
from pledger.engine.port.verbs import Store
from pledger.errors import InternalError, StoreError, WorkflowNotFoundError
from tests.conformance.harness import (
    NOW,
    Ledger,
    append,
    open_session,
    owned_run,
    signal,
    start,
    step,
    write,
)


async def test_an_empty_batch(store: Store) -> None:
    assert await store.commit([]) == []


async def test_answers_come_in_the_order_of_the_operations(store: Store) -> None:
    run = await owned_run(store, await open_session(store))
    lost = append(run, expected_event=9, transition=step(10))
    answers = await store.commit([append(run), lost, start("order-2"), append(run, fence=9)])
    assert answers[0] is Reply.WON
    assert answers[1] is Reply.LOST
    assert isinstance(answers[2], Started)
    assert answers[3] is Reply.LOST


async def test_an_operation_sees_what_those_before_it_wrote(store: Store) -> None:
    run = await owned_run(store, await open_session(store))
    second = append(run, expected_event=4, transition=step(5), last_event=6)
    assert await store.commit([append(run), second]) == [Reply.WON, Reply.WON]


async def test_an_impossible_operation_harms_no_neighbour(store: Store) -> None:
    session = await open_session(store)
    one, two = await owned_run(store, session, "one"), await owned_run(store, session, "two")
    nowhere = Send(one.run_key + 1_000, "signal", "m", "approve", b"[]", NOW)
    answers = await store.commit([append(one), nowhere, object(), append(two), signal(one)])  # type: ignore[list-item]
    assert [answers[0], answers[3]] == [Reply.WON, Reply.WON]
    assert isinstance(answers[1], WorkflowNotFoundError)
    assert isinstance(answers[2], InternalError)
    assert len(await store.read_history(one.run_key)) == len(await store.read_history(two.run_key)) == 2
    assert len(await store.read_inbox(one.chain_key)) == 1


async def test_a_large_batch(store: Store) -> None:
    session = await open_session(store)
    answers = await store.commit([start(f"order-{n}") for n in range(1_000)])
    assert all(isinstance(answer, Started) for answer in answers)
    assert len({answer.run_key for answer in answers if isinstance(answer, Started)}) == 1_000
    assert len(await store.claim_runs(session, NOW, "default", "default", {"fulfil": "code-1"}, 2_000)) == 1_000


async def test_commits_are_seen_by_whoever_waited_for_them(store: Store) -> None:
    run = await owned_run(store, await open_session(store))
    future = store.commit([append(run)])
    assert isinstance(future, asyncio.Future)
    assert await future == [Reply.WON]
    assert (await store.read_run(run.run_key)).last_event == 4


async def test_a_closed_store_refuses_through_the_future(ledger: Ledger) -> None:
    store = ledger.open()
    await store.close()
    error = store.commit([start()]).exception()
    assert isinstance(error, StoreError)
    assert "open_store" in str(error)


async def test_keys_are_positive_and_never_reused(store: Store) -> None:
    session = await open_session(store)
    run = await owned_run(store, session)
    seen: set[int] = set()
    for number in range(3):
        await write(store, signal(run, f"m-{number}", keep_id=False))
        [message] = await store.read_inbox(run.chain_key)
        assert message.message_key > 0
        assert message.message_key not in seen
        seen.add(message.message_key)
        await write(store, append(run, consumed=[(message.message_key, run.last_event + 1)]))
        run = await store.read_run(run.run_key)
    await store.close_session(session)
    assert await open_session(store) != session
