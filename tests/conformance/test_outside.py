"""Attempts that are run by nobody here: handed out, ended, timed out; and the keys of their tokens."""

from __future__ import annotations

from msgspec.structs import replace

from pledger.engine.port.answers import Reply
from pledger.engine.port.operations import FinishTask, HandOut, Heartbeat, PutTask
from pledger.engine.port.records import OUTSIDE, TaskRow
from pledger.engine.port.verbs import Store
from pledger.history.placement import LimitRule
from tests.conformance.harness import (
    NOW,
    Clock,
    append,
    claim_queued,
    claim_tasks,
    look,
    open_session,
    placed,
    run_with_tasks,
    write,
)

ONE = LimitRule(concurrency=1)
API = placed(3, "", 1.0, ("api", ""))


def hand_out(row: TaskRow, **changes: object) -> HandOut:
    owner = row.owner or 0
    return replace(HandOut(row.run_key, row.event_id, row.attempt, owner, NOW + 50), **changes)


def outside(row: TaskRow, **changes: object) -> FinishTask:
    return replace(FinishTask(row.run_key, row.event_id, row.attempt, OUTSIDE, b"outcome"), **changes)


async def test_what_is_handed_out_is_no_sessions_any_more(store: Store) -> None:
    session = await open_session(store)
    run = await run_with_tasks(store, session, {})
    [row] = await claim_tasks(store, session)
    assert await write(store, hand_out(row, owner=session + 99)) is Reply.LOST
    assert await write(store, hand_out(row, attempt=2)) is Reply.LOST
    assert await write(store, hand_out(row, details=b"[1]")) is Reply.WON
    assert await write(store, hand_out(row)) is Reply.DUPLICATE  # its answer was lost
    assert await store.owned_tasks(session) == []
    await store.close_session(session)
    [out] = await store.read_tasks(run.run_key)
    assert out == replace(row, owner=OUTSIDE, expires_ms=NOW + 50, heartbeat=b"[1]")
    assert await claim_tasks(store, await open_session(store)) == []


async def test_it_is_ended_once(store: Store) -> None:
    session = await open_session(store)
    run = await run_with_tasks(store, session, {})
    [row] = await claim_tasks(store, session)
    assert await write(store, outside(row)) is Reply.LOST  # not out yet
    await write(store, hand_out(row))
    assert await write(store, outside(row, attempt=2)) is Reply.LOST
    assert await write(store, outside(row)) is Reply.WON
    assert await write(store, outside(row, outcome=b"another")) is Reply.LOST
    assert [each.outcome for each in await store.read_tasks(run.run_key)] == [b"outcome"]
    assert await store.woken_runs(session) == [run.run_key]
    assert await write(store, hand_out(row)) is Reply.LOST


async def test_a_heartbeat_puts_its_end_off(store: Store) -> None:
    session = await open_session(store)
    run = await run_with_tasks(store, session, {})
    [row] = await claim_tasks(store, session)
    await write(store, hand_out(row))
    assert not (await look(store, session, NOW + 49)).expired
    assert (await look(store, session, NOW + 50)).expired
    assert [each.event_id for each in await store.expired_tasks("default", NOW + 50, 10)] == [3]
    assert await store.expired_tasks("other", NOW + 50, 10) == []
    beat = Heartbeat(run.run_key, 3, 1, OUTSIDE, None, NOW + 90)
    assert await write(store, beat) is Reply.HEARTBEAT_OK
    assert not (await look(store, session, NOW + 50)).expired
    over = outside(row, expires_ms=NOW + 50)
    assert await write(store, over) is Reply.LOST  # as it was when somebody looked
    await write(store, append(run, cancelled=[3]))
    assert await write(store, beat) is Reply.CANCEL_REQUESTED
    [still] = await store.read_tasks(run.run_key)
    assert (still.expires_ms, still.owner) == (NOW + 90, OUTSIDE)
    assert await write(store, replace(over, expires_ms=NOW + 90)) is Reply.WON


async def test_a_row_may_be_born_outside(store: Store) -> None:
    """Of an attempt that began beside its run."""
    session = await open_session(store)
    run = await run_with_tasks(store, session, {})
    [row] = await claim_tasks(store, session)
    born = replace(row, event_id=2, owner=OUTSIDE, expires_ms=NOW + 50)
    assert await write(store, PutTask(run.fence, born)) is Reply.WON
    assert await write(store, PutTask(run.fence, born)) is Reply.DUPLICATE
    assert await write(store, outside(born)) is Reply.WON


async def test_its_slot_stays_taken_until_it_ends(store: Store) -> None:
    session = await open_session(store)
    await run_with_tasks(store, session, API, API)
    [row] = (await claim_queued(store, session, api=ONE)).tasks
    await write(store, hand_out(row))
    await store.close_session(session)
    other = await open_session(store)
    assert (await claim_queued(store, other, api=ONE)).tasks == []
    assert [each.keys for each in await store.read_limits("default") if each.name == "api"] == [(("", 1, 1),)]
    assert await write(store, outside(row)) is Reply.WON
    assert len((await claim_queued(store, other, api=ONE)).tasks) == 1


async def test_a_ledger_has_a_key_and_gets_others(store: Store, clock: Clock) -> None:
    [born, *_] = await store.read_token_keys()
    assert len(born.secret) >= 32
    assert born.retired_ms is None
    first = await store.rotate_token_keys("first", b"1" * 32, 0)  # a server may have others, of tests before
    clock.now_ms = NOW + 100
    second = await store.rotate_token_keys("second", b"2" * 32, 50)
    assert await store.read_token_keys() == [second, replace(first, retired_ms=NOW + 150)]
    third = await store.rotate_token_keys("third", b"3" * 32, 1_000)
    kept = [third, replace(second, retired_ms=NOW + 1_100), replace(first, retired_ms=NOW + 150)]
    assert await store.read_token_keys() == kept  # what was said before holds
    clock.now_ms = NOW + 150
    fourth = await store.rotate_token_keys("fourth", b"4" * 32, 0)
    assert await store.read_token_keys() == [fourth]
