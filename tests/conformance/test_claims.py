"""Ownership: who may take a run, in which order, and what a block and a burial do to it."""

from __future__ import annotations

from pledger.engine.port.answers import Reply
from pledger.engine.port.operations import TRIED_MAX, Block, ConfirmClaim, Release
from pledger.engine.port.records import RunRow
from pledger.engine.port.verbs import Store
from tests.conformance.harness import (
    LEASE_MS,
    NOW,
    Clock,
    append,
    claim,
    look,
    next_due_ms,
    open_session,
    owned_run,
    ownerless_run,
    task,
    write,
)


async def sleeping_run(store: Store, session: int, workflow_id: str, due_ms: int | None, **changes: object) -> RunRow:
    run = await owned_run(store, session, workflow_id, **changes)
    assert await write(store, Release(run.run_key, run.fence, due_ms)) is Reply.WON
    return await store.read_run(run.run_key)


async def test_runs_that_are_due_at_one_moment_come_by_their_keys(store: Store) -> None:
    """However they came to wait."""
    session = await open_session(store)
    runs = [await owned_run(store, session, f"order-{n}") for n in range(4)]
    for run in [runs[2], runs[0], runs[3], runs[1]]:
        await write(store, Release(run.run_key, run.fence, NOW - 1))
    claimed = await claim(store, session)
    assert [run.run_key for run in claimed] == sorted(run.run_key for run in runs)


async def test_a_claim_takes_the_run_and_raises_the_fence(store: Store) -> None:
    session = await open_session(store)
    run = await ownerless_run(store)
    [claimed] = await claim(store, session)
    assert (claimed.owner, claimed.claims) == (session, 0)
    assert claimed.fence > run.fence
    assert claimed == await store.read_run(run.run_key)
    assert await claim(store, await open_session(store, "host:2")) == []


async def test_the_fence_rises_at_every_change_of_owner(store: Store) -> None:
    session = await open_session(store)
    run = await owned_run(store, session)
    fences = [run.fence]
    for _ in range(3):
        await write(store, Release(run.run_key, run.fence, 0))
        fences.append((await store.read_run(run.run_key)).fence)
        [run] = await claim(store, session)
        fences.append(run.fence)
    await store.close_session(session)
    fences.append((await store.read_run(run.run_key)).fence)
    assert fences == sorted(set(fences))


async def test_whoever_lost_the_run_cannot_write(store: Store) -> None:
    session = await open_session(store)
    old = await owned_run(store, session)
    await write(store, Release(old.run_key, old.fence, 0))
    [new] = await claim(store, session)
    assert await write(store, append(old)) is Reply.LOST
    assert await write(store, Release(old.run_key, old.fence, 0)) is Reply.LOST
    assert await write(store, ConfirmClaim(old.run_key, old.fence)) is Reply.LOST
    assert await write(store, Block(old.run_key, old.fence, b"{}", "code-1")) is Reply.LOST
    assert await write(store, append(new)) is Reply.WON


async def test_a_session_knows_what_it_holds(store: Store) -> None:
    session, other = await open_session(store), await open_session(store, "host:2")
    born, theirs = await owned_run(store, session, "born"), await owned_run(store, other, "theirs")
    await ownerless_run(store, "claimed")
    [claimed] = await claim(store, session)
    assert await store.owned_runs(session) == [born, claimed]
    await store.commit([append(born, closed="completed"), Release(claimed.run_key, claimed.fence, None)])
    assert (await store.owned_runs(session), await store.owned_runs(other)) == ([], [theirs])


async def test_claims_go_by_due_time(store: Store) -> None:
    session = await open_session(store)
    late = await sleeping_run(store, session, "late", NOW - 1)
    early = await sleeping_run(store, session, "early", NOW - 5)
    exact = await sleeping_run(store, session, "exact", NOW)
    await sleeping_run(store, session, "future", NOW + 1)
    await sleeping_run(store, session, "never", None)
    assert [run.run_key for run in await claim(store, session, limit=2)] == [early.run_key, late.run_key]
    assert [run.run_key for run in await claim(store, session)] == [exact.run_key]


async def test_claims_go_by_due_time_across_workflow_types(store: Store) -> None:
    session = await open_session(store)
    second = await sleeping_run(store, session, "b", NOW - 2, workflow_type="refund")
    first = await sleeping_run(store, session, "a", NOW - 3)
    third = await sleeping_run(store, session, "c", NOW - 1)
    claimed = await claim(store, session, codes={"fulfil": "code-1", "refund": "code-1"}, limit=1)
    claimed += await claim(store, session, codes={"fulfil": "code-1", "refund": "code-1"})
    assert [run.run_key for run in claimed] == [first.run_key, second.run_key, third.run_key]


async def test_claims_go_by_queue_and_type(store: Store) -> None:
    session = await open_session(store)
    await ownerless_run(store, "1", task_queue="gpu")
    await ownerless_run(store, "2", workflow_type="refund")
    assert await claim(store, session) == []
    assert await claim(store, session, codes={}) == []
    assert [run.workflow_id for run in await claim(store, session, task_queue="gpu")] == ["1"]
    both = {"fulfil": "code-1", "refund": "code-1"}
    assert [run.workflow_id for run in await claim(store, session, codes=both)] == ["2"]


async def test_a_session_that_is_gone_claims_nothing(store: Store) -> None:
    session = await open_session(store)
    run = await ownerless_run(store)
    await store.close_session(session)
    assert await claim(store, session) == []
    assert (await store.read_run(run.run_key)).owner is None


async def test_a_blocked_run_waits_for_other_code(store: Store) -> None:
    session = await open_session(store)
    run = await owned_run(store, session)
    assert await write(store, Block(run.run_key, run.fence, b'{"reason": "bug"}', "code-1")) is Reply.WON
    blocked = await store.read_run(run.run_key)
    assert (blocked.blocked, blocked.blocked_code) == (b'{"reason": "bug"}', "code-1")
    assert (blocked.owner, blocked.status, blocked.last_event) == (None, "running", 2)
    assert blocked.fence > run.fence
    assert await claim(store, session, NOW + 10**9) == []
    for code in ("code-0", "code-2"):  # on either side of the one that failed, in whatever order a store keeps them
        [claimed] = await claim(store, session, codes={"fulfil": code})
        assert (claimed.blocked, claimed.blocked_code, claimed.owner) == (None, None, session)
        await write(store, Block(claimed.run_key, claimed.fence, b"{}", "code-1"))


async def test_two_codes_that_both_fail_do_not_hand_a_run_to_each_other_for_ever(store: Store) -> None:
    """In a rolling deploy of a version that has the old one's bug, both are there at the same time."""
    old, new = await open_session(store), await open_session(store, "host:2", "code-2")
    run = await owned_run(store, old)
    await write(store, Block(run.run_key, run.fence, b"{}", "code-1"))
    codes = {"fulfil": "code-2"}
    assert (await look(store, new, codes=codes)).unblocked
    [run] = await claim(store, new, codes=codes)
    await write(store, Block(run.run_key, run.fence, b"{}", "code-2"))
    for session, code in ((old, "code-1"), (new, "code-2")):
        assert not (await look(store, session, codes={"fulfil": code})).unblocked
        assert await claim(store, session, codes={"fulfil": code}) == []
    # Code that comes further may fail there, and each of the others may try again.
    codes = {"fulfil": "code-3"}
    assert (await look(store, new, codes=codes)).unblocked
    [run] = await claim(store, new, codes=codes)
    assert await write(store, append(run)) is Reply.WON
    await write(store, Block(run.run_key, run.fence, b"{}", "code-3"))
    assert await claim(store, new, codes=codes) == []
    for session, code in ((old, "code-1"), (new, "code-2")):
        assert (await look(store, session, codes={"fulfil": code})).unblocked
        [run] = await claim(store, session, codes={"fulfil": code})
        await write(store, Block(run.run_key, run.fence, b"{}", code))
    assert await claim(store, old) == []


async def test_of_more_codes_than_ever_run_beside_each_other_the_newest_are_remembered(store: Store) -> None:
    session = await open_session(store)
    run = await owned_run(store, session)
    for number in range(TRIED_MAX + 1):
        await write(store, Block(run.run_key, run.fence, b"{}", f"code {number}"))
        for tried in range(max(0, number - TRIED_MAX + 1), number + 1):
            assert await claim(store, session, codes={"fulfil": f"code {tried}"}) == []
        [run] = await claim(store, session, codes={"fulfil": f"code {number + 1}"})
    await write(store, Block(run.run_key, run.fence, b"{}", f"code {TRIED_MAX + 1}"))
    assert len(await claim(store, session, codes={"fulfil": "code 0"})) == 1


async def test_blocked_runs_are_taken_by_queue_and_type_too(store: Store) -> None:
    session = await open_session(store)
    run = await owned_run(store, session)
    await write(store, Block(run.run_key, run.fence, b"{}", "code-1"))
    assert await claim(store, session, codes={"fulfil": "code-2"}, task_queue="gpu") == []
    assert await claim(store, session, codes={"refund": "code-2"}) == []
    assert len(await claim(store, session, codes={"fulfil": "code-2"})) == 1


async def test_statuses_tell_who_is_blocked(store: Store) -> None:
    session = await open_session(store)
    runs = [await owned_run(store, session, f"order-{n}") for n in range(3)]
    await store.commit([Block(runs[1].run_key, 1, b"{}", "code-1"), append(runs[2], closed="failed")])
    statuses = await store.read_statuses([run.run_key for run in runs] + [99_999])
    assert statuses == {
        runs[0].run_key: ("running", False),
        runs[1].run_key: ("running", True),
        runs[2].run_key: ("failed", False),
    }
    assert await store.read_statuses([]) == {}


async def test_a_burial_counts_as_a_claim_without_progress(store: Store, clock: Clock) -> None:
    run = await ownerless_run(store)
    for claims in (1, 2, 3):
        session = await open_session(store)
        [claimed] = await claim(store, session, clock.now_ms)
        clock.now_ms += LEASE_MS
        await store.bury_sessions("default")
        run = await store.read_run(run.run_key)
        assert (run.claims, run.owner, run.due_ms) == (claims, None, 0)
        assert run.fence > claimed.fence


async def test_a_confirmed_claim_or_a_step_clears_the_count(store: Store, clock: Clock) -> None:
    run = await ownerless_run(store)
    for proof in ("confirm", "append"):
        session = await open_session(store)
        await claim(store, session, clock.now_ms)
        await store.close_session(session)
        assert (await store.read_run(run.run_key)).claims == 1
        [claimed] = await claim(store, await open_session(store))
        assert claimed.claims == 1
        operation = ConfirmClaim(run.run_key, claimed.fence) if proof == "confirm" else append(claimed)
        assert await write(store, operation) is Reply.WON
        after = await store.read_run(run.run_key)
        assert (after.claims, after.owner) == (0, claimed.owner)
        await write(store, Release(run.run_key, claimed.fence, 0))


async def test_a_block_clears_the_count(store: Store) -> None:
    """A run that was parked since it ended its workers again and again is to have its chance with other code."""
    run = await ownerless_run(store)
    session = await open_session(store)
    await claim(store, session)
    await store.close_session(session)
    [claimed] = await claim(store, await open_session(store))
    await write(store, Block(run.run_key, claimed.fence, b"{}", "code-1"))
    assert (await store.read_run(run.run_key)).claims == 0


async def test_a_block_keeps_what_the_runs_activities_brought(store: Store) -> None:
    run = await owned_run(store, await open_session(store))
    done = task(run, 1, state="done", outcome=b"1")
    await write(store, Block(run.run_key, run.fence, b"{}", "code-1", [done]))
    assert await store.read_tasks(run.run_key) == [done]


async def test_next_due_is_the_earliest_of_runs_without_owner(store: Store) -> None:
    session = await open_session(store)
    assert await next_due_ms(store, "default", "default") is None
    await sleeping_run(store, session, "never", None)
    assert await next_due_ms(store, "default", "default") is None
    await sleeping_run(store, session, "b", NOW + 20)
    await sleeping_run(store, session, "a", NOW + 30, workflow_type="archive")
    await sleeping_run(store, session, "gpu", NOW + 5, task_queue="gpu")
    owned = await owned_run(store, session, "owned")
    await write(store, append(owned, due_ms=NOW + 1))
    assert await next_due_ms(store, "default", "default") == NOW + 20
    await sleeping_run(store, session, "c", NOW + 10, workflow_type="zebra")
    assert await next_due_ms(store, "default", "default") == NOW + 10
    assert await next_due_ms(store, "default", "gpu") == NOW + 5


async def test_a_blocked_run_is_never_due_by_time(store: Store) -> None:
    run = await owned_run(store, await open_session(store))
    await write(store, Block(run.run_key, run.fence, b"{}", "code-1"))
    assert await next_due_ms(store, "default", "default") is None
