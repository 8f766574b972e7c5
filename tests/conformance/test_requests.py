"""Questions: asked once, answered once, and forgotten."""

from __future__ import annotations

import pytest

from pledger.engine.port.operations import Release
from pledger.engine.port.verbs import Store
from pledger.errors import WorkflowNotFoundError
from tests.conformance.harness import NOW, Clock, claim, open_requests, open_session, owned_run, write


async def test_a_question_is_answered_once_and_taken_once(store: Store) -> None:
    run = await owned_run(store, await open_session(store))
    key = await store.ask(run.run_key, "query", "status", b"[1]", NOW + 1_000)
    [request] = await open_requests(store, run.run_key)
    assert (request.request_key, request.run_key, request.kind, request.name) == (key, run.run_key, "query", "status")
    assert (request.body, request.expires_ms, request.answer, request.failure) == (b"[1]", NOW + 1_000, None, None)
    assert await store.take_answer(key) is None
    await store.answer_request(key, b'"shipped"', None)
    await store.answer_request(key, b'"second"', None)
    assert await open_requests(store, run.run_key) == []
    answered = await store.take_answer(key)
    assert answered is not None
    assert (answered.answer, answered.failure) == (b'"shipped"', None)
    assert await store.take_answer(key) is None


async def test_a_question_can_be_answered_badly(store: Store) -> None:
    run = await owned_run(store, await open_session(store))
    key = await store.ask(run.run_key, "query", "status", b"[]", NOW + 1_000)
    await store.answer_request(key, None, b"failure")
    answered = await store.take_answer(key)
    assert answered is not None
    assert (answered.answer, answered.failure) == (None, b"failure")


async def test_questions_come_in_order_and_to_their_run(store: Store) -> None:
    session = await open_session(store)
    one, two = await owned_run(store, session, "one"), await owned_run(store, session, "two")
    keys = [await store.ask(one.run_key, "query", name, b"[]", NOW + 1) for name in ("b", "a")]
    await store.ask(two.run_key, "query", "c", b"[]", NOW + 1)
    assert [request.request_key for request in await open_requests(store, one.run_key)] == keys


async def test_expired_questions_are_not_asked_any_more_and_dropped(store: Store, clock: Clock) -> None:
    run = await owned_run(store, await open_session(store))
    old = await store.ask(run.run_key, "query", "old", b"[]", NOW + 5)
    new = await store.ask(run.run_key, "query", "new", b"[]", NOW + 6)
    clock.now_ms = NOW + 5
    assert [request.request_key for request in await open_requests(store, run.run_key)] == [new]
    await store.answer_request(old, b"1", None)
    await store.drop_requests(NOW + 5)
    assert await store.take_answer(old) is None
    await store.answer_request(new, b"1", None)
    assert await store.take_answer(new) is not None


async def test_a_question_to_nobody(store: Store) -> None:
    with pytest.raises(WorkflowNotFoundError):
        await store.ask(77, "query", "status", b"[]", NOW)
    await store.answer_request(77, b"1", None)
    assert await store.take_answer(77) is None


async def test_an_answer_counts_only_from_who_owns_the_run(store: Store) -> None:
    session = await open_session(store)
    run = await owned_run(store, session)
    keys = [await store.ask(run.run_key, "update", name, b"[]", NOW + 1_000) for name in ("a", "b")]
    await store.answer_request(keys[0], b"1", None, run.fence - 1)
    await store.answer_request(keys[1], b"2", None, run.fence)
    assert [each.request_key for each in await open_requests(store, run.run_key)] == keys[:1]
    # Another one has it now: what the first one says comes too late.
    await write(store, Release(run.run_key, run.fence, 0))
    [taken] = await claim(store, await open_session(store))
    assert taken.fence > run.fence
    await store.answer_request(keys[0], None, b"refused", run.fence)
    assert await store.take_answer(keys[0]) is None
    await store.answer_request(keys[0], b"3", None, taken.fence)
    answered = await store.take_answer(keys[0])
    assert answered is not None
    assert (answered.answer, answered.failure) == (b"3", None)
