"""What becomes of an activity after an attempt that brought no result: another attempt, or the end. Pure."""

from __future__ import annotations

from typing import Final

import msgspec

from pledger.history import failures
from pledger.history.events import ScheduleActivity
from pledger.history.failures import Failure
from pledger.history.retry import DEFAULT_RETRY, is_exhausted, jittered_ms, retry_delay_ms

#: Kinds of failure after which the work goes on elsewhere at once: it was the worker's end, not the step's.
_NO_BACKOFF: Final = frozenset({"worker_lost"})

#: Kinds of failure that say nothing of the step itself: what its code reported last stays visible behind them.
_NOT_BY_THE_STEP: Final = frozenset({"timeout", "worker_lost"})


def is_once(command: ScheduleActivity) -> bool:
    """Whether it may begin once only, whatever becomes of it."""
    return (command.options.retry or DEFAULT_RETRY).maximum_attempts == 1


def is_final(command: ScheduleActivity, failure: Failure) -> bool:
    """Whether the step has said so: it would end the same way again."""
    return failure.non_retryable or failure.type in (command.options.retry or DEFAULT_RETRY).non_retryable_error_types


class Retry(msgspec.Struct, frozen=True):
    """Another attempt, not before due_ms. failure: what it is told of the attempts before."""

    due_ms: int
    failure: Failure


class GiveUp(msgspec.Struct, frozen=True):
    """No further attempt. retry_state: why; failure: what the workflow gets as cause."""

    retry_state: str
    failure: Failure


def after_failure(
    command: ScheduleActivity,
    *,
    attempt: int,
    failure: Failure,
    scheduled_ms: int,
    now_ms: int,
    last_failure: Failure | None,
    draw: float,
    cancel_requested: bool = False,
) -> Retry | GiveUp:
    """Judge the failure of `attempt` (1-based).

    last_failure: what this attempt was told of those before; the newest error that their code reported stays visible
    behind time-outs and lost workers (case RTY-05). draw: uniform in [0, 1), for the jitter.
    cancel_requested: nobody wants the result any more, so there is no further attempt however this one ended.
    A schedule-to-close deadline ends the retries also when the next attempt would only start after it.
    """
    policy = command.options.retry or DEFAULT_RETRY
    whole_ms = command.options.schedule_to_close_ms
    deadline_ms = None if whole_ms is None else scheduled_ms + whole_ms
    if failure.kind in _NOT_BY_THE_STEP:
        failure = failures.with_cause(failure, _reported(last_failure))
    if failure.attributes in ({"kind": "schedule_to_close"}, {"kind": "run"}):
        return GiveUp("timeout", failure)
    if failure.kind == "cancelled" or cancel_requested:
        return GiveUp("cancelled", failure)
    if is_final(command, failure):
        return GiveUp("non_retryable", failure)
    if is_exhausted(policy, attempt):
        return GiveUp("maximum_attempts", failure)
    if failure.next_retry_delay_ms is not None:
        delay_ms = failure.next_retry_delay_ms
    elif failure.kind in _NO_BACKOFF:
        delay_ms = 0
    else:
        delay_ms = jittered_ms(retry_delay_ms(policy, attempt), policy.jitter, draw)
    due_ms = now_ms + delay_ms
    if deadline_ms is not None and due_ms >= deadline_ms:
        return GiveUp("timeout", timed_out("schedule_to_close", whole_ms or 0, failure))
    return Retry(due_ms, failure)


def _reported(failure: Failure | None) -> Failure | None:
    """The newest failure down the chain that the step's code reported itself."""
    while failure is not None and failure.kind in _NOT_BY_THE_STEP:
        failure = failure.cause
    return failure


def timed_out(kind: str, after_ms: int, cause: Failure | None = None, heartbeat: bytes | None = None) -> Failure:
    """The failure of a passed deadline. heartbeat: the details that the attempt reported last, as JSON array."""
    what = kind.replace("_", "-")
    message = f"{what} timeout after {after_ms / 1000:g} s"
    return Failure("timeout", "TimeoutError", message, details=heartbeat, cause=cause, attributes={"kind": kind})


def cancelled(reason: str) -> Failure:
    """The attempt was stopped, or never began, since nobody wants its result any more."""
    return Failure("cancelled", "CancelledError", reason)


def cancelled_unstarted() -> Failure:
    return cancelled("the activity was cancelled before it started")


def lost_in_the_gap() -> Failure:
    """The ledger has lost its newest commits, and the activity may have been scheduled, and run, in one of them."""
    return Failure(
        "worker_lost",
        "WorkerLostError",
        "the ledger has lost its newest commits, in which this activity may have run already; it may run once only, so "
        "it is not begun, and whether its effect happened is unknown",
    )


def damaged(attempt: int, error: Exception) -> Failure:
    """What the ledger keeps of the attempt cannot be read; nothing can be done with it any more, now or later."""
    return Failure(
        "application",
        "CorruptHistoryError",
        f"the ledger's row of attempt {attempt} is damaged ({error}): it is not begun, and whether one before it had "
        f"its effect is unknown",
        non_retryable=True,
    )


def worker_lost(attempt: int) -> Failure:
    """The worker died with the attempt in flight: nobody knows whether the effect happened."""
    return Failure(
        "worker_lost",
        "WorkerLostError",
        f"the worker was lost during attempt {attempt}; whether its effect happened is unknown",
    )
