"""A run that continues as new: its successor is there with its end, and the mailbox belongs to both of them."""

from __future__ import annotations

from typing import Any

from pledger.engine.port.answers import Existing, Reply, Sent
from pledger.engine.port.filters import EVERY
from pledger.engine.port.operations import IdReusePolicy, Successor
from pledger.engine.port.pauses import Scope
from pledger.engine.port.records import RunRow
from pledger.engine.port.verbs import Store
from tests.conformance.harness import (
    NOW,
    append,
    claim,
    look,
    open_session,
    owned_run,
    signal,
    start,
    task,
    terminate,
    write,
)


def rolls(run: RunRow, segment: int = 2, **changes: Any) -> Any:
    """The end of a run for its successor."""
    successor = Successor(f"{run.chain_id}.{segment}", "fulfil", "default", b"started again")
    return append(run, closed="continued_as_new", **{"successor": successor} | changes)


async def test_the_successor_is_there_with_the_end(store: Store) -> None:
    run = await owned_run(store, await open_session(store), run_id="R")
    await write(store, append(run, tasks=[task(run)]))
    run = await store.read_run(run.run_key)
    assert await write(store, rolls(run, time_ms=NOW + 7)) is Reply.WON
    ended, successor = await store.read_run(run.run_key), await store.read_current(run.run_key)
    assert (ended.status, ended.closed_ms, ended.owner) == ("continued_as_new", NOW + 7, None)
    assert (successor.run_id, successor.status, successor.segment) == ("R.2", "running", 2)
    assert (successor.chain_key, successor.workflow_id, successor.namespace) == (run.chain_key, "order-1", "default")
    assert (successor.started_ms, successor.last_event, successor.due_ms, successor.owner) == (NOW + 7, 0, 0, None)
    assert successor.input_digest == run.input_digest
    assert await store.read_tasks(run.run_key) == []
    [begun] = await store.read_inbox(run.chain_key)
    assert (begun.kind, begun.body) == ("start", b"started again")
    assert await store.find_run("default", "order-1") == successor
    assert await store.find_run("default", "order-1", "R") == ended
    assert await store.read_current(successor.run_key) == successor


async def test_whoever_comes_may_take_the_successor(store: Store) -> None:
    session = await open_session(store)
    run = await owned_run(store, session)
    successor = Successor(f"{run.chain_id}.2", "another", "elsewhere", b"started")
    await write(store, rolls(run, successor=successor))
    assert await claim(store, session) == []
    other = await store.open_session("other", "default", "elsewhere", "code-1", 5_000)
    [claimed] = await claim(store, other.session_key, task_queue="elsewhere", codes={"another": "code-1"})
    assert (claimed.run_id, claimed.fence, claimed.owner) == (successor.run_id, 1, other.session_key)


async def test_a_repeated_end_makes_no_second_successor(store: Store) -> None:
    run = await owned_run(store, await open_session(store))
    assert await write(store, rolls(run)) is Reply.WON
    assert await write(store, rolls(run)) is Reply.WON
    assert await store.count_runs("default", EVERY) == 2


async def test_an_end_that_loses_makes_none(store: Store) -> None:
    run = await owned_run(store, await open_session(store))
    assert await write(store, rolls(run, fence=run.fence + 1)) is Reply.LOST
    assert await store.count_runs("default", EVERY) == 1


async def test_the_mailbox_is_the_chains(store: Store) -> None:
    """What waits goes on waiting, what was delivered is known, what comes later comes to the successor."""
    session = await open_session(store)
    run = await owned_run(store, session)
    for message_id in ("taken", "left"):
        await write(store, signal(run, message_id))
    await write(store, signal(run, "stop", kind="cancel", name=""))
    taken, _, stop = await store.read_inbox(run.chain_key)
    await write(store, rolls(run, consumed=[(taken.message_key, 3), (stop.message_key, 4)]))
    assert [each.message_id for each in await store.read_inbox(run.chain_key)] == ["left", ""]
    assert await store.read_undelivered(run.chain_key) == []
    asked = await store.read_message(run.chain_key, "stop")
    assert asked is not None
    assert asked.verdict == "delivered", "the chain goes on: it is too early to say what became of it"
    for message_id in ("taken", "left", "stop"):
        assert await write(store, signal(run, message_id)) is Reply.DUPLICATE
    successor = await store.read_current(run.run_key)
    assert await write(store, signal(run, "late")) == Sent(None, successor.run_key)
    assert [each.message_id for each in await store.read_inbox(run.chain_key)] == ["left", "", "late"]
    [mail] = await store.read_mail([successor.run_key])
    assert {each.message_id for each in mail.messages} == {"left", "", "late"}
    # The end of the chain has the verdicts.
    [owned] = await claim(store, session)
    await write(store, append(owned, closed="completed"))
    assert {each.message_id: each.verdict for each in await store.read_undelivered(run.chain_key)} == {
        "left": "undelivered", "": "undelivered", "late": "undelivered", "stop": "too_late:completed",
    }  # fmt: skip
    assert await write(store, signal(run, "too late")) is Reply.CLOSED


async def test_a_message_for_a_run_that_has_ended_wakes_its_successor(store: Store) -> None:
    """Also when the sender's own process holds that: it knows of the run that it has named, and of no other."""
    session = await open_session(store)
    run = await owned_run(store, session)
    await write(store, rolls(run))
    [successor] = await claim(store, session)
    await look(store, session)
    assert await write(store, signal(run, local=[session])) == Sent(session, successor.run_key)
    assert await store.woken_runs(session) == [successor.run_key]


async def test_messages_of_one_batch_with_the_end_go_to_the_successor(store: Store) -> None:
    run = await owned_run(store, await open_session(store))
    answers = await store.commit([signal(run, "before"), rolls(run), signal(run, "after"), signal(run, "after")])
    successor = await store.read_current(run.run_key)
    assert [answers[0], answers[1]] == [Sent(run.owner), Reply.WON]
    assert answers[2:] == [Sent(None, successor.run_key), Reply.DUPLICATE]
    assert [each.message_id for each in await store.read_inbox(run.chain_key)] == ["before", "", "after"]


async def test_a_start_finds_the_chain_by_what_it_was_started_with(store: Store) -> None:
    session = await open_session(store)
    run = await owned_run(store, session, input_digest=b"input")
    await write(store, rolls(run, successor=Successor(f"{run.chain_id}.2", "another", "default", b"started")))
    successor = await store.read_current(run.run_key)
    assert await write(store, start(input_digest=b"input")) == Existing(successor, "use")
    assert await write(store, start(input_digest=b"other")) == Existing(successor, "refuse")
    assert await write(store, start(input_digest=b"input", workflow_type="another")) == Existing(successor, "refuse")
    [owned] = await claim(store, session, codes={"another": "code-1"})
    await write(store, append(owned, closed="completed"))
    again = start(input_digest=b"input", reuse=IdReusePolicy.ALLOW_DUPLICATE)
    await write(store, again)
    newest = await store.find_run("default", "order-1")
    assert newest is not None
    assert (newest.run_id, newest.segment) == (again.run_id, 1)
    assert (await store.read_current(run.run_key)).run_key == owned.run_key, "another chain of the id is not this one's"


async def test_a_birth_that_is_repeated_after_the_run_has_gone_on_finds_it(store: Store) -> None:
    session = await open_session(store)
    run = await owned_run(store, session, run_id="R")
    await write(store, rolls(run))
    again = start(owner=session, first=append(run), run_id="R")
    assert await write(store, again) == Existing(await store.read_current(run.run_key), "use")


async def test_a_run_may_be_born_and_go_on_at_once(store: Store) -> None:
    session = await open_session(store)
    draft = start(run_id="R", owner=session)
    draft.first = append(
        RunRow(
            0, 0, "default", "order-1", "R", "fulfil", "default", "running", b"", NOW, None, 0, b"", 1, session, None,
            0, None, None,
        ),
        closed="continued_as_new",
        successor=Successor("R.2", "fulfil", "default", b"started"),
    )  # fmt: skip
    await write(store, draft)
    row = await store.find_run("default", "order-1")
    assert row is not None
    assert (row.run_id, row.status) == ("R.2", "running")
    assert [each.kind for each in await store.read_inbox(row.chain_key)] == ["start"]


async def test_a_pause_of_one_run_is_handed_on(store: Store) -> None:
    session = await open_session(store)
    run = await owned_run(store, session)
    await store.pause(Scope("default", "run", run.run_id, run.run_key, "order-1"), "a look", "ada")
    await write(store, rolls(run))
    successor = await store.read_current(run.run_key)
    [pause] = await store.read_pauses("default")
    assert pause.scope == Scope("default", "run", successor.run_id, successor.run_key, "order-1")
    assert await claim(store, session) == []
    assert await store.resume(pause.scope, None) is not None
    assert [each.run_key for each in await claim(store, session)] == [successor.run_key]


async def test_the_doubts_after_a_loss_are_handed_on(store: Store) -> None:
    await owned_run(store, await open_session(store))
    await store.declare_loss()
    [run] = await claim(store, await open_session(store))
    await write(store, rolls(run))
    successor = await store.read_current(run.run_key)
    assert await store.read_losses([successor.run_key]) == {successor.run_key: True}


async def test_retention_takes_a_chain_as_a_whole(store: Store) -> None:
    session = await open_session(store)
    run = await owned_run(store, session)
    await write(store, rolls(run))
    assert await store.finished_types("default") == []
    assert await store.forget_chains([run.chain_key], -1) == 0, "it is open"
    [owned] = await claim(store, session)
    await write(store, append(owned, closed="completed"))
    assert await store.finished_types("default") == ["fulfil"]
    assert await store.forget_chains([run.chain_key], -1) == 2
    rows = await store.chain_runs([run.chain_key])
    assert [(row.run_id, row.is_forgotten) for row in rows] == [(run.run_id, True), (owned.run_id, True)]


async def test_a_successor_can_be_ended_before_anybody_has_taken_it(store: Store) -> None:
    run = await owned_run(store, await open_session(store))
    await write(store, rolls(run))
    successor = await store.read_current(run.run_key)
    assert await write(store, terminate(run)) is Reply.LOST
    assert await write(store, terminate(successor)) is Reply.WON
    assert (await store.read_run(run.run_key)).status == "continued_as_new"
