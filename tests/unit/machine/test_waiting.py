"""`workflow.wait_condition`, `wait_for`, `wait` and `as_completed`: what they give, in which order, what they leave."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

import pytest

from pledger import activity, workflow
from pledger.errors import ActivityError, ApplicationError, UsageError
from pledger.history import events
from tests.unit.machine.harness import DrivenRun, completed, kinds, scheduled, signal, timers

Drive = Callable[..., DrivenRun]
DAY_MS = 86_400_000


@activity.defn
async def step(name: str) -> str:
    return name


# wait_condition -------------------------------------------------------------------------------------------------------


async def verdict() -> bool:
    return False


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (True, "needs a plain function that says whether it holds, not True"),
        (verdict, "needs a plain function that says whether it holds, not <function verdict"),
        (lambda: verdict() or True, "gave a coroutine, which is true before anybody has awaited it"),
    ],
)
def test_a_condition_that_says_nothing_by_itself_is_refused(drive: Drive, given: object, message: str) -> None:
    """What an async function gives is true as it stands: the wait was over before it had begun."""

    @workflow.defn
    async def waits() -> None:
        await workflow.wait_condition(given)  # type: ignore[arg-type] # that is the point

    run = drive(waits)
    run.replay_at_end = False
    with pytest.raises(UsageError, match=message):
        run.start()


def test_a_condition_that_gives_a_coroutine_later_is_refused_too(drive: Drive) -> None:
    @workflow.defn
    class Waits:
        def __init__(self) -> None:
            self.n = 0

        @workflow.run
        async def run(self) -> None:
            await workflow.wait_condition(lambda: self.n and verdict())

        @workflow.signal
        def add(self) -> None:
            self.n += 1

    run = drive(Waits)
    run.replay_at_end = False
    run.start()
    with pytest.raises(UsageError, match="gave a coroutine"):
        run.signal("add")


@pytest.mark.parametrize("given", ["5", None, [5]])
def test_a_sleep_needs_a_duration(drive: Drive, given: object) -> None:
    @workflow.defn
    async def sleeps() -> None:
        await workflow.sleep(given)  # type: ignore[arg-type] # that is the point

    run = drive(sleeps)
    run.replay_at_end = False
    with pytest.raises(UsageError, match="needs a timedelta, or a number of seconds"):
        run.start()


def test_CAN_03_a_condition_that_becomes_true_after_its_wait_timed_out_is_harmless(drive: Drive) -> None:
    asked: list[int] = []

    @workflow.defn
    class Waits:
        def __init__(self) -> None:
            self.n = 0
            self.late = False

        def holds(self) -> bool:
            asked.append(self.n)
            return self.n > 0

        @workflow.run
        async def run(self) -> bool:
            try:
                await workflow.wait_condition(self.holds, timeout=1)
            except TimeoutError:
                self.late = True
            await asyncio.sleep(5)
            return self.late

        @workflow.signal
        def set(self, n: int) -> None:
            self.n = n

    run = drive(Waits)
    run.start()
    run.fire(1_000)
    asked_until_the_timeout = len(asked)
    assert run.signal("set", 1) == []
    # The expired waiter is removed: its predicate is not called any more.
    assert len(asked) == asked_until_the_timeout
    assert run.machine.context.conditions == {}
    run.fire(5_000)
    assert run.result is True


@workflow.defn
class Approval:
    def __init__(self) -> None:
        self.approved = False

    @workflow.run
    async def run(self) -> str:
        await workflow.wait_condition(lambda: self.approved, timeout=30 * 86_400)
        await workflow.wait_condition(lambda: True, timeout=5)
        await asyncio.sleep(40 * 86_400)
        return "approved"

    @workflow.signal
    def approve(self) -> None:
        self.approved = True


def test_CAN_04_a_satisfied_wait_cancels_its_timer_and_one_that_holds_already_starts_none(drive: Drive) -> None:
    run = drive(Approval)
    assert timers(run.start()) == [30 * DAY_MS]
    run.now_ms += 2_000
    # The first wait's timer goes in the same activation as the signal; the second wait has none at all.
    commands = run.signal("approve")
    assert sorted(kinds(commands)) == ["CancelTimer", "StartTimer"]
    assert events.CancelTimer(2) in commands
    assert timers(commands) == [40 * DAY_MS]
    # Nothing wakes the run on day 30.
    assert run.fire(30 * DAY_MS) == []
    assert run.machine.next_timer_ms() == run.now_ms + 10 * DAY_MS
    run.fire(10 * DAY_MS)
    assert run.result == "approved"


def test_a_condition_without_a_timeout_waits_without_a_timer(drive: Drive) -> None:
    @workflow.defn
    class Waits:
        ready = False

        @workflow.run
        async def run(self) -> str:
            await workflow.wait_condition(lambda: self.ready)
            return "ready"

        @workflow.signal
        def go(self) -> None:
            self.ready = True

    run = drive(Waits)
    assert run.start() == []
    run.signal("go")
    assert run.result == "ready"


@pytest.mark.parametrize("timeout", [1.5, timedelta(seconds=1.5)])
def test_a_timeout_is_seconds_or_a_timedelta(drive: Drive, timeout: float | timedelta) -> None:
    @workflow.defn
    async def waits() -> str:
        try:
            await workflow.wait_condition(lambda: False, timeout=timeout)
        except TimeoutError:
            return "too late"

    run = drive(waits)
    assert timers(run.start()) == [1_500]
    run.fire(1_500)
    assert run.result == "too late"


def test_conditions_are_asked_after_every_step_of_the_run(drive: Drive) -> None:
    @workflow.defn
    async def counts() -> list[str]:
        done: list[str] = []

        async def work(name: str) -> None:
            done.append(await step(name))

        tasks = [asyncio.create_task(work(name)) for name in "ab"]
        await workflow.wait_condition(lambda: len(done) == 2)
        assert all(task.done() for task in tasks)
        return done

    run = drive(counts)
    run.start()
    run.feed(completed(3, "b"), completed(2, "a"))
    assert run.result == ["b", "a"]


def test_one_condition_may_make_the_next_one_hold(drive: Drive) -> None:
    @workflow.defn
    class Chain:
        stage = 0

        @workflow.run
        async def run(self) -> int:
            await asyncio.gather(*(self.advance(n) for n in (3, 2, 1)))
            return self.stage

        async def advance(self, stage: int) -> None:
            await workflow.wait_condition(lambda: self.stage == stage - 1)
            self.stage = stage

    run = drive(Chain)
    run.start()
    assert run.result == 3


def test_a_condition_that_raises_tells_its_waiter(drive: Drive) -> None:
    @workflow.defn
    class Breaks:
        orders: dict[str, int]

        def __init__(self) -> None:
            self.orders = {"a": 1}

        @workflow.run
        async def run(self) -> str:
            try:
                await workflow.wait_condition(lambda: self.orders["a"] > 1)
            except KeyError:
                return "the condition broke"
            return "held"

        @workflow.signal
        def forget(self) -> None:
            self.orders.clear()

    run = drive(Breaks)
    run.start()
    run.signal("forget")
    assert run.result == "the condition broke"


def test_a_cancelled_wait_takes_its_condition_back(drive: Drive) -> None:
    @workflow.defn
    async def waits() -> str:
        waiting = asyncio.create_task(workflow.wait_condition(lambda: False))
        await asyncio.sleep(1)
        waiting.cancel()
        return await step("on")

    run = drive(waits)
    run.start()
    run.fire(1_000)
    assert run.machine.context.conditions == {}
    run.complete(run.event_id_of("step"), "on")
    assert run.result == "on"


# wait_for -------------------------------------------------------------------------------------------------------------


def test_wait_for_starts_what_it_waits_for_in_the_same_task(drive: Drive) -> None:
    """The order of gather's coroutines is kept whichever of them has a time limit, on every version of Python."""

    async def work(name: str) -> str:
        return await step(name)

    @workflow.defn
    async def gathers() -> list[str]:
        return await asyncio.gather(workflow.wait_for(work("a"), 60), work("b"), workflow.wait_for(work("c"), 60))

    run = drive(gathers)
    assert scheduled(run.start()) == [("step", "a"), ("step", "b"), ("step", "c")]
    handles = [n for n, each in enumerate(run.events, 1) if isinstance(each, events.ScheduleActivity)]
    run.feed(*(completed(event_id, name) for event_id, name in zip(handles, "ABC", strict=True)))
    assert run.result == ["A", "B", "C"]


def test_wait_for_does_not_swallow_a_cancellation_that_meets_the_result(drive: Drive) -> None:
    """Python 3.11's own wait_for returns the result instead (cpython issue 86296)."""

    @workflow.defn
    async def cancels() -> str:
        waiting = asyncio.create_task(workflow.wait_for(step("a"), 60))
        await asyncio.sleep(1)
        waiting.cancel()
        try:
            await waiting
        except asyncio.CancelledError:
            return "cancelled"
        return "swallowed"

    run = drive(cancels)
    run.start()
    run.now_ms += 1_000
    fired = run.machine.due_timers(run.now_ms)
    run.feed(*fired, completed(run.event_id_of("step"), "A"))
    assert run.result == "cancelled"


def test_wait_for_without_a_limit_waits(drive: Drive) -> None:
    @workflow.defn
    async def waits() -> str:
        return await workflow.wait_for(step("a"), None)

    run = drive(waits)
    assert kinds(run.start()) == ["ScheduleActivity"]
    run.complete(2, "A")
    assert run.result == "A"


@pytest.mark.parametrize("timeout", [0, -1])
def test_wait_for_no_time_at_all_asks_for_nothing(drive: Drive, timeout: float) -> None:
    @workflow.defn
    async def waits() -> str:
        try:
            return await workflow.wait_for(step("a"), timeout)
        except TimeoutError:
            return "no time"

    run = drive(waits)
    assert kinds(run.start()) == ["CompleteRun"]
    assert run.result == "no time"


def test_an_error_of_the_awaited_is_not_a_time_out(drive: Drive) -> None:
    @workflow.defn
    async def waits() -> str:
        try:
            await workflow.wait_for(step("a"), 60)
        except TimeoutError:
            return "time-out"
        except ActivityError as error:
            return type(error).__name__
        return "result"

    run = drive(waits)
    run.start()
    run.fail(run.event_id_of("step"), ApplicationError("declined"))
    assert run.result == "ActivityError"


# wait -----------------------------------------------------------------------------------------------------------------


def test_RPL_05_wait_gives_lists_in_the_order_of_the_arguments(drive: Drive) -> None:
    @workflow.defn
    async def waits() -> list[list[int]]:
        handles = [workflow.start_activity(step, name) for name in "abcdef"]
        done, pending = await workflow.wait(handles, return_when="FIRST_EXCEPTION", timeout=10)
        return [[handles.index(one) for one in done], [handles.index(one) for one in pending]]

    run = drive(waits)
    run.start()
    run.feed(completed(6, "e"), completed(3, "b"), completed(4, "c"))
    run.fire(10_000)
    assert run.result == [[1, 2, 4], [0, 3, 5]]


def test_wait_can_return_at_the_first_exception(drive: Drive) -> None:
    @workflow.defn
    async def waits() -> list[int]:
        done, pending = await workflow.wait([step("a"), step("b"), step("c")], return_when="FIRST_EXCEPTION")
        return [len(done), len(pending)]

    run = drive(waits)
    run.start()
    run.complete(2, "a")
    run.fail(4, ApplicationError("no"))
    assert run.result == [2, 1]


def test_wait_for_nothing_is_refused(drive: Drive) -> None:
    @workflow.defn
    async def waits() -> None:
        await workflow.wait([])

    with pytest.raises(UsageError, match=r"workflow\.wait needs at least one awaitable"):
        drive(waits).start()


# as_completed ---------------------------------------------------------------------------------------------------------


async def slow(name: str) -> str:
    return await step(name)


@workflow.defn
async def posts_as_completed(names: list[str]) -> list[str]:
    return [await step(f"post {await one}") async for one in workflow.as_completed(slow(name) for name in names)]


def test_RPL_05_as_completed_starts_in_argument_order_and_yields_in_recorded_order(drive: Drive) -> None:
    names = [f"{n:02}" for n in range(20)]
    run = drive(posts_as_completed, names)
    assert scheduled(run.start()) == [("step", name) for name in names]
    # 7 comes first, then 11 and 3 while 7 is being posted: told apart by the record, not by a set.
    assert scheduled(run.complete(2 + 7, "07")) == [("step", "post 07")]
    run.complete(2 + 11, "11")
    run.complete(2 + 3, "03")
    assert scheduled(run.complete(run.event_id_of("step"), "posted 07")) == [("step", "post 11")]
    assert scheduled(run.complete(run.event_id_of("step"), "posted 11")) == [("step", "post 03")]


def test_RPL_05_as_completed_breaks_ties_by_the_order_of_the_arguments(drive: Drive) -> None:
    @workflow.defn
    async def collects() -> list[str]:
        handles = [workflow.start_activity(step, name) for name in "abc"]
        await asyncio.gather(*handles)
        return [await one async for one in workflow.as_completed(reversed(handles))]

    run = drive(collects)
    run.start()
    run.feed(completed(3, "B"), completed(4, "C"), completed(2, "A"))
    assert run.result == ["C", "B", "A"]


def test_as_completed_yields_everything_once(drive: Drive) -> None:
    run = drive(posts_as_completed, ["a", "b", "c"])
    run.start()
    run.feed(completed(4, "c"), completed(2, "a"), completed(3, "b"))
    for _ in range(3):
        posted = run.event_id_of("step")
        run.complete(posted, f"event {posted}")
    assert len(run.result) == len(set(run.result)) == 3


@workflow.defn
class Collects:
    """Posts what arrives within ten seconds."""

    @workflow.run
    async def run(self, names: list[str]) -> list[str]:
        posted: list[str] = []
        try:
            async for one in workflow.as_completed([slow(name) for name in names], timeout=10):
                posted.append(await step(f"post {await one}"))  # noqa: PERF401 - what came before the end counts
        except TimeoutError:
            posted.append("too late")
        return posted


def test_as_completed_times_out_while_it_waits(drive: Drive) -> None:
    run = drive(Collects, ["b", "a"])
    run.start()
    run.complete(run.event_id_of("step"), "a")
    run.complete(run.event_id_of("step"), "posted a")
    run.fire(10_000)
    assert run.result == ["posted a", "too late"]


def test_as_completed_does_not_cancel_the_body_when_its_time_is_over(drive: Drive) -> None:
    """The limit is on what is waited for. The body of the loop is the caller's, and hears of it at its next turn."""
    run = drive(Collects, ["b", "a"])
    run.start()
    run.complete(run.event_id_of("step"), "a")
    assert run.fire(10_000) == []
    run.complete(run.event_id_of("step"), "posted a")
    assert run.result == ["posted a", "too late"]


def test_as_completed_in_time_cancels_its_timer(drive: Drive) -> None:
    run = drive(Collects, ["a"])
    run.start()
    run.complete(run.event_id_of("step"), "a")
    run.complete(run.event_id_of("step"), "posted a")
    assert run.result == ["posted a"]
    assert run.machine.context.timers == {}


# Signals and waits ----------------------------------------------------------------------------------------------------


def test_a_signal_that_comes_with_the_result_is_seen_in_the_order_of_the_record(drive: Drive) -> None:
    @workflow.defn
    class Races:
        stopped = False

        @workflow.run
        async def run(self) -> str:
            handle = workflow.start_activity(step, "a")
            await workflow.wait_condition(lambda: self.stopped or handle.done())
            return "stopped" if self.stopped else "done"

        @workflow.signal
        def stop(self) -> None:
            self.stopped = True

    stopped = drive(Races)
    stopped.start()
    stopped.feed(signal("stop"), completed(2, "A"))
    assert stopped.result == "stopped"
    done = drive(Races)
    done.start()
    done.feed(completed(2, "A"), signal("stop"))
    assert done.result == "done"


def test_a_collector_takes_no_condition_of_another_run_away(drive: Drive) -> None:
    """Whoever closes a coroutine that was left behind, and whenever: it lets go of its own run's condition only."""

    @workflow.defn
    class Waits:
        def __init__(self) -> None:
            self.done = False

        @workflow.run
        async def run(self) -> str:
            await workflow.wait_condition(lambda: self.done)
            return "met"

        @workflow.signal
        def collect(self) -> None:
            left_behind.close()

        @workflow.signal
        def finish(self) -> None:
            self.done = True

    dead, live = drive(Waits), drive(Waits)
    dead.replay_at_end = live.replay_at_end = False
    dead.start()
    [task] = dead.machine.context.loop.live_tasks()
    left_behind = task.get_coro()
    assert left_behind is not None
    live.start()
    live.signal("collect")
    live.signal("finish")
    assert live.result == "met"
