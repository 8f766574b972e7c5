"""Starting runs: what the policies make of a workflow id that is taken, and how a new run looks."""

from __future__ import annotations

import pytest

from pledger.engine.port.answers import Existing, Reply, Started, decide_start
from pledger.engine.port.filters import EVERY
from pledger.engine.port.operations import Append, FirstMessage, IdConflictPolicy, IdReusePolicy, Send
from pledger.engine.port.verbs import Store
from pledger.history.transition import CHAIN_START
from tests.conformance.harness import (
    NOW,
    append,
    claim,
    open_session,
    owned_run,
    ownerless_run,
    start,
    step,
    task,
    write,
)

SAME_INPUT = (b"digest", "fulfil")
OTHER_INPUT = (b"another", "fulfil")
OTHER_TYPE = (b"digest", "refund")


async def test_an_ownerless_start_waits_with_its_first_message(store: Store) -> None:
    run = await ownerless_run(store)
    assert (run.status, run.owner, run.fence, run.last_event, run.head) == ("running", None, 0, 0, CHAIN_START)
    assert (run.started_ms, run.closed_ms, run.claims, run.blocked) == (NOW, None, 0, None)
    [message] = await store.read_inbox(run.chain_key)
    assert (message.kind, message.body, message.sent_ms, message.verdict) == ("start", b"started", NOW, None)


@pytest.mark.parametrize("keep_id", [True, False])
async def test_what_is_sent_with_a_start_stands_behind_it(store: Store, keep_id: bool) -> None:
    beside = FirstMessage("m-1", "note", b"[1]", keep_id)
    run = await ownerless_run(store, beside=beside)
    first, second = await store.read_inbox(run.chain_key)
    assert (first.kind, second.kind) == ("start", "signal")
    assert (second.message_id, second.name, second.body, second.sent_ms) == ("m-1", "note", b"[1]", NOW)
    # A start that finds a run sends it nothing.
    assert isinstance(await write(store, start(beside=FirstMessage("m-2", "note", b"[2]"))), Existing)
    assert len(await store.read_inbox(run.chain_key)) == 2
    [taken] = await claim(store, await open_session(store))
    consumed = [(first.message_key, 1), (second.message_key, 2)]
    assert await write(store, append(taken, consumed=consumed)) is Reply.WON
    assert await store.read_inbox(run.chain_key) == []
    known = await store.read_message(run.chain_key, "m-1")
    assert (known is not None and known.verdict == "delivered") == keep_id


async def test_a_start_that_is_born_has_what_was_sent_with_it_in_its_first_transition(store: Store) -> None:
    run = await owned_run(store, await open_session(store), beside=FirstMessage("m-1", "note", b"[1]"))
    assert await store.read_inbox(run.chain_key) == []


async def test_an_owned_start_is_born_with_its_first_transition(store: Store) -> None:
    session = await open_session(store)
    run = await owned_run(store, session)
    assert (run.owner, run.fence, run.last_event, run.head) == (session, 1, 2, step(1).checksum)
    assert await store.read_history(run.run_key) == [step(1)]
    assert await store.read_inbox(run.chain_key) == []


async def test_the_first_append_gets_the_key_of_its_run_and_so_do_its_tasks(store: Store) -> None:
    session = await open_session(store)
    unborn = await owned_run(store, session, "any")
    first = Append(0, 0, 0, step(1), 2, None, NOW, tasks=[task(unborn, 2, run_key=0)])
    answer = await write(store, start(owner=session, first=first))
    assert isinstance(answer, Started)
    assert first.run_key == answer.run_key
    assert [row.run_key for row in await store.read_tasks(answer.run_key)] == [answer.run_key]


async def test_a_run_can_close_in_its_first_transition(store: Store) -> None:
    session = await open_session(store)
    first = Append(0, 0, 0, step(1), 2, None, NOW, closed="completed")
    answer = await write(store, start(owner=session, first=first))
    assert isinstance(answer, Started)
    run = await store.read_run(answer.run_key)
    assert (run.status, run.closed_ms, run.owner, run.last_event) == ("completed", NOW, None, 2)


async def test_a_buried_session_cannot_start_a_run_of_its_own(store: Store) -> None:
    session = await open_session(store)
    await store.close_session(session)
    first = Append(0, 0, 0, step(1), 2, None, NOW)
    assert await write(store, start(owner=session, first=first)) is Reply.LOST
    assert await store.find_run("default", "order-1") is None


@pytest.mark.parametrize("again", [SAME_INPUT, OTHER_INPUT, OTHER_TYPE])
@pytest.mark.parametrize("conflict", IdConflictPolicy)
async def test_policies_for_an_open_run(store: Store, conflict: IdConflictPolicy, again: tuple[bytes, str]) -> None:
    existing = await ownerless_run(store)
    digest, workflow_type = again
    second = start(run_id="second", input_digest=digest, workflow_type=workflow_type, conflict=conflict)
    decision = decide_start(existing, second)
    assert decision != "start"
    assert await write(store, second) == Existing(existing, decision)
    assert await store.count_runs("default", EVERY) == 1


CLOSED = ["completed", "compensated", "failed", "cancelled", "terminated", "timed_out"]


@pytest.mark.parametrize("again", [SAME_INPUT, OTHER_INPUT])
@pytest.mark.parametrize("status", CLOSED)
@pytest.mark.parametrize("reuse", IdReusePolicy)
async def test_policies_for_a_closed_run(
    store: Store, reuse: IdReusePolicy, status: str, again: tuple[bytes, str]
) -> None:
    session = await open_session(store)
    run = await owned_run(store, session)
    await write(store, append(run, closed=status))
    existing = await store.read_run(run.run_key)
    second = start(run_id="second", input_digest=again[0], workflow_type=again[1], reuse=reuse)
    decision = decide_start(existing, second)
    answer = await write(store, second)
    if decision == "start":
        assert isinstance(answer, Started)
        newest = await store.find_run("default", "order-1")
        assert newest is not None
        assert (newest.run_id, newest.chain_key == run.chain_key) == ("second", False)
    else:
        assert answer == Existing(existing, decision)


async def test_one_batch_with_the_same_id_twice_makes_one_run(store: Store) -> None:
    first, second, other = await store.commit([start(), start(run_id="second"), start("order-2")])
    assert isinstance(first, Started)
    assert isinstance(second, Existing)
    assert second.run.run_key == first.run_key
    assert isinstance(other, Started)


async def test_the_same_id_in_another_namespace_is_another_workflow(store: Store) -> None:
    run = await ownerless_run(store)
    other = await ownerless_run(store, namespace="staging")
    assert run.run_key != other.run_key
    assert await store.find_run("staging", "order-1") == other
    assert await store.find_run("default", "order-1") == run


async def test_runs_of_a_reused_id_are_found_by_their_run_id(store: Store) -> None:
    session = await open_session(store)
    runs = []
    for number in range(3):
        operation = start(run_id=f"r{number}", reuse=IdReusePolicy.ALLOW_DUPLICATE)
        assert isinstance(await write(store, operation), Started)
        [run] = await claim(store, session)
        await write(store, append(run, closed="completed"))
        runs.append(await store.read_run(run.run_key))
    assert await store.find_run("default", "order-1") == runs[-1]
    for run in runs:
        assert await store.find_run("default", "order-1", run.run_id) == run
    assert await store.find_run("default", "order-1", "nobody") is None
    assert await store.find_run("default", "order-2") is None


async def test_a_reused_id_does_not_see_the_old_mailbox(store: Store) -> None:
    session = await open_session(store)
    old = await owned_run(store, session)
    await write(store, Send(old.run_key, "signal", "m-1", "approve", b"[]", NOW))
    await write(store, append(old, closed="failed"))
    new = await ownerless_run(store, run_id="new", reuse=IdReusePolicy.ALLOW_DUPLICATE)
    assert [message.kind for message in await store.read_inbox(new.chain_key)] == ["start"]
    answer = await write(store, Send(new.run_key, "signal", "m-1", "approve", b"[]", NOW))
    assert answer is not Reply.DUPLICATE


async def test_starts_of_one_batch_are_numbered_and_taken_as_they_came(store: Store) -> None:
    session = await open_session(store)
    names = ["order-b", "order-c", "order-a"]
    answers = await store.commit([start(name) for name in names])
    keys = [answer.run_key for answer in answers if isinstance(answer, Started)]
    assert keys == sorted(keys)
    assert [run.workflow_id for run in await claim(store, session)] == names


async def test_a_start_whose_answer_was_lost_is_told_its_run_when_it_is_asked_again(store: Store) -> None:
    session = await open_session(store)
    operation = start(owner=session, first=Append(0, 0, 0, step(1), 2, None, NOW), reuse=IdReusePolicy.ALLOW_DUPLICATE)
    [born] = await store.commit([operation])
    assert [born, born] == [*await store.commit([operation]), *await store.commit([operation])]
    assert isinstance(born, Started)
    assert len(await store.list_runs("default", EVERY, 10)) == 1
    assert operation.first is not None
    assert operation.first.run_key == born.run_key
    closed = Append(born.run_key, 1, 2, step(3), 4, None, NOW, closed="completed")
    assert await store.commit([closed]) == [Reply.WON]
    assert await store.commit([operation]) == [born], "also when it has ended since"
