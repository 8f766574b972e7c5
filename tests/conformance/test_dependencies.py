"""Dependencies: retries within their budget and attempts as the circuit lets them through, over all sessions."""

from __future__ import annotations

from typing import Any

from pledger.engine.port.answers import Reply
from pledger.engine.port.circuit import Dependency, Tally
from pledger.engine.port.dependencies import Ask, Stated
from pledger.engine.port.lane_text import held_up_by
from pledger.engine.port.lanes import Bounds, Claim, Served
from pledger.engine.port.pauses import Scope
from pledger.engine.port.records import PlaceRow
from pledger.engine.port.verbs import Store
from pledger.history.budget import BudgetRule
from pledger.history.placement import LimitRule
from tests.conformance.harness import (
    LEASE_MS,
    NOW,
    Clock,
    Ledger,
    claim_tasks,
    finish,
    ids,
    look,
    open_session,
    placed,
    run_with_tasks,
    terminate,
    without_weights,
    write,
)

#: No calls add to it: one retry a second.
RULE = BudgetRule(ratio=0.5, minimum_per_second=1.0, window_ms=10_000, minimum_calls=4, pause_ms=5_000)
BOUNDS = Bounds({}, {}, (), {"charge": "bank"}, {"bank": RULE})
STATED = {"bank": Stated(RULE, ("charge",))}
PAUSE = Ask(is_pause=True, reason="it is being moved", by="ada")
RESUME = Ask(is_pause=False, reason="it is there", by="bob")


async def claim(store: Store, session: int, now_ms: int = NOW, limit: int = 100, bounds: Bounds = BOUNDS) -> Claim:
    return await store.claim_queued(session, now_ms, Served("default", "default", ["charge", "refund"]), limit, bounds)


async def stated(store: Store, rule: BudgetRule = RULE) -> None:
    await store.state_dependencies("default", {"bank": Stated(rule, ("charge",))})


async def bank(store: Store) -> Dependency:
    return (await store.read_dependencies("default"))["bank"]


async def report(store: Store, **tally: Any) -> Dependency:
    opened = tally.pop("opened", (await bank(store)).opened)
    return (await store.report_calls("default", {"bank": [Tally(opened, **tally)]}))["bank"]


async def opened(store: Store) -> Dependency:
    """Its circuit."""
    found = await report(store, calls=4, failed=4, last_failure="ConnectionError: refused")
    assert found.phase == "open"
    return found


def retries(count: int, **changes: Any) -> list[dict[str, Any]]:
    return [{"attempt": 2, "due_ms": NOW - 100 + n, **changes} for n in range(count)]


# The row --------------------------------------------------------------------------------------------------------------


async def test_what_is_stated_is_there_for_all_of_its_namespace(store: Store) -> None:
    found = await store.state_dependencies("default", STATED)
    assert (found["bank"].rule, found["bank"].activity_types, found["bank"].phase) == (RULE, ("charge",), "closed")
    assert await store.read_dependencies("default") == found
    assert await store.read_dependencies("other") == {}
    assert await store.report_calls("other", {"bank": [Tally(0, calls=1)]}) == {}
    assert await store.ask_dependency("other", "bank", PAUSE) is None


async def test_the_newest_numbers_hold_and_nothing_that_was_counted_is_lost(store: Store) -> None:
    await stated(store)
    await report(store, calls=3, succeeded=2)
    other = BudgetRule(ratio=0.2, window_ms=RULE.window_ms)
    await store.state_dependencies("default", {"bank": Stated(other, ("refund",))})
    found = await bank(store)
    assert (found.rule, found.activity_types) == (other, ("charge", "refund"))
    assert (found.total.calls, found.total.succeeded) == (3, 2)


async def test_reports_of_all_workers_are_counted(ledger: Ledger) -> None:
    one, other = ledger.open(), ledger.open()
    await stated(one)
    await report(one, calls=3, succeeded=1)
    await report(other, calls=2, failed=1, last_failure="TimeoutError: too slow")
    found = await bank(one)
    assert (found.total.calls, found.total.succeeded, found.total.failed) == (5, 1, 1)
    assert found.last_failure == "TimeoutError: too slow"


async def test_what_is_counted_is_forgotten_after_the_window(store: Store, clock: Clock) -> None:
    await stated(store)
    await report(store, calls=3, failed=3)
    clock.now_ms += RULE.window_ms
    assert (await bank(store)).total.calls == 0
    assert (await report(store, calls=1, failed=1)).phase == "closed"


# Retries --------------------------------------------------------------------------------------------------------------


async def test_retries_stay_within_the_budget_and_first_attempts_pass_by(store: Store) -> None:
    session = await open_session(store)
    await stated(store)
    await run_with_tasks(store, session, *retries(5), {}, {"activity_type": "refund", "attempt": 2})
    got = await claim(store, session)
    assert sorted(ids(got.tasks)) == [3, 8, 9]
    assert got.dependencies["bank"].total.retries == 1
    assert (await bank(store)).total.retries == 1


async def test_what_older_code_has_queued_takes_its_turn_where_it_was_set_aside(store: Store, clock: Clock) -> None:
    """It knows nothing of weights."""
    session = await open_session(store)
    await stated(store)
    await run_with_tasks(store, session, *retries(3))
    await without_weights(store)
    assert ids((await claim(store, session)).tasks) == [3]
    await run_with_tasks(store, session, placed(3, "tenant"), workflow_id="order-2")
    clock.now_ms += 1_000
    turns = (await claim(store, session, NOW + 1_000)).tasks
    assert sorted((row.workflow_id, row.event_id, row.weight) for row in turns) == [
        ("order-1", 4, 1.0),
        ("order-2", 3, 1.0),
    ]


async def test_what_waits_for_the_budget_says_when_and_keeps_its_attempt(store: Store, clock: Clock) -> None:
    session = await open_session(store)
    await stated(store)
    run = await run_with_tasks(store, session, *retries(3))
    got = await claim(store, session)
    assert (ids(got.tasks), got.due_ms, got.has_moved) == ([3], NOW + 1_000, True)
    _, *waiting = await store.read_tasks(run.run_key)
    assert [(row.state, row.attempt, row.due_ms) for row in waiting] == [
        ("queued", 2, NOW - 99),
        ("queued", 2, NOW - 98),
    ]
    assert [held_up_by(row.lane) for row in waiting] == [("bank", True)] * 2
    again = await claim(store, session)
    assert (again.tasks, again.has_moved) == ([], False)
    clock.now_ms += 1_000
    assert ids((await claim(store, session, NOW + 1_000)).tasks) == [4]


async def test_a_retry_that_waits_is_not_what_is_due(store: Store) -> None:
    """Otherwise all else that is due would have to be looked for behind it."""
    session = await open_session(store)
    await stated(store)
    await run_with_tasks(store, session, *retries(2), {"activity_type": "refund", "due_ms": NOW + 50})
    await claim(store, session)
    seen = await look(store, session)
    assert (seen.due_ms, seen.lanes) == (NOW + 50, True)
    assert await claim_tasks(store, session) == []


async def test_calls_add_to_the_budget(store: Store) -> None:
    session = await open_session(store)
    await stated(store)
    await report(store, calls=6, succeeded=6)
    await run_with_tasks(store, session, *retries(9))
    assert ids((await claim(store, session)).tasks) == [3, 4, 5, 6]


async def test_the_budget_is_one_for_all_workers(ledger: Ledger) -> None:
    one, other = ledger.open(), ledger.open()
    await stated(one)
    first, second = await open_session(one), await open_session(other, "host:2")
    await run_with_tasks(one, first, *retries(4))
    assert ids((await claim(one, first)).tasks) == [3]
    assert (await claim(other, second)).tasks == []


async def test_what_waits_is_settled_when_its_time_is_over(store: Store) -> None:
    session = await open_session(store)
    await stated(store)
    await run_with_tasks(store, session, *retries(2, expires_ms=NOW + 10))
    await claim(store, session)
    assert ids(await store.expired_tasks("default", NOW + 10, 10)) == [4]


async def test_a_lost_attempt_is_judged_without_a_token(store: Store) -> None:
    session = await open_session(store)
    await stated(store)
    await run_with_tasks(store, session, *retries(2), {"attempt": 3, "lost": True, "due_ms": 0, "started_ms": NOW - 5})
    assert ids((await claim(store, session)).tasks) == [5, 3]


async def test_rows_in_lanes_keep_their_place_while_they_wait(store: Store) -> None:
    session = await open_session(store)
    await stated(store)
    place = placed(1, "tenant", 2.0, ("api", ""))
    run = await run_with_tasks(store, session, *retries(2, **place))
    bounds = Bounds({"api": LimitRule(concurrency=9)}, {}, (), BOUNDS.dependencies, BOUNDS.budgets)
    assert ids((await claim(store, session, bounds=bounds)).tasks) == [3]
    [_, waiting] = await store.read_tasks(run.run_key)
    assert held_up_by(waiting.lane) == ("bank", True)
    assert waiting.weight == 2.0
    [seen] = await store.read_places(run.run_key)
    assert seen == PlaceRow(4, 1, (("api", "", 1),), "bank", is_retry=True)
    assert [row.name for row in await store.read_limits("default")] == ["api"]


# The breaker ----------------------------------------------------------------------------------------------------------


async def test_while_it_is_open_nothing_of_it_starts(ledger: Ledger) -> None:
    store, other = ledger.open(), ledger.open()
    await stated(store)
    session, second = await open_session(store), await open_session(other, "host:2")
    await opened(store)
    run = await run_with_tasks(store, session, {}, {"attempt": 2}, {"activity_type": "refund"})
    got = await claim(other, second)
    assert (ids(got.tasks), got.due_ms, got.dependencies["bank"].phase) == ([5], NOW + 5_000, "open")
    assert (await claim(store, session, NOW + 4_999)).tasks == []
    first, retry, _ = await store.read_tasks(run.run_key)
    assert (held_up_by(first.lane), held_up_by(retry.lane)) == (("bank", False), ("bank", True))


async def test_after_the_pause_one_probe_at_a_time(ledger: Ledger) -> None:
    store, other = ledger.open(), ledger.open()
    await stated(store)
    session, second = await open_session(store), await open_session(other, "host:2")
    await opened(store)
    await run_with_tasks(store, session, {}, {}, {})
    await claim(store, session)
    ledger.clock.now_ms += 5_000
    now_ms = NOW + 5_000
    assert ids((await claim(store, session, now_ms)).tasks) == [3]
    held = await claim(other, second, now_ms)
    assert (held.tasks, held.waits, held.dependencies["bank"].phase) == ([], True, "half_open")


async def test_a_clock_that_went_back_keeps_no_circuit_open(store: Store, clock: Clock) -> None:
    """Nobody reports anything meanwhile: claims are all that looks at it."""
    session = await open_session(store)
    await stated(store)
    await run_with_tasks(store, session, {}, {})
    await opened(store)
    clock.now_ms -= 3_600_000
    assert (await claim(store, session)).tasks == []
    clock.now_ms += 4_999
    assert (await claim(store, session)).tasks == []
    clock.now_ms += 1
    assert len((await claim(store, session)).tasks) == 1


async def test_a_clock_that_went_back_holds_up_no_retry(store: Store, clock: Clock) -> None:
    session = await open_session(store)
    await stated(store)
    await run_with_tasks(store, session, *retries(3))
    assert ids((await claim(store, session)).tasks) == [3]
    clock.now_ms -= 3_600_000
    assert (await claim(store, session)).tasks == []
    clock.now_ms += 999
    assert (await claim(store, session)).tasks == []
    clock.now_ms += 1
    assert ids((await claim(store, session)).tasks) == [4]


async def test_a_probe_whose_worker_died_makes_room_for_the_next(store: Store, clock: Clock) -> None:
    session, dead = await open_session(store), await open_session(store, "host:2")
    await stated(store)
    await opened(store)
    await run_with_tasks(store, session, {}, {})
    clock.now_ms += 5_000
    now_ms = NOW + 5_000
    store.renew_session(session, 10 * LEASE_MS)
    assert ids((await claim(store, dead, now_ms, limit=1)).tasks) == [3]
    assert (await claim(store, session, now_ms)).tasks == []
    clock.now_ms += LEASE_MS
    await store.bury_sessions("default")
    # The lost one is judged, and another one may try.
    assert sorted(ids((await claim(store, session, now_ms)).tasks)) == [3, 4]


async def test_a_probe_that_fails_opens_it_for_longer(store: Store, clock: Clock) -> None:
    session = await open_session(store)
    await stated(store)
    await opened(store)
    await run_with_tasks(store, session, {}, {})
    clock.now_ms += 5_000
    [probe] = (await claim(store, session, NOW + 5_000)).tasks
    assert await write(store, finish(probe)) is Reply.WON
    found = await report(store, failed=1)
    assert (found.phase, found.until_ms) == ("open", NOW + 5_000 + 10_000)
    assert (await claim(store, session, NOW + 5_000)).tasks == []


async def test_after_probes_that_succeed_twice_as_many_until_nobody_waits(store: Store, clock: Clock) -> None:
    session = await open_session(store)
    await stated(store)
    await opened(store)
    await run_with_tasks(store, session, *({} for _ in range(15)))
    clock.now_ms += 5_000
    sizes = []
    for _ in range(4):
        tasks = (await claim(store, session, NOW + 5_000)).tasks
        sizes.append(len(tasks))
        for task in tasks:
            await write(store, finish(task))
        await report(store, succeeded=len(tasks))
    assert sizes == [1, 2, 4, 8]
    assert (await bank(store)).limit == 16
    assert (await report(store, succeeded=16)).phase == "closed"  # of which nobody was there to make use


async def test_what_began_before_it_opened_says_nothing_of_now(store: Store, clock: Clock) -> None:
    session = await open_session(store)
    await stated(store)
    await opened(store)
    await run_with_tasks(store, session, {})
    clock.now_ms += 5_000
    await claim(store, session, NOW + 5_000)
    assert (await report(store, opened=0, failed=9)).phase == "half_open"
    assert (await report(store, opened=0, succeeded=9)).phase == "half_open"


async def test_its_slots_go_by_its_attempts(store: Store, clock: Clock) -> None:
    """The end of a run ends its attempts."""
    session = await open_session(store)
    await stated(store)
    await opened(store)
    run = await run_with_tasks(store, session, {})
    await run_with_tasks(store, session, {}, workflow_id="order-2")
    clock.now_ms += 5_000
    [probe] = (await claim(store, session, NOW + 5_000, limit=1)).tasks
    assert probe.run_key == run.run_key
    await write(store, terminate(await store.read_run(run.run_key)))
    assert len((await claim(store, session, NOW + 5_000)).tasks) == 1


# Operators ------------------------------------------------------------------------------------------------------------


async def test_a_pause_holds_until_it_is_resumed(store: Store, clock: Clock) -> None:
    session = await open_session(store)
    await stated(store)
    before, after = await store.ask_dependency("default", "bank", PAUSE) or (None, None)
    assert before is not None
    assert after is not None
    assert (before.phase, after.phase, after.reason, after.by, after.since_ms) == (
        "closed",
        "paused",
        "it is being moved",
        "ada",
        NOW,
    )
    await run_with_tasks(store, session, {}, {})
    assert (await claim(store, session)).tasks == []
    clock.now_ms += 3_600_000
    assert (await claim(store, session, clock.now_ms)).tasks == []
    again = await store.ask_dependency("default", "bank", Ask(is_pause=True, reason="another", by="eve"))
    assert again is not None
    assert (again[1].reason, again[1].by) == ("it is being moved", "ada")
    resumed = await store.ask_dependency("default", "bank", RESUME)
    assert resumed is not None
    assert (resumed[1].phase, resumed[1].by) == ("half_open", "bob")
    assert ids((await claim(store, session, clock.now_ms)).tasks) == [3]
    assert [(each.phase, each.by) for each in (await bank(store)).changes] == [("paused", "ada"), ("half_open", "bob")]


async def test_a_resume_at_once_lets_all_begin(store: Store) -> None:
    session = await open_session(store)
    await stated(store)
    await opened(store)
    await run_with_tasks(store, session, {}, {})
    await claim(store, session)
    await store.ask_dependency("default", "bank", Ask(is_pause=False, reason="", by="bob", at_once=True))
    assert ids((await claim(store, session)).tasks) == [3, 4]


async def test_nobody_asks_anything_of_what_nobody_has_stated(store: Store) -> None:
    assert await store.ask_dependency("default", "nowhere", PAUSE) is None
    assert await store.read_dependencies("default") == {}


async def test_what_a_pause_lets_go_on_waits_for_its_dependency(store: Store) -> None:
    session = await open_session(store)
    await stated(store)
    await opened(store)
    await run_with_tasks(store, session, {}, {"activity_type": "refund"})
    everything = Scope("default", "namespace", "default")
    await store.pause(everything, "", "ada")
    await store.resume(everything, 1_000.0)
    served = Served("default", "default", ["charge", "refund"])
    got = await store.claim_lifted_tasks(session, NOW, served, 10, BOUNDS)
    assert (ids(got.tasks), got.dependencies["bank"].phase) == ([4], "open")
