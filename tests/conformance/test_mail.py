"""What waits for runs, of all of them in one question."""

from __future__ import annotations

from pledger.engine.port.operations import FinishTask
from pledger.engine.port.records import Mail
from pledger.engine.port.verbs import Store
from tests.conformance.harness import NOW, Clock, append, claim_tasks, open_session, owned_run, signal, task, write


async def test_each_run_gets_its_own_and_those_without_mail_are_left_out(store: Store) -> None:
    session = await open_session(store)
    runs = [await owned_run(store, session, f"order-{number}") for number in range(4)]
    told, asked, nothing, done = runs
    for message_id in ("z", "a"):
        await write(store, signal(told, message_id))
    keys = [await store.ask(asked.run_key, "query", name, b"[]", NOW + 1) for name in ("b", "a")]
    await write(store, append(done, tasks=[task(done, 3), task(done, 4, due_ms=NOW + 1)]))
    [row] = await claim_tasks(store, session)
    await write(store, FinishTask(row.run_key, row.event_id, row.attempt, session, outcome=b"result"))

    mails = {mail.run_key: mail for mail in await store.read_mail([77, *(run.run_key for run in runs)])}

    assert nothing.run_key not in mails
    assert len(mails) == 3
    assert [message.message_id for message in mails[told.run_key].messages] == ["z", "a"]
    assert mails[told.run_key].messages == tuple(await store.read_inbox(told.chain_key))
    assert [request.request_key for request in mails[asked.run_key].requests] == keys
    [finished, _waiting] = await store.read_tasks(done.run_key)
    assert mails[done.run_key] == Mail(done.run_key, outcomes=(finished,))
    assert finished.outcome == b"result"


async def test_a_run_may_have_all_of_it(store: Store) -> None:
    session = await open_session(store)
    run = await owned_run(store, session)
    await write(store, signal(run))
    key = await store.ask(run.run_key, "query", "status", b"[]", NOW + 1)
    await write(store, append(run, tasks=[task(run, 3), task(run, 4)]))
    for row in await claim_tasks(store, session):
        await write(store, FinishTask(row.run_key, row.event_id, row.attempt, session, outcome=b"result"))
    [mail] = await store.read_mail([run.run_key])
    assert [message.message_id for message in mail.messages] == ["m-1"]
    assert [outcome.event_id for outcome in mail.outcomes] == [3, 4]
    assert [request.request_key for request in mail.requests] == [key]


async def test_what_is_settled_waits_no_more(store: Store, clock: Clock) -> None:
    run = await owned_run(store, await open_session(store))
    await write(store, signal(run))
    [message] = await store.read_inbox(run.chain_key)
    await write(store, append(run, consumed=[(message.message_key, 3)]))
    await store.ask(run.run_key, "query", "old", b"[]", NOW + 5)
    await store.answer_request(await store.ask(run.run_key, "query", "new", b"[]", NOW + 9), b"1", None)
    clock.now_ms = NOW + 5
    assert await store.read_mail([run.run_key]) == []


async def test_nobody_asks_for_nothing(store: Store) -> None:
    assert await store.read_mail([]) == []
