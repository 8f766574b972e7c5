"""Several handles on one ledger: all see the same, and hear of each other."""

from __future__ import annotations

import asyncio

from pledger.engine.port.answers import Reply
from pledger.engine.port.lanes import Bounds, Served
from pledger.engine.port.operations import PutTask
from pledger.history.placement import LimitRule
from tests.conformance.harness import (
    NOW,
    Ledger,
    append,
    claim,
    claim_queued,
    claim_tasks,
    open_session,
    owned_run,
    ownerless_run,
    placed,
    task,
    write,
)


async def test_handles_see_each_others_commits(ledger: Ledger) -> None:
    one, two = ledger.open(), ledger.open()
    run = await ownerless_run(one)
    assert await two.find_run("default", "order-1") == run
    [claimed] = await claim(two, await open_session(two, "host:2"))
    assert await one.read_run(run.run_key) == claimed
    assert await claim(one, await open_session(one)) == []
    assert await write(one, append(claimed)) is Reply.WON


async def test_two_claimers_share_the_runs_between_them(ledger: Ledger) -> None:
    one, two = ledger.open(), ledger.open()
    for n in range(10):
        await ownerless_run(one, f"order-{n}")
    taken = await claim(one, await open_session(one), limit=4)
    taken += await claim(two, await open_session(two, "host:2"))
    assert len(taken) == len({run.run_key for run in taken}) == 10


async def test_a_handle_hears_of_anothers_commit(ledger: Ledger) -> None:
    one, two = ledger.open(), ledger.open()
    while await two.wait_for_change(0):
        pass
    await ownerless_run(one)
    assert await two.wait_for_change(5.0)
    assert not await two.wait_for_change(0)


async def test_a_waiting_handle_is_woken(ledger: Ledger) -> None:
    one, two = ledger.open(), ledger.open()
    while await two.wait_for_change(0):
        pass
    waiter = asyncio.create_task(two.wait_for_change(5.0))
    await asyncio.sleep(0)
    await ownerless_run(one)
    assert await waiter


async def test_a_look_that_finds_nothing_is_no_news(ledger: Ledger) -> None:
    """Else idle workers would keep each other awake."""
    one, two = ledger.open(), ledger.open()
    session = await open_session(one)
    while await two.wait_for_change(0):
        pass
    assert await claim(one, session) == await claim_tasks(one, session) == []
    assert await one.woken_runs(session) == await one.bury_sessions("default") == []
    assert not await two.wait_for_change(0)


async def test_a_claim_that_a_limit_holds_up_is_no_news(ledger: Ledger) -> None:
    """Else those who wait for one slot would keep each other busy."""
    one, two = ledger.open(), ledger.open()
    session = await open_session(one)
    run = await owned_run(one, session)
    for event_id in (3, 4):
        await write(one, PutTask(run.fence, task(run, event_id, **placed(3, "", 1.0, ("api", "")))))
    assert len((await claim_queued(one, session, api=LimitRule(1))).tasks) == 1
    while await two.wait_for_change(0):
        pass
    assert (await claim_queued(one, session, api=LimitRule(1))).waits
    served, bounds = Served("default", "default", ["charge"]), Bounds({}, {})
    assert (await one.claim_lifted_tasks(session, NOW, served, 10, bounds)).tasks == []
    assert not await two.wait_for_change(0)


async def test_ones_own_commits_are_no_news(ledger: Ledger) -> None:
    store = ledger.open()
    await ownerless_run(store)
    assert not await store.wait_for_change(0)


async def test_a_closed_handle_leaves_the_others_alone(ledger: Ledger) -> None:
    one, two = ledger.open(), ledger.open()
    run = await ownerless_run(one)
    await one.close()
    await one.close()
    assert await two.read_run(run.run_key) == run
    assert (await two.describe())["kind"] in ("memory", "sqlite", "postgresql")
