"""The scheduler: who runs when, what time is, and what becomes of the dead."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest

from pledger.testing.scheduler import LivelockError, NodeClock, NodeLoop, Scheduler


def scheduler(seed: int = 0) -> Scheduler:
    return Scheduler(random.Random(seed))


def node(on: Scheduler, name: str = "a", clock: NodeClock | None = None) -> NodeLoop:
    return NodeLoop(on, name, clock or NodeClock(), unhandled=_raise)


def _raise(error: BaseException) -> None:
    raise error


def never() -> bool:
    return False


def interleaving(seed: int) -> list[str]:
    """Five callbacks of each of two nodes, in the order in which they ran."""
    on, ran = scheduler(seed), list[str]()
    for name in ("a", "b"):
        loop = node(on, name)
        for number in range(5):
            loop.call_soon(ran.append, f"{name}{number}")
    on.run(never, limit_s=1)
    return ran


@pytest.mark.parametrize("seed", range(20))
def test_each_node_runs_in_its_own_order(seed: int) -> None:
    ran = interleaving(seed)
    assert [each for each in ran if each[0] == "a"] == [f"a{number}" for number in range(5)]
    assert [each for each in ran if each[0] == "b"] == [f"b{number}" for number in range(5)]


def test_nodes_are_interleaved_by_the_seed() -> None:
    assert interleaving(1) == interleaving(1)
    assert len({tuple(interleaving(seed)) for seed in range(20)}) > 10


def test_time_jumps_to_the_next_timer() -> None:
    on = scheduler()
    loop, rang = node(on), list[float]()
    for delay in (3600.0, 2.0):
        loop.call_later(delay, lambda: rang.append(on.now_s))
    assert not on.run(never, limit_s=10_000)
    assert rang == [2.0, 3600.0]


def test_a_cancelled_timer_is_nothing_to_wait_for() -> None:
    on = scheduler()
    node(on).call_later(5, _raise, AssertionError()).cancel()
    on.run(never, limit_s=10)
    assert on.steps == 0


def test_run_stops_at_the_limit_and_when_told() -> None:
    on = scheduler()
    loop, rang = node(on), list[float]()
    for delay in (1.0, 2.0, 3.0):
        loop.call_later(delay, rang.append, delay)
    assert on.run(lambda: len(rang) == 1, limit_s=10)
    assert rang == [1.0]
    assert not on.run(never, limit_s=2.5)
    assert (rang, on.now_s) == ([1.0, 2.0], 2.5)


@pytest.mark.parametrize("rate", [0.5, 1.0, 2.0])
def test_a_clock_that_runs_fast_rings_early(rate: float) -> None:
    on = scheduler()
    loop, rang = node(on, clock=NodeClock(1_000.0, rate)), list[float]()
    loop.call_later(10, lambda: rang.append(on.now_s))
    on.run(never, limit_s=100)
    assert rang == [pytest.approx(10 / rate)]


def test_a_clock_that_jumps_moves_its_timers() -> None:
    on = scheduler()
    clock = NodeClock()
    loop, rang = node(on, clock=clock), list[float]()
    loop.call_later(10, lambda: rang.append(on.now_s))
    on.at(4, lambda: clock.jump(on.now_s, 5.0))
    on.run(never, limit_s=100)
    assert rang == [pytest.approx(5)]


def test_a_paused_node_is_late() -> None:
    on = scheduler()
    loop, rang = node(on), list[float]()
    loop.call_later(2, lambda: rang.append(on.now_s))
    loop.paused = True
    on.at(7, lambda: setattr(loop, "paused", False))
    on.run(never, limit_s=100)
    assert rang == [7.0]


def test_nothing_of_the_dead_runs() -> None:
    on, ran = scheduler(), list[str]()

    async def live() -> None:
        try:
            await asyncio.sleep(1)
            ran.append("slept")
        finally:
            asyncio.get_running_loop().call_soon(ran.append, "cleaned up")

    loop = node(on)
    loop.call_soon(lambda: loop.create_task(live()))
    on.at(0.5, loop.kill)
    on.run(never, limit_s=10)
    loop.dispose()
    on.run(never, limit_s=20)
    assert ran == []


def test_work_of_an_executor_runs_inline_and_takes_its_time() -> None:
    on = scheduler()
    loop, got = node(on), list[object]()

    async def work() -> None:
        loop = asyncio.get_running_loop()
        got.append(await loop.run_in_executor(None, asyncio._get_running_loop))
        with pytest.raises(ZeroDivisionError):
            await loop.run_in_executor(None, lambda: 1 / 0)
        got.append(on.now_s > 0)

    loop.call_soon(lambda: loop.create_task(work()))
    on.run(never, limit_s=10)
    assert got == [None, True]


def test_whoever_is_busy_for_ever_is_named() -> None:
    on = scheduler()
    loop = node(on, "worker-1")

    def again() -> None:
        loop.call_soon(again)

    loop.call_soon(again)
    with pytest.raises(LivelockError, match="worker-1"):
        on.run(never, limit_s=1)


def digest(change: Callable[[Scheduler], None]) -> str:
    on = scheduler()
    loop = node(on)
    loop.call_later(1, on.note, "rang")
    change(on)
    on.run(never, limit_s=10)
    return on.digest


def test_the_digest_tells_executions_apart() -> None:
    changes: list[Callable[[Scheduler], None]] = [
        lambda on: None,
        lambda on: on.note("something else"),
        lambda on: on.at(0.5, lambda: None),
        lambda on: on.nodes[0].call_soon(int) and None,
    ]
    digests = [digest(change) for change in changes]
    assert digests == [digest(change) for change in changes]
    assert len(set(digests)) == len(changes)
