"""Workflows: what their code may use. Imported as `from pledger import workflow`.

A workflow is an async function, or a class where there are signals, queries and updates:

    @workflow.defn
    async def greet(name: str) -> str:
        await asyncio.sleep(3600)           # durable: the process may die meanwhile
        return await say_hello(name)        # calling an activity schedules it

Its code must be deterministic: what is not (time, chance, I/O) comes from this module or is done in an activity.
`asyncio.sleep, gather, wait, timeout, TaskGroup, Queue, Event, Lock` work as they do elsewhere, and are durable where
they wait; `wait_for`, `wait` and `as_completed` below behave the same on every version of Python and keep their order.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import numbers
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn, TypedDict, TypeVar, Unpack, overload

from pledger.errors import UsageError
from pledger.history import chains, payloads
from pledger.history.attributes import (
    AttributeRecord,
    SearchAttributePair,
    SearchAttributeUpdate,
    TypedSearchAttributes,
    typed,
)
from pledger.history.names import check_id
from pledger.history.placement import Priority
from pledger.history.retry import RetryPolicy
from pledger.history.reuse import IdReusePolicy
from pledger.history.times import utc
from pledger.machine import continuing, guards, interception, labels
from pledger.machine.callers import caller_name
from pledger.machine.context import ActivityHandle, RunContext, check_is_verdict, current, required, schedule_call
from pledger.machine.continuing import ContinueAsNewError
from pledger.machine.declaring import UpdateMethod, query, signal, update
from pledger.machine.definitions import (
    ActivityDefinition,
    CancellationType,
    StepOptions,
    define_workflow,
    mark_init,
)
from pledger.machine.family import (
    ChildStart,
    ChildWorkflowCancellationType,
    ChildWorkflowHandle,
    ExternalWorkflowHandle,
    ParentClosePolicy,
    start_child,
)
from pledger.machine.handlers import HandlerUnfinishedPolicy, mark
from pledger.machine.logs import ReplayAwareLogger
from pledger.machine.own_handlers import (
    UpdateInfo,
    current_update_info,
    get_dynamic_query_handler,
    get_dynamic_signal_handler,
    get_dynamic_update_handler,
    get_query_handler,
    get_signal_handler,
    get_update_handler,
    set_dynamic_query_handler,
    set_dynamic_signal_handler,
    set_dynamic_update_handler,
    set_query_handler,
    set_signal_handler,
    set_update_handler,
)
from pledger.machine.phases import Phase, described, phase, set_phase
from pledger.machine.publishing import publish
from pledger.machine.races import Race, Racer, first_of
from pledger.machine.scopes import Deadline, Scope, deadline, scope, shield
from pledger.machine.waiting import as_completed, wait, wait_for

if TYPE_CHECKING:
    import random as _random
    import uuid as _uuid

__all__ = [
    "ActivityHandle",
    "ChildStart",
    "ChildWorkflowCancellationType",
    "ChildWorkflowHandle",
    "ContinueAsNewError",
    "Deadline",
    "ExternalWorkflowHandle",
    "HandlerUnfinishedPolicy",
    "IdReusePolicy",
    "Info",
    "ParentClosePolicy",
    "ParentInfo",
    "Phase",
    "Race",
    "Racer",
    "Scope",
    "UpdateInfo",
    "UpdateMethod",
    "all_handlers_finished",
    "as_completed",
    "checkpoint",
    "continue_as_new",
    "current_update_info",
    "deadline",
    "defn",
    "deprecate_patch",
    "execute_activity",
    "execute_child_workflow",
    "first_of",
    "get_dynamic_query_handler",
    "get_dynamic_signal_handler",
    "get_dynamic_update_handler",
    "get_external_workflow_handle",
    "get_query_handler",
    "get_signal_handler",
    "get_update_handler",
    "in_workflow",
    "info",
    "init",
    "logger",
    "memo",
    "memo_value",
    "now",
    "patched",
    "phase",
    "publish",
    "query",
    "random",
    "run",
    "scope",
    "set_dynamic_query_handler",
    "set_dynamic_signal_handler",
    "set_dynamic_update_handler",
    "set_phase",
    "set_query_handler",
    "set_signal_handler",
    "set_update_handler",
    "shield",
    "signal",
    "sleep",
    "start_activity",
    "start_child_workflow",
    "time",
    "unsafe",
    "update",
    "upsert_memo",
    "upsert_search_attributes",
    "uuid4",
    "wait",
    "wait_condition",
    "wait_for",
]

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=Callable[..., Any])


# Definitions ----------------------------------------------------------------------------------------------------------


@overload
def defn(target: C, /) -> C: ...
@overload
def defn(
    *,
    name: str | None = None,
    failure_exception_types: Sequence[type[BaseException]] = (),
    deadline: timedelta | None = None,
    owner: str | None = None,
    retention: timedelta | None = None,
) -> Callable[[C], C]: ...
def defn(
    target: Any = None,
    /,
    *,
    name: str | None = None,
    failure_exception_types: Sequence[type[BaseException]] = (),
    deadline: timedelta | None = None,
    owner: str | None = None,
    retention: timedelta | None = None,
) -> Any:
    """Make a workflow of an async function, or of a class with one `@workflow.run` method.

    name: its type in the ledger; the function's or class's name by default. failure_exception_types: exceptions beyond
    `ApplicationError` and its kin that fail the run; any other one is a bug and blocks it, state intact.
    deadline: after this long the run closes as timed_out. owner: who answers for its runs.
    retention: how long a finished run is kept, timedelta.max for ever; by default as long as its worker says. Its id is
    remembered after that.
    Raises UsageError for what is neither, or has no run method.
    """

    def decorate(found: C) -> C:
        define_workflow(
            found,
            name=name,
            failure_exception_types=failure_exception_types,
            deadline=deadline,
            owner=owner,
            retention=retention,
        )
        return found

    return decorate if target is None else decorate(target)


def run(fn: F) -> F:
    """The method that is the workflow."""
    mark(fn, "run", None)
    return fn


def init(fn: F) -> F:
    """On `__init__`: it takes the workflow's arguments, so that they are there when the first signal is handled."""
    mark_init(fn)
    return fn


# Activities -----------------------------------------------------------------------------------------------------------


class CallOptions(TypedDict, total=False):
    """The options of one call of an activity, see `start_activity`."""

    start_to_close_timeout: timedelta | None
    schedule_to_close_timeout: timedelta | None
    schedule_to_start_timeout: timedelta | None
    heartbeat_timeout: timedelta | None
    retry_policy: RetryPolicy | None
    task_queue: str | None
    cancellation_type: CancellationType | None
    idempotency_key: str | None
    priority: Priority | None


@overload
def start_activity(
    activity: ActivityDefinition[..., T], *args: Any, **options: Unpack[CallOptions]
) -> ActivityHandle[T]: ...
@overload
def start_activity(
    activity: str, *args: Any, result_type: type[T], **options: Unpack[CallOptions]
) -> ActivityHandle[T]: ...
@overload
def start_activity(
    activity: str, *args: Any, result_type: Any = ..., **options: Unpack[CallOptions]
) -> ActivityHandle[Any]: ...
def start_activity(
    activity: ActivityDefinition[..., Any] | str,
    *args: Any,
    start_to_close_timeout: timedelta | None = None,
    schedule_to_close_timeout: timedelta | None = None,
    schedule_to_start_timeout: timedelta | None = None,
    heartbeat_timeout: timedelta | None = None,
    retry_policy: RetryPolicy | None = None,
    task_queue: str | None = None,
    cancellation_type: CancellationType | None = None,
    idempotency_key: str | None = None,
    priority: Priority | None = None,
    result_type: Any = Any,
) -> ActivityHandle[Any]:
    """Schedule an activity and go on; awaiting the handle gives its result.

    activity: a defined one, or its name where another program defines it (then result_type says what comes back).
    The options override those of the definition: start_to_close_timeout bounds one attempt, schedule_to_close_timeout
    all of them, schedule_to_start_timeout the wait for a worker, heartbeat_timeout the silence of an attempt.
    cancellation_type: "try" (go on at once), "wait" (for what became of it) or "abandon".
    idempotency_key: None for that of the definition, which by default comes from the position in the history.
    priority: its place in the task queue; what it does not state is that of the definition, then that of the run.
    The awaited handle raises ActivityError when the last attempt failed.
    """
    context = required("workflow.start_activity")
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
    if isinstance(activity, ActivityDefinition):
        handle = schedule_call(activity, args, {}, options, idempotency_key)
        assert handle is not None
        return handle
    if not isinstance(activity, str):
        raise UsageError(f"{activity!r} is not an activity: decorate it with @activity.defn, or give its name")
    name = check_id(activity, "the name of an activity")

    def schedule(args: Sequence[Any], headers: dict[str, str] | None) -> ActivityHandle[Any]:
        return context.schedule_activity(
            name,
            payloads.encode_args_untyped(args),
            options.record(),
            lambda data: payloads.decode(data, result_type),
            task_queue=options.task_queue,
            idempotency_key=idempotency_key,
            priority=options.priority,
            headers=headers,
        )

    if context.outbound is not None:
        return interception.start_activity(context.outbound, name, args, schedule)
    return schedule(args, None)


@overload
async def execute_activity(activity: ActivityDefinition[..., T], *args: Any, **options: Unpack[CallOptions]) -> T: ...
@overload
async def execute_activity(activity: str, *args: Any, result_type: type[T], **options: Unpack[CallOptions]) -> T: ...
@overload
async def execute_activity(
    activity: str, *args: Any, result_type: Any = ..., **options: Unpack[CallOptions]
) -> Any: ...
async def execute_activity(activity: Any, *args: Any, **options: Any) -> Any:
    """Schedule an activity and wait for its result. Options as in `start_activity`."""
    return await start_activity(activity, *args, **options)


# Other runs -----------------------------------------------------------------------------------------------------------


class ChildOptions(TypedDict, total=False):
    """How a child is started, see `start_child_workflow`."""

    id: str | None
    task_queue: str | None
    cancellation_type: ChildWorkflowCancellationType
    parent_close_policy: ParentClosePolicy
    id_reuse_policy: IdReusePolicy
    execution_timeout: timedelta | None
    run_timeout: timedelta | None
    retry_policy: None
    priority: Priority | None
    search_attributes: TypedSearchAttributes | Sequence[SearchAttributePair[Any]]
    memo: Mapping[str, Any] | None


@overload
def start_child_workflow(
    workflow: Callable[..., Coroutine[Any, Any, T]], *args: Any, **options: Unpack[ChildOptions]
) -> ChildStart[T]: ...
@overload
def start_child_workflow(
    workflow: str, *args: Any, result_type: type[T], **options: Unpack[ChildOptions]
) -> ChildStart[T]: ...
@overload
def start_child_workflow(
    workflow: type | str, *args: Any, result_type: Any = ..., **options: Unpack[ChildOptions]
) -> ChildStart[Any]: ...
def start_child_workflow(
    workflow: Callable[..., Any] | type | str,
    *args: Any,
    id: str | None = None,  # noqa: A002 - the field's name for it
    task_queue: str | None = None,
    cancellation_type: ChildWorkflowCancellationType = ChildWorkflowCancellationType.WAIT_CANCELLATION_COMPLETED,
    parent_close_policy: ParentClosePolicy = ParentClosePolicy.TERMINATE,
    id_reuse_policy: IdReusePolicy = IdReusePolicy.REJECT_DUPLICATE,
    execution_timeout: timedelta | None = None,
    run_timeout: timedelta | None = None,
    retry_policy: RetryPolicy | None = None,
    priority: Priority | None = None,
    search_attributes: TypedSearchAttributes | Sequence[SearchAttributePair[Any]] = (),
    memo: Mapping[str, Any] | None = None,
    result_type: Any = Any,
) -> ChildStart[Any]:
    """Start another run as a child of this one. Awaiting what it gives gives the child's handle, once it is there.

    workflow: the definition (function, class or its run method), or its name where another program defines it (then
    result_type says what comes back). It is asked for at the call, in this transition, awaited or not; a run that ends
    with it still starts a child that is to outlive it (ParentClosePolicy.ABANDON).
    id: by default a new one, the same on every replay. task_queue: that of this run by default.
    parent_close_policy: what becomes of it when this run ends first. cancellation_type: what it is to cancel its
    handle.
    id_reuse_policy: when a closed run has the id. An open one always refuses it.
    execution_timeout, run_timeout: it closes as timed_out after so long; the deadline of its definition by default.
    priority: of its activities; what it does not state is that of this run. Its owner is that of its definition, or of
    this run.
    search_attributes, memo: its own; it has none of this run's.
    retry_policy: there is none. A run is what its activities are retried in; to try a whole child again, start it again
    in a loop, which then says how often and after what.
    The awaited start raises WorkflowAlreadyStartedError for an id that is taken; UsageError and PayloadError are raised
    at the call.
    """
    return _start_child(
        caller_name(1),
        workflow,
        *args,
        id=id,
        task_queue=task_queue,
        cancellation_type=cancellation_type,
        parent_close_policy=parent_close_policy,
        id_reuse_policy=id_reuse_policy,
        execution_timeout=execution_timeout,
        run_timeout=run_timeout,
        retry_policy=retry_policy,
        priority=priority,
        search_attributes=search_attributes,
        memo=memo,
        result_type=result_type,
    )


@overload
async def execute_child_workflow(
    workflow: Callable[..., Coroutine[Any, Any, T]], *args: Any, **options: Unpack[ChildOptions]
) -> T: ...
@overload
async def execute_child_workflow(
    workflow: str, *args: Any, result_type: type[T], **options: Unpack[ChildOptions]
) -> T: ...
@overload
async def execute_child_workflow(
    workflow: type | str, *args: Any, result_type: Any = ..., **options: Unpack[ChildOptions]
) -> Any: ...
async def execute_child_workflow(workflow: Any, *args: Any, **options: Any) -> Any:
    """Start a child and wait for its result. Options as in `start_child_workflow`.

    Raises ChildWorkflowError when it ends otherwise, its cause says why; WorkflowAlreadyStartedError.
    """
    return await (await _start_child(caller_name(1), workflow, *args, **options))


def _start_child(
    caller: str,
    workflow: Callable[..., Any] | type | str,
    *args: Any,
    id: str | None = None,  # noqa: A002 - the field's name for it
    task_queue: str | None = None,
    cancellation_type: ChildWorkflowCancellationType = ChildWorkflowCancellationType.WAIT_CANCELLATION_COMPLETED,
    parent_close_policy: ParentClosePolicy = ParentClosePolicy.TERMINATE,
    id_reuse_policy: IdReusePolicy = IdReusePolicy.REJECT_DUPLICATE,
    execution_timeout: timedelta | None = None,
    run_timeout: timedelta | None = None,
    retry_policy: RetryPolicy | None = None,
    priority: Priority | None = None,
    search_attributes: TypedSearchAttributes | Sequence[SearchAttributePair[Any]] = (),
    memo: Mapping[str, Any] | None = None,
    result_type: Any = Any,
) -> ChildStart[Any]:
    context = required("workflow.start_child_workflow")
    if retry_policy is not None:
        raise UsageError(
            f"retry_policy={retry_policy!r}: runs are not retried, their activities are. To try a whole child again, "
            "await workflow.execute_child_workflow(...) in a loop that catches ChildWorkflowError"
        )
    timeouts = [each for each in (execution_timeout, run_timeout) if each is not None]
    options: dict[str, Any] = {
        "id": id,
        "task_queue": task_queue,
        "parent_close_policy": parent_close_policy,
        "cancellation_type": cancellation_type,
        "id_reuse_policy": id_reuse_policy,
        "execution_timeout": min(timeouts, default=None),
        "priority": priority,
        "search_attributes": search_attributes,
        "memo": memo,
        "result_type": result_type,
    }
    if context.outbound is None:
        return start_child(context, workflow, args, caller, **options)

    def start(last: interception.StartChildWorkflowInput) -> ChildStart[Any]:
        return start_child(context, last.workflow, tuple(last.args), caller, last.headers or None, **last.options)

    given = interception.StartChildWorkflowInput(workflow, args, options, {}, start)
    return context.outbound.start_child_workflow(given)


def get_external_workflow_handle(workflow_id: str, *, run_id: str | None = None) -> ExternalWorkflowHandle:
    """A handle on another run, to signal it or to ask it to stop. run_id: by default the newest one of the id, looked
    up at each call. Nothing is asked yet."""
    context = required("workflow.get_external_workflow_handle")
    workflow_id = check_id(workflow_id, "the id of another workflow")
    if run_id is not None:
        run_id = check_id(run_id, f"the run id of workflow {workflow_id!r}")
    return ExternalWorkflowHandle(context, workflow_id, run_id)


# Time, chance, identity -----------------------------------------------------------------------------------------------


def now() -> datetime:
    """The time of the present transition, with zone (UTC). It stands still until the run waits."""
    return required("workflow.now").now()


def time() -> float:
    """The same, in seconds since 1970."""
    return required("workflow.time").now_ms / 1000


async def sleep(duration: float | timedelta, *, name: str | None = None, owner: str | None = None) -> None:
    """Wait durably. duration: a timedelta, or seconds. name, owner: what it is for and who answers for it, for those
    who ask what the run waits for."""
    if name is None and owner is None:
        await asyncio.sleep(_seconds(duration))
        return
    with _named_wait("workflow.sleep", name or "sleep", owner, None):
        await asyncio.sleep(_seconds(duration))


@contextlib.contextmanager
def _named_wait(call: str, name: str, owner: str | None, until: timedelta | datetime | None) -> Iterator[None]:
    """A wait that the history knows of, as of a phase."""
    begun = described(name, "wait", owner, until)
    context = required(call)
    mark = begun.begin(context)
    try:
        yield
    finally:
        context.end_phase(mark)


def _seconds(given: object) -> float:
    if isinstance(given, timedelta):
        return given.total_seconds()
    if isinstance(given, numbers.Real):
        return given  # type: ignore[return-value] # asyncio takes what it can compare and multiply
    raise UsageError(f"workflow.sleep({given!r}) needs a timedelta, or a number of seconds")


def uuid4(name: str | None = None) -> _uuid.UUID:
    """A random id, the same on every replay.

    Keyed by the run, the calling function, its task and how often it has drawn there, or by `name`: one more draw
    elsewhere does not shift this one.
    """
    return required("workflow.uuid4").draw_uuid(caller_name(1), name)


def random(name: str | None = None) -> _random.Random:
    """A generator of random values, the same on every replay; a new one at each call, keyed as in `uuid4`."""
    return required("workflow.random").draw_generator(caller_name(1), name)


@dataclass(frozen=True, slots=True)
class ParentInfo:
    """The run that started this one."""

    workflow_id: str
    run_id: str


@dataclass(frozen=True, slots=True)
class Info:
    """Who the run is. start_time: with zone (UTC). history_length: events so far, this transition's inputs included.

    history_size: of the history before this transition, in bytes.

    segment: its number in its chain, from 1. first_run_id: of the run that was started; continued_run_id: of the one
    that this one goes on for, or None. parent: of a child.
    """

    namespace: str
    workflow_id: str
    run_id: str
    workflow_type: str
    task_queue: str
    start_time: datetime
    history_length: int
    segment: int = 1
    first_run_id: str = ""
    continued_run_id: str | None = None
    parent: ParentInfo | None = None
    history_size: int = 0
    _attributes: tuple[AttributeRecord, ...] = field(default=(), repr=False)

    def is_continue_as_new_suggested(self) -> bool:
        """Whether the history has grown so long, in events or in bytes, that a successor had better go on.

        The worker decides, by its bounds, and the history records what the code was told. It stays so until the end of
        the run.
        """
        return required("workflow.info").suggests

    @property
    def typed_search_attributes(self) -> TypedSearchAttributes:
        """Those that the run has now."""
        return typed(self._attributes)


def info() -> Info:
    """About the present run."""
    context = required("workflow.info")
    who = context.identity
    start = utc(context.started_ms)
    before = None if who.segment == 1 else chains.run_id_of(who.chain_id, who.segment - 1)
    parent = None if context.parent is None else ParentInfo(context.parent.workflow_id, context.parent.run_id)
    place = (who.segment, who.chain_id, before, parent, context.size)
    return Info(
        who.namespace,
        who.workflow_id,
        who.run_id,
        who.workflow_type,
        who.task_queue,
        start,
        context.events,
        *place,
        labels.records(context),
    )


def in_workflow() -> bool:
    """Whether the caller is workflow code."""
    return current() is not None


# Chains ---------------------------------------------------------------------------------------------------------------


def continue_as_new(
    *args: Any,
    workflow: Callable[..., Any] | type | str | None = None,
    task_queue: str | None = None,
    deadline: timedelta | None = None,
) -> NoReturn:
    """End the run, and have a successor with an empty history go on for it, under the same workflow id.

    args: of the successor. workflow: another one than this, or its name. task_queue: another one. deadline: from now
    on, in place of the one that the run has. Owner, deadline and priority are handed on, as are all messages that this
    run has not taken. Those that it has taken are its own affair: hand on in `args` what is left of them.

    Raises ContinueAsNewError, in the run method or in a signal handler. Activities that are pending are abandoned, as
    by a return. Raises UsageError for arguments that do not fit the parameters, PayloadError for what cannot be kept,
    InvalidPolicyError for a deadline of 0 or less.
    """
    continuing.continue_as_new(required("workflow.continue_as_new"), args, workflow, task_queue, deadline)


def checkpoint(*args: Any) -> None:
    """A place where the run may end for a successor that is given `args`: once its history has grown long, it does.

    Call it in the loop of the run method, between two rounds; `args` are all that the successor has to know:

        while True:
            account.apply(await next_entry())
            workflow.checkpoint(account)

    Mostly it does nothing. It continues as new when `info().is_continue_as_new_suggested()`, and this is a safe point:
    no activity is pending, no timer runs, no signal handler and no other task is at work, and nobody has asked the run
    to cancel. Else the run goes on, and the next call looks again. A run that comes near the bound of its history gets
    its messages one by one, and none while something of it is in flight, so that a safe point comes.

    Raises UsageError outside of the run method, and what `continue_as_new` raises.
    """
    continuing.checkpoint(required("workflow.checkpoint"), args)


# What a run says of itself --------------------------------------------------------------------------------------------


def upsert_search_attributes(updates: Iterable[SearchAttributeUpdate]) -> None:
    """Change some of the run's search attributes; it is found by them as of this transition.

        workflow.upsert_search_attributes([AMOUNT.value_set(120), REGION.value_unset()])

    Raises UsageError for more than a run may have, and for what is no update.
    """
    context = required("workflow.upsert_search_attributes")
    labels.labels_of(context).upsert_attributes(updates)


def memo() -> dict[str, Any]:
    """The run's memo as it is now: values for people, by name."""
    return labels.memo_values(required("workflow.memo"))


def memo_value(key: str, default: Any = None, *, type_hint: Any = Any) -> Any:
    """One value of it, as the annotated type, or the default. Raises PayloadError for one that is not of the type."""
    value = labels.memo_of(required("workflow.memo_value")).get(key)
    return default if value is None else payloads.decode(value, type_hint)


def upsert_memo(memo: Mapping[str, Any]) -> None:
    """Change some of the run's memo; None takes a value away. What is not named stays.

    Raises PayloadError for a value that cannot be kept, PayloadTooLargeError for a memo of more bytes than one value
    may have.
    """
    labels.labels_of(required("workflow.upsert_memo")).upsert_memo(memo)


# Changing code --------------------------------------------------------------------------------------------------------


def patched(patch_id: str) -> bool:
    """Guard a change of workflow code: True for runs that take the new side, False for those already past this point.

    The first answer is recorded and holds for the whole run.
    """
    return required("workflow.patched").patched(patch_id)


def deprecate_patch(patch_id: str) -> None:
    """The step between `patched` and removing it: the old side is gone, and new runs still record the patch.

    So a worker with the code before, in a rolling deployment or after a rollback, carries such runs on. Runs that are
    born under it do not need this line any more; those that `patched` recorded do.
    """
    required("workflow.deprecate_patch").deprecate_patch(patch_id)


# Waiting --------------------------------------------------------------------------------------------------------------


async def wait_condition(
    holds: Callable[[], bool],
    *,
    timeout: float | timedelta | None = None,
    name: str | None = None,
    owner: str | None = None,
    deadline: timedelta | datetime | None = None,
) -> None:
    """Wait until `holds()`, which is asked after every step of the run. One that holds already starts no timer.

    timeout: a timedelta or seconds; None is without end. Raises TimeoutError, and UsageError for what is no plain
    function: what an async one gives is true before it has looked.
    name, owner, deadline: what is waited for, who must act, and by when, for those who ask. The deadline ends nothing,
    as that of a phase: after it the wait is overdue.
    """
    given: object = holds
    if not callable(given) or inspect.iscoroutinefunction(given):
        raise UsageError(f"workflow.wait_condition needs a plain function that says whether it holds, not {given!r}")
    found = holds()
    if found:
        check_is_verdict(found)
        return
    context = required("workflow.wait_condition")
    if not (name is None and owner is None and deadline is None):
        with _named_wait("workflow.wait_condition", name or "a condition", owner, deadline):
            await wait_condition(holds, timeout=timeout)
        return
    key, future = context.add_condition(holds)
    try:
        if timeout is None:
            await future
        else:
            await wait_for(future, timeout)
    finally:
        # Of the run that it was asked of: a collector may close this coroutine while another run's code is running.
        context.remove_condition(key)


def all_handlers_finished() -> bool:
    """Whether no async handler of a signal or an update is at work. A run that ends drops what they had still to do,
    with a warning:

    await workflow.wait_condition(workflow.all_handlers_finished)
    """
    return not required("workflow.all_handlers_finished").handlers_at_work()


# Logging and escape ---------------------------------------------------------------------------------------------------


logger = ReplayAwareLogger(logging.getLogger("pledger.workflow"), {})
"""Log from workflow code with it: records carry the run and are not repeated on replay."""


class unsafe:  # noqa: N801 - used like a module: workflow.unsafe.guards_off()
    """Ways around the rules, for those who know why."""

    @staticmethod
    @contextlib.contextmanager
    def guards_off() -> Iterator[None]:
        """Let calls through that the guards refuse. What they bring in is not recorded: replay may differ."""
        with guards.suspended():
            yield

    @staticmethod
    def is_replaying() -> bool:
        """Whether a recorded transition is being re-enacted."""
        context: RunContext = required("workflow.unsafe.is_replaying")
        return context.replaying
