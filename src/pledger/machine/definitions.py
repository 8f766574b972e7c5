"""Definitions: what `workflow.defn` and `activity.defn` make of functions and classes.

The contract of a step lives here.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from types import FunctionType
from typing import Any, Generic, Literal, ParamSpec, TypeAlias, TypeVar

from pledger.errors import InvalidPolicyError, UsageError
from pledger.history.budget import RetryBudget
from pledger.history.events import ActivityOptions
from pledger.history.names import check_id
from pledger.history.payloads import Signature
from pledger.history.placement import Limit, LimitUse, Priority, use_of
from pledger.history.retry import RetryPolicy
from pledger.history.times import check_duration, in_words, milliseconds
from pledger.machine.handlers import Handler, Handlers, collect, mark_of, sets_handlers

P = ParamSpec("P")
R = TypeVar("R")

Executor: TypeAlias = Literal["async", "thread", "process"]
CancellationType: TypeAlias = Literal["try", "wait", "abandon"]

#: Bounds of a step that states none (promise 10: bounded by default). Stated in docs/defaults.md.
DEFAULT_START_TO_CLOSE = timedelta(minutes=10)

_WORKFLOW = "__pledger_workflow__"
_INIT = "__pledger_init__"

_NO_DEADLINE = "None for no deadline"
_OF_WORKER = "None for what the worker says"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOptions:
    """The options of one activity as users give them; None: not stated. See `activity.defn` for their meaning."""

    start_to_close_timeout: timedelta | None = None
    schedule_to_close_timeout: timedelta | None = None
    schedule_to_start_timeout: timedelta | None = None
    heartbeat_timeout: timedelta | None = None
    retry_policy: RetryPolicy | None = None
    task_queue: str | None = None
    cancellation_type: CancellationType | None = None
    priority: Priority | None = None

    def __post_init__(self) -> None:
        for name in (
            "start_to_close_timeout",
            "schedule_to_close_timeout",
            "schedule_to_start_timeout",
            "heartbeat_timeout",
        ):
            value = getattr(self, name)
            if value is not None and check_duration(value, name) <= timedelta(0):
                raise InvalidPolicyError(
                    f"{name} is {in_words(value)}; it must be more than 0, or None for no such bound"
                )
        if self.cancellation_type not in (None, "try", "wait", "abandon"):
            raise InvalidPolicyError(f'cancellation_type is {self.cancellation_type!r}; use "try", "wait" or "abandon"')
        for name, cls in (("retry_policy", RetryPolicy), ("priority", Priority)):
            value = getattr(self, name)
            if value is not None and not isinstance(value, cls):
                raise InvalidPolicyError(f"{name} is {value!r}; it must be a {cls.__name__}, or None for the default")
        if self.task_queue is not None:
            object.__setattr__(self, "task_queue", check_id(self.task_queue, "the task_queue of an activity"))

    def over(self, base: StepOptions) -> StepOptions:
        """These options where they are stated, `base` where they are not."""
        return StepOptions(
            start_to_close_timeout=self.start_to_close_timeout or base.start_to_close_timeout,
            schedule_to_close_timeout=self.schedule_to_close_timeout or base.schedule_to_close_timeout,
            schedule_to_start_timeout=self.schedule_to_start_timeout or base.schedule_to_start_timeout,
            heartbeat_timeout=self.heartbeat_timeout or base.heartbeat_timeout,
            retry_policy=self.retry_policy or base.retry_policy,
            task_queue=self.task_queue or base.task_queue,
            cancellation_type=self.cancellation_type or base.cancellation_type,
            priority=base.priority if self.priority is None else self.priority.over(base.priority),
        )

    def record(self) -> ActivityOptions:
        """The options as the ledger keeps them, the default bound filled in."""
        start_to_close = self.start_to_close_timeout
        if start_to_close is None and self.schedule_to_close_timeout is None:
            start_to_close = DEFAULT_START_TO_CLOSE
        return ActivityOptions(
            _ms(start_to_close),
            _ms(self.schedule_to_close_timeout),
            _ms(self.schedule_to_start_timeout),
            _ms(self.heartbeat_timeout),
            None if self.retry_policy is None else self.retry_policy.record(),
            self.cancellation_type or "try",
        )


def _ms(duration: timedelta | None) -> int | None:
    # What has no end is bounded by nothing, where None would have meant the default.
    return None if duration is None or duration == timedelta.max else milliseconds(duration)


# Activities -----------------------------------------------------------------------------------------------------------


class ActivityDefinition(Generic[P, R]):
    """An activity: the plain function, its name, and the contract of the step.

    In workflow code a call schedules it and gives an awaitable of its result; anywhere else it runs the plain function,
    so that it can be unit-tested. `fn` is that function.
    """

    #: How a call in workflow code is scheduled; set by `machine.context`, which this module must not import.
    schedule: Callable[[ActivityDefinition[Any, Any], tuple[Any, ...], dict[str, Any]], Any] | None = None

    def __init__(
        self,
        fn: Callable[P, Any],
        *,
        name: str,
        options: StepOptions,
        executor: Executor,
        idempotency_key: Callable[P, str | None] | None,
        transaction: str | None = None,
        secrets: Sequence[str] = (),
        limits: tuple[Limit, ...] = (),
        retry_budget: RetryBudget | None = None,
    ) -> None:
        if next(iter(inspect.signature(fn).parameters), "") == "self":
            raise UsageError(
                f"activity {fn.__qualname__!r} is a method, and whoever makes an attempt has no object to call it on. "
                "Decorate a function, or make the activity of an object's own method: activity.defn(mailer.send)"
            )
        functools.update_wrapper(self, fn)
        self.fn = fn
        self.name = check_id(name, "the name of an activity")
        self.options = options
        self.executor = executor
        self.idempotency_key = idempotency_key
        self.transaction = transaction
        self.secrets = tuple(secrets)
        self.limits = limits
        self.retry_budget = retry_budget
        self.signature = Signature.of(fn)
        self.record = options.record()
        self.decode_result = self.signature.decode_result  # bound once, not for every call

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        schedule = ActivityDefinition.schedule
        scheduled: Any = schedule(self, args, kwargs) if schedule is not None else None
        return self.fn(*args, **kwargs) if scheduled is None else scheduled  # type: ignore[no-any-return]

    def uses(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[LimitUse, ...]:
        """What a call counts for."""
        return tuple(use_of(self.name, limit, args, kwargs) for limit in self.limits)

    def __repr__(self) -> str:
        return f"<activity {self.name!r}>"


def executor_of(fn: Callable[..., Any], chosen: Executor | None) -> Executor:
    """Where the function runs: async ones on the worker's loop, plain ones in a thread unless a process is chosen."""
    is_async = inspect.iscoroutinefunction(fn)
    if chosen is None:
        return "async" if is_async else "thread"
    if is_async != (chosen == "async"):
        kind = "an async function runs on the loop" if is_async else "a plain function runs in a thread or a process"
        raise UsageError(f"activity {fn.__qualname__!r}: executor={chosen!r} does not fit: {kind}")
    return chosen


# Workflows ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WorkflowDefinition:
    """A workflow: an async function, or a class with a run method and handlers of signals, queries and updates.

    init_takes_args: the class's `__init__` gets the arguments too (`workflow.init`), so that they are there before the
    first signal's handler runs. deadline: how long a run may take before it times out, or None. owner: who answers for
    it, or None. retention: how long a finished run is kept, or None for what its worker says.
    failure_exception_types: further exception types that fail the run; any other undeclared one blocks it.
    """

    name: str
    target: Callable[..., Any]
    run_attribute: str | None
    signature: Signature
    handlers: Handlers = field(default_factory=Handlers)
    failure_exception_types: tuple[type[BaseException], ...] = ()
    deadline: timedelta | None = None
    owner: str | None = None
    init_takes_args: bool = False
    retention: timedelta | None = None

    @property
    def signals(self) -> dict[str, Handler]:
        return self.handlers.named["signal"]

    @property
    def queries(self) -> dict[str, Handler]:
        return self.handlers.named["query"]

    @property
    def updates(self) -> dict[str, Handler]:
        return self.handlers.named["update"]

    @property
    def takes_messages(self) -> bool:
        """Whether anything that is sent to a run can change its course, but a request to cancel."""
        known = self.handlers
        return bool(known.sets_more or any(known.named[kind] or kind in known.dynamic for kind in ("signal", "update")))

    @staticmethod
    def of(workflow: object) -> WorkflowDefinition:
        """The definition of what the user names: the function, the class, or the class's run method.

        Raises UsageError when it is none.
        """
        # Of a class only its own mark counts: a subclass that is not decorated is not its parent's workflow.
        found = vars(workflow).get(_WORKFLOW) if inspect.isclass(workflow) else getattr(workflow, _WORKFLOW, None)
        mark = mark_of(workflow) if found is None and isinstance(workflow, FunctionType) else None
        if mark is not None and mark.kind == "run":
            found = getattr(workflow, "__pledger_class__", None)
        if isinstance(found, WorkflowDefinition):
            return found
        raise UsageError(f"{workflow!r} is not a workflow: decorate it with @workflow.defn")


def mark_init(fn: Callable[..., Any]) -> None:
    """Note on an `__init__` that it takes the workflow's arguments."""
    setattr(fn, _INIT, True)


def define_workflow(
    target: Callable[..., Any],
    *,
    name: str | None,
    failure_exception_types: Sequence[type[BaseException]],
    deadline: timedelta | None,
    owner: str | None,
    retention: timedelta | None = None,
) -> WorkflowDefinition:
    """Read a function or a class as a workflow and note the definition on it. Raises UsageError when it is neither."""
    called = check_id(name or target.__name__, "the name of a workflow")
    if deadline is not None:
        what = f"the deadline of workflow {called!r}"
        if check_duration(deadline, what, or_none=_NO_DEADLINE) <= timedelta(0):
            raise InvalidPolicyError(f"{what} is {in_words(deadline)}; it must be more than 0, or {_NO_DEADLINE}")
        deadline = None if deadline == timedelta.max else deadline
    what = f"the retention of workflow {called!r}"
    if retention is not None and check_duration(retention, what, or_none=_OF_WORKER) < timedelta(0):
        raise InvalidPolicyError(
            f"{what} is {in_words(retention)}; it must be 0 or more, timedelta.max for ever, or {_OF_WORKER}"
        )
    if owner is not None:
        owner = check_id(owner, f"the owner of workflow {called!r}")
    known = (tuple(failure_exception_types), deadline, owner)
    if inspect.isclass(target):
        definition = _class_definition(target, called, *known, retention=retention)
    elif inspect.iscoroutinefunction(target):
        signature = Signature.of(target)
        handlers = Handlers(sets_more=sets_handlers([target]))
        definition = WorkflowDefinition(called, target, None, signature, handlers, *known, retention=retention)
    else:
        raise UsageError(f"workflow {target.__qualname__!r} must be an async function or a class with a run method")
    setattr(target, _WORKFLOW, definition)
    return definition


def _class_definition(
    cls: type,
    name: str,
    failure_exception_types: tuple[type[BaseException], ...],
    deadline: timedelta | None,
    owner: str | None,
    *,
    retention: timedelta | None,
) -> WorkflowDefinition:
    runs, handlers = collect(cls, name)
    if len(runs) != 1:
        raise UsageError(
            f"workflow class {name!r} needs exactly one method decorated with @workflow.run, has {len(runs)}"
        )
    run = getattr(cls, runs[0])
    if not inspect.iscoroutinefunction(run):
        raise UsageError(f"workflow {name!r}: its run method {runs[0]!r} must be async")
    definition = WorkflowDefinition(
        name,
        cls,
        runs[0],
        Signature.of(run, skip_self=True),
        handlers,
        failure_exception_types,
        deadline,
        owner,
        getattr(vars(cls).get("__init__"), _INIT, False),
        retention,
    )
    run.__pledger_class__ = definition
    return definition
