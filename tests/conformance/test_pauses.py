"""What is paused is not taken, its owner is told, and it goes on at the pace that was asked for."""

from __future__ import annotations

import pytest

from pledger.engine.port.answers import Reply
from pledger.engine.port.lanes import Bounds, Served
from pledger.engine.port.operations import Block, PutTask, Release
from pledger.engine.port.pauses import PauseKind, Scope
from pledger.engine.port.records import RunRow
from pledger.engine.port.verbs import Store
from pledger.history.placement import LimitRule
from tests.conformance.harness import (
    NOW,
    Clock,
    Ledger,
    append,
    claim,
    claim_queued,
    claim_tasks,
    look,
    open_session,
    owned_run,
    ownerless_run,
    placed,
    signal,
    task,
    terminate,
    write,
)

EVERYTHING = Scope("default", "namespace", "default")


def of(run: RunRow) -> Scope:
    return Scope(run.namespace, "run", run.run_id, run.run_key, run.workflow_id)


def scope(kind: PauseKind, run: RunRow) -> Scope:
    names = {"type": "fulfil", "queue": "default", "namespace": "default"}
    return of(run) if kind == "run" else Scope("default", kind, names[kind])


async def lifted_runs(store: Store, session: int, now_ms: int = NOW, limit: int = 100) -> list[str]:
    rows = await store.claim_lifted_runs(session, now_ms, "default", "default", {"fulfil": "code-1"}, limit)
    return [row.workflow_id for row in rows]


async def lifted_tasks(store: Store, session: int, limit: int = 10, **rules: LimitRule) -> list[int]:
    """The events of what is let go on. `everything` is a limit of the whole queue."""
    bounds = Bounds(rules, {}, (("everything", ""),) if "everything" in rules else ())
    claim = await store.claim_lifted_tasks(session, NOW, Served("default", "default", ["charge"]), limit, bounds)
    return [row.event_id for row in claim.tasks]


@pytest.mark.parametrize("kind", ["run", "type", "queue", "namespace"])
async def test_a_paused_run_is_not_taken_until_it_is_resumed(store: Store, clock: Clock, kind: PauseKind) -> None:
    session = await open_session(store)
    run = await ownerless_run(store)
    pause = await store.pause(scope(kind, run), "why", "ada")
    assert (pause.scope, pause.reason, pause.paused_by, pause.paused_ms) == (scope(kind, run), "why", "ada", NOW)
    assert await store.read_pauses("default") == [pause]
    assert await claim(store, session) == []
    assert (await look(store, session)).due_ms is None
    clock.now_ms += 1
    assert await store.pause(scope(kind, run), "again", "bob") == pause
    assert await store.resume(scope(kind, run), None) == pause
    assert await store.read_pauses("default") == []
    assert await store.resume(scope(kind, run), None) is None
    assert (await look(store, session)).due_ms == 0
    assert [row.run_key for row in await claim(store, session)] == [run.run_key]


@pytest.mark.parametrize("kind", ["run", "type", "queue", "namespace"])
async def test_attempts_of_what_is_paused_are_not_taken(store: Store, kind: PauseKind) -> None:
    session = await open_session(store)
    run = await owned_run(store, session)
    await write(store, PutTask(run.fence, task(run)))
    await store.pause(scope(kind, run), "", "ada")
    assert await claim_tasks(store, session) == []
    assert (await look(store, session)).due_ms is None
    await store.resume(scope(kind, run), None)
    assert (await look(store, session)).due_ms == NOW
    assert [row.event_id for row in await claim_tasks(store, session)] == [1]


async def test_a_pause_of_something_else_stands_in_nobodys_way(store: Store) -> None:
    session = await open_session(store)
    other = await owned_run(store, session, "other")
    for kind, name in (("type", "bill"), ("queue", "gpu"), ("namespace", "elsewhere")):
        await store.pause(Scope("elsewhere" if kind == "namespace" else "default", kind, name), "", "ada")  # type: ignore[arg-type] # literal
    await store.pause(of(other), "", "ada")
    run = await ownerless_run(store)
    assert [row.run_key for row in await claim(store, session)] == [run.run_key]


async def test_a_blocked_run_that_is_paused_waits_for_both(store: Store) -> None:
    session = await open_session(store)
    run = await owned_run(store, session)
    assert await write(store, Block(run.run_key, run.fence, b"{}", "code-0")) is Reply.WON
    await store.pause(of(run), "", "ada")
    assert await claim(store, session) == []
    await store.resume(of(run), None)
    assert len(await claim(store, session)) == 1


async def test_owners_are_told(store: Store, ledger: Ledger) -> None:
    session = await open_session(store)
    run, other = await owned_run(store, session), await owned_run(store, session, "other")
    elsewhere = ledger.open()
    alone = await elsewhere.pause(of(run), "", "ada")
    place = await elsewhere.pause(Scope("default", "type", "bill"), "wrong", "bob")
    assert await store.read_pauses("default") == [alone, place]
    outlook = await look(store, session)
    assert (outlook.pauses, outlook.paused) == ((place,), (run.run_key,))
    assert (await look(store, session + 1_000)).paused == ()
    assert await write(store, terminate(run)) is Reply.WON
    assert (await look(store, session)).paused == ()
    assert await store.read_pauses("default") == [place]
    assert await store.pause(of(other), "", "ada") in await store.read_pauses("default")


async def test_mail_wakes_no_paused_run_and_is_there_when_it_is_resumed(store: Store) -> None:
    session = await open_session(store)
    run = await owned_run(store, session)
    await store.pause(of(run), "", "ada")
    assert await write(store, Release(run.run_key, run.fence, None)) is Reply.WON
    await write(store, signal(run))
    assert await claim(store, session) == []
    await store.resume(of(run), None)
    assert [row.run_key for row in await claim(store, session)] == [run.run_key]
    assert [each.name for each in await store.read_inbox(run.chain_key)] == ["approve"]


async def test_a_burial_forgets_no_pause(store: Store, clock: Clock) -> None:
    dead = await open_session(store, "dead")
    run = await owned_run(store, dead)
    await store.pause(of(run), "", "ada")
    clock.now_ms += 60_000
    session = await open_session(store)
    assert len(await store.bury_sessions("default")) == 1
    assert await claim(store, session, clock.now_ms) == []
    await store.resume(of(run), None)
    assert [row.run_key for row in await claim(store, session, clock.now_ms)] == [run.run_key]


async def test_a_release_leaves_rows_behind(store: Store) -> None:
    """For attempts that go on without the run, and for outcomes that nothing else knows: those make it due."""
    session = await open_session(store)
    run, done = await owned_run(store, session), await owned_run(store, session, "done")
    started = task(run, 1, state="started", owner=session, started_ms=NOW)
    assert await write(store, Release(run.run_key, run.fence, NOW + 5, [started])) is Reply.WON
    assert await store.read_tasks(run.run_key) == [started]
    assert (await store.read_run(run.run_key)).due_ms == NOW + 5
    ended = task(done, 1, state="done", outcome=b"outcome")
    assert await write(store, Release(done.run_key, done.fence, NOW + 5, [ended])) is Reply.WON
    assert await store.read_tasks(done.run_key) == [ended]
    assert (await store.read_run(done.run_key)).due_ms == 0
    assert await write(store, Release(run.run_key, run.fence, None, [started])) is Reply.LOST


# Lifting at a rate ----------------------------------------------------------------------------------------------------


async def test_what_waits_goes_on_at_the_rate(store: Store, clock: Clock, ledger: Ledger) -> None:
    session = await open_session(store)
    for number in range(5):
        await ownerless_run(store, f"w{number}")
    await store.pause(EVERYTHING, "an incident", "ada")
    await store.resume(EVERYTHING, 2.0)
    [lifted] = await store.read_pauses("default")
    assert (lifted.reason, lifted.rate, lifted.backlog, lifted.released) == ("an incident", 2.0, 5, 0)
    assert await claim(store, session) == []
    assert (await look(store, session)).due_ms is None
    assert await lifted_runs(store, session) == ["w0"]
    assert await lifted_runs(store, session) == []
    clock.now_ms += 500
    assert await lifted_runs(ledger.open(), session) == ["w1"]
    clock.now_ms += 60_000
    assert await lifted_runs(store, session) == ["w2", "w3"], "who comes late finds no flood"
    assert [each.released for each in await store.read_pauses("default")] == [4]
    clock.now_ms += 500
    assert await lifted_runs(store, session) == ["w4"]
    assert await store.read_pauses("default") == []


@pytest.mark.parametrize("claimed", ["runs", "tasks"])
async def test_a_clock_that_went_back_is_not_waited_for(store: Store, clock: Clock, claimed: str) -> None:
    session = await open_session(store)
    run = await owned_run(store, session)
    for number in range(2):
        await ownerless_run(store, f"w{number}")
        await write(store, PutTask(run.fence, task(run, number + 1)))
    await store.pause(EVERYTHING, "", "ada")
    await store.resume(EVERYTHING, 2.0)

    async def lifted() -> int:
        return len(await (lifted_runs if claimed == "runs" else lifted_tasks)(store, session))

    assert await lifted() == 1
    clock.now_ms -= 3_600_000
    assert await lifted() == 0
    clock.now_ms += 400
    assert await lifted() == 0
    clock.now_ms += 100
    assert await lifted() == 1


async def test_attempts_and_runs_share_the_rate(store: Store, clock: Clock) -> None:
    session = await open_session(store)
    run = await owned_run(store, session)
    for event_id in (1, 2):
        await write(store, PutTask(run.fence, task(run, event_id)))
    await ownerless_run(store, "w0")
    await store.pause(EVERYTHING, "", "ada")
    await store.resume(EVERYTHING, 1.0)
    assert len(await lifted_tasks(store, session)) == 1
    assert await lifted_runs(store, session) == []
    clock.now_ms += 1_000
    assert await lifted_runs(store, session) == ["w0"]
    assert await lifted_tasks(store, session) == []
    clock.now_ms += 1_000
    assert len(await lifted_tasks(store, session)) == 1
    assert await store.read_pauses("default") == []


async def test_what_stands_in_lanes_is_let_go_on_in_its_order_and_within_its_limits(store: Store, clock: Clock) -> None:
    session = await open_session(store)
    run = await owned_run(store, session)
    for event_id, priority in ((1, 4), (2, 2), (3, 3), (4, 3)):
        await write(store, PutTask(run.fence, task(run, event_id, **placed(priority, "", 1.0, ("api", "")))))
    await store.pause(EVERYTHING, "", "ada")
    assert (await claim_queued(store, session)).tasks == []
    await store.resume(EVERYTHING, 3.0)
    assert [each.backlog for each in await store.read_pauses("default")] == [4]
    assert await lifted_tasks(store, session, api=LimitRule(2)) == [2]
    clock.now_ms += 1_000
    assert await lifted_tasks(store, session, api=LimitRule(2)) == [3], "one slot is left of the limit"
    clock.now_ms += 1_000
    assert await lifted_tasks(store, session, api=LimitRule(2)) == []
    assert await lifted_tasks(store, session) == [4, 1]
    assert await store.read_pauses("default") == [], "all that waited has gone on"


async def test_more_lanes_than_one_claim_looks_at_are_let_go_on(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that a claim looks at first are held up by their limits."""
    monkeypatch.setattr("pledger.engine.port.lanes.LANES_MAX", 4)
    session = await open_session(store)
    run = await owned_run(store, session)
    for event_id in range(1, 25):
        keyed = placed(3, "", 1.0, ("customer", f"{event_id % 12:02}"))
        await write(store, PutTask(run.fence, task(run, event_id, **keyed)))
    await store.pause(EVERYTHING, "", "ada")
    await store.resume(EVERYTHING, 1_000.0)
    taken: list[int] = []
    for _ in range(12):
        clock.now_ms += 1_000
        taken += await lifted_tasks(store, session, customer=LimitRule(1))
    assert sorted(event_id % 12 for event_id in taken) == list(range(12))


async def test_limits_of_what_states_nothing_hold_while_a_pause_is_lifted(store: Store, clock: Clock) -> None:
    session = await open_session(store)
    run = await owned_run(store, session)
    for event_id in (1, 2):
        await write(store, PutTask(run.fence, task(run, event_id)))
    await store.pause(EVERYTHING, "", "ada")
    await store.resume(EVERYTHING, 10.0)
    clock.now_ms += 1_000
    assert await lifted_tasks(store, session, everything=LimitRule(1)) == [1]
    assert await lifted_tasks(store, session, everything=LimitRule(1)) == []


async def test_a_type_goes_on_at_its_rate_and_others_as_ever(store: Store, clock: Clock) -> None:
    session = await open_session(store)
    for number in range(3):
        await ownerless_run(store, f"w{number}")
    await ownerless_run(store, "other", workflow_type="bill")
    fulfil = Scope("default", "type", "fulfil")
    await store.pause(fulfil, "", "ada")
    await store.resume(fulfil, 1.0)
    codes = {"fulfil": "code-1", "bill": "code-1"}
    assert [row.workflow_id for row in await claim(store, session, codes=codes)] == ["other"]
    assert await lifted_runs(store, session) == ["w0"]
    clock.now_ms += 1_000
    assert await lifted_runs(store, session) == ["w1"]


async def test_a_type_pays_for_no_attempts_of_others(store: Store, clock: Clock) -> None:
    """They stand in one line: what is older starts too, and its own go on at their rate."""
    session = await open_session(store)
    other = await owned_run(store, session, "other", workflow_type="bill")
    run = await owned_run(store, session)
    for event_id in (1, 2):
        await write(store, PutTask(other.fence, task(other, event_id, due_ms=NOW - 9, workflow_type="bill")))
        await write(store, PutTask(run.fence, task(run, event_id)))
    fulfil = Scope("default", "type", "fulfil")
    await store.pause(fulfil, "", "ada")
    await store.resume(fulfil, 1.0)
    assert [each.backlog for each in await store.read_pauses("default")] == [2]
    taken = []
    for _ in range(4):
        rows = await store.claim_lifted_tasks(session, NOW, Served("default", "default", ["charge"]), 9, Bounds({}, {}))
        taken.append([(row.workflow_type, row.event_id) for row in rows.tasks])
    assert taken == [[("bill", 1)], [("bill", 2)], [("fulfil", 1)], []]
    assert [each.released for each in await store.read_pauses("default")] == [1]


async def test_what_is_paused_by_a_second_one_is_not_lifted_by_the_first(store: Store) -> None:
    session = await open_session(store)
    run = await ownerless_run(store)
    await ownerless_run(store, "second")
    await store.pause(EVERYTHING, "", "ada")
    await store.resume(EVERYTHING, 1.0)
    for second in (Scope("default", "queue", "default"), Scope("default", "type", "fulfil")):
        await store.pause(second, "", "bob")
        assert await lifted_runs(store, session) == []
        await store.resume(second, None)
    await store.pause(of(run), "", "bob")
    assert await lifted_runs(store, session) == ["second"]


async def test_nothing_that_waits_needs_no_rate_and_a_pause_while_it_is_lifted_begins_anew(
    store: Store, clock: Clock
) -> None:
    await store.pause(EVERYTHING, "first", "ada")
    await store.resume(EVERYTHING, 1.0)
    assert await store.read_pauses("default") == []
    await ownerless_run(store)
    first = await store.pause(EVERYTHING, "first", "ada")
    await store.resume(EVERYTHING, 1.0)
    clock.now_ms += 10
    again = await store.pause(EVERYTHING, "second", "bob")
    assert (again.pause_key, again.reason, again.paused_by) == (first.pause_key, "second", "bob")
    assert (again.paused_ms, again.rate) == (NOW + 10, None)
    assert await store.read_pauses("default") == [again]


async def test_who_has_ended_takes_nothing(store: Store) -> None:
    session = await open_session(store)
    await ownerless_run(store)
    await store.pause(EVERYTHING, "", "ada")
    await store.resume(EVERYTHING, 1.0)
    await store.close_session(session)
    assert await lifted_runs(store, session) == []
    assert [each.released for each in await store.read_pauses("default")] == [0]


async def test_a_step_of_an_owner_who_has_not_looked_yet_is_written(store: Store) -> None:
    """What was on its way when the pause came; the owner lets go at its next look."""
    session = await open_session(store)
    run = await owned_run(store, session)
    await store.pause(of(run), "", "ada")
    assert await write(store, append(run)) is Reply.WON
