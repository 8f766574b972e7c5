"""Activity rows: claimed in order, finished once, and honest about lost attempts."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pledger.engine.port.answers import Reply
from pledger.engine.port.operations import ExpireTask, Heartbeat, LogAttempts, PutTask, Release
from pledger.engine.port.records import AttemptRecord
from pledger.engine.port.verbs import Store
from tests.conformance.harness import (
    LEASE_MS,
    NOW,
    Clock,
    append,
    claim_tasks,
    finish,
    next_due_ms,
    open_session,
    owned_run,
    run_with_tasks,
    task,
    terminate,
    write,
)


async def test_rows_come_back_as_they_were_put(store: Store) -> None:
    session = await open_session(store)
    run = await owned_run(store, session)
    full = task(
        run,
        3,
        attempt=4,
        due_ms=NOW + 1,
        started_ms=NOW - 1,
        expires_ms=NOW + 9,
        lost=True,
        heartbeat=b"[9]",
        last_failure=b"failure",
        cancel_requested=True,
    )
    started = task(run, 4, state="started", owner=session, started_ms=NOW)
    await write(store, append(run, tasks=[started, full]))
    assert await store.read_tasks(run.run_key) == [full, started]


async def test_claims_take_due_rows_oldest_first(store: Store) -> None:
    session = await open_session(store)
    await run_with_tasks(store, session, {"due_ms": NOW - 1}, {"due_ms": NOW - 2}, {"due_ms": NOW + 1}, {"due_ms": NOW})
    first = await claim_tasks(store, session, limit=2)
    assert [row.event_id for row in first] == [4, 3]
    assert [row.event_id for row in await claim_tasks(store, session)] == [6]
    assert await claim_tasks(store, session) == []
    assert await next_due_ms(store, "default", "default") == NOW + 1


async def test_rows_that_are_due_at_one_moment_come_by_their_keys(store: Store) -> None:
    """Whatever their types, and however they came to wait."""
    session = await open_session(store)
    first, second = [await owned_run(store, session, f"order-{n}") for n in range(2)]
    refund = {"activity_type": "refund"}
    await write(store, append(second, tasks=[task(second, 4), task(second, 3, **refund)]))
    await write(store, append(first, tasks=[task(first, 5, **refund), task(first, 4), task(first, 3)]))
    claimed = await claim_tasks(store, session, activity_types=["charge", "refund"])
    keys = [(row.run_key, row.event_id) for row in claimed]
    assert keys == [*((first.run_key, n) for n in (3, 4, 5)), *((second.run_key, n) for n in (3, 4))]


async def test_a_claimed_row_is_the_record_of_the_attempt(store: Store) -> None:
    session = await open_session(store)
    run = await run_with_tasks(store, session, {"attempt": 2, "lost": True, "heartbeat": b"[1]"})
    [row] = await claim_tasks(store, session, NOW + 7)
    assert (row.state, row.owner, row.started_ms, row.attempt) == ("started", session, NOW + 7, 2)
    assert (row.lost, row.heartbeat, row.command) == (True, b"[1]", b"command")
    assert (row.workflow_id, row.run_id, row.workflow_type) == (run.workflow_id, run.run_id, run.workflow_type)
    assert await store.read_tasks(run.run_key) == [row]


async def test_claims_go_by_queue_and_type(store: Store) -> None:
    session = await open_session(store)
    await run_with_tasks(store, session, {"task_queue": "gpu"}, {"activity_type": "refund"})
    assert await claim_tasks(store, session) == []
    assert [row.event_id for row in await claim_tasks(store, session, task_queue="gpu")] == [3]
    assert [row.event_id for row in await claim_tasks(store, session, activity_types=["charge", "refund"])] == [4]


async def test_claims_go_by_due_time_across_types(store: Store) -> None:
    session = await open_session(store)
    await run_with_tasks(store, session, {"due_ms": NOW - 1}, {"due_ms": NOW - 2, "activity_type": "refund"})
    [row] = await claim_tasks(store, session, activity_types=["charge", "refund"], limit=1)
    assert row.event_id == 4


async def test_a_row_is_claimed_by_one(store: Store) -> None:
    one, two = await open_session(store), await open_session(store, "host:2")
    await run_with_tasks(store, one, {})
    assert len(await claim_tasks(store, one)) == 1
    assert await claim_tasks(store, two) == []


async def test_a_session_that_is_gone_claims_nothing(store: Store) -> None:
    session, gone = await open_session(store), await open_session(store, "host:2")
    await run_with_tasks(store, session, {})
    await store.close_session(gone)
    assert await claim_tasks(store, gone) == []


async def test_an_attempt_is_finished_once(store: Store) -> None:
    session = await open_session(store)
    run = await run_with_tasks(store, session, {})
    [row] = await claim_tasks(store, session)
    assert await store.commit([finish(row), finish(row, outcome=b"other")]) == [Reply.WON, Reply.LOST]
    [done] = await store.read_tasks(run.run_key)
    assert (done.state, done.owner, done.outcome) == ("done", None, b"result")
    assert await claim_tasks(store, session, NOW + 10**9) == []


async def test_only_the_attempt_that_runs_can_finish(store: Store) -> None:
    one, two = await open_session(store), await open_session(store, "host:2")
    run = await run_with_tasks(store, one, {})
    queued = task(run, 3, owner=one)
    assert await write(store, finish(queued)) is Reply.LOST
    [row] = await claim_tasks(store, one)
    assert await write(store, finish(replace(row, attempt=2))) is Reply.LOST
    assert await write(store, finish(replace(row, owner=two))) is Reply.LOST
    assert await write(store, finish(replace(row, event_id=99))) is Reply.LOST
    assert await store.read_tasks(run.run_key) == [row]


async def test_a_late_outcome_of_a_lost_attempt_loses(store: Store) -> None:
    one, two = await open_session(store), await open_session(store, "host:2")
    run = await run_with_tasks(store, two, {})
    [late] = await claim_tasks(store, one)
    await store.close_session(one)
    assert await write(store, finish(late)) is Reply.LOST
    [row] = await claim_tasks(store, two)
    assert row.lost
    assert await write(store, finish(late)) is Reply.LOST
    assert await write(store, finish(row, outcome=b"second")) is Reply.WON
    assert [row.outcome for row in await store.read_tasks(run.run_key)] == [b"second"]


async def test_a_failed_attempt_waits_for_its_next_one(store: Store) -> None:
    session = await open_session(store)
    run = await run_with_tasks(store, session, {})
    [row] = await claim_tasks(store, session)
    again = replace(
        row, state="queued", owner=None, attempt=2, due_ms=NOW + 50, last_failure=b"failure", started_ms=None
    )
    line = AttemptRecord(run.run_key, 3, 1, "failed", NOW, NOW + 1, "host:1", b"failure")
    assert await write(store, finish(row, outcome=None, requeue=again, attempts=[line])) is Reply.WON
    assert await store.read_tasks(run.run_key) == [again]
    assert await store.read_attempts(run.run_key) == [line]
    assert await store.woken_runs(session) == []
    assert await claim_tasks(store, session, NOW + 49) == []
    assert await write(store, finish(row, outcome=None, requeue=again)) is Reply.LOST
    assert [row.attempt for row in await claim_tasks(store, session, NOW + 50)] == [2]


async def test_heartbeats_keep_details_and_tell_of_a_cancel(store: Store) -> None:
    session = await open_session(store)
    run = await run_with_tasks(store, session, {})
    [row] = await claim_tasks(store, session)
    beat = Heartbeat(run.run_key, 3, 1, session, b"[50]")
    assert await write(store, beat) is Reply.HEARTBEAT_OK
    assert await write(store, replace(beat, details=None)) is Reply.HEARTBEAT_OK
    assert [row.heartbeat for row in await store.read_tasks(run.run_key)] == [b"[50]"]
    await write(store, append(run, cancelled=[3, 99]))
    assert await write(store, beat) is Reply.CANCEL_REQUESTED
    assert await write(store, replace(beat, attempt=2)) is Reply.LOST
    assert await write(store, replace(beat, owner=session + 99)) is Reply.LOST
    await write(store, finish(row))
    assert await write(store, beat) is Reply.LOST


async def test_details_survive_the_death_of_the_worker(store: Store) -> None:
    session, other = await open_session(store), await open_session(store, "host:2")
    run = await run_with_tasks(store, session, {})
    await claim_tasks(store, other)
    await write(store, Heartbeat(run.run_key, 3, 1, other, b"[50]"))
    await store.close_session(other)
    assert [(row.lost, row.heartbeat) for row in await claim_tasks(store, session)] == [(True, b"[50]")]


async def test_an_append_overwrites_drops_and_cancels_rows(store: Store) -> None:
    session = await open_session(store)
    run = await run_with_tasks(store, session, {}, {}, {})
    changed = task(run, 3, attempt=2, due_ms=NOW + 5)
    await write(store, append(run, tasks=[changed], dropped=[4, 99], cancelled=[5]))
    assert await store.read_tasks(run.run_key) == [changed, task(run, 5, cancel_requested=True, expires_ms=0)]


# A request to cancel stays until its activity has an outcome.


async def test_what_is_cancelled_in_the_queue_has_expired(store: Store) -> None:
    run = await run_with_tasks(store, await open_session(store), {"due_ms": NOW + 10**9}, {"due_ms": NOW + 10**9})
    await write(store, append(run, cancelled=[4]))
    [expired] = await store.expired_tasks("default", NOW, 10)
    assert (expired.event_id, expired.cancel_requested) == (4, True)
    line = AttemptRecord(run.run_key, 4, 1, "cancelled", None, NOW, "host:1")
    assert await write(store, ExpireTask(run.run_key, 4, 1, 0, b"cancelled", [line])) is Reply.WON
    assert await write(store, ExpireTask(run.run_key, 4, 1, 0, b"cancelled", [line])) is Reply.LOST
    assert await store.read_attempts(run.run_key) == [line]


@pytest.mark.parametrize("end", ["close", "bury"])
async def test_a_cancelled_attempt_that_is_lost_with_its_worker_has_expired(
    store: Store, clock: Clock, end: str
) -> None:
    other = await open_session(store, "host:2")
    run = await run_with_tasks(store, await open_session(store), {}, {})
    await claim_tasks(store, other)
    await write(store, append(run, cancelled=[3]))
    assert await store.expired_tasks("default", NOW, 10) == []
    if end == "close":
        await store.close_session(other)
    else:
        clock.now_ms += LEASE_MS
        await store.bury_sessions("default")
    [expired] = await store.expired_tasks("default", NOW, 10)
    assert (expired.event_id, expired.lost, expired.cancel_requested) == (3, True, True)


async def test_whatever_is_written_over_a_row_does_not_take_a_cancel_back(store: Store) -> None:
    session = await open_session(store)
    run = await run_with_tasks(store, session, {}, {})
    rows = await claim_tasks(store, session)
    await write(store, append(run, cancelled=[3, 4]))
    requeue = finish(rows[0], outcome=None, requeue=task(run, 3, attempt=2, due_ms=NOW + 50))
    assert await store.commit([requeue, PutTask(run.fence, task(run, 4, attempt=2))]) == [Reply.WON] * 2
    assert [(row.attempt, row.cancel_requested, row.expires_ms) for row in await store.read_tasks(run.run_key)] == [
        (2, True, 0),
        (2, True, 0),
    ]


async def test_a_cancelled_attempt_without_a_row_gets_one(store: Store) -> None:
    session = await open_session(store)
    run = await run_with_tasks(store, session, {"attempt": 2})
    rows = [
        task(run, 3, attempt=2, due_ms=NOW + 10**9),  # is there, and stays as it is
        task(run, 4, attempt=2, due_ms=NOW + 10**9),
        task(run, 5, state="started", owner=session, started_ms=NOW),
    ]
    assert await write(store, append(run, cancelled=[3, 4, 5], unwritten=rows)) is Reply.WON
    assert await store.read_tasks(run.run_key) == [
        task(run, 3, attempt=2, cancel_requested=True, expires_ms=0),
        replace(rows[1], cancel_requested=True, expires_ms=0),
        replace(rows[2], cancel_requested=True),
    ]
    # The write of the next attempt's row was on its way.
    assert await write(store, PutTask(run.fence, rows[1])) is Reply.DUPLICATE
    assert await write(store, PutTask(run.fence, task(run, 5, attempt=2))) is Reply.WON
    assert (await store.read_tasks(run.run_key))[2].cancel_requested


@pytest.mark.parametrize("end", ["append", "terminate"])
async def test_a_closed_run_has_no_tasks(store: Store, end: str) -> None:
    session = await open_session(store)
    run = await run_with_tasks(store, session, {}, {})
    [row] = await claim_tasks(store, session, limit=1)
    await write(store, append(run, closed="completed") if end == "append" else terminate(run))
    assert await store.read_tasks(run.run_key) == []
    assert await claim_tasks(store, session) == []
    assert await write(store, finish(row)) is Reply.LOST
    assert await write(store, Heartbeat(run.run_key, row.event_id, 1, session, None)) is Reply.LOST


async def test_put_task_needs_the_fence(store: Store) -> None:
    session = await open_session(store)
    run = await owned_run(store, session)
    line = AttemptRecord(run.run_key, 3, 1, "lost", NOW, NOW, "host:1")
    for fence in (run.fence - 1, run.fence + 1):
        assert await write(store, PutTask(fence, task(run, 3), [line])) is Reply.LOST
    assert (await store.read_tasks(run.run_key), await store.read_attempts(run.run_key)) == ([], [])
    assert await write(store, PutTask(run.fence, task(run, 3), [line])) is Reply.WON
    assert await write(store, PutTask(run.fence, task(run, 3, attempt=2))) is Reply.WON
    assert await store.read_tasks(run.run_key) == [task(run, 3, attempt=2)]
    assert await store.read_attempts(run.run_key) == [line]
    await write(store, Release(run.run_key, run.fence, None))
    assert await write(store, PutTask(run.fence + 1, task(run, 3))) is Reply.LOST


async def test_put_task_never_puts_back_what_has_begun(store: Store) -> None:
    session = await open_session(store)
    run = await owned_run(store, session)
    again = PutTask(run.fence, task(run, 3, attempt=2))
    assert await store.commit([again, again]) == [Reply.WON, Reply.DUPLICATE]
    [started] = await claim_tasks(store, session)
    for attempt in (1, 2):
        assert await write(store, PutTask(run.fence, task(run, 3, attempt=attempt))) is Reply.DUPLICATE
    assert await store.read_tasks(run.run_key) == [started]


async def test_a_session_knows_what_it_has_started(store: Store) -> None:
    session, other = await open_session(store), await open_session(store, "host:2")
    await run_with_tasks(store, session, {}, {}, {})
    mine, theirs = await claim_tasks(store, session, limit=1), await claim_tasks(store, other, limit=1)
    assert (await store.owned_tasks(session), await store.owned_tasks(other)) == (mine, theirs)
    await write(store, finish(mine[0]))
    assert await store.owned_tasks(session) == []


async def test_rows_that_waited_too_long(store: Store) -> None:
    session = await open_session(store)
    run = await run_with_tasks(store, session, {"expires_ms": NOW + 5}, {"expires_ms": NOW + 3}, {})
    assert await store.expired_tasks("default", NOW + 2, 10) == []
    assert [row.event_id for row in await store.expired_tasks("default", NOW + 5, 10)] == [4, 3]
    assert [row.event_id for row in await store.expired_tasks("default", NOW + 5, 1)] == [4]
    assert await write(store, ExpireTask(run.run_key, 4, 2, NOW + 3, b"timeout")) is Reply.LOST
    assert await write(store, ExpireTask(run.run_key, 4, 1, NOW + 3, b"timeout")) is Reply.WON
    assert await write(store, ExpireTask(run.run_key, 4, 1, NOW + 3, b"again")) is Reply.LOST
    assert [row.event_id for row in await store.expired_tasks("default", NOW + 5, 10)] == [3]
    assert await store.woken_runs(session) == [run.run_key]
    assert [row.outcome for row in await store.read_tasks(run.run_key) if row.state == "done"] == [b"timeout"]


async def test_a_row_expires_only_as_it_was_seen(store: Store) -> None:
    """A cancellation or a time-out that was seen may be taken back by a fail-over, or overtaken by another one."""
    session = await open_session(store)
    run = await run_with_tasks(store, session, {}, {"expires_ms": NOW + 5}, {"expires_ms": NOW + 5})
    await write(store, append(run, cancelled=[5]))
    not_cancelled = [ExpireTask(run.run_key, event_id, 1, 0, b"cancelled") for event_id in (3, 4)]
    overtaken = ExpireTask(run.run_key, 5, 1, NOW + 5, b"timeout")
    assert await store.commit([*not_cancelled, overtaken]) == [Reply.LOST] * 3
    assert [row.state for row in await store.read_tasks(run.run_key)] == ["queued"] * 3


async def test_a_started_row_does_not_expire(store: Store) -> None:
    session = await open_session(store)
    run = await run_with_tasks(store, session, {"expires_ms": NOW + 5})
    await claim_tasks(store, session)
    assert await store.expired_tasks("default", NOW + 10, 10) == []
    assert await write(store, ExpireTask(run.run_key, 3, 1, NOW + 5, b"timeout")) is Reply.LOST


async def test_the_attempt_log_keeps_the_newest_hundred_of_each_activity(store: Store) -> None:
    run = await owned_run(store, await open_session(store))
    lines = [AttemptRecord(run.run_key, 3, n, "failed", NOW, NOW, "host:1", b"f") for n in range(1, 251)]
    other = AttemptRecord(run.run_key, 4, 1, "late", None, NOW, "host:1")
    assert await store.commit([LogAttempts([other]), LogAttempts(lines[:120])]) == [Reply.WON, Reply.WON]
    await write(store, append(run, attempts=lines[120:]))
    assert await store.read_attempts(run.run_key) == [other, *lines[150:]]


async def test_the_attempt_log_is_in_the_order_of_writing_and_outlives_the_run(store: Store) -> None:
    run = await owned_run(store, await open_session(store))
    lines = [AttemptRecord(run.run_key, n % 2 + 3, n, "timed_out", NOW - n, NOW - n, "host:1") for n in range(6)]
    for line in lines:
        await write(store, LogAttempts([line]))
    await write(store, append(run, closed="failed"))
    assert await store.read_attempts(run.run_key) == lines
