"""Task queues whose rows stand in lanes: the order of claims, limits over all sessions, and what people see of both."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from pledger.engine.port.answers import Reply
from pledger.engine.port.lanes import Bounds, Served
from pledger.engine.port.operations import FinishTask, PutTask
from pledger.engine.port.pauses import Scope
from pledger.engine.port.records import LimitRow, PlaceRow, QueueRow, RunRow, TaskRow
from pledger.engine.port.verbs import Store
from pledger.history.placement import LimitRule
from tests.conformance.harness import (
    API,
    LEASE_MS,
    NOW,
    Clock,
    Ledger,
    append,
    claim_queued,
    claim_tasks,
    finish,
    ids,
    look,
    open_session,
    owned_run,
    placed,
    rows_of,
    run_with_tasks,
    task,
    terminate,
    write,
)

ONE = LimitRule(concurrency=1)
TWO = LimitRule(concurrency=2)


# Order ----------------------------------------------------------------------------------------------------------------


async def test_rows_in_lanes_come_back_as_they_were_put(store: Store) -> None:
    session = await open_session(store)
    run = await owned_run(store, session)
    rows = [
        task(run, 3, due_ms=NOW + 5, **placed(1, "tenant", 2.5, ("api", "a"), ("db", ""))),
        task(run, 4, state="started", owner=session, started_ms=NOW, **placed(2)),
        task(run, 5, lost=True, **API),
    ]
    await write(store, append(run, tasks=rows))
    assert await store.read_tasks(run.run_key) == rows


async def test_claims_that_know_no_lanes_pass_by_them(store: Store) -> None:
    """Workers of older code are such: what is limited is not theirs."""
    session = await open_session(store)
    await run_with_tasks(store, session, API, {})
    assert ids(await claim_tasks(store, session)) == [4]
    assert ids((await claim_queued(store, session)).tasks) == [3]


async def test_a_look_tells_of_lanes(store: Store) -> None:
    session = await open_session(store)
    run = await owned_run(store, session)
    assert not (await look(store, session)).lanes
    await write(store, append(run, tasks=[task(run, 3, **API)]))
    seen = await look(store, session)
    assert (seen.lanes, seen.due_ms) == (True, None)
    assert not (await look(store, session, task_queue="other")).lanes
    assert not (await look(store, session, namespace="other")).lanes
    await claim_queued(store, session)
    assert not (await look(store, session)).lanes


async def test_claims_go_by_priority_then_by_age(store: Store) -> None:
    session = await open_session(store)
    rows = [
        {"due_ms": NOW - 9, **placed(5)},
        {"due_ms": NOW - 1},
        {"due_ms": NOW - 2, **placed(1)},
        {"due_ms": NOW - 3, **placed(1), "activity_type": "refund"},
        {"due_ms": NOW - 4, "activity_type": "refund"},
    ]
    await run_with_tasks(store, session, *rows)
    order = [(await claim_queued(store, session, limit=1)).tasks[0].event_id for _ in rows]
    assert order == [6, 5, 7, 4, 3]


async def test_rows_that_are_due_at_one_moment_come_by_their_keys(store: Store) -> None:
    """Of a lane also where a claim takes but some of them."""
    session = await open_session(store)
    first, second = [await owned_run(store, session, f"order-{n}") for n in range(2)]
    await write(store, append(second, tasks=[task(second, n, **placed(3, "a")) for n in (4, 3)]))
    await write(store, append(first, tasks=[task(first, n, **placed(3, "a")) for n in (4, 3)]))
    order = [(await claim_queued(store, session, limit=1)).tasks[0] for _ in range(4)]
    keys = [(row.run_key, row.event_id) for row in order]
    assert keys == [(run.run_key, n) for run in (first, second) for n in (3, 4)]


async def test_what_is_not_due_is_not_claimed_and_says_when(store: Store) -> None:
    session = await open_session(store)
    await run_with_tasks(store, session, {"due_ms": NOW + 7, **API}, {"due_ms": NOW + 9, **placed(1)})
    claim = await claim_queued(store, session)
    assert (claim.tasks, claim.due_ms, claim.waits) == ([], NOW + 7, False)
    assert ids((await claim_queued(store, session, NOW + 7)).tasks) == [3]


async def test_keys_take_turns(store: Store) -> None:
    session = await open_session(store)
    greedy = [{"due_ms": NOW - 100 + n, **placed(3, "greedy")} for n in range(6)]
    modest = [{"due_ms": NOW - 1, **placed(3, "modest")} for _ in range(2)]
    await run_with_tasks(store, session, *greedy, *modest)
    keys = [row.lane for row in (await claim_queued(store, session, limit=4)).tasks]
    assert sorted(keys, key=str) == sorted([greedy[0]["lane"], modest[0]["lane"]] * 2, key=str)


async def test_turns_go_on_from_claim_to_claim_and_by_weight(store: Store) -> None:
    """Claims of one row each: between them, what is in the store is all that anybody knows."""
    session = await open_session(store)
    light = [placed(3, "light") for _ in range(9)]
    heavy = [placed(3, "heavy", 3.0) for _ in range(9)]
    await run_with_tasks(store, session, *light, *heavy)
    taken = [(await claim_queued(store, session, limit=1)).tasks[0] for _ in range(8)]
    assert sum(row.weight == 3.0 for row in taken) == 6


async def test_a_key_that_was_away_has_no_credit(store: Store) -> None:
    session = await open_session(store)
    await run_with_tasks(store, session, *[placed(3, "present") for _ in range(20)], placed(3, "away"))
    for _ in range(12):
        await claim_queued(store, session, limit=1)
    await run_with_tasks(store, session, *[placed(3, "away") for _ in range(9)], workflow_id="order-2")
    taken = [(await claim_queued(store, session, limit=1)).tasks[0].lane for _ in range(6)]
    assert taken.count(placed(3, "away")["lane"]) == 3


async def test_a_turn_is_of_its_queue(store: Store) -> None:
    session = await open_session(store)
    far = {"task_queue": "far"}
    await run_with_tasks(store, session, *[placed(3, "a") for _ in range(4)], placed(3, "b") | far)
    for _ in range(3):
        await claim_queued(store, session, limit=1)
    await run_with_tasks(store, session, placed(3, "b"), placed(3, "b"), workflow_id="order-2")
    assert len((await claim_queued(store, session)).tasks) == 3


# What will wait for the claimer ---------------------------------------------------------------------------------------


async def test_what_is_claimed_ahead_holds_no_slot(store: Store) -> None:
    """The first two may begin; of the others those before the first that needs a slot."""
    session = await open_session(store)
    await run_with_tasks(store, session, API, API, {}, API, {}, {})
    api = LimitRule(concurrency=9)
    claim = await claim_queued(store, session, limit=5, ahead=3, api=api)
    assert ids(claim.tasks) == [3, 4, 5]
    assert ids((await claim_queued(store, session, limit=3, ahead=3, api=api)).tasks) == []
    assert ids((await claim_queued(store, session, limit=3, ahead=2, api=api)).tasks) == [6, 7, 8]


async def test_what_no_slot_is_free_for_is_passed_by_ahead_as_well(store: Store) -> None:
    session = await open_session(store)
    await run_with_tasks(store, session, API, API, {})
    assert ids((await claim_queued(store, session, limit=1, api=ONE)).tasks) == [3]
    claim = await claim_queued(store, session, limit=2, ahead=2, api=ONE)
    assert (ids(claim.tasks), claim.waits) == ([5], True)


async def test_a_row_that_is_given_back_waits_as_before(store: Store) -> None:
    """Nobody has begun it: its attempt is the same, and so is its place."""
    session, other = await open_session(store), await open_session(store)
    await run_with_tasks(store, session, {"due_ms": NOW - 5, "attempt": 2, **placed(3, "a")}, {"due_ms": NOW - 4})
    claimed = (await claim_queued(store, session, ahead=2)).tasks
    for row in claimed:
        back = replace(row, state="queued", owner=None, started_ms=None)
        assert await write(store, finish(row, outcome=None, requeue=back)) is Reply.WON
        assert await write(store, finish(row, outcome=None, requeue=back)) is Reply.LOST
    again = (await claim_queued(store, other)).tasks
    assert [replace(row, owner=other) for row in claimed] == again


# Concurrency ----------------------------------------------------------------------------------------------------------


async def test_no_more_attempts_than_slots(store: Store) -> None:
    one, two = await open_session(store), await open_session(store, "host:2")
    run = await run_with_tasks(store, one, API, API, API)
    first = await claim_queued(store, one, limit=1, api=TWO)
    second = await claim_queued(store, two, api=TWO)
    assert (ids(first.tasks), ids(second.tasks), second.waits) == ([3], [4], True)
    nothing = await claim_queued(store, two, api=TWO)
    assert (nothing.tasks, nothing.due_ms, nothing.waits) == ([], None, True)
    assert await write(store, finish(first.tasks[0])) is Reply.WON
    assert ids((await claim_queued(store, two, api=TWO)).tasks) == [5]
    assert [row.state for row in await store.read_tasks(run.run_key)] == ["done", "started", "started"]


async def test_each_key_has_slots_of_its_own(store: Store) -> None:
    session = await open_session(store)
    a, b = placed(3, "", 1.0, ("customer", "a")), placed(3, "", 1.0, ("customer", "b"))
    await run_with_tasks(store, session, a, a, a, b)
    assert ids((await claim_queued(store, session, customer=ONE)).tasks) == [3, 6]


async def test_an_exhausted_key_holds_up_nobody_else(store: Store) -> None:
    session = await open_session(store)
    held = [{"due_ms": NOW - 50, **placed(1, "", 1.0, ("customer", "held"))} for _ in range(30)]
    await run_with_tasks(store, session, *held, placed(4), {})
    assert ids((await claim_queued(store, session, limit=3, customer=ONE)).tasks) == [3, 34, 33]


async def test_an_attempt_that_counts_for_two_takes_both_or_none(store: Store) -> None:
    session = await open_session(store)
    both = placed(3, "", 1.0, ("api", ""), ("db", ""))
    only_api = API
    await run_with_tasks(store, session, both, both, only_api)
    claim = await claim_queued(store, session, api=TWO, db=ONE)
    assert ids(claim.tasks) == [3, 5]
    assert (await store.read_limits("default")) == [
        LimitRow("api", None, None, (("", 2, 1),)),
        LimitRow("db", None, None, (("", 1, 1),)),
    ]


async def test_an_attempt_that_counts_twice_for_one_limit_takes_one_slot(store: Store) -> None:
    """Two limits of one name may come to the same key; an activity and its queue may state the same limit."""
    session = await open_session(store)
    twice = placed(3, "", 1.0, ("customer", "a"), ("customer", "a"), ("every_charge", ""))
    run = await run_with_tasks(store, session, twice, twice, twice)
    assert [place.limits for place in await store.read_places(run.run_key)] == [
        (("customer", "a", 0), ("every_charge", "", 0))
    ] * 3
    claim = await claim_queued(store, session, customer=TWO, every_charge=LimitRule(concurrency=9, rate=9))
    assert ids(claim.tasks) == [3, 4]
    assert await store.read_limits("default") == [
        LimitRow("customer", None, None, (("a", 2, 1),)),
        LimitRow("every_charge", None, None, (("", 2, 1),)),
    ]


async def test_a_limit_of_an_activity_and_its_queue_is_counted_once(store: Store) -> None:
    session = await open_session(store)
    await run_with_tasks(store, session, {}, {}, {})
    both = Bounds({"api": TWO}, {"charge": (("api", ""),)}, (("api", ""),))
    served = Served("default", "default", ["charge"])
    assert ids((await store.claim_queued(session, NOW, served, 9, both)).tasks) == [3, 4]


async def test_a_limit_that_nobody_states_does_not_bind(store: Store) -> None:
    session = await open_session(store)
    await run_with_tasks(store, session, API, API)
    assert len((await claim_queued(store, session)).tasks) == 2


async def test_limits_of_an_activity_and_of_a_queue_hold_for_rows_that_state_nothing(store: Store) -> None:
    """They may have been scheduled by code that knows names and types only."""
    session = await open_session(store)
    await run_with_tasks(store, session, {}, {}, {"activity_type": "refund"}, {"activity_type": "refund"})
    assert ids((await claim_queued(store, session, every_charge=ONE)).tasks) == [3, 5, 6]
    await run_with_tasks(store, session, {}, {}, {"activity_type": "refund"}, workflow_id="order-2")
    assert len((await claim_queued(store, session, everything=TWO)).tasks) == 2


async def test_what_waits_for_its_limit_does_not_hide_what_is_due_later(store: Store) -> None:
    """A look tells but of the first that is due: of what waits."""
    session = await open_session(store)
    await run_with_tasks(store, session, {}, {}, {"activity_type": "refund", "due_ms": NOW + 50}, {"due_ms": NOW + 60})
    assert ids((await claim_queued(store, session, every_charge=ONE)).tasks) == [3]
    claim = await claim_queued(store, session, every_charge=ONE)
    assert (claim.tasks, claim.waits, claim.due_ms) == ([], True, NOW + 50)


@pytest.mark.parametrize("ended", ["requeued", "dropped", "closed", "terminated", "session closed", "lease over"])
async def test_whatever_ends_an_attempt_frees_its_slot(store: Store, clock: Clock, ended: str) -> None:
    one, two = await open_session(store), await open_session(store, "host:2")
    other = await run_with_tasks(store, two, API, workflow_id="order-2")
    run = await run_with_tasks(store, two, {"due_ms": NOW - 1, **API})
    [row] = (await claim_queued(store, one, api=ONE)).tasks
    assert row.run_key == run.run_key
    await _end(store, clock, ended, run, row, two)
    claim = await claim_queued(store, two, api=ONE)
    lost = [each for each in claim.tasks if each.lost]
    assert [each.run_key for each in claim.tasks if not each.lost] == [other.run_key]
    assert len(lost) == (ended in {"session closed", "lease over"})


async def _end(store: Store, clock: Clock, ended: str, run: RunRow, row: TaskRow, other: int) -> None:
    assert row.owner is not None
    match ended:
        case "requeued":
            again = task(run, 3, attempt=2, due_ms=NOW + 1, **API)
            await write(store, finish(row, outcome=None, requeue=again))
        case "dropped":
            await write(store, append(run, dropped=[3]))
        case "closed":
            await write(store, append(run, closed="completed"))
        case "terminated":
            await write(store, terminate(run))
        case "session closed":
            await store.close_session(row.owner)
        case _:
            clock.now_ms += LEASE_MS
            store.renew_session(other, LEASE_MS)
            assert len(await store.bury_sessions("default")) == 1


async def test_a_lost_attempt_is_judged_whatever_its_limit_says(store: Store) -> None:
    one, two = await open_session(store), await open_session(store, "host:2")
    await run_with_tasks(store, two, API, API)
    await claim_queued(store, one, limit=1, api=TWO)
    await claim_queued(store, two, limit=1, api=TWO)
    await store.close_session(one)
    [row] = (await claim_queued(store, two, api=ONE)).tasks
    assert (row.event_id, row.lost, row.state) == (3, True, "started")
    assert (await claim_queued(store, two, api=ONE)).tasks == []


async def test_an_attempt_that_is_written_again_keeps_no_slot(store: Store) -> None:
    session = await open_session(store)
    run = await run_with_tasks(store, session, API, API)
    await claim_queued(store, session, limit=1, api=ONE)
    put = PutTask(run.fence, task(run, 3, attempt=2, due_ms=NOW + 10**6, **API))
    assert await write(store, put) is Reply.WON
    assert ids((await claim_queued(store, session, api=ONE)).tasks) == [4]


async def test_namespaces_have_slots_of_their_own(store: Store) -> None:
    here, there = await open_session(store), await open_session(store, "host:2", namespace="other")
    await run_with_tasks(store, here, API)
    run = await owned_run(store, there, "order-2", namespace="other")
    await write(store, append(run, tasks=[task(run, 3, **API)]))
    assert len((await claim_queued(store, here, api=ONE)).tasks) == 1
    assert [each.keys for each in await store.read_limits("other")] == [(("", 0, 1),)]


async def test_two_who_claim_at_once_share_what_there_is(ledger: Ledger) -> None:
    stores = [ledger.open() for _ in range(3)]
    sessions = [await open_session(each, f"host:{n}") for n, each in enumerate(stores)]
    await run_with_tasks(stores[0], sessions[0], *[API for _ in range(12)])
    claims = await asyncio.gather(
        *(claim_queued(each, key, limit=4, api=LimitRule(5)) for each, key in zip(stores, sessions, strict=True))
    )
    taken = [row.event_id for each in claims for row in each.tasks]
    assert 1 <= len(taken) == len(set(taken)) <= 5
    # Two that choose the same slot leave one to the next claim, which comes at once where something was taken.
    taken += [row.event_id for row in (await claim_queued(stores[0], sessions[0], limit=4, api=LimitRule(5))).tasks]
    assert len(taken) == len(set(taken)) == 5


# Rates ----------------------------------------------------------------------------------------------------------------


async def test_starts_are_as_fast_as_the_rate_and_no_faster(store: Store, clock: Clock) -> None:
    session = await open_session(store)
    await run_with_tasks(store, session, *[API for _ in range(9)])
    rate = LimitRule(rate=2, per_ms=1_000)
    burst = await claim_queued(store, session, api=rate)
    assert (len(burst.tasks), burst.due_ms) == (2, NOW + 501)
    clock.now_ms = NOW + 499
    assert (await claim_queued(store, session, api=rate)).tasks == []
    clock.now_ms = NOW + 500
    assert len((await claim_queued(store, session, api=rate)).tasks) == 1
    clock.now_ms = NOW + 60_000  # a long pause earns no more than one burst
    assert len((await claim_queued(store, session, api=rate)).tasks) == 2


async def test_a_rate_below_one_is_a_pause_between_starts(store: Store, clock: Clock) -> None:
    session = await open_session(store)
    await run_with_tasks(store, session, API, API)
    rate = LimitRule(rate=0.5, per_ms=1_000)
    assert len((await claim_queued(store, session, api=rate)).tasks) == 1
    clock.now_ms = NOW + 1_999
    assert (await claim_queued(store, session, api=rate)).tasks == []
    clock.now_ms = NOW + 2_000
    assert len((await claim_queued(store, session, api=rate)).tasks) == 1


async def test_each_key_has_a_rate_of_its_own(store: Store) -> None:
    session = await open_session(store)
    a, b = placed(3, "", 1.0, ("customer", "a")), placed(3, "", 1.0, ("customer", "b"))
    await run_with_tasks(store, session, a, a, b)
    assert ids((await claim_queued(store, session, customer=LimitRule(rate=1))).tasks) == [3, 5]


async def test_what_was_used_up_at_another_rate_is_not_waited_for(store: Store, clock: Clock) -> None:
    session = await open_session(store)
    await run_with_tasks(store, session, *[API for _ in range(9)])
    slow = LimitRule(rate=2, per_ms=3_600_000)
    assert len((await claim_queued(store, session, api=slow)).tasks) == 2
    await store.override_limit("default", "api", LimitRule(rate=2, per_ms=1_000))
    assert (await claim_queued(store, session, api=slow)).due_ms == NOW + 501
    clock.now_ms = NOW + 400
    assert (await claim_queued(store, session, api=slow)).tasks == []
    clock.now_ms = NOW + 500
    assert len((await claim_queued(store, session, api=slow)).tasks) == 1


async def test_a_clock_that_went_back_holds_up_no_rate(store: Store, clock: Clock) -> None:
    session = await open_session(store)
    await run_with_tasks(store, session, *[API for _ in range(9)])
    rate = LimitRule(rate=2, per_ms=1_000)
    assert len((await claim_queued(store, session, api=rate)).tasks) == 2
    clock.now_ms = NOW - 3_600_000
    assert (await claim_queued(store, session, api=rate)).tasks == []
    clock.now_ms += 500
    assert len((await claim_queued(store, session, api=rate)).tasks) == 1


async def test_a_claim_whose_time_is_a_little_behind_finds_no_token_more(store: Store, clock: Clock) -> None:
    """It has read the clock, and then waited for the one before it."""
    session = await open_session(store)
    await run_with_tasks(store, session, *[API for _ in range(9)])
    rate = LimitRule(rate=2, per_ms=1_000)
    assert len((await claim_queued(store, session, api=rate)).tasks) == 2
    clock.now_ms = NOW - 3_000
    assert (await claim_queued(store, session, api=rate)).tasks == []
    clock.now_ms = NOW + 499
    assert (await claim_queued(store, session, api=rate)).tasks == []


# Numbers of operators -------------------------------------------------------------------------------------------------


async def test_an_operator_sets_other_numbers(store: Store) -> None:
    session = await open_session(store)
    await run_with_tasks(store, session, *[API for _ in range(9)])
    await store.state_limits("default", {"api": ONE})
    await store.override_limit("default", "api", LimitRule(concurrency=3))
    assert len((await claim_queued(store, session, api=ONE)).tasks) == 3
    assert await store.read_limits("default") == [LimitRow("api", ONE, LimitRule(concurrency=3), (("", 3, 6),))]
    await store.override_limit("default", "api", LimitRule(concurrency=0))
    assert (await claim_queued(store, session, api=ONE)).tasks == []
    await store.override_limit("default", "api", None)
    assert [each.override for each in await store.read_limits("default")] == [None]


async def test_an_operator_may_set_what_no_code_states(store: Store) -> None:
    session = await open_session(store)
    await run_with_tasks(store, session, API, API)
    await store.override_limit("default", "api", ONE)
    assert len((await claim_queued(store, session)).tasks) == 1


async def test_a_limit_that_was_set_and_taken_back_is_forgotten(store: Store) -> None:
    await store.override_limit("default", "api", ONE)
    await store.override_limit("default", "api", None)
    assert await store.read_limits("default") == []


# What people see ------------------------------------------------------------------------------------------------------


async def test_queues_show_what_is_to_be_done(store: Store) -> None:
    session = await open_session(store)
    rows = [{"due_ms": NOW - 5}, {"due_ms": NOW - 9, **API}, {"due_ms": NOW + 9, **API}, {"task_queue": "gpu"}, {}]
    await run_with_tasks(store, session, *rows)
    await claim_tasks(store, session, limit=1)
    assert await store.read_queues("default", NOW) == [
        QueueRow("default", 2, NOW - 9, 1, 1),
        QueueRow("gpu", 1, NOW, 0, 0),
    ]
    assert await store.read_queues("other", NOW) == []


async def test_a_run_sees_where_its_activities_stand(store: Store) -> None:
    session = await open_session(store)
    keyed = placed(3, "", 1.0, ("customer", "a"))
    await run_with_tasks(store, session, *[{"due_ms": NOW - 9, **keyed} for _ in range(6)])
    run = await run_with_tasks(store, session, {}, keyed, API, workflow_id="order-2")
    [first] = (await claim_queued(store, session, limit=1, customer=ONE)).tasks
    assert await store.read_places(run.run_key) == [
        PlaceRow(4, 6, (("customer", "a", 1),)),
        PlaceRow(5, 1, (("api", "", 0),)),
    ]
    assert first.run_key != run.run_key


# Bounds ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def few_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim looks at two lanes of each of its two types."""
    monkeypatch.setattr("pledger.engine.port.lanes.LANES_MAX", 4)


def customers(count: int) -> list[dict[str, Any]]:
    """A lane for each."""
    return [placed(3, "", 1.0, ("customer", f"{n:03}")) for n in range(count)]


@pytest.mark.usefixtures("few_lanes")
@pytest.mark.parametrize("count", [9, 10], ids=["a part is left", "a multiple"])
async def test_more_lanes_than_one_claim_looks_at(store: Store, count: int) -> None:
    """Again and again: what is behind the first of a lane comes when everybody has had a turn."""
    session = await open_session(store)
    rows = customers(count)
    await run_with_tasks(store, session, *rows, *rows)
    taken: list[int] = []
    for _ in range(2 * count):
        claim = await claim_queued(store, session, customer=ONE)
        for row in claim.tasks:
            assert await write(store, finish(row)) is Reply.WON
        taken += ids(claim.tasks)
        assert claim.tasks or claim.due_ms is not None or len(taken) == len(rows) * 2
    assert sorted(taken) == list(range(3, 3 + 2 * count))


@pytest.mark.usefixtures("few_lanes")
async def test_lanes_whose_runs_are_paused_do_not_hide_those_behind_them(store: Store) -> None:
    session = await open_session(store)
    rows = customers(8)
    paused = await run_with_tasks(store, session, *rows[:4])
    await run_with_tasks(store, session, *rows[4:], workflow_id="order-2")
    await store.pause(Scope("default", "run", paused.run_id, paused.run_key, paused.workflow_id), "", "ada")
    claims = [await claim_queued(store, session, customer=ONE) for _ in range(5)]
    assert sorted(row.event_id for claim in claims for row in claim.tasks) == [3, 4, 5, 6]


@pytest.mark.usefixtures("few_lanes")
async def test_whoever_has_seen_all_lanes_in_vain_wants_to_hear_of_slots(store: Store) -> None:
    """Also when there was nothing in the last of its looks."""
    session = await open_session(store)
    await store.override_limit("default", "customer", LimitRule(concurrency=0))
    await run_with_tasks(store, session, *customers(4))
    claims = [await claim_queued(store, session, customer=ONE) for _ in range(6)]
    assert [(claim.tasks, claim.waits) for claim in claims] == [([], True)] * 6


async def test_what_is_over_does_not_pile_up(store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slots, buckets, and the turns of keys that come once and never again."""
    monkeypatch.setattr("pledger.store.queue_rows.TURNS_MAX", 9)
    session = await open_session(store)
    rule = LimitRule(concurrency=1, rate=1)
    run = await owned_run(store, session)
    for n in range(3, 63):
        clock.now_ms = NOW + n * 2_000
        keyed = placed(3, f"k{n}", 1.0, ("customer", f"{n:03}"))
        await write(store, append(run, tasks=[task(run, n, **keyed)]))
        run = await store.read_run(run.run_key)
        [row] = (await claim_queued(store, session, customer=rule)).tasks
        await write(store, FinishTask(row.run_key, row.event_id, row.attempt, session, b"result"))
    kept = {table: await rows_of(store, table) for table in ("slot", "bucket", "turn")}
    assert all(count < 40 for count in kept.values()), kept
