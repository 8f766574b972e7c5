"""What is forgotten of finished chains, and what is remembered of them."""

from __future__ import annotations

from msgspec.structs import replace

from pledger.engine.port.answers import Existing, Reply
from pledger.engine.port.filters import EVERY, Match
from pledger.engine.port.operations import IdReusePolicy, LogAttempts, PutTask, Send
from pledger.engine.port.records import AttemptRecord, RunRow
from pledger.engine.port.retention import EVENTS_MAX, FROM_THE_START, Finished
from pledger.engine.port.verbs import Store
from tests.conformance.harness import (
    LEASE_MS,
    NOW,
    Clock,
    append,
    open_session,
    owned_run,
    ownerless_run,
    signal,
    start,
    step,
    task,
    terminate,
    write,
)

DAY_MS = 86_400_000
KEEP_MS = 30 * DAY_MS


async def closed_run(store: Store, session: int, workflow_id: str = "order-1", **changes: object) -> RunRow:
    run = await owned_run(store, session, workflow_id)
    return await close(store, run, **changes)


async def close(store: Store, run: RunRow, **changes: object) -> RunRow:
    fields: dict[str, object] = {"closed": "completed"}
    assert await write(store, append(run, **fields | changes)) is Reply.WON
    return await store.read_run(run.run_key)


async def finished(store: Store, workflow_type: str = "fulfil", **changes: object) -> list[Finished]:
    fields: dict[str, object] = {"keep_ms": KEEP_MS, "after": FROM_THE_START, "limit": 100}
    return await store.finished_chains("default", workflow_type, **fields | changes)  # type: ignore[arg-type]


async def forget(store: Store, *runs: RunRow, keep_ms: int = KEEP_MS) -> int:
    return await store.forget_chains([run.chain_key for run in runs], keep_ms)


# What is finished -----------------------------------------------------------------------------------------------------


async def test_a_chain_is_finished_for_longer_than_it_is_kept(store: Store, clock: Clock) -> None:
    run = await closed_run(store, await open_session(store))
    clock.now_ms += KEEP_MS
    assert await finished(store) == []
    clock.now_ms += 1
    [chain] = await finished(store)
    assert chain == Finished(run.chain_key, run.run_key, NOW, run.last_event, undelivered=False)
    assert await finished(store, "another") == []


async def test_what_is_open_is_never_finished(store: Store, clock: Clock) -> None:
    session = await open_session(store)
    await owned_run(store, session, "owned")
    await ownerless_run(store, "ownerless")
    clock.now_ms += 2 * KEEP_MS
    assert await finished(store) == []


async def test_the_list_goes_on_where_it_ended_oldest_end_first(store: Store, clock: Clock) -> None:
    session = await open_session(store)
    runs = [await owned_run(store, session, f"order-{n}") for n in range(5)]
    for at_ms, run in ((50, runs[0]), (10, runs[1]), (10, runs[2]), (30, runs[3]), (20, runs[4])):
        await close(store, run, time_ms=NOW + at_ms)
    clock.now_ms += 2 * KEEP_MS
    first = await finished(store, limit=2)
    rest = await finished(store, after=first[-1].place)
    assert [each.run_key for each in first + rest] == [runs[n].run_key for n in (1, 2, 4, 3, 0)]


async def test_signals_that_nobody_took_are_told(store: Store, clock: Clock) -> None:
    session = await open_session(store)
    run = await owned_run(store, session)
    await write(store, signal(run))
    await close(store, run)
    clock.now_ms += 2 * KEEP_MS
    [chain] = await finished(store)
    assert chain.undelivered


async def test_a_run_that_nobody_began_has_missed_no_signal(store: Store, clock: Clock) -> None:
    await write(store, terminate(await ownerless_run(store)))
    clock.now_ms += 2 * KEEP_MS
    [chain] = await finished(store)
    assert not chain.undelivered


async def test_the_types_of_what_is_finished(store: Store) -> None:
    session = await open_session(store)
    for workflow_id, workflow_type in (("a", "ship"), ("b", "charge"), ("c", "ship"), ("d", "open")):
        run = await owned_run(store, session, workflow_id, workflow_type=workflow_type)
        if workflow_type != "open":
            await close(store, run)
    assert await store.finished_types("default") == ["charge", "ship"]
    assert await store.finished_types("other") == []


# What goes ------------------------------------------------------------------------------------------------------------


async def test_a_forgotten_run_leaves_nothing_but_its_row(store: Store, clock: Clock) -> None:
    session = await open_session(store)
    run = await owned_run(store, session)
    await store.commit([signal(run, "kept"), signal(run, "made-up", keep_id=False)])
    await write(store, Send(run.run_key, "cancel", "c-1", "", b"please", NOW))
    await write(store, PutTask(run.fence, task(run)))
    await store.ask(run.run_key, "query", "state", b"[]", NOW + 10)
    run = await close(store, run)
    await write(store, LogAttempts([AttemptRecord(run.run_key, 1, 1, "late", NOW, NOW, "worker-1")]))
    clock.now_ms += 2 * KEEP_MS
    assert await forget(store, run) == 1
    assert await store.read_run(run.run_key) == replace(run, last_event=0)
    assert (await store.read_run(run.run_key)).is_forgotten
    assert not run.is_forgotten
    assert await store.read_history(run.run_key) == []
    assert await store.read_attempts(run.run_key) == []
    kept = await store.read_message(run.chain_key, "kept")
    assert kept is not None
    assert (kept.verdict, kept.body) == ("undelivered", b"")
    assert await store.read_message(run.chain_key, "made-up") is None
    assert await store.read_message(run.chain_key, "c-1") is None
    clock.now_ms = NOW
    assert await store.read_mail([run.run_key]) == []


async def test_that_a_loss_put_a_run_in_doubt_is_forgotten_with_it_and_of_nobody_else(
    store: Store, clock: Clock
) -> None:
    gone, kept, still_open = [await ownerless_run(store, each) for each in ("gone", "kept", "open")]
    await store.declare_loss()
    for each in (gone, kept):
        await write(store, terminate(await store.read_run(each.run_key)))
    clock.now_ms += 2 * KEEP_MS
    assert await forget(store, gone) == 1
    every = [each.run_key for each in (gone, kept, still_open)]
    assert await store.read_losses(every) == {kept.run_key: True, still_open.run_key: True}


async def test_what_is_forgotten_is_finished_no_more_and_in_no_list(store: Store, clock: Clock) -> None:
    session = await open_session(store)
    run, other = await closed_run(store, session), await closed_run(store, session, "order-2")
    clock.now_ms += 2 * KEEP_MS
    await forget(store, run)
    assert [each.chain_key for each in await finished(store)] == [other.chain_key]
    assert [each.run_key for each in await store.list_runs("default", EVERY, 10)] == [other.run_key]
    assert await store.count_runs("default", Match("status", None, (("=", "completed"),))) == 1
    assert await forget(store, run) == 0


async def test_neither_what_is_open_nor_what_has_just_ended_is_forgotten(store: Store, clock: Clock) -> None:
    session = await open_session(store)
    owned, waiting = await owned_run(store, session, "owned"), await ownerless_run(store, "waiting")
    young, old = await owned_run(store, session, "young"), await closed_run(store, session, "old")
    clock.now_ms += KEEP_MS
    young = await close(store, young, time_ms=NOW + 1)
    clock.now_ms += 1
    assert await forget(store, owned, waiting, young, old) == 1
    assert (await store.read_run(old.run_key)).is_forgotten
    for run in (owned, waiting, young):
        assert await store.read_run(run.run_key) == run
    assert len(await store.read_history(young.run_key)) == 2
    assert len(await store.read_inbox(waiting.chain_key)) == 1


async def test_the_clock_of_the_store_decides(store: Store, clock: Clock) -> None:
    run = await closed_run(store, await open_session(store))
    assert await forget(store, run, keep_ms=0) == 0
    clock.now_ms += 1
    assert await forget(store, run, keep_ms=0) == 1


async def test_a_long_history_goes_piece_by_piece(store: Store, clock: Clock) -> None:
    session = await open_session(store)
    long = await owned_run(store, session, "long")
    for _ in range(4):
        assert await write(store, append(long)) is Reply.WON
        long = await store.read_run(long.run_key)
    long = await close(store, long, last_event=EVENTS_MAX + 1)
    await write(store, LogAttempts([AttemptRecord(long.run_key, 1, 1, "late", NOW, NOW, "worker-1")] * 3))
    short = await closed_run(store, session, "short")
    clock.now_ms += 2 * KEEP_MS
    assert await forget(store, long, short) == 2
    assert (await store.read_run(long.run_key)).is_forgotten
    assert (len(await store.read_history(long.run_key)), len(await store.read_history(short.run_key))) == (6, 0)
    assert await store.drop_leftovers(4) >= 4
    assert len(await store.read_history(long.run_key)) == 2
    while await store.drop_leftovers(4):
        pass
    assert await store.read_history(long.run_key) == []
    assert await store.read_attempts(long.run_key) == []
    assert await store.drop_leftovers(4) == 0


async def test_the_runs_of_chains(store: Store) -> None:
    session = await open_session(store)
    one, two = await closed_run(store, session), await owned_run(store, session, "order-2")
    await owned_run(store, session, "order-3")
    assert await store.chain_runs([two.chain_key, one.chain_key]) == [one, two]


# What is remembered ---------------------------------------------------------------------------------------------------


async def test_a_start_finds_the_forgotten_run(store: Store, clock: Clock) -> None:
    run = await closed_run(store, await open_session(store))
    clock.now_ms += 2 * KEEP_MS
    await forget(store, run)
    forgotten = await store.read_run(run.run_key)
    assert await write(store, start(run_id="second")) == Existing(forgotten, "use")
    assert await write(store, start(run_id="second", input_digest=b"other")) == Existing(forgotten, "refuse")
    assert await store.find_run("default", "order-1") == forgotten
    assert await store.find_run("default", "order-1", run.run_id) == forgotten
    again = await write(store, start(run_id="second", reuse=IdReusePolicy.ALLOW_DUPLICATE))
    assert not isinstance(again, Existing | Exception | Reply)


async def test_a_message_is_known_when_its_run_is_forgotten(store: Store, clock: Clock) -> None:
    run = await owned_run(store, await open_session(store))
    await write(store, signal(run))
    [message] = await store.read_inbox(run.chain_key)
    run = await close(store, run, consumed=[(message.message_key, 3)])
    clock.now_ms += 2 * KEEP_MS
    await forget(store, run)
    assert await write(store, signal(run)) is Reply.DUPLICATE
    assert await write(store, signal(run, "m-2")) is Reply.CLOSED


async def test_an_append_that_is_repeated_has_won_all_the_same(store: Store, clock: Clock) -> None:
    run = await owned_run(store, await open_session(store))
    last = append(run, closed="completed", transition=step(3))
    assert await write(store, last) is Reply.WON
    clock.now_ms += 2 * KEEP_MS
    assert await forget(store, run) == 1
    assert await write(store, last) is Reply.WON


# Chores ---------------------------------------------------------------------------------------------------------------


async def test_a_chore_is_one_sessions_at_a_time(store: Store, clock: Clock) -> None:
    one, two = await open_session(store, "host:1"), await open_session(store, "host:2")
    assert await store.take_duty("default", "sweep", one, LEASE_MS)
    assert not await store.take_duty("default", "sweep", two, LEASE_MS)
    assert await store.take_duty("default", "sweep", one, LEASE_MS)
    assert await store.take_duty("default", "another", two, LEASE_MS)
    assert await store.take_duty("elsewhere", "sweep", two, LEASE_MS)
    clock.now_ms += LEASE_MS
    assert await store.take_duty("default", "sweep", two, LEASE_MS)
    assert not await store.take_duty("default", "sweep", one, LEASE_MS)


async def test_a_chore_that_is_done_rests(store: Store, clock: Clock) -> None:
    one, two = await open_session(store, "host:1"), await open_session(store, "host:2")
    assert await store.take_duty("default", "sweep", one, LEASE_MS)
    await store.leave_duty("default", "sweep", two, 0)  # it is not this one's
    assert not await store.take_duty("default", "sweep", two, LEASE_MS)
    await store.leave_duty("default", "sweep", one, 5_000)
    assert not await store.take_duty("default", "sweep", one, LEASE_MS)
    assert not await store.take_duty("default", "sweep", two, LEASE_MS)
    clock.now_ms += 5_000
    assert await store.take_duty("default", "sweep", two, LEASE_MS)
