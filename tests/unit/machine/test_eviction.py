"""Leaving memory: coroutines are closed in a dead context, where the API raises, and nothing is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import weakref
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from pledger import activity, workflow
from pledger.errors import ForbiddenCallError
from pledger.machine.machine import Machine
from tests.unit.machine.harness import DrivenRun, kinds, scheduled

Drive = Callable[..., DrivenRun]


@activity.defn
async def step(name: str) -> str:
    return name


def evict(run: DrivenRun) -> None:
    run.machine.destroy()
    gc.collect()  # what was left behind would warn here


def test_finally_blocks_run(drive: Drive) -> None:
    told: list[str] = []

    @workflow.defn
    async def cleans_up() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            told.append("cleaned up")

    run = drive(cleans_up)
    run.start()
    evict(run)
    assert told == ["cleaned up"]


@pytest.mark.parametrize(
    "act",
    [
        lambda: step("refund"),
        lambda: asyncio.sleep(1),
        lambda: workflow.sleep(1),
        lambda: workflow.wait_condition(lambda: False),
        lambda: workflow.execute_activity(step, "refund"),
        lambda: workflow.wait_for(asyncio.sleep(1), 60),  # what it would have waited for is closed too
    ],
    ids=["activity", "asyncio.sleep", "sleep", "wait_condition", "execute_activity", "wait_for"],
)
def test_clean_up_that_acts_is_refused_and_does_not_go_on(drive: Drive, act: Callable[[], object]) -> None:
    told: list[str] = []

    @workflow.defn
    async def cleans_up() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            try:
                await act()  # type: ignore[misc]
            except Exception:  # noqa: BLE001 - clean-up code that swallows errors must not go on as if it were live
                told.append("swallowed")
            told.append("went on")

    run = drive(cleans_up)
    run.start()
    evict(run)
    assert told == []
    assert run.machine.context.asked == []


def test_clean_up_with_a_limit_of_time_is_refused_and_does_not_go_on(drive: Drive) -> None:
    told: list[str] = []

    @workflow.defn
    async def cleans_up() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            try:
                async with asyncio.timeout(1):
                    told.append("inside")
                    await step("refund")
            except Exception:  # noqa: BLE001 - as above
                told.append("swallowed")
            told.append("went on")

    run = drive(cleans_up)
    run.start()
    evict(run)
    assert told == []


@pytest.mark.parametrize("draw", [workflow.uuid4, workflow.random, lambda: workflow.patched("new")])
def test_clean_up_that_draws_is_refused(drive: Drive, draw: Callable[[], object]) -> None:
    told: list[str] = []

    @workflow.defn
    async def cleans_up() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            draw()
            told.append("went on")

    run = drive(cleans_up)
    run.start()
    evict(run)
    assert told == []


def test_clean_up_that_starts_tasks_leaves_none_behind(drive: Drive) -> None:
    told: list[str] = []

    async def tidy(name: str) -> None:
        told.append(name)

    @workflow.defn
    async def cleans_up() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.gather(tidy("a"), tidy("b"))

    run = drive(cleans_up)
    run.start()
    evict(run)
    assert told == []


def test_clean_up_that_waits_again_and_again_is_closed_all_the_same(drive: Drive) -> None:
    told: list[int] = []

    @workflow.defn
    async def cleans_up() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            for attempt in range(3):
                try:
                    await asyncio.sleep(0)
                finally:
                    told.append(attempt)

    run = drive(cleans_up)
    run.start()
    evict(run)
    assert told[:1] == [0]
    assert all(task.get_coro().cr_frame is None for task in run.machine.context.loop.live_tasks())


@pytest.mark.parametrize(
    "wait",
    [
        lambda: step("refund"),
        lambda: asyncio.sleep(1),
        lambda: workflow.sleep(1),
        lambda: workflow.wait_condition(lambda: False),
        lambda: asyncio.Event().wait(),
    ],
    ids=["activity", "asyncio.sleep", "sleep", "wait_condition", "event"],
)
def test_code_that_catches_everything_and_tries_again_is_left_where_it_waits(
    drive: Drive, wait: Callable[[], Any]
) -> None:
    tried: list[int] = []

    @workflow.defn
    async def stubborn() -> None:
        while True:
            try:
                tried.append(1)
                await wait()
            except BaseException:  # noqa: BLE001 - what users do
                continue

    run = drive(stubborn)
    run.start()
    assert run.machine.destroy() == 1
    count = len(tried)
    gc.collect()  # nobody knows the coroutine any more, and it is not closed by the collector, where it would not end
    assert len(tried) == count


def test_every_task_is_closed(drive: Drive) -> None:
    closed: list[str] = []

    async def work(name: str) -> None:
        try:
            await step(name)
        finally:
            closed.append(name)

    @workflow.defn
    async def works() -> None:
        async with asyncio.TaskGroup() as group:
            for name in "abc":
                group.create_task(work(name))

    run = drive(works)
    run.start()
    evict(run)
    assert sorted(closed) == ["a", "b", "c"]


def test_a_task_that_never_ran_is_closed_without_a_warning(drive: Drive) -> None:
    """A bug can end an activation while tasks are still waiting for their first turn."""

    async def never() -> None: ...

    @workflow.defn
    async def breaks() -> None:
        asyncio.create_task(never())  # noqa: RUF006 - lost on purpose
        raise SystemExit("a bug")

    run = drive(breaks)
    run.replay_at_end = False
    with pytest.raises(SystemExit):
        run.start()
    evict(run)


def test_async_generators_are_closed(drive: Drive) -> None:
    told: list[str] = []

    async def numbers() -> AsyncIterator[int]:
        try:
            for number in range(3):
                yield number
                await asyncio.sleep(60)
        finally:
            told.append("closed")
            workflow.uuid4()
            told.append("drew")

    @workflow.defn
    async def iterates() -> None:
        async for _ in numbers():
            pass

    run = drive(iterates)
    run.start()
    evict(run)
    assert told == ["closed"]


def test_logs_of_clean_up_are_discarded(drive: Drive, caplog: pytest.LogCaptureFixture) -> None:
    @workflow.defn
    async def cleans_up() -> None:
        workflow.logger.warning("waiting")
        try:
            await asyncio.sleep(60)
        finally:
            workflow.logger.warning("cleaning up")

    run = drive(cleans_up)
    with caplog.at_level(logging.INFO):
        run.start()
        evict(run)
    assert [record.message for record in caplog.records] == ["waiting"]


def test_nothing_of_the_run_stays_in_memory(drive: Drive) -> None:
    class Cargo:
        pass

    kept: list[weakref.ref[Cargo]] = []

    @workflow.defn
    async def carries() -> None:
        cargo = Cargo()
        kept.append(weakref.ref(cargo))
        await asyncio.gather(step("a"), asyncio.sleep(60), workflow.wait_condition(lambda: cargo is None))

    run = drive(carries)
    run.replay_at_end = False
    run.start()
    run.machine.destroy()
    run.machine = Machine(run.definition, run.identity)
    gc.collect()
    assert [reference() for reference in kept] == [None]


def test_destroying_twice_and_before_the_start_is_harmless(drive: Drive) -> None:
    run = drive(step_once)
    run.machine.destroy()
    run.reload()
    run.start()
    run.machine.destroy()
    run.machine.destroy()


@workflow.defn
async def step_once() -> str:
    return await step("a")


def test_an_evicted_run_goes_on_after_a_reload(drive: Drive) -> None:
    run = drive(step_once)
    run.start()
    run.reload()
    run.complete(2, "A")
    assert run.result == "A"


# Async generators that nobody iterates to their end -------------------------------------------------------------------


async def leaves_a_trace() -> AsyncIterator[int]:
    try:
        yield 1
        yield 2
    finally:
        await step("clean up")


@workflow.defn
async def breaks_off() -> str:
    async for _ in leaves_a_trace():
        break
    return await step("on")


@workflow.defn
async def closes_by_hand() -> str:
    async with contextlib.aclosing(leaves_a_trace()) as numbers:
        async for _ in numbers:
            break
    return await step("on")


def test_an_async_generator_closed_by_hand_may_act(drive: Drive) -> None:
    run = drive(closes_by_hand)
    assert scheduled(run.start()) == [("step", "clean up")]
    assert scheduled(run.complete(2, "done")) == [("step", "on")]
    run.complete(4, "B")
    assert run.result == "B"


def test_an_async_generator_left_to_the_collector_may_not_act(drive: Drive) -> None:
    """When the collector comes is no input of the run; so the clean-up is refused, and not in silence."""
    run = drive(breaks_off)
    run.replay_at_end = False
    with pytest.raises(ForbiddenCallError) as caught:
        run.start()
    assert "contextlib.aclosing" in str(caught.value)


def test_an_async_generator_that_only_tidies_up_may_be_left(drive: Drive) -> None:
    told: list[str] = []

    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            told.append("tidied up")

    @workflow.defn
    async def breaks_off_early() -> str:
        async for _ in numbers():
            break
        return await step("on")

    run = drive(breaks_off_early)
    run.start()
    assert told == ["tidied up"]
    run.complete(2, "B")
    assert run.result == "B"


def test_as_completed_may_be_left_early(drive: Drive) -> None:
    @workflow.defn
    async def first_of() -> str:
        async for one in workflow.as_completed([step("a"), step("b")], timeout=60):
            return await one
        return "none"

    run = drive(first_of)
    run.start()
    run.complete(run.event_id_of("step"), "B")
    assert run.result == "B"


def test_the_collector_of_one_run_does_not_act_for_another(drive: Drive) -> None:
    """A generator in a reference cycle goes when the collector comes, which may be during another run's activation."""

    @workflow.defn
    async def leaves_a_cycle() -> str:
        numbers = leaves_a_trace()
        cycle = [numbers]
        cycle.append(cycle)  # type: ignore[arg-type]
        await anext(numbers)
        del numbers, cycle
        return await step("on")

    @workflow.defn
    async def collects() -> str:
        gc.collect()
        return await step("other")

    gc.disable()
    try:
        leaving = drive(leaves_a_cycle)
        leaving.replay_at_end = False
        leaving.start()
        other = drive(collects)
        commands = other.start()
    finally:
        gc.enable()
    assert scheduled(commands) == [("step", "other")]
    # The run whose clean-up it was hears of it.
    with pytest.raises(ForbiddenCallError, match=r"contextlib\.aclosing"):
        leaving.complete(2, "A")
    assert kinds(other.complete(2, "B")) == ["CompleteRun"]
