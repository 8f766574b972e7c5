"""Activities from end to end: attempts, delays, time-outs, heartbeats, failures across the ledger, cancellation."""

from __future__ import annotations

import asyncio
import contextvars
import os
import signal
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pledger import RetryPolicy, activity, workflow
from pledger.errors import (
    ActivityError,
    ApplicationError,
    CancelledError,
    PayloadError,
    PayloadTooLargeError,
    UsageError,
    WorkflowFailedError,
)
from pledger.errors import TimeoutError as PledgerTimeoutError
from tests.engine.harness import PATIENCE_S, Ledger, until, worker_process

AT_ONCE = RetryPolicy(initial_interval=timedelta(milliseconds=1), maximum_attempts=3)
ONCE = RetryPolicy(maximum_attempts=1)


async def result_of(ledger: Ledger, code: Any, *activities: Any, **options: Any) -> Any:
    async with ledger.connect() as client, ledger.worker(client, code, *activities, **options):
        return await (await client.start_workflow(code, id="order-1")).result()


async def failure_of(ledger: Ledger, code: Any, *activities: Any, **options: Any) -> ActivityError:
    """The ActivityError that failed the run."""
    with pytest.raises(WorkflowFailedError) as caught:
        await result_of(ledger, code, *activities, **options)
    assert isinstance(caught.value.__cause__, ActivityError)
    return caught.value.__cause__


async def attempts_of(ledger: Ledger) -> list[tuple[int, str]]:
    """(attempt, outcome) of the attempt log."""
    async with ledger.connect() as client:
        found = (await client.handle("order-1").describe()).attempts
    return [(each.attempt, each.outcome) for each in found]


def raising(make: Callable[[int], BaseException | str], **options: Any) -> tuple[Any, Any, list[int]]:
    """(workflow, activity, attempts made): the activity raises or returns what `make` makes of its attempt number."""
    made: list[int] = []

    @activity.defn(**{"retry_policy": AT_ONCE, **options})
    async def flaky() -> str:
        made.append(activity.info().attempt)
        outcome = make(activity.info().attempt)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    @workflow.defn
    async def fulfil() -> str:
        return await flaky()

    return fulfil, flaky, made


# Attempts -------------------------------------------------------------------------------------------------------------


async def test_a_failed_attempt_is_tried_again_until_it_succeeds(ledger: Ledger) -> None:
    fulfil, flaky, made = raising(lambda attempt: "ok" if attempt == 3 else ValueError("not yet"))
    assert await result_of(ledger, fulfil, flaky) == "ok"
    assert made == [1, 2, 3]
    assert await attempts_of(ledger) == [(1, "failed"), (2, "failed")]


async def test_the_result_tells_which_attempt_brought_it(ledger: Ledger) -> None:
    fulfil, flaky, _ = raising(lambda attempt: "ok" if attempt == 2 else ValueError("not yet"))
    await result_of(ledger, fulfil, flaky)
    async with ledger.connect() as client:
        recorded = (await client.handle("order-1").history()).events
    # Attempts are no history: however many there were, the activity is two events.
    assert [each.type for each in recorded] == ["RunStarted", "ActivityScheduled", "ActivityCompleted", "RunCompleted"]
    assert recorded[2].attributes["attempt"] == 2


async def test_RTY_01_there_is_no_attempt_after_the_last(ledger: Ledger) -> None:
    fulfil, flaky, made = raising(lambda attempt: ApplicationError("no", attempt, type="Quota"))
    error = await failure_of(ledger, fulfil, flaky)
    assert made == [1, 2, 3]
    assert (error.attempt, error.retry_state) == (3, "maximum_attempts")
    assert isinstance(error.__cause__, ApplicationError)
    assert error.__cause__.details == (3,)


async def test_RTY_02_a_base_of_zero_retries_at_once(ledger: Ledger) -> None:
    policy = RetryPolicy(initial_interval=timedelta(0), backoff_coefficient=2.0, maximum_attempts=4)
    fulfil, flaky, made = raising(lambda attempt: ApplicationError("always", attempt), retry_policy=policy)
    error = await failure_of(ledger, fulfil, flaky)
    assert made == [1, 2, 3, 4]
    assert isinstance(error.__cause__, ApplicationError)
    assert error.__cause__.details == (4,)


@pytest.mark.parametrize(
    ("error", "options"),
    [
        (ApplicationError("declined", type="CardDeclined", non_retryable=True), {}),
        (
            ApplicationError("declined", type="CardDeclined"),
            {"retry_policy": RetryPolicy(non_retryable_error_types=["CardDeclined"])},
        ),
    ],
    ids=["by the error", "by the policy"],
)
async def test_what_is_not_retryable_is_not_retried(
    ledger: Ledger, error: ApplicationError, options: dict[str, Any]
) -> None:
    fulfil, flaky, made = raising(lambda _: error, **options)
    failure = await failure_of(ledger, fulfil, flaky)
    assert made == [1]
    assert failure.retry_state == "non_retryable"


async def test_an_error_may_ask_for_its_own_next_delay(ledger: Ledger) -> None:
    """The policy would wait for an hour."""
    slow = RetryPolicy(initial_interval=timedelta(hours=1), jitter=0.0)
    fulfil, flaky, made = raising(
        lambda n: "ok" if n == 2 else ApplicationError("soon", next_retry_delay=timedelta(milliseconds=1)),
        retry_policy=slow,
    )
    assert await result_of(ledger, fulfil, flaky) == "ok"
    assert made == [1, 2]


async def test_a_retry_waits_in_the_store_with_what_it_knows(ledger: Ledger) -> None:
    slow = RetryPolicy(initial_interval=timedelta(hours=1), jitter=0.0)
    fulfil, flaky, _ = raising(lambda _: ApplicationError("later", type="Busy"), retry_policy=slow)
    async with ledger.connect() as client, ledger.worker(client, fulfil, flaky):
        handle = await client.start_workflow(fulfil, id="order-1")
        (pending,) = await until(lambda: _pending(handle))
        assert (pending.state, pending.attempt, pending.activity_type) == ("queued", 2, "flaky")
        assert pending.due_ms - pending.scheduled_ms >= 3_600_000
        assert b"Busy" in (pending.last_failure or b"")
        await handle.terminate()


async def _pending(handle: Any) -> Any:
    return (await handle.describe()).pending


# Failures across the ledger -------------------------------------------------------------------------------------------


async def test_a_failure_keeps_type_details_cause_and_traceback(ledger: Ledger) -> None:
    @activity.defn(retry_policy=ONCE)
    async def charge() -> None:
        try:
            {}["card"]
        except KeyError as error:
            raise ApplicationError("declined", {"code": 51}, type="CardDeclined") from error

    @workflow.defn
    async def fulfil() -> list[Any]:
        try:
            await charge()
        except ActivityError as error:
            cause = error.__cause__
            assert isinstance(cause, ApplicationError)
            assert "in charge" in cause.remote_traceback
            return [error.activity_type, error.attempt, cause.type, cause.message, *cause.details, str(cause.__cause__)]
        return []

    told = await result_of(ledger, fulfil, charge)
    assert told == ["charge", 1, "CardDeclined", "declined", {"code": 51}, "KeyError: 'card'"]


async def test_the_client_sees_the_whole_chain(ledger: Ledger) -> None:
    fulfil, flaky, _ = raising(lambda _: ValueError("boom"), retry_policy=ONCE)
    with pytest.raises(WorkflowFailedError) as caught:
        await result_of(ledger, fulfil, flaky)
    error = caught.value
    assert (error.workflow_id, error.status) == ("order-1", "failed")
    assert "workflow 'order-1'" in str(error)
    assert "ValueError: boom" in str(error)
    assert isinstance(error.__cause__, ActivityError)
    assert isinstance(error.__cause__.__cause__, ApplicationError)
    assert error.__cause__.__cause__.type == "ValueError"
    assert "raise outcome" in error.__cause__.__cause__.remote_traceback


@pytest.mark.parametrize("executor", ["async", "thread"])
async def test_an_activity_that_exits_does_not_take_the_worker_along(ledger: Ledger, executor: str) -> None:
    @activity.defn(retry_policy=ONCE)
    async def exits() -> None:
        sys.exit("out")

    @activity.defn(retry_policy=ONCE)
    def exits_in_a_thread() -> None:
        sys.exit("out")

    chosen = exits if executor == "async" else exits_in_a_thread

    @workflow.defn
    async def fulfil() -> None:
        await chosen()

    failure = await failure_of(ledger, fulfil, chosen)
    assert isinstance(failure.__cause__, ApplicationError)
    assert failure.__cause__.type == "SystemExit"


# Time-outs ------------------------------------------------------------------------------------------------------------


async def hang() -> None:
    await asyncio.Event().wait()


def timed_out(error: ActivityError) -> PledgerTimeoutError:
    assert isinstance(error.__cause__, PledgerTimeoutError)
    return error.__cause__


async def test_start_to_close_bounds_one_attempt(ledger: Ledger) -> None:
    made: list[int] = []

    @activity.defn(
        start_to_close_timeout=timedelta(milliseconds=20),
        retry_policy=RetryPolicy(initial_interval=timedelta(0), maximum_attempts=2),
    )
    async def slow() -> None:
        made.append(activity.info().attempt)
        await hang()

    @workflow.defn
    async def fulfil() -> None:
        await slow()

    error = await failure_of(ledger, fulfil, slow)
    assert made == [1, 2]
    assert (timed_out(error).kind, error.retry_state) == ("start_to_close", "maximum_attempts")
    assert await attempts_of(ledger) == [(1, "timed_out"), (2, "timed_out")]


async def test_RTY_05_schedule_to_close_bounds_all_attempts_and_keeps_the_last_real_error(ledger: Ledger) -> None:
    @activity.defn(
        schedule_to_close_timeout=timedelta(milliseconds=100),
        retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=1), maximum_attempts=0),
    )
    async def fails_then_hangs() -> None:
        if activity.info().attempt > 2:
            await hang()
        raise ApplicationError("quota", {"left": activity.info().attempt}, type="Quota")

    @workflow.defn
    async def fulfil() -> None:
        await fails_then_hangs()

    error = await failure_of(ledger, fulfil, fails_then_hangs)
    assert (timed_out(error).kind, error.retry_state) == ("schedule_to_close", "timeout")
    assert isinstance(timed_out(error).__cause__, ApplicationError)
    assert timed_out(error).__cause__.details == ({"left": 2},)  # type: ignore[union-attr]


async def test_RTY_05_a_next_attempt_that_would_miss_the_deadline_is_not_waited_for(ledger: Ledger) -> None:
    """An hour's delay before a deadline in a minute: told at once, in the same shape."""
    slow = RetryPolicy(initial_interval=timedelta(hours=1), jitter=0.0)
    fulfil, flaky, made = raising(
        lambda n: ApplicationError("quota", {"left": n}, type="Quota"),
        schedule_to_close_timeout=timedelta(minutes=1),
        retry_policy=slow,
    )
    error = await failure_of(ledger, fulfil, flaky)
    assert made == [1]
    assert (timed_out(error).kind, error.retry_state) == ("schedule_to_close", "timeout")
    assert isinstance(timed_out(error).__cause__, ApplicationError)
    assert timed_out(error).__cause__.details == ({"left": 1},)  # type: ignore[union-attr]


async def test_schedule_to_start_bounds_the_wait_for_a_worker(ledger: Ledger) -> None:
    @activity.defn(task_queue="nobody", schedule_to_start_timeout=timedelta(milliseconds=20))
    async def elsewhere() -> None: ...

    @workflow.defn
    async def fulfil() -> None:
        await elsewhere()

    error = await failure_of(ledger, fulfil)
    assert (timed_out(error).kind, error.retry_state) == ("schedule_to_start", "timeout")


async def test_schedule_to_close_bounds_the_wait_for_a_worker_too(ledger: Ledger) -> None:
    @activity.defn(task_queue="nobody", schedule_to_close_timeout=timedelta(milliseconds=20))
    async def elsewhere() -> None: ...

    @workflow.defn
    async def fulfil() -> None:
        await elsewhere()

    assert timed_out(await failure_of(ledger, fulfil)).kind == "schedule_to_close"


async def test_a_silent_attempt_is_ended_by_its_heartbeat_timeout(ledger: Ledger) -> None:
    @activity.defn(heartbeat_timeout=timedelta(milliseconds=40), retry_policy=ONCE)
    async def falls_silent() -> None:
        activity.heartbeat({"page": 1})
        activity.heartbeat({"page": 2})
        await hang()

    @workflow.defn
    async def fulfil() -> None:
        await falls_silent()

    error = timed_out(await failure_of(ledger, fulfil, falls_silent))
    assert (error.kind, error.last_heartbeat_details) == ("heartbeat", {"page": 2})


async def test_an_attempt_that_beats_lives_on(ledger: Ledger) -> None:
    @activity.defn(heartbeat_timeout=timedelta(milliseconds=250), retry_policy=ONCE)
    async def beats() -> str:
        for page in range(20):
            activity.heartbeat(page)
            await asyncio.sleep(0.02)
        return "done"

    @workflow.defn
    async def fulfil() -> str:
        return await beats()

    assert await result_of(ledger, fulfil, beats) == "done"


async def test_an_async_attempt_cleans_up_when_its_time_is_over(ledger: Ledger) -> None:
    told: list[str] = []

    @activity.defn(start_to_close_timeout=timedelta(milliseconds=20), retry_policy=ONCE)
    async def slow() -> None:
        try:
            await hang()
        finally:
            await asyncio.sleep(0)
            told.append("cleaned up")

    @workflow.defn
    async def fulfil() -> None:
        await slow()

    assert timed_out(await failure_of(ledger, fulfil, slow)).kind == "start_to_close"
    assert told == ["cleaned up"]


async def test_an_async_attempt_that_ignores_its_end_is_given_up(ledger: Ledger, monkeypatch: Any) -> None:
    """Every wait has a deadline: code that swallows its cancellation does not hold its run for ever."""
    monkeypatch.setattr("pledger.engine.time_outs.CLEANUP_S", 0.02)
    released = asyncio.Event()

    @activity.defn(start_to_close_timeout=timedelta(milliseconds=20), retry_policy=ONCE)
    async def stubborn() -> None:
        while not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:
                continue

    @workflow.defn
    async def fulfil() -> None:
        await stubborn()

    async with ledger.connect() as client, ledger.worker(client, fulfil, stubborn):
        handle = await client.start_workflow(fulfil, id="order-1")
        with pytest.raises(WorkflowFailedError) as caught:
            await handle.result()
        assert timed_out(caught.value.__cause__).kind == "start_to_close"  # type: ignore[arg-type]
        released.set()


async def test_a_thread_that_comes_back_late_is_in_the_attempt_log(ledger: Ledger) -> None:
    released = threading.Event()

    @activity.defn(start_to_close_timeout=timedelta(milliseconds=20), retry_policy=ONCE)
    def slow() -> str:
        released.wait()
        return "too late"

    @workflow.defn
    async def fulfil() -> None:
        await slow()

    async with ledger.connect() as client, ledger.worker(client, fulfil, slow):
        handle = await client.start_workflow(fulfil, id="order-1")
        with pytest.raises(WorkflowFailedError):
            await handle.result()
        released.set()

        async def logged() -> bool:
            return [each.outcome for each in (await handle.describe()).attempts] == ["timed_out", "late"]

        await until(logged)


# Heartbeats -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("executor", ["async", "thread"])
async def test_the_next_attempt_reads_what_the_last_one_reported(ledger: Ledger, executor: str) -> None:
    seen: list[Any] = []

    def work() -> str:
        seen.append(activity.info().heartbeat_details)
        if activity.info().attempt == 1:
            activity.heartbeat("page", 1)
            activity.heartbeat("page", 2)
            # What is read is the attempt before's, not one's own.
            seen.append(activity.info().heartbeat_details)
            raise ValueError("crash")
        return "done"

    @activity.defn(retry_policy=AT_ONCE)
    async def pages() -> str:
        return work()

    @activity.defn(retry_policy=AT_ONCE)
    def pages_in_a_thread() -> str:
        return work()

    chosen = pages if executor == "async" else pages_in_a_thread

    @workflow.defn
    async def fulfil() -> str:
        return await chosen()

    assert await result_of(ledger, fulfil, chosen) == "done"
    assert seen == [(), (), ("page", 2)]


async def test_an_attempt_that_beats_and_ends_leaves_no_task_behind(ledger: Ledger) -> None:
    """Its heartbeat is on its way to the store when its result comes; nobody may find the row and run it again."""
    made: list[int] = []

    @activity.defn
    async def beats() -> str:
        made.append(activity.info().attempt)
        activity.heartbeat("once")
        return "done"

    @workflow.defn
    class Fulfil:
        go = False

        @workflow.run
        async def run(self) -> str:
            result = await beats()
            await workflow.wait_condition(lambda: self.go)
            return result

        @workflow.signal
        def finish(self) -> None:
            self.go = True

    async with ledger.connect() as client:
        async with ledger.worker(client, Fulfil, beats):
            handle = await client.start_workflow(Fulfil, id="order-1")

            async def done() -> bool:
                return (await handle.describe()).state.activities_done == 1

            await until(done)
        assert (await handle.describe()).pending == []
        async with ledger.worker(client, Fulfil, beats):
            await handle.signal(Fulfil.finish)
            assert await handle.result() == "done"
    assert made == [1]


# Cancellation ---------------------------------------------------------------------------------------------------------


@workflow.defn
class Stops:
    """Waits for a step until it is told to stop, then says what became of it."""

    stop = False

    @workflow.run
    async def run(self, name: str) -> list[str]:
        handle = workflow.start_activity(name, cancellation_type="wait", heartbeat_timeout=timedelta(seconds=30))
        await workflow.wait_condition(lambda: self.stop or handle.done())
        handle.cancel()
        try:
            return ["finished", await handle]
        except asyncio.CancelledError:
            return ["cancelled"]
        except ActivityError as error:
            return ["failed", str(error.__cause__)]

    @workflow.signal
    def halt(self) -> None:
        self.stop = True


async def cancelled(ledger: Ledger, step: Any, began: asyncio.Event | threading.Event) -> list[str]:
    async with ledger.connect() as client, ledger.worker(client, Stops, step):
        handle = await client.start_workflow(Stops, step.name, id="order-1")
        await until(began.is_set)
        await handle.signal(Stops.halt)
        told: list[str] = await handle.result()
        return told


async def test_an_async_activity_is_cancelled_as_a_task(ledger: Ledger) -> None:
    began, cleaned = asyncio.Event(), asyncio.Event()

    @activity.defn
    async def waits() -> None:
        began.set()
        try:
            await hang()
        finally:
            cleaned.set()

    assert await cancelled(ledger, waits, began) == ["cancelled"]
    assert cleaned.is_set()


async def test_an_async_activity_may_finish_all_the_same(ledger: Ledger) -> None:
    began = asyncio.Event()

    @activity.defn
    async def finishes() -> str:
        began.set()
        try:
            await hang()
        except asyncio.CancelledError:
            return "what was done"
        return "never"

    assert await cancelled(ledger, finishes, began) == ["finished", "what was done"]


async def test_an_activity_may_fail_while_it_cleans_up(ledger: Ledger) -> None:
    began = asyncio.Event()

    @activity.defn(retry_policy=ONCE)
    async def fails() -> str:
        began.set()
        try:
            await hang()
        finally:
            raise ApplicationError("could not clean up", type="Dirty")

    assert await cancelled(ledger, fails, began) == ["failed", "Dirty: could not clean up"]


async def test_a_thread_sees_its_flag(ledger: Ledger) -> None:
    began = threading.Event()

    @activity.defn
    def polls() -> None:
        began.set()
        while not activity.is_cancelled():
            pass
        raise CancelledError("seen by the flag")

    assert await cancelled(ledger, polls, began) == ["cancelled"]


async def test_a_thread_gets_its_cancellation_out_of_a_heartbeat(ledger: Ledger) -> None:
    began = threading.Event()

    @activity.defn
    def beats() -> None:
        began.set()
        while True:
            activity.heartbeat()

    assert await cancelled(ledger, beats, began) == ["cancelled"]


async def test_an_activity_is_cancelled_in_the_last_breath_of_its_run(ledger: Ledger) -> None:
    began, stopped = threading.Event(), threading.Event()

    @activity.defn
    async def waits() -> None:
        began.set()
        try:
            await asyncio.sleep(3600)
        finally:
            stopped.set()

    @activity.defn
    async def first() -> None:
        await until(began.is_set)

    @workflow.defn
    async def hasty() -> None:
        handle = workflow.start_activity(waits)
        await first()
        handle.cancel()

    async with ledger.connect() as client, ledger.worker(client, hasty, waits, first):
        await client.execute_workflow(hasty, id="h-1")
        await until(stopped.is_set)


async def test_an_activity_on_another_queue_is_cancelled_through_its_heartbeat(ledger: Ledger) -> None:
    began = asyncio.Event()

    @activity.defn(task_queue="other", heartbeat_timeout=timedelta(milliseconds=200), cancellation_type="wait")
    async def elsewhere() -> None:
        began.set()
        while True:
            activity.heartbeat()
            await asyncio.sleep(0.01)

    @workflow.defn
    class StopsElsewhere:
        stop = False

        @workflow.run
        async def run(self) -> str:
            handle = workflow.start_activity(elsewhere)
            await workflow.wait_condition(lambda: self.stop)
            handle.cancel()
            try:
                await handle
            except asyncio.CancelledError:
                return "cancelled"
            return "never"

        @workflow.signal
        def halt(self) -> None:
            self.stop = True

    async with (
        ledger.connect() as client,
        ledger.connect() as other,
        ledger.worker(client, StopsElsewhere),
        ledger.worker(other, elsewhere, task_queue="other"),
    ):
        handle = await client.start_workflow(StopsElsewhere, id="order-1")
        await began.wait()
        await handle.signal(StopsElsewhere.halt)
        assert await handle.result() == "cancelled"


async def test_a_queued_activity_is_cancelled_before_it_starts(ledger: Ledger) -> None:
    slow = RetryPolicy(initial_interval=timedelta(hours=1), jitter=0.0)
    made: list[int] = []

    @activity.defn(retry_policy=slow)
    async def flaky() -> None:
        made.append(activity.info().attempt)
        raise ValueError("try again in an hour")

    async with ledger.connect() as client, ledger.worker(client, Stops, flaky):
        handle = await client.start_workflow(Stops, "flaky", id="order-1")
        # By name, so with the default policy: what waits now is attempt 2.
        await until(lambda: _pending(handle))
        await handle.signal(Stops.halt)
        assert await handle.result() == ["cancelled"]


async def test_the_activities_of_a_run_that_ends_are_stopped(ledger: Ledger) -> None:
    began, stopped = asyncio.Event(), asyncio.Event()

    @activity.defn
    async def waits() -> None:
        began.set()
        try:
            await hang()
        finally:
            stopped.set()

    @workflow.defn
    async def leaves() -> str:
        workflow.start_activity(waits)
        await workflow.execute_activity(begun)
        return "done"

    @activity.defn
    async def begun() -> None:
        await began.wait()

    assert await result_of(ledger, leaves, waits, begun) == "done"
    assert stopped.is_set()


# What an attempt knows ------------------------------------------------------------------------------------------------


async def test_an_attempt_knows_who_it_works_for(ledger: Ledger) -> None:
    @activity.defn(name="look", start_to_close_timeout=timedelta(seconds=60), retry_policy=AT_ONCE)
    async def look() -> dict[str, Any]:
        info = activity.info()
        if info.attempt == 1:
            raise ValueError("once more")
        assert info.time_left is not None
        assert timedelta(0) < info.time_left <= timedelta(seconds=60)
        return {
            "who": [info.activity_type, info.workflow_type, info.workflow_id, info.namespace, info.task_queue],
            "attempt": info.attempt,
            "fencing_token": info.fencing_token,
            "key": info.idempotency_key,
            "in": activity.in_activity(),
        }

    @workflow.defn
    async def fulfil() -> dict[str, Any]:
        return await look()

    told = await result_of(ledger, fulfil, look)
    assert told["who"] == ["look", "fulfil", "order-1", "default", "default"]
    assert (told["attempt"], told["in"]) == (2, True)
    assert told["fencing_token"] > 1
    assert told["key"].endswith("/2")
    assert not activity.in_activity()
    with pytest.raises(UsageError, match=r"activity\.info works only in an activity"):
        activity.info()


async def test_RTY_08_the_deadline_counts_from_each_attempts_start(ledger: Ledger) -> None:
    seen: list[tuple[datetime, datetime, datetime | None]] = []

    @activity.defn(
        start_to_close_timeout=timedelta(seconds=60),
        schedule_to_close_timeout=timedelta(seconds=90),
        retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=50), jitter=0.0, maximum_attempts=2),
    )
    async def look() -> None:
        info = activity.info()
        assert info.deadline is not None
        assert info.deadline > datetime.now(UTC)
        seen.append((info.started_time, info.deadline, info.schedule_to_close_deadline))
        if info.attempt == 1:
            raise ValueError("once more")

    @workflow.defn
    async def fulfil() -> None:
        await look()

    await result_of(ledger, fulfil, look)
    (first_start, first_deadline, whole), (second_start, second_deadline, same) = seen
    assert second_start - first_start >= timedelta(milliseconds=50)
    assert first_deadline - first_start == second_deadline - second_start == timedelta(seconds=60)
    # The overall deadline is told apart, and stays where it is.
    assert whole == same == first_start + timedelta(seconds=90)


@pytest.mark.parametrize("executor", ["async", "thread"])
async def test_context_variables_of_one_attempt_are_not_seen_by_another(ledger: Ledger, executor: str) -> None:
    tenant = contextvars.ContextVar("tenant", default="nobody")
    tenant.set("the program")

    def enter(name: str) -> str:
        before = tenant.get()
        tenant.set(name)
        return before

    async def enter_async(name: str) -> str:
        return enter(name)

    step = activity.defn(name="step")(enter_async if executor == "async" else enter)

    @workflow.defn
    async def both() -> list[str]:
        return [await step("first"), await step("second")]

    assert await result_of(ledger, both, step) == ["the program", "the program"]


async def test_the_idempotency_key_is_the_same_in_every_attempt_and_apart_for_every_step(ledger: Ledger) -> None:
    keys: list[str] = []

    @activity.defn(retry_policy=AT_ONCE)
    async def charge(order: str) -> None:
        keys.append(activity.info().idempotency_key)
        if activity.info().attempt < 3:
            raise ValueError("again")

    @activity.defn(retry_policy=AT_ONCE, idempotency_key=lambda order: f"ship-{order}")
    async def ship(order: str) -> None:
        keys.append(activity.info().idempotency_key)

    @workflow.defn
    async def fulfil() -> None:
        await charge("A1")
        await charge("A1")
        await ship("A1")

    await result_of(ledger, fulfil, charge, ship)
    first, second = keys[0], keys[3]
    assert keys == [first] * 3 + [second] * 3 + ["ship-A1"]
    assert first != second


# Values ---------------------------------------------------------------------------------------------------------------


async def test_a_result_that_cannot_be_kept_fails_the_activity_at_once(ledger: Ledger) -> None:
    """Trying again would do the effect again and end the same way."""
    made: list[int] = []

    @activity.defn(retry_policy=AT_ONCE)
    async def odd() -> object:
        made.append(activity.info().attempt)
        return object()

    @workflow.defn
    async def fulfil() -> object:
        return await odd()

    error = await failure_of(ledger, fulfil, odd)
    assert made == [1]
    assert error.retry_state == "non_retryable"
    assert isinstance(error.__cause__, ApplicationError)
    assert error.__cause__.type == PayloadError.__name__
    assert "the result of" in error.__cause__.message


async def test_a_result_over_the_limit_fails_the_activity_at_once(ledger: Ledger) -> None:
    @activity.defn
    async def long() -> str:
        return "x" * 5_000

    @workflow.defn
    async def fulfil() -> str:
        return await long()

    error = await failure_of(ledger, fulfil, long, payload_bytes_max=4_000)
    assert isinstance(error.__cause__, ApplicationError)
    assert error.__cause__.type == PayloadTooLargeError.__name__
    assert "the result of activity 'long' in workflow 'order-1'" in error.__cause__.message
    assert "5,002 bytes; the limit is 4,000" in error.__cause__.message


async def test_recorded_arguments_that_the_activity_no_longer_takes_fail_it(ledger: Ledger) -> None:
    @activity.defn
    async def charge(cents: int) -> int:
        return cents

    @workflow.defn
    async def fulfil() -> int:
        return await workflow.execute_activity("charge", "a lot")

    error = await failure_of(ledger, fulfil, charge)
    assert error.retry_state == "non_retryable"
    assert "the argument cents of" in str(error.__cause__)


async def test_keyword_only_arguments_arrive(ledger: Ledger) -> None:
    @activity.defn
    async def charge(order: str, *, currency: str = "EUR") -> str:
        return f"{order} {currency}"

    @activity.defn
    def ship(order: str, *, express: bool = False) -> str:
        return f"{order} {express}"

    @workflow.defn
    async def fulfil() -> list[str]:
        return [await charge("A1", currency="USD"), await ship("A1", express=True)]

    assert await result_of(ledger, fulfil, charge, ship) == ["A1 USD", "A1 True"]


# Where they run -------------------------------------------------------------------------------------------------------


async def test_plain_activities_run_in_threads_and_side_by_side(ledger: Ledger) -> None:
    together = threading.Barrier(4)

    @activity.defn
    def meet() -> str:
        together.wait()
        return threading.current_thread().name

    @workflow.defn
    async def fulfil() -> list[str]:
        return list(await asyncio.gather(*(meet() for _ in range(4))))

    names = await result_of(ledger, fulfil, meet)
    assert len(set(names)) == 4
    assert all(name.startswith("pledger-activity") for name in names)


async def test_no_more_activities_run_at_a_time_than_allowed(ledger: Ledger) -> None:
    running, most = 0, 0

    @activity.defn
    async def work() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.002)
        running -= 1

    @workflow.defn
    async def fulfil() -> int:
        await asyncio.gather(*(work() for _ in range(20)))
        return 20

    assert await result_of(ledger, fulfil, work, max_concurrent_activities=3) == 20
    assert most == 3


async def test_the_time_of_an_attempt_does_not_pass_in_a_line_for_a_thread(ledger: Ledger) -> None:
    """Each takes half of its time and there is one thread: all but the first would be late by waiting."""
    made: list[int] = []

    @activity.defn(start_to_close_timeout=timedelta(milliseconds=200), retry_policy=ONCE)
    def work(number: int) -> int:
        made.append(number)
        threading.Event().wait(0.1)
        return number

    @workflow.defn
    async def fulfil() -> list[int]:
        return list(await asyncio.gather(*(work(number) for number in range(5))))

    assert await result_of(ledger, fulfil, work, max_activity_threads=1) == list(range(5))
    assert sorted(made) == list(range(5))


async def test_an_activity_that_finds_no_thread_here_finds_one_elsewhere(ledger: Ledger) -> None:
    together = threading.Barrier(2)

    @activity.defn
    def meet() -> str:
        together.wait(PATIENCE_S)
        return "met"

    @workflow.defn
    async def fulfil() -> list[str]:
        return list(await asyncio.gather(meet(), meet()))

    with worker_process(ledger, meet, max_activity_threads=1):
        assert await result_of(ledger, fulfil, meet, max_activity_threads=1) == ["met", "met"]


async def test_a_worker_of_another_queue_in_the_same_process_is_told(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not find out by its next look: there is none here."""

    @activity.defn(task_queue="gpu", retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=1)))
    async def render(name: str) -> str:
        if activity.info().attempt == 1:
            raise ConnectionError("once more")
        return name

    @workflow.defn
    async def film() -> str:
        return await render("a frame")

    async with ledger.connect() as client:
        monkeypatch.setattr(type(client.internals.store), "look_every_s", 3_600.0)
        async with (
            ledger.worker(client, film, lease=timedelta(hours=2)),
            ledger.worker(client, render, task_queue="gpu", lease=timedelta(hours=2)),
        ):
            await asyncio.sleep(0.05)  # both have had their first look
            async with asyncio.timeout(30):
                assert await client.execute_workflow(film, id="film-1") == "a frame"


async def test_an_activity_of_another_queue_runs_there(ledger: Ledger) -> None:
    @activity.defn(task_queue="gpu")
    async def where() -> str:
        return activity.info().task_queue

    @workflow.defn
    async def fulfil() -> str:
        return await where()

    async with (
        ledger.connect() as client,
        ledger.worker(client, fulfil),
        ledger.worker(client, where, task_queue="gpu"),
    ):
        assert await (await client.start_workflow(fulfil, id="order-1")).result() == "gpu"


@activity.defn(executor="process")
def in_a_process(number: int) -> list[int]:
    activity.heartbeat(number)
    return [os.getpid(), number * 2]


async def test_a_process_activity_runs_in_a_process_of_its_own(ledger: Ledger) -> None:
    @workflow.defn
    async def fulfil() -> list[int]:
        return await in_a_process(21)

    pid, doubled = await result_of(ledger, fulfil, in_a_process)
    assert (pid != os.getpid(), doubled) == (True, 42)


@activity.defn(executor="process", retry_policy=ONCE)
def waits_for_ever() -> None:
    threading.Event().wait()


@activity.defn
async def at_once() -> None: ...


async def test_a_process_is_stopped_that_was_cancelled_while_it_started(ledger: Ledger) -> None:
    @workflow.defn
    async def fulfil() -> str:
        waiting = workflow.start_activity(waits_for_ever, cancellation_type="wait")
        await at_once()
        waiting.cancel()
        try:
            await waiting
        except asyncio.CancelledError:
            return "cancelled"
        return "went on"

    assert await result_of(ledger, fulfil, waits_for_ever, at_once) == "cancelled"


# What hostile code does -----------------------------------------------------------------------------------------------


class UntellableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


async def test_an_error_without_a_text_is_a_failure_like_any_other(ledger: Ledger) -> None:
    fulfil, flaky, made = raising(lambda _: UntellableError())
    failure = await failure_of(ledger, fulfil, flaky)
    assert (failure.retry_state, made) == ("maximum_attempts", [1, 2, 3])


async def test_a_thread_that_raises_stop_iteration_fails(ledger: Ledger) -> None:
    @activity.defn(retry_policy=ONCE)
    def first_of_none() -> int:
        return next(iter([]))

    @workflow.defn
    async def fulfil() -> int:
        return await first_of_none()

    cause = (await failure_of(ledger, fulfil, first_of_none)).__cause__
    assert isinstance(cause, ApplicationError)
    assert cause.type == "RuntimeError"


async def test_an_activity_that_cannot_be_begun_fails_and_holds_up_nobody(ledger: Ledger) -> None:
    @activity.defn(executor="process")
    def local() -> None: ...

    @activity.defn
    async def other() -> str:
        return "done"

    @workflow.defn
    async def fulfil() -> list[str]:
        failed, done = await asyncio.gather(local(), other(), return_exceptions=True)
        return [type(failed).__name__, str(done)]

    assert await result_of(ledger, fulfil, local, other) == ["ActivityError", "done"]


@activity.defn(executor="process", retry_policy=ONCE)
def heeds_no_interrupt() -> str:
    os.kill(os.getpid(), signal.SIGINT)
    return "finished"


async def test_a_process_is_not_ended_by_the_interrupt_of_its_terminal(ledger: Ledger) -> None:
    @workflow.defn
    async def fulfil() -> str:
        return await heeds_no_interrupt()

    assert await result_of(ledger, fulfil, heeds_no_interrupt) == "finished"
