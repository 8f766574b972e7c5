"""F21: ten times what there is room for; ten thousand things that are due at one moment, or wait for one key."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from pledger import activity, workflow
from pledger.engine.limits import Limits
from pledger.engine.port.answers import Reply, Started
from pledger.engine.port.operations import Append, FinishTask, Release
from pledger.history.placement import LimitRule
from pledger.testing import Environment, Faults, Simulation
from tests.cases.harness import BEGAN
from tests.conformance.harness import (
    NOW,
    append,
    claim,
    claim_queued,
    open_session,
    owned_run,
    placed,
    start,
    step,
    task,
    write,
)
from tests.conformance.harness import Ledger as PortLedger
from tests.engine.harness import Ledger

Virtual = Callable[..., Environment]
HOUR = timedelta(hours=1)


@workflow.defn
async def sleeps_a_hundred_times_at_once(seconds: int) -> int:
    return len(await asyncio.gather(*(slept(seconds) for _ in range(100))))


async def slept(seconds: int) -> datetime:
    await workflow.sleep(seconds)
    return workflow.now()


def test_ten_thousand_timers_due_at_one_moment_all_fire_once_and_none_early(virtual: Virtual) -> None:
    env = virtual(workflows=[sleeps_a_hundred_times_at_once], now=BEGAN)
    handles = [env.start(sleeps_a_hundred_times_at_once, 3_600, id=f"run-{number}") for number in range(100)]
    assert [handle.result() for handle in handles] == [100] * 100
    fired = 0
    for handle in handles:
        history = handle.history()
        times = [each.time for each in history.events if each.type == "TimerFired"]
        assert min(times) >= BEGAN + HOUR
        # One transition takes them all: a burst costs a run one commit.
        assert len(history.transitions) == 2
        fired += len(times)
    assert fired == 10_000


@workflow.defn
async def sleeps(seconds: int) -> int:
    await workflow.sleep(seconds)
    return seconds


def test_two_thousand_runs_due_at_one_moment_are_claimed_in_their_turn(virtual: Virtual) -> None:
    """They have left memory, where there is room for a thousand; the ledger hands them out as room comes."""
    env = virtual(workflows=[sleeps], now=BEGAN)
    handles = [env.start(sleeps, 3_600, id=f"run-{number}") for number in range(2_000)]
    [engine] = env.client.internals.engines
    env.sleep(timedelta(minutes=1))
    for run in list(engine.runs.active.values()):
        engine.runs.leaving.release(run)
    env.sleep(timedelta(minutes=1))
    assert len(engine.runs.active) == 0
    assert [handle.result() for handle in handles] == [3_600] * 2_000
    assert env.count("status = 'completed'") == 2_000


async def test_what_is_due_at_one_moment_is_shared_out_once(port_ledger: PortLedger) -> None:
    """Two thousand runs whose timers are of one millisecond, and two workers, each of which takes a hundred at a time:
    not one before its time, each once. (A hundred thousand asleep, ten thousand of them due: benchmark W11.)"""
    one, other = port_ledger.open(), port_ledger.open()
    sessions = [await open_session(one), await open_session(other)]
    due_ms = NOW + 60_000
    ids = [f"run-{number}" for number in range(2_000)]
    starts = [start(each, owner=sessions[0], first=Append(0, 0, 0, step(1), 2, None, NOW)) for each in ids]
    born = await one.commit(starts)
    await one.commit([Release(each.run_key, 1, due_ms) for each in born if isinstance(each, Started)])
    for store, session in zip((one, other), sessions, strict=True):
        assert await claim(store, session, due_ms - 1) == []
    taken: list[str] = []
    while rows := [*await claim(one, sessions[0], due_ms), *await claim(other, sessions[1], due_ms)]:
        assert len(rows) <= 200
        taken += [row.workflow_id for row in rows]
    assert sorted(taken) == sorted(ids)


async def test_ten_thousand_waiters_on_one_key_go_one_slot_at_a_time(port_ledger: PortLedger) -> None:
    """Three slots: never a fourth, a slot that is free goes to who waits longest, and nobody of another key waits."""
    store = port_ledger.open()
    session = await open_session(store)
    run = await owned_run(store, session)
    rows = [task(run, n, due_ms=NOW - 20_000 + n, **placed(3, "", 1.0, ("flow", "a"))) for n in range(3, 10_003)]
    await write(store, append(run, tasks=[*rows, task(run, 10_003, **placed(3, "", 1.0, ("flow", "b")))]))
    rule = LimitRule(concurrency=3)
    begun = (await claim_queued(store, session, flow=rule)).tasks
    assert sorted(row.event_id for row in begun) == [3, 4, 5, 10_003]
    running = [row for row in begun if row.event_id != 10_003]
    for following in range(6, 11):
        assert (await claim_queued(store, session, flow=rule)).tasks == []
        ended = running.pop(0)
        assert ended.owner is not None
        finished = FinishTask(ended.run_key, ended.event_id, ended.attempt, ended.owner, b"result")
        assert await write(store, finished) is Reply.WON
        [row] = (await claim_queued(store, session, flow=rule)).tasks
        assert row.event_id == following
        running.append(row)


@activity.defn
async def work(number: int) -> int:
    await asyncio.sleep(0.001)
    return number


@workflow.defn
async def hundred_steps() -> int:
    return sum(await asyncio.gather(*(work(number) for number in range(100))))


async def test_ten_times_as_many_steps_as_there_is_room_for(ledger: Ledger) -> None:
    running, most = 0, 0

    @activity.defn(name="work")
    async def counted(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return number

    room = {"max_concurrent_activities": 10}
    async with ledger.connect() as client, ledger.worker(client, hundred_steps, counted, **room):
        handles = [await client.start_workflow(hundred_steps, id=f"run-{number}") for number in range(5)]
        assert [await handle.result() for handle in handles] == [4_950] * 5
    assert 1 < most <= 10


@workflow.defn
class Collects:
    def __init__(self) -> None:
        self.got: list[int] = []

    @workflow.run
    async def run(self, count: int) -> list[int]:
        await workflow.wait_condition(lambda: len(self.got) == count)
        return self.got

    @workflow.signal
    def take(self, number: int) -> None:
        self.got.append(number)


async def test_a_burst_of_messages_to_one_run_arrives_whole_and_in_order(ledger: Ledger) -> None:
    """Two hundred from each of two senders, with nobody there to take them at first."""
    async with ledger.connect() as client, ledger.connect() as other:
        handle = await client.start_workflow(Collects, 400, id="order-1")

        async def send(sender: object, numbers: range) -> None:
            for number in numbers:
                await sender.handle("order-1", workflow=Collects).signal(Collects.take, number)  # type: ignore[attr-defined]

        await asyncio.gather(send(client, range(200)), send(other, range(200, 400)))
        async with ledger.worker(client, Collects):
            got = await handle.result()
    assert sorted(got) == [*range(400)]
    assert [number for number in got if number < 200] == [*range(200)]
    assert [number for number in got if number >= 200] == [*range(200, 400)]


@pytest.mark.parametrize("store", ["memory", "sqlite", "postgres"])
@pytest.mark.parametrize("seed", range(4))
def test_a_burst_holds_under_faults(seed: int, store: str) -> None:
    """Three workers with two slots each get sixty steps at one moment, and some of them die of other things."""
    sim = Simulation(
        seed,
        store=store,
        workflows=[sleeps_then_works],
        activities=[work],
        limits=Limits(lease_ms=2_000, concurrent_activities_max=2, cached_runs_max=4),
        faults=Faults(kill=0.1, pause=0.1, reply_lost=0.02),
    )
    for number in range(20):
        sim.start(sleeps_then_works, 30, id=f"run-{number}", within_s=0.1)
    sim.run_until_idle()
    sim.check()
    assert [program.journal.outcomes[0].value for program in sim.programs] == [3] * 20


@workflow.defn
async def sleeps_then_works(seconds: int) -> int:
    await workflow.sleep(seconds)
    return sum(await asyncio.gather(*(work(number) for number in range(3))))
