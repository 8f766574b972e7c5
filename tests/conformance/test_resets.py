"""A run that goes on from a part of another one's history: the next segment of its chain, or nothing is written."""

from __future__ import annotations

from pledger.engine.port.answers import Existing, Reply, Sent, Started
from pledger.engine.port.filters import EVERY
from pledger.engine.port.operations import IdReusePolicy
from pledger.engine.port.pauses import Scope
from pledger.engine.port.records import RESET_NAME, ResetRow, RunRow
from pledger.engine.port.verbs import Store
from tests.conformance.harness import (
    NOW,
    Ledger,
    append,
    claim,
    open_session,
    owned_run,
    reset,
    signal,
    start,
    step,
    task,
    terminate,
    write,
)
from tests.conformance.test_families import closing, notices, post, with_child


async def grown(store: Store) -> RunRow:
    """An open run of three transitions with two events each."""
    session = await open_session(store)
    run = await owned_run(store, session)
    for _ in range(2):
        assert await write(store, append(run)) is Reply.WON
        run = await store.read_run(run.run_key)
    return run


async def newest(store: Store) -> RunRow:
    run = await store.find_run("default", "order-1")
    assert run is not None
    return run


async def test_an_open_run_ends_and_its_chain_goes_on_with_the_first_part_of_its_history(ledger: Ledger) -> None:
    store = ledger.open()
    old = await grown(store)
    answer = await write(store, reset(old, kept=4, head=step(3).checksum, event_id=5, time_ms=NOW + 7))
    new = await newest(store)
    assert answer == Started(new.run_key, old.chain_key)
    assert (new.run_id, new.workflow_type, new.input_digest) == ("after-run-of-order-1", "fulfil", b"digest")
    assert (new.status, new.owner, new.due_ms, new.last_event, new.head) == ("running", None, 0, 4, step(3).checksum)
    assert new.started_ms == NOW + 7
    assert await store.read_history(new.run_key) == [step(1), step(3)]
    ended = await store.read_run(old.run_key)
    assert (ended.status, ended.closed_ms, ended.owner, ended.fence) == ("terminated", NOW + 7, None, old.fence + 1)
    assert await store.read_history(old.run_key) == [step(1), step(3), step(5), step(7, b"reset")]
    link = ResetRow(new.run_key, new.run_id, old.run_key, old.run_id, 5, 4, "reset", "it's wrong", "me", NOW + 7)
    assert await store.read_resets(new.run_key) == [link] == await store.read_resets(old.run_key)
    assert await store.count_runs("default", EVERY) == 2


async def test_whoever_held_the_run_writes_nothing_more(ledger: Ledger) -> None:
    store = ledger.open()
    old = await grown(store)
    await store.commit([append(old, tasks=[task(old, 7)], last_event=8)])
    old = await store.read_run(old.run_key)
    assert isinstance(await write(store, reset(old)), Started)
    assert await write(store, append(old)) is Reply.LOST
    assert await store.read_tasks(old.run_key) == []


async def test_a_worker_takes_the_new_run_with_what_it_is_given_first(ledger: Ledger) -> None:
    store = ledger.open()
    old = await grown(store)
    pending = task(old, 3, run_id="after-run-of-order-1")
    await write(store, reset(old, kept=4, head=step(3).checksum, inputs=b"first", tasks=[pending]))
    session = await open_session(store)
    [new] = await store.claim_runs(session, NOW, "default", "default", {"fulfil": "code-1"}, 10)
    assert new.run_id == "after-run-of-order-1"
    [stored] = await store.read_stored_runs([new.run_key], 10)
    assert stored.transitions == (step(1), step(3))
    assert [(each.kind, each.name, each.body) for each in stored.messages] == [("start", RESET_NAME, b"first")]
    assert [(each.run_key, each.event_id, each.state) for each in stored.tasks] == [(new.run_key, 3, "queued")]


async def test_a_closed_run_keeps_its_end(ledger: Ledger) -> None:
    store = ledger.open()
    await write(store, append(await grown(store), closed="failed"))
    old = await newest(store)
    assert isinstance(await write(store, reset(old, kept=2, head=step(1).checksum)), Started)
    ended, new = await store.read_run(old.run_key), await newest(store)
    assert ended == old
    assert (new.status, new.last_event) == ("running", 2)


async def test_what_was_read_must_still_be_so(ledger: Ledger) -> None:
    store = ledger.open()
    old = await grown(store)
    stale = [
        reset(old, base_event=old.last_event - 1),
        reset(old, base_head=b"another!"),
        reset(old, newest_event=old.last_event - 1),
        reset(old, newest_head=b"another!"),
        reset(old, closing=None),
        reset(old, newest_key=old.run_key + 1_000_000),
        reset(old, base_key=old.run_key + 1_000_000),
    ]
    for each in stale:
        assert await write(store, each) is Reply.LOST
    assert await newest(store) == old
    assert await store.read_resets(old.run_key) == []
    assert isinstance(await write(store, reset(old)), Started)
    assert await write(store, reset(old, run_id="another")) is Reply.LOST, "the run that was read has ended"


async def test_one_that_is_repeated_makes_one_run(ledger: Ledger) -> None:
    store = ledger.open()
    old = await grown(store)
    operation = reset(old)
    first, again = await store.commit([operation, operation])
    assert isinstance(first, Started)
    assert again == first
    assert await write(store, operation) == first
    assert await store.count_runs("default", EVERY) == 2


async def test_the_mailbox_is_the_chains(ledger: Ledger) -> None:
    """What waits goes to the new run, and what was delivered is known."""
    store = ledger.open()
    old = await grown(store)
    await store.commit([signal(old, "taken"), signal(old, "waits"), signal(old, "cancel-1", kind="cancel")])
    messages = await store.read_inbox(old.chain_key)
    await write(store, append(old, consumed=[(messages[0].message_key, 7)]))
    old = await store.read_run(old.run_key)
    await write(store, reset(old))
    new = await newest(store)
    waiting = await store.read_inbox(new.chain_key)
    assert [each.message_id for each in waiting] == ["waits", "cancel-1", ""]
    assert await write(store, signal(new, "taken")) is Reply.DUPLICATE
    assert await write(store, signal(new, "waits")) is Reply.DUPLICATE
    assert await write(store, signal(new, "later")) == Sent(None)
    assert await store.read_undelivered(new.chain_key) == []


async def test_signals_that_came_too_late_wait_again_if_that_is_asked(ledger: Ledger) -> None:
    store = ledger.open()
    old = await grown(store)
    await store.commit([signal(old, "late"), signal(old, "cancel-1", kind="cancel")])
    await write(store, terminate(old))
    old = await newest(store)
    await write(store, reset(old, revive=False))
    assert [each.message_id for each in await store.read_inbox(old.chain_key)] == [""]
    second = await newest(store)
    await write(store, reset(old, second, run_id="third"))
    assert [each.message_id for each in await store.read_inbox(old.chain_key)] == ["late", ""]
    assert [each.message_id for each in await store.read_undelivered(old.chain_key)] == ["cancel-1"]


async def test_a_chain_of_resets_has_one_open_run(ledger: Ledger) -> None:
    """Also from an older run than the newest one, which is ended; a start of the id finds the newest."""
    store = ledger.open()
    first = await grown(store)
    for number in range(3):
        old = await newest(store)
        answer = await write(store, reset(first, old, run_id=f"again-{number}", kept=2, head=step(1).checksum))
        assert isinstance(answer, Started)
        first = await store.read_run(first.run_key)
    runs = await store.chain_runs([first.chain_key])
    assert [each.status for each in runs] == ["terminated"] * 3 + ["running"]
    found = await write(store, start())
    assert isinstance(found, Existing)
    assert found.run.run_id == "again-2"
    assert [each.run_id for each in await store.read_resets(first.run_key)] == ["again-0", "again-1", "again-2"]


async def test_a_workflow_id_that_was_started_anew_belongs_to_the_later_chain(ledger: Ledger) -> None:
    store = ledger.open()
    await write(store, append(await grown(store), closed="failed"))
    old = await newest(store)
    other = start(run_id="another", reuse=IdReusePolicy.ALLOW_DUPLICATE)
    assert isinstance(await write(store, other), Started)
    assert await write(store, reset(old)) is Reply.LOST
    assert await write(store, reset(old, await newest(store))) is Reply.LOST


async def test_of_a_chain_that_goes_on_nothing_is_forgotten(ledger: Ledger) -> None:
    store = ledger.open()
    await write(store, append(await grown(store), closed="failed"))
    old = await newest(store)
    await write(store, reset(old))
    ledger.clock.now_ms += 10_000
    assert await store.forget_chains([old.chain_key], 0) == 0
    assert await store.finished_chains("default", "fulfil", 0, (0, 0), 10) == []
    await write(store, terminate(await newest(store), time_ms=ledger.clock.now_ms))
    ledger.clock.now_ms += 10_000
    assert await store.forget_chains([old.chain_key], 0) == 2
    assert (await store.read_run(old.run_key)).is_forgotten
    assert len(await store.read_resets(old.run_key)) == 1, "who and why outlives retention"


async def test_who_sends_to_a_run_that_was_reset_reaches_the_one_that_goes_on(ledger: Ledger) -> None:
    """Whatever the sender knew: the run that was, or the newest one of before the reset, in one batch with it."""
    store = ledger.open()
    old = await grown(store)
    sender = await owned_run(store, await open_session(store, "host:2"), "sender")
    letters = [post(sender, "order-1"), post(sender, "order-1", old.run_id, n=2)]
    answers = await store.commit([reset(old), signal(old, "late"), append(sender, posts=letters)])
    new = await newest(store)
    assert answers[1:] == [Sent(None, new.run_key), Reply.WON]
    told = [each.message_id for each in await store.read_inbox(new.chain_key)]
    assert told == ["", "late", f"{sender.run_id} 3", f"{sender.run_id} 4"]
    assert await write(store, signal(old, "later")) == Sent(None, new.run_key)
    assert await write(store, signal(old, "late")) is Reply.DUPLICATE
    await write(store, terminate(await store.read_run(new.run_key)))
    assert await write(store, signal(old, "too late")) is Reply.CLOSED


async def test_a_pause_of_the_run_and_the_doubts_about_it_are_those_of_the_one_that_goes_on(ledger: Ledger) -> None:
    store = ledger.open()
    await grown(store)
    await store.declare_loss()
    session = await open_session(store, "host:2")
    [old] = await claim(store, session)
    await store.pause(Scope("default", "run", old.run_id, old.run_key, "order-1"), "a look", "ada")
    await write(store, reset(old))
    new = await newest(store)
    [pause] = await store.read_pauses("default")
    assert pause.scope == Scope("default", "run", new.run_id, new.run_key, "order-1")
    assert await claim(store, session) == []
    assert await store.read_losses([new.run_key]) == {new.run_key: True}


async def test_a_child_that_ends_once_more_before_its_parent_has_heard_of_the_first_end(ledger: Ledger) -> None:
    store = ledger.open()
    session, parent, row = await with_child(store)
    await write(store, closing(row, closed="failed", report=b"failed"))
    ended = await store.read_run(row.run_key)
    assert isinstance(await write(store, reset(ended, kept=2, head=step(1).checksum)), Started)
    [again] = await claim(store, session)
    assert again.chain_key == row.chain_key
    assert await write(store, closing(again)) is Reply.WON
    assert await notices(store, parent) == [("started", b"run-of-child"), ("ended", b"failed")]
    inbox = await store.read_inbox(parent.chain_key)
    consumed = [(each.message_key, 5) for each in inbox]
    assert await write(store, append(parent, consumed=consumed)) is Reply.WON
    assert await store.read_inbox(parent.chain_key) == []
