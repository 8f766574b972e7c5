"""The standard library's asyncio in workflow code: each piece live, with the commands it gives, and (see `conftest.py`)
replayed."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from pledger import activity, workflow
from pledger.errors import ActivityError, ApplicationError, ForbiddenCallError
from pledger.history import events
from tests.unit.machine.harness import START_MS, DrivenRun, completed, failed, kinds, scheduled, signal, timers

Drive = Callable[..., DrivenRun]


@activity.defn
async def step(name: str) -> str:
    return name


# sleep ----------------------------------------------------------------------------------------------------------------


@workflow.defn
async def sleeps(seconds: float) -> float:
    await asyncio.sleep(seconds)
    return workflow.time()


def test_a_sleep_is_a_timer_and_time_stands_still_until_it_fires(drive: Drive) -> None:
    run = drive(sleeps, 30)
    assert run.start() == [events.StartTimer(30_000, START_MS + 30_000)]
    assert run.fire(29_999) == []
    run.fire(1)
    assert run.result == (START_MS + 30_000) / 1000


@pytest.mark.parametrize("seconds", [0, -1])
def test_a_sleep_of_nothing_starts_no_timer(drive: Drive, seconds: float) -> None:
    run = drive(sleeps, seconds)
    assert kinds(run.start()) == ["CompleteRun"]


@pytest.mark.parametrize(
    ("seconds", "delay_ms"), [(0.0001, 1), (0.0015, 2), (0.1, 100), (86_400 * 365.0, 31_536_000_000)]
)
def test_a_sleep_is_rounded_up_to_milliseconds(drive: Drive, seconds: float, delay_ms: int) -> None:
    assert timers(drive(sleeps, seconds).start()) == [delay_ms]


@pytest.mark.parametrize("offset_ms", range(0, 1000, 37))
def test_a_timeout_is_as_long_as_it_says_at_every_time_of_day(drive: Drive, offset_ms: int) -> None:
    """A deadline is a float of seconds since 1970, which is not exact to the millisecond; the timer must be."""

    @workflow.defn
    async def waits() -> None:
        async with asyncio.timeout(30):
            await asyncio.Event().wait()

    assert timers(drive(waits, now_ms=START_MS + offset_ms).start()) == [30_000]


def test_an_endless_sleep_is_refused(drive: Drive) -> None:
    @workflow.defn
    async def sleeps_for_ever() -> None:
        await asyncio.sleep(float("inf"))

    run = drive(sleeps_for_ever)
    with pytest.raises(ValueError, match="a timer needs a finite delay, not inf; wait on an event instead"):
        run.start()


# gather, wait, wait_for, timeout, TaskGroup ---------------------------------------------------------------------------


def test_gather_gives_results_in_order_whatever_order_they_came_in(drive: Drive) -> None:
    @workflow.defn
    async def gathers() -> list[str]:
        return await asyncio.gather(*(step(name) for name in "abc"))

    run = drive(gathers)
    assert scheduled(run.start()) == [("step", "a"), ("step", "b"), ("step", "c")]
    run.complete(4, "C")
    run.feed(completed(2, "A"), completed(3, "B"))
    assert run.result == ["A", "B", "C"]


def test_gather_can_keep_exceptions_as_results(drive: Drive) -> None:
    @workflow.defn
    async def gathers() -> list[str]:
        results = await asyncio.gather(step("a"), step("b"), return_exceptions=True)
        return [type(result).__name__ for result in results]

    run = drive(gathers)
    run.start()
    run.fail(2, ApplicationError("no"))
    run.complete(3, "B")
    assert run.result == ["ActivityError", "str"]


def test_wait_returns_what_is_done_after_the_first(drive: Drive) -> None:
    @workflow.defn
    async def waits() -> list[int]:
        tasks = [asyncio.create_task(step(name)) for name in "abc"]
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return [len(done), len(pending)]

    run = drive(waits)
    run.start()
    run.complete(3, "B")
    assert run.result == [1, 2]


def test_wait_with_a_timeout_leaves_the_rest_pending(drive: Drive) -> None:
    @workflow.defn
    async def waits() -> list[int]:
        done, pending = await asyncio.wait([asyncio.create_task(step(name)) for name in "ab"], timeout=5)
        return [len(done), len(pending)]

    run = drive(waits)
    assert kinds(run.start()) == ["ScheduleActivity", "ScheduleActivity", "StartTimer"]
    run.complete(run.event_id_of("step"), "B")
    run.fire(5_000)
    assert run.result == [1, 1]


def test_wait_that_is_over_cancels_its_timer(drive: Drive) -> None:
    @workflow.defn
    async def waits() -> str:
        await asyncio.wait([asyncio.create_task(step("a"))], timeout=5)
        return await step("next")

    run = drive(waits)
    run.start()
    assert kinds(run.complete(run.event_id_of("step"), "A")) == ["CancelTimer", "ScheduleActivity"]
    run.complete(run.event_id_of("step"), "B")
    assert run.result == "B"


def test_wait_for_in_time_cancels_its_timer(drive: Drive) -> None:
    @workflow.defn
    async def waits() -> str:
        first = await asyncio.wait_for(step("a"), timeout=60)
        return first + await step("b")

    run = drive(waits)
    assert sorted(kinds(run.start())) == ["ScheduleActivity", "StartTimer"]
    assert sorted(kinds(run.complete(run.event_id_of("step"), "A"))) == ["CancelTimer", "ScheduleActivity"]
    run.complete(run.event_id_of("step"), "B")
    assert run.result == "AB"


def test_wait_for_too_long_cancels_what_it_waited_for(drive: Drive) -> None:
    @workflow.defn
    async def waits() -> str:
        try:
            return await asyncio.wait_for(step("a"), timeout=60)
        except TimeoutError:
            return await step("instead")

    run = drive(waits)
    run.start()
    cancelled = run.event_id_of("step")
    commands = run.fire(60_000)
    assert events.CancelActivity(cancelled) in commands
    assert scheduled(commands) == [("step", "instead")]
    run.complete(run.event_id_of("step"), "B")
    assert run.result == "B"


def test_timeout_turns_its_own_cancellation_into_a_time_out(drive: Drive) -> None:
    @workflow.defn
    async def waits() -> str:
        try:
            async with asyncio.timeout(10):
                await step("a")
                await step("b")
        except TimeoutError:
            return "too late"
        return "in time"

    run = drive(waits)
    run.start()
    run.now_ms += 9_000
    run.complete(run.event_id_of("step"), "A")
    run.fire(1_000)
    assert run.result == "too late"


def test_timeouts_nest(drive: Drive) -> None:
    @workflow.defn
    async def waits() -> list[str]:
        told = []
        try:
            async with asyncio.timeout(10):
                try:
                    async with asyncio.timeout(1):
                        await asyncio.Event().wait()
                except TimeoutError:
                    told.append("inner")
                await asyncio.Event().wait()
        except TimeoutError:
            told.append("outer")
        return told

    run = drive(waits)
    assert timers(run.start()) == [10_000, 1_000]
    run.fire(1_000)
    run.fire(9_000)
    assert run.result == ["inner", "outer"]


def test_a_task_group_waits_for_all_of_its_tasks(drive: Drive) -> None:
    @workflow.defn
    async def groups() -> list[str]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(step(name)) for name in "ab"]
        return [task.result() for task in tasks]

    run = drive(groups)
    run.start()
    run.feed(completed(3, "B"), completed(2, "A"))
    assert run.result == ["A", "B"]


def test_a_task_group_cancels_the_others_when_one_fails(drive: Drive) -> None:
    @workflow.defn
    async def groups() -> list[str]:
        try:
            async with asyncio.TaskGroup() as group:
                for name in "abc":
                    group.create_task(step(name))
        except* ActivityError as failures:
            told = [str(each.__cause__) for each in failures.exceptions]
        return told

    run = drive(groups)
    run.start()
    run.fail(3, ApplicationError("declined"))
    assert run.result == ["declined"]


def test_tasks_keep_their_context_variables(drive: Drive) -> None:
    tenant = contextvars.ContextVar("tenant", default="nobody")

    async def reads() -> str:
        await asyncio.sleep(1)
        return tenant.get()

    @workflow.defn
    async def inherits() -> list[str]:
        first = asyncio.create_task(reads())
        tenant.set("acme")
        return [await first, await asyncio.create_task(reads())]

    run = drive(inherits)
    run.start()
    run.fire(1_000)
    run.fire(1_000)
    assert run.result == ["nobody", "acme"]


def test_a_run_does_not_see_the_context_of_whoever_activates_it(drive: Drive) -> None:
    outside = contextvars.ContextVar("outside", default="unset")

    @workflow.defn
    async def reads() -> str:
        return outside.get()

    run = drive(reads)
    token = outside.set("set")
    try:
        run.start()
    finally:
        outside.reset(token)
    assert run.result == "unset"


_visitor = contextvars.ContextVar("visitor", default="nobody")


@workflow.defn
class Careless:
    """Sets a context variable wherever workflow code runs outside of a task, and notes what it found there."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self.enough = False
        self.visit("init")

    def visit(self, name: str) -> str:
        before = _visitor.get()
        _visitor.set(name)
        return before

    @workflow.run
    async def run(self) -> list[str]:
        try:
            await workflow.wait_condition(lambda: bool(self.visit("condition")) and self.enough)
        finally:
            self.visit("clean-up")
        return self.found

    @workflow.signal
    def note(self, enough: bool) -> None:
        self.found.append(self.visit("handler"))
        self.enough = enough

    @workflow.query
    def look(self) -> str:
        return self.visit("query")


def test_context_variables_set_outside_of_tasks_are_seen_by_nobody_else(drive: Drive) -> None:
    run = drive(Careless)
    run.start()
    assert run.machine.query("look", b"[]") == b'"nobody"'
    run.signal("note", False)
    run.reload()  # an eviction, with clean-up code; what comes after it is the same as without
    assert run.machine.query("look", b"[]") == b'"nobody"'
    run.signal("note", True)
    assert run.result == ["nobody", "nobody"]
    assert _visitor.get() == "nobody"  # not even whoever activated it


# Queue, Event, Lock, Condition, Semaphore -----------------------------------------------------------------------------


@workflow.defn
class Inbox:
    def __init__(self) -> None:
        self.queue: asyncio.Queue[str] = asyncio.Queue()
        self.opened = asyncio.Event()

    @workflow.run
    async def run(self, count: int) -> list[str]:
        await self.opened.wait()
        return [await self.queue.get() for _ in range(count)]

    @workflow.signal
    def put(self, item: str) -> None:
        self.queue.put_nowait(item)

    @workflow.signal
    def open(self) -> None:
        self.opened.set()


def test_a_queue_and_an_event_pass_signals_to_the_run(drive: Drive) -> None:
    run = drive(Inbox, 3)
    run.start(signal("put", "a"))
    run.signal("put", "b")
    assert run.signal("open") == []
    run.signal("put", "c")
    assert run.result == ["a", "b", "c"]


def test_a_bounded_queue_holds_its_producers_back(drive: Drive) -> None:
    @workflow.defn
    async def pipes() -> list[str]:
        queue: asyncio.Queue[str] = asyncio.Queue(maxsize=1)

        async def produce() -> None:
            for name in "abc":
                await queue.put(await step(name))

        producer = asyncio.create_task(produce())
        taken = [await queue.get() for _ in range(3)]
        await producer
        return taken

    run = drive(pipes)
    run.start()
    for name in "ABC":
        run.complete(run.event_id_of("step"), name)
    assert run.result == ["A", "B", "C"]


def test_a_lock_lets_one_in_at_a_time_in_order(drive: Drive) -> None:
    @workflow.defn
    async def locks() -> list[str]:
        lock = asyncio.Lock()
        done = []

        async def work(name: str) -> None:
            async with lock:
                done.append(await step(name))

        await asyncio.gather(*(work(name) for name in "abc"))
        return done

    run = drive(locks)
    assert scheduled(run.start()) == [("step", "a")]
    assert scheduled(run.complete(2, "A")) == [("step", "b")]
    assert scheduled(run.complete(4, "B")) == [("step", "c")]
    run.complete(6, "C")
    assert run.result == ["A", "B", "C"]


def test_a_semaphore_bounds_how_many_steps_run(drive: Drive) -> None:
    @workflow.defn
    async def limits() -> int:
        semaphore = asyncio.Semaphore(2)

        async def work(number: int) -> None:
            async with semaphore:
                await step(str(number))

        await asyncio.gather(*(work(number) for number in range(4)))
        return 4

    run = drive(limits)
    assert scheduled(run.start()) == [("step", "0"), ("step", "1")]
    assert scheduled(run.complete(3, "1")) == [("step", "2")]
    assert scheduled(run.complete(2, "0")) == [("step", "3")]
    run.feed(completed(5, "2"), completed(7, "3"))
    assert run.result == 4


def test_a_condition_variable_wakes_its_waiters(drive: Drive) -> None:
    @workflow.defn
    async def notifies() -> list[int]:
        condition = asyncio.Condition()
        woken = []

        async def wait(number: int) -> None:
            async with condition:
                await condition.wait()
                woken.append(number)

        tasks = [asyncio.create_task(wait(number)) for number in range(2)]
        await asyncio.sleep(1)
        async with condition:
            condition.notify_all()
        await asyncio.gather(*tasks)
        return woken

    run = drive(notifies)
    run.start()
    run.fire(1_000)
    assert run.result == [0, 1]


# Futures, shields, generators -----------------------------------------------------------------------------------------


def test_a_shielded_step_outlives_the_wait_for_it(drive: Drive) -> None:
    @workflow.defn
    async def shields() -> str:
        handle = workflow.start_activity(step, "a")
        try:
            await asyncio.wait_for(asyncio.shield(handle), timeout=1)
        except TimeoutError:
            return "late: " + await handle
        return "never"

    run = drive(shields)
    run.start()
    handle = run.event_id_of("step")
    assert run.fire(1_000) == []
    run.complete(handle, "A")
    assert run.result == "late: A"


def test_async_generators_and_comprehensions_are_durable(drive: Drive) -> None:
    async def steps() -> AsyncIterator[str]:
        for name in "ab":
            yield await step(name)

    @workflow.defn
    async def iterates() -> list[str]:
        return [result async for result in steps()]

    run = drive(iterates)
    run.start()
    run.complete(2, "A")
    run.complete(run.event_id_of("step"), "B")
    assert run.result == ["A", "B"]


def test_a_future_made_by_hand_is_one_of_the_run(drive: Drive) -> None:
    @workflow.defn
    async def makes() -> str:
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(2, future.set_result, "set")
        return await future

    run = drive(makes)
    assert timers(run.start()) == [2_000]
    run.fire(2_000)
    assert run.result == "set"


def test_a_cancelled_timer_does_not_call_even_when_it_was_due_at_once(drive: Drive) -> None:
    @workflow.defn
    async def cancels() -> list[str]:
        called: list[str] = []
        loop = asyncio.get_running_loop()
        loop.call_later(0, called.append, "at once")
        loop.call_later(0, called.append, "never").cancel()
        loop.call_soon(called.append, "never").cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return called

    run = drive(cancels)
    run.start()
    assert run.result == ["at once"]


def test_a_timer_cancelled_before_it_was_recorded_never_was(drive: Drive) -> None:
    @workflow.defn
    async def cancels() -> str:
        asyncio.get_running_loop().call_later(5, print).cancel()
        return await step("a")

    run = drive(cancels)
    assert kinds(run.start()) == ["ScheduleActivity"]
    run.complete(2, "A")
    assert run.result == "A"


# What a loop would have and this one has not --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda loop: loop.run_in_executor(None, print), "loop.run_in_executor"),
        (lambda loop: loop.call_soon_threadsafe(print), "loop.call_soon_threadsafe"),
        (lambda loop: loop.run_forever(), "loop.run_forever"),
        (lambda loop: loop.run_until_complete(None), "loop.run_until_complete"),
        (lambda loop: loop.add_reader(0, print), "loop.add_reader"),
        (lambda loop: loop.add_writer(0, print), "loop.add_writer"),
        (lambda loop: loop.add_signal_handler(2, print), "loop.add_signal_handler"),
        (lambda loop: loop.getaddrinfo("localhost", 80), "loop.getaddrinfo"),
        (lambda loop: loop.create_connection(object), "loop.create_connection"),
        (lambda loop: loop.create_server(object), "loop.create_server"),
        (lambda loop: loop.subprocess_exec(object, "ls"), "loop.subprocess_exec"),
        (lambda loop: loop.subprocess_shell(object, "ls"), "loop.subprocess_shell"),
    ],
)
def test_threads_and_io_are_refused_with_the_way_out(drive: Drive, call: Callable[[Any], object], name: str) -> None:
    @workflow.defn
    async def reaches_out() -> None:
        call(asyncio.get_running_loop())

    with pytest.raises(ForbiddenCallError) as caught:
        drive(reaches_out).start()
    assert caught.value.call == name
    assert str(caught.value) == (
        f"{name} was called in workflow code, which has no threads and no I/O: do it in an activity"
    )


def test_the_loop_is_no_other_than_it_says(drive: Drive) -> None:
    """Debug mode would record stacks and time callbacks, whatever the environment of the process says."""

    @workflow.defn
    async def looks() -> list[bool]:
        loop = asyncio.get_running_loop()
        return [loop.get_debug(), loop.is_running(), loop.is_closed(), loop.get_task_factory() is None]

    run = drive(looks)
    run.start()
    assert run.result == [False, True, False, True]


def test_workflow_code_leaves_the_running_loop_as_it_was(drive: Drive) -> None:
    @workflow.defn
    async def nothing() -> None: ...

    async def outside() -> bool:
        loop = asyncio.get_running_loop()
        told: list[bool] = []

        def activate() -> None:
            drive(nothing).start()
            told.append(asyncio.get_running_loop() is loop)

        loop.call_soon(activate)
        await asyncio.sleep(0)
        return told == [True]

    assert asyncio.run(outside())


def test_an_exception_of_a_callback_is_a_bug_of_the_workflow(drive: Drive) -> None:
    @workflow.defn
    async def calls_back() -> None:
        asyncio.get_running_loop().call_soon(int, "not a number")
        await asyncio.sleep(1)

    run = drive(calls_back)
    run.replay_at_end = False
    with pytest.raises(ValueError, match="not a number"):
        run.start()


def test_a_failed_task_that_nobody_awaits_is_not_the_end_of_the_run(drive: Drive) -> None:
    @workflow.defn
    async def forgets() -> str:
        async def fails() -> None:
            raise ApplicationError("unheard")

        task = asyncio.create_task(fails())
        await asyncio.sleep(1)
        del task
        return "went on"

    run = drive(forgets)
    run.start()
    run.fire(1_000)
    assert run.result == "went on"


def test_a_step_that_failed_in_one_branch_is_told_there(drive: Drive) -> None:
    @workflow.defn
    async def branches() -> list[str]:
        async def branch(name: str) -> str:
            try:
                return await step(name)
            except ActivityError as error:
                return f"{name}: {error.__cause__}"

        return await asyncio.gather(branch("a"), branch("b"))

    run = drive(branches)
    run.start()
    run.feed(failed(2, ApplicationError("declined")), completed(3, "B"))
    assert run.result == ["a: declined", "B"]
