"""Activities: steps that reach the outside world. Imported as `from pledger import activity`.

    @activity.defn(start_to_close_timeout=timedelta(seconds=30), retry_policy=RetryPolicy(maximum_attempts=8))
    async def charge_card(order: Order) -> Receipt:
        key = activity.info().idempotency_key       # stable over attempts: hand it to the outside system
        ...

An activity may run more than once (at least once, never more than maximum_attempts); exactly one outcome is recorded.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, MutableMapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, NoReturn, ParamSpec, TypeVar, cast, overload

from pledger.engine.attempt import Attempt, CompleteAsync, running
from pledger.errors import CancelledError, InvalidPolicyError, UsageError
from pledger.history import payloads
from pledger.history.budget import RetryBudget
from pledger.history.placement import Limit, Priority
from pledger.history.retry import RetryPolicy
from pledger.history.secret import SCHEME, check_name, redact, value_of
from pledger.history.times import DURATION_MAX, check_duration, in_words, milliseconds, utc
from pledger.machine.definitions import ActivityDefinition, CancellationType, Executor, StepOptions, executor_of

__all__ = [
    "Info",
    "completion_token",
    "connection",
    "defn",
    "heartbeat",
    "in_activity",
    "info",
    "is_cancelled",
    "logger",
    "publish",
    "raise_complete_async",
    "secret",
]

P = ParamSpec("P")
R = TypeVar("R")


@overload
def defn(fn: Callable[P, Coroutine[Any, Any, R]], /) -> ActivityDefinition[P, R]: ...
@overload
def defn(fn: Callable[P, R], /) -> ActivityDefinition[P, R]: ...
@overload
def defn(
    *,
    name: str | None = None,
    start_to_close_timeout: timedelta | None = None,
    schedule_to_close_timeout: timedelta | None = None,
    schedule_to_start_timeout: timedelta | None = None,
    heartbeat_timeout: timedelta | None = None,
    retry_policy: RetryPolicy | None = None,
    task_queue: str | None = None,
    cancellation_type: CancellationType | None = None,
    idempotency_key: Callable[..., str | None] | None = None,
    executor: Executor | None = None,
    transaction: str | None = None,
    secrets: Sequence[str] = (),
    priority: Priority | None = None,
    limits: Sequence[Limit] = (),
    retry_budget: RetryBudget | None = None,
) -> _Decorator: ...
def defn(
    fn: Any = None,
    /,
    *,
    name: str | None = None,
    start_to_close_timeout: timedelta | None = None,
    schedule_to_close_timeout: timedelta | None = None,
    schedule_to_start_timeout: timedelta | None = None,
    heartbeat_timeout: timedelta | None = None,
    retry_policy: RetryPolicy | None = None,
    task_queue: str | None = None,
    cancellation_type: CancellationType | None = None,
    idempotency_key: Callable[..., str | None] | None = None,
    executor: Executor | None = None,
    transaction: str | None = None,
    secrets: Sequence[str] = (),
    priority: Priority | None = None,
    limits: Sequence[Limit] = (),
    retry_budget: RetryBudget | None = None,
) -> Any:
    """Make an activity of a function. Its contract stands here and may be overridden at the call.

    name: its type in the ledger; the function's by default. start_to_close_timeout bounds one attempt (10 minutes by
    default); schedule_to_close_timeout all attempts and the waits between them; schedule_to_start_timeout the wait for
    a worker; heartbeat_timeout the silence of an attempt. retry_policy: 10 attempts by default, see RetryPolicy.
    task_queue: run it on workers of another queue. idempotency_key: called with the arguments, gives the business key
    of the effect; by default, and where it gives None, the key comes from the position in the history.
    executor: "async" for async functions, "thread" (default of plain ones) or "process".
    transaction: run each attempt in a transaction of the ledger's database, which also records the result: what is
    done on `activity.connection()` is there once, and exactly if the history has the result. The name is one of
    `Worker(transactions={...})`.
    secrets: names of the secrets that its code may read, with `Secret.value` or `activity.secret`; resolved for each
    attempt by what `Worker(secrets=[...])` says.
    priority: its place in the task queue. limits: what it must not exceed over all workers; it always starts from the
    queue then. retry_budget: of the system that it depends on: how many retries that gets, and when it is left alone.
    """
    options = StepOptions(
        start_to_close_timeout=start_to_close_timeout,
        schedule_to_close_timeout=schedule_to_close_timeout,
        schedule_to_start_timeout=schedule_to_start_timeout,
        heartbeat_timeout=heartbeat_timeout,
        retry_policy=retry_policy,
        task_queue=task_queue,
        cancellation_type=cancellation_type,
        priority=priority,
    )

    def decorate(found: Callable[..., Any]) -> ActivityDefinition[Any, Any]:
        runs_in = executor_of(found, executor)
        if transaction is not None and runs_in == "process":
            raise UsageError(
                f"activity {found.__qualname__!r}: transaction={transaction!r} cannot be handed to a process of its "
                "own; leave executor out, and it runs in a thread"
            )
        return ActivityDefinition(
            found,
            name=name or found.__name__,
            options=options,
            executor=runs_in,
            idempotency_key=idempotency_key,
            transaction=transaction,
            secrets=[check_name(each.removeprefix(SCHEME)) for each in secrets],
            limits=tuple(limits),
            retry_budget=retry_budget,
        )

    return decorate if fn is None else decorate(fn)


class _Decorator:
    """How `defn(...)` types what it decorates: async functions by what they await, plain ones by what they return."""

    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> ActivityDefinition[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> ActivityDefinition[P, R]: ...
    def __call__(self, fn: Any, /) -> Any:  # noqa: ARG002 - the overloads are what it is for
        raise UsageError("not to be called: it exists for the type checker")


@dataclass(frozen=True, slots=True)
class Info:
    """About the attempt that asks.

    attempt: 1-based; lost ones count. deadline: when this attempt times out, with zone (UTC), or None; never later than
    run_deadline, when its run does. time_left, run_time_left: until then. fencing_token: higher for every later
    attempt, across take-overs; an outside system that keeps the highest one it saw for a key can refuse a writer that
    was thought dead. idempotency_key: stable over attempts.
    heartbeat_details: what the attempt before reported last, () if nothing.
    """

    activity_type: str
    workflow_type: str
    workflow_id: str
    run_id: str
    namespace: str
    task_queue: str
    attempt: int
    scheduled_time: datetime
    started_time: datetime
    deadline: datetime | None
    schedule_to_close_deadline: datetime | None
    fencing_token: int
    idempotency_key: str
    heartbeat_details: tuple[Any, ...]
    run_deadline: datetime | None
    _now_ms: Callable[[], int] = field(repr=False, compare=False)
    _attempt: Attempt = field(repr=False, compare=False)

    @property
    def time_left(self) -> timedelta | None:
        """Until the deadline, by the ledger's clock; zero once it has passed, None without one."""
        return self._until(self.deadline)

    @property
    def run_time_left(self) -> timedelta | None:
        """The same for the run's deadline: what is begun now should be worth something before that."""
        return self._until(self.run_deadline)

    @property
    def task_token(self) -> bytes:
        """The token of this attempt, as long as that may last: see `completion_token`."""
        return _token(self._attempt, None).encode("ascii")

    def _until(self, deadline: datetime | None) -> timedelta | None:
        return None if deadline is None else max(timedelta(0), deadline - utc(self._now_ms()))


def info() -> Info:
    """About the present attempt. Raises UsageError outside of one."""
    attempt = _attempt("activity.info")
    command, who = attempt.command, attempt.identity
    whole_ms = command.options.schedule_to_close_ms
    before = attempt.beat_of_last_attempt
    return Info(
        activity_type=command.activity_type,
        workflow_type=who.workflow_type,
        workflow_id=who.workflow_id,
        run_id=who.run_id,
        namespace=who.namespace,
        task_queue=command.task_queue or who.task_queue,
        attempt=attempt.number,
        scheduled_time=utc(attempt.scheduled_ms),
        started_time=utc(attempt.started_ms),
        deadline=None if attempt.deadline_ms is None else utc(attempt.deadline_ms),
        schedule_to_close_deadline=None if whole_ms is None else utc(attempt.scheduled_ms + whole_ms),
        fencing_token=attempt.fencing_token,
        idempotency_key=attempt.idempotency_key,
        heartbeat_details=() if before is None else tuple(payloads.decode(before)),
        run_deadline=None if attempt.run_deadline_ms is None else utc(attempt.run_deadline_ms),
        _now_ms=attempt.now_ms,
        _attempt=attempt,
    )


def heartbeat(*details: Any) -> None:
    """Say that the attempt is alive; details are what the next attempt reads, should this one fail.

    Cheap: details are written at most every two seconds. From a thread it raises CancelledError once the activity was
    cancelled; an async activity is cancelled as a task instead.
    """
    attempt = _attempt("activity.heartbeat")
    attempt.beat(details)
    if attempt.cancel_event is not None and attempt.cancel_event.is_set():
        reason = attempt.ending.message if attempt.ending is not None else "the activity was cancelled"
        raise CancelledError(reason)


def publish(topic: str, value: Any) -> None:
    """Append a value to the stream of a topic, for those who follow the run: tokens of a model, progress.

        async for token in model.stream(prompt):
            activity.publish("tokens", token)

    In the order of the calls, each once; written with the next commit, and before the attempt's outcome counts. What an
    attempt has published stays when it fails: the next one publishes behind it, and each value says of which attempt
    it is. An attempt that is over, or whose worker was lost, publishes nothing any more.
    Returns at once; a plain activity waits here once 10,000 values or 16 MiB are on their way, an async one gets
    UsageError then. Raises PayloadError, and UsageError in an activity with a transaction and beyond 64 topics.
    """
    attempt = _attempt("activity.publish")
    if attempt.definition.transaction is not None:
        raise UsageError(
            f"activity {attempt.definition.name!r} has a transaction, and what it publishes would not be rolled back "
            "with it. Have the workflow publish what the activity returns"
        )
    attempt.publish(topic, value)


#: How long a token is good whose attempt has no deadline, and for which nothing else is said.
TOKEN_TIME: Final = timedelta(days=30)


def completion_token(*, expires_in: timedelta | None = None) -> str:
    """What completes this attempt from outside: hand it to who does the work, then `raise_complete_async()`.

    Text that goes into a URL. Whoever has it may complete, fail and prolong this attempt, once, and nothing else: treat
    it as a password. It is good as long as the attempt may last, 30 days where that has no end; expires_in: at most so
    long. Raises InvalidPolicyError for one that is not more than 0, UsageError in an activity with a transaction.
    """
    return _token(_attempt("activity.completion_token"), expires_in)


def _token(attempt: Attempt, expires_in: timedelta | None) -> str:
    if attempt.definition.transaction is not None:
        raise UsageError(
            f"activity {attempt.definition.name!r} has a transaction, which ends with its code: it cannot be completed "
            "from outside. Leave transaction= out, or have an activity of its own wait for the outside"
        )
    now_ms = attempt.now_ms()
    last_ms = now_ms + milliseconds(TOKEN_TIME) if attempt.deadline_ms is None else attempt.deadline_ms
    if expires_in is not None:
        what = f"expires_in of a token of activity {attempt.definition.name!r}"
        if check_duration(expires_in, what, or_none="None for as long as the attempt") <= timedelta(0):
            raise InvalidPolicyError(f"{what} is {in_words(expires_in)}; it must be more than 0")
        asked_ms = now_ms + milliseconds(min(expires_in, DURATION_MAX))
        last_ms = asked_ms if attempt.deadline_ms is None else min(last_ms, asked_ms)
    attempt.has_token = True
    return attempt.token(last_ms)


def raise_complete_async() -> NoReturn:
    """End this code, and not its attempt: who has the token of that completes it, with `client.complete_activity`.

    Nothing is held for it meanwhile: no slot of the worker, no thread, no coroutine; it outlives the worker. Its
    timeouts hold: when one passes, there is a next attempt, with a token of its own. What it counts for in limits it
    counts for until its end. Raises UsageError where its code has asked for no token: nobody could ever complete it.
    """
    attempt = _attempt("activity.raise_complete_async")
    if not attempt.has_token:
        raise UsageError(
            f"activity {attempt.definition.name!r} has asked for no token, and nobody could complete it: call "
            "activity.completion_token(), give it to who does the work, and then activity.raise_complete_async()"
        )
    raise CompleteAsync


def connection() -> Any:
    """The connection of the attempt's transaction, in an activity that is defined with `transaction=`.

    On PostgreSQL psycopg's: an AsyncConnection in async activities, a Connection in plain ones. On SQLite one with
    `execute(sql, parameters)`, to be awaited in async activities. It is committed with the result, and rolled back with
    everything else: when the code raises, is too late or cancelled, or when the attempt is not the run's any more.
    """
    attempt = _attempt("activity.connection")
    if attempt.connection is None:
        raise UsageError(
            f"activity {attempt.definition.name!r} has no transaction: define it with @activity.defn(transaction=...)"
        )
    return attempt.connection


def is_cancelled() -> bool:
    """Whether the attempt was asked to stop: for plain activities that cannot be interrupted."""
    attempt = _attempt("activity.is_cancelled")
    return attempt.ending is not None


def secret(name: str) -> str:
    """The value of a secret that the activity declares. Raises SecretError for another, and outside of an attempt."""
    return value_of(name.removeprefix(SCHEME))


def in_activity() -> bool:
    """Whether the caller is activity code."""
    return running.get(None) is not None


def _attempt(call: str) -> Attempt:
    attempt = running.get(None)
    if attempt is None:
        raise UsageError(f"{call} works only in an activity that a worker runs")
    return attempt


class _Logger(logging.LoggerAdapter[logging.Logger]):
    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        attempt = running.get(None)
        if attempt is not None:
            ours = {
                "workflow_id": attempt.identity.workflow_id,
                "run_id": attempt.identity.run_id,
                "activity": attempt.command.activity_type,
                "attempt": attempt.number,
            }
            given = cast("dict[str, Any]", kwargs.get("extra") or {})
            told = {name: redact(each) if isinstance(each, str) else each for name, each in given.items()}
            kwargs["extra"] = {**told, **ours}
        return msg, kwargs


logger = _Logger(logging.getLogger("pledger.activity"), {})
"""Log from activity code with it: records carry workflow, run, activity and attempt."""
