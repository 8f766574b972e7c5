"""Activities from end to end: attempts, delays, failures across the ledger, what an attempt knows, values."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import signal
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pledger import RetryPolicy, activity, workflow
from pledger.errors import (
    ActivityError,
    ApplicationError,
    ApplicationErrorCategory,
    PayloadError,
    PayloadTooLargeError,
    UsageError,
    WorkflowFailedError,
)
from tests.engine.harness import Ledger, until
from tests.engine.steps import AT_ONCE, ONCE, attempts_of, failure_of, pending_of, raising, result_of

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


async def test_a_failure_that_is_expected_is_retried_and_no_news(
    ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    fulfil, flaky, made = raising(
        lambda n: "ok" if n == 3 else ApplicationError("not yet", category=ApplicationErrorCategory.BENIGN),
        retry_policy=RetryPolicy(initial_interval=timedelta(0)),
    )
    with caplog.at_level(logging.DEBUG, "pledger"):
        assert await result_of(ledger, fulfil, flaky) == "ok"
    assert made == [1, 2, 3]
    told = [record for record in caplog.records if "not yet" in record.getMessage()]
    assert [record.levelno for record in told] == [logging.DEBUG] * 2


async def test_a_retry_waits_in_the_store_with_what_it_knows(ledger: Ledger) -> None:
    slow = RetryPolicy(initial_interval=timedelta(hours=1), jitter=0.0)
    fulfil, flaky, _ = raising(lambda _: ApplicationError("later", type="Busy"), retry_policy=slow)
    async with ledger.connect() as client, ledger.worker(client, fulfil, flaky):
        handle = await client.start_workflow(fulfil, id="order-1")
        (pending,) = await until(lambda: pending_of(handle))
        assert (pending.state, pending.attempt, pending.activity_type) == ("queued", 2, "flaky")
        assert pending.due_ms - pending.scheduled_ms >= 3_600_000
        assert b"Busy" in (pending.last_failure or b"")
        await handle.terminate()


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


async def test_an_order_without_a_reference_of_its_own_has_the_key_of_its_position(ledger: Ledger) -> None:
    """And not the key "None", which it would share with all others that have none."""
    keys: list[str] = []

    @activity.defn(idempotency_key=lambda reference: reference)
    async def charge(reference: str | None) -> None:
        keys.append(activity.info().idempotency_key)

    @workflow.defn
    async def fulfil() -> None:
        for reference in ("ref-7", None, None):
            await charge(reference)

    await result_of(ledger, fulfil, charge)
    assert keys[0] == "ref-7"
    assert len({*keys}) == 3
    assert "None" not in keys


async def test_a_key_that_is_no_text_is_refused(ledger: Ledger) -> None:
    @activity.defn(idempotency_key=lambda order: order)
    async def charge(order: int) -> None: ...

    @workflow.defn
    async def fulfil() -> str:
        try:
            await charge(7)
        except UsageError as error:
            return str(error)
        return ""

    said = await result_of(ledger, fulfil, charge)
    assert said == "the idempotency key of activity 'charge' is 7, of type int; it must be a str"


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
