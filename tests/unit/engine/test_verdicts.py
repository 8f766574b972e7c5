"""What becomes of an activity after an attempt that brought no result."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from pledger import RetryPolicy
from pledger.engine.verdicts import GiveUp, Retry, after_failure, timed_out, worker_lost
from pledger.errors import ApplicationError, TimeoutError, WorkerLostError  # noqa: A004 - the field's name for it
from pledger.history import events, failures
from pledger.history.failures import Failure

SCHEDULED_MS = 1_000_000


def judge(
    failure: Failure,
    *,
    attempt: int = 1,
    after_ms: int = 0,
    last: Failure | None = None,
    draw: float = 0.0,
    schedule_to_close_ms: int | None = None,
    **policy: Any,
) -> Retry | GiveUp:
    """The verdict on an attempt that failed so long after the activity was scheduled."""
    options = events.ActivityOptions(
        start_to_close_ms=2_000, schedule_to_close_ms=schedule_to_close_ms, retry=RetryPolicy(**policy).record()
    )
    return after_failure(
        events.ScheduleActivity("charge_card", b"[]", options),
        attempt=attempt,
        failure=failure,
        scheduled_ms=SCHEDULED_MS,
        now_ms=SCHEDULED_MS + after_ms,
        last_failure=last,
        draw=draw,
    )


def waits_ms(verdict: Retry | GiveUp) -> int:
    """From the scheduling of the activity to the next attempt."""
    assert isinstance(verdict, Retry)
    return verdict.due_ms - SCHEDULED_MS


def application(left: int, **options: Any) -> Failure:
    return failures.from_exception(ApplicationError("quota", {"left": left}, type="Quota", **options))


def chain(failure: Failure | None) -> list[str]:
    """The types down the chain of causes, with the kind of a time-out and the details of an application's error."""
    found = []
    while failure is not None:
        shown = {"timeout": (failure.attributes or {}).get("kind"), "application": failure.details}.get(failure.kind)
        found.append(failure.type if shown is None else f"{failure.type} {shown!s}")
        failure = failure.cause
    return found


@pytest.mark.parametrize(("attempt", "delay_ms"), [(1, 1_000), (2, 2_000), (3, 4_000)])
def test_a_failed_attempt_is_tried_again_after_the_policys_delay(attempt: int, delay_ms: int) -> None:
    assert judge(application(1), attempt=attempt, after_ms=50) == Retry(SCHEDULED_MS + 50 + delay_ms, application(1))


def test_jitter_takes_from_the_delay() -> None:
    assert waits_ms(judge(application(1), draw=0.75)) == 250
    assert waits_ms(judge(application(1), draw=0.75, jitter=0.0)) == 1_000


def test_RTY_01_after_the_last_attempt_the_last_error_is_the_activitys() -> None:
    assert waits_ms(judge(application(1000), attempt=1000, maximum_attempts=1001)) == 100_000
    verdict = judge(application(1001), attempt=1001, maximum_attempts=1001)
    assert verdict == GiveUp("maximum_attempts", application(1001))


def test_RTY_02_a_base_of_zero_retries_at_once_and_ends_with_the_tasks_own_error() -> None:
    policy: dict[str, Any] = {"initial_interval": timedelta(0), "maximum_attempts": 4}
    assert [waits_ms(judge(application(n), attempt=n, draw=0.5, **policy)) for n in (1, 2, 3)] == [0, 0, 0]
    assert judge(application(4), attempt=4, **policy) == GiveUp("maximum_attempts", application(4))


def test_an_error_may_ask_for_its_own_delay_even_of_nothing() -> None:
    asks = application(1, next_retry_delay=timedelta(seconds=7))
    assert waits_ms(judge(asks, draw=0.5)) == 7_000
    assert waits_ms(judge(application(1, next_retry_delay=timedelta(0)))) == 0


def test_what_is_not_retryable_ends_at_once() -> None:
    assert judge(application(1, non_retryable=True)) == GiveUp("non_retryable", application(1, non_retryable=True))
    assert judge(application(1), non_retryable_error_types=["Quota"]) == GiveUp("non_retryable", application(1))
    assert isinstance(judge(application(1), non_retryable_error_types=["quota", "Quotas"]), Retry)


def test_a_cancelled_attempt_ends_as_cancelled() -> None:
    cancelled = Failure("cancelled", "CancelledError", "stop")
    assert judge(cancelled, attempt=1) == GiveUp("cancelled", cancelled)


def test_RTY_05_the_deadline_reached_while_an_attempt_runs() -> None:
    """It ends the activity by a schedule-to-close time-out, behind which stands the last real error."""
    ended = timed_out("schedule_to_close", 10_000)
    verdict = judge(ended, attempt=4, after_ms=10_000, last=application(3), schedule_to_close_ms=10_000)
    assert isinstance(verdict, GiveUp)
    assert verdict.retry_state == "timeout"
    assert chain(verdict.failure) == ["TimeoutError schedule_to_close", "Quota b'[{\"left\":3}]'"]


def test_RTY_05_the_next_attempt_would_miss_the_deadline() -> None:
    verdict = judge(application(4), attempt=4, after_ms=7_500, schedule_to_close_ms=10_000)
    assert isinstance(verdict, GiveUp)
    assert verdict.retry_state == "timeout"
    # The same shape in both situations.
    assert chain(verdict.failure) == ["TimeoutError schedule_to_close", "Quota b'[{\"left\":4}]'"]


def test_RTY_05_the_last_attempt_hangs_and_hits_its_own_time_out() -> None:
    hung = timed_out("start_to_close", 2_000)
    verdict = judge(hung, attempt=4, after_ms=9_500, last=application(3), schedule_to_close_ms=10_000)
    assert isinstance(verdict, GiveUp)
    assert chain(verdict.failure) == [
        "TimeoutError schedule_to_close",
        "TimeoutError start_to_close",
        "Quota b'[{\"left\":3}]'",
    ]


def test_RTY_05_the_newest_error_is_kept_behind_several_attempts_that_hang() -> None:
    last: Failure | None = application(1)
    for attempt in range(2, 30):
        verdict = judge(timed_out("start_to_close", 2_000), attempt=attempt, last=last, maximum_attempts=30)
        assert isinstance(verdict, Retry)
        # What the next attempt is told of the one before it.
        last = verdict.failure
    verdict = judge(timed_out("heartbeat", 2_000), attempt=30, last=last, maximum_attempts=30)
    assert isinstance(verdict, GiveUp)
    # One time-out stands for all of them: the chain does not grow with the attempts.
    assert chain(verdict.failure) == ["TimeoutError heartbeat", "Quota b'[{\"left\":1}]'"]


def test_RTY_05_the_newest_error_is_kept_behind_a_lost_worker() -> None:
    verdict = judge(worker_lost(2), attempt=2, last=application(1), maximum_attempts=2)
    assert isinstance(verdict, GiveUp)
    assert chain(verdict.failure) == ["WorkerLostError", "Quota b'[{\"left\":1}]'"]


def test_a_new_error_stands_for_itself() -> None:
    verdict = judge(application(2), attempt=2, last=application(1), maximum_attempts=2)
    assert isinstance(verdict, GiveUp)
    assert chain(verdict.failure) == ["Quota b'[{\"left\":2}]'"]


def test_a_lost_worker_is_tried_again_at_once() -> None:
    """It was the worker's end, not the step's."""
    assert waits_ms(judge(worker_lost(1), after_ms=500)) == 500


def test_a_lost_worker_of_an_at_most_once_activity_is_its_outcome() -> None:
    verdict = judge(worker_lost(1), maximum_attempts=1)
    assert isinstance(verdict, GiveUp)
    assert verdict.retry_state == "maximum_attempts"
    error = failures.to_exception(verdict.failure)
    assert isinstance(error, WorkerLostError)
    assert str(error) == "the worker was lost during attempt 1; whether its effect happened is unknown"


def test_a_time_out_says_which_and_after_how_long_and_brings_the_last_heartbeat() -> None:
    error = failures.to_exception(timed_out("start_to_close", 2_500, heartbeat=b'[{"page":7}]'))
    assert isinstance(error, TimeoutError)
    assert (str(error), error.kind) == ("start-to-close timeout after 2.5 s", "start_to_close")
    assert error.last_heartbeat_details == {"page": 7}


def test_without_a_policy_the_default_holds() -> None:
    command = events.ScheduleActivity("charge_card", b"[]", events.ActivityOptions())
    verdict = after_failure(
        command, attempt=10, failure=application(1), scheduled_ms=0, now_ms=0, last_failure=None, draw=0.0
    )
    assert isinstance(verdict, GiveUp)
    assert verdict.retry_state == "maximum_attempts"
