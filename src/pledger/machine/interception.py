"""Interceptors of workflow code: what stands around a run's method, its handlers, and what it asks for.

They are workflow code themselves: run by the machine, live and on replay, under its guards. Without any nothing here is
ever called.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from pledger.errors import UsageError

if TYPE_CHECKING:
    from datetime import timedelta

    from pledger.history.events import UpdateAccepted
    from pledger.machine.context import ActivityHandle
    from pledger.machine.family import ChildStart
    from pledger.machine.machine import Machine


@dataclass
class ExecuteWorkflowInput:
    """run_fn: the run method, or the function. headers: those that the run was started with."""

    workflow_type: str
    run_fn: Callable[..., Any]
    args: Sequence[Any]
    headers: Mapping[str, str]
    _keywords: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass
class HandleSignalInput:
    signal: str
    args: Sequence[Any]
    _call: Callable[..., Any] = field(repr=False)
    _keywords: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass
class HandleQueryInput:
    query: str
    args: Sequence[Any]
    _call: Callable[..., Any] = field(repr=False)
    _keywords: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass
class HandleUpdateInput:
    """id: under which the update was sent."""

    id: str
    update: str
    args: Sequence[Any]
    _call: Callable[..., Any] = field(repr=False)
    _keywords: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass
class StartActivityInput:
    """headers: go with the activity to each of its attempts, and stand in the history: nothing secret."""

    activity: str
    args: Sequence[Any]
    headers: dict[str, str]
    _schedule: Callable[[StartActivityInput], ActivityHandle[Any]] = field(repr=False)


@dataclass
class StartChildWorkflowInput:
    """options: those of `workflow.start_child_workflow`, by name; of its two timeouts the shorter, as
    `execution_timeout`. headers: go to the child's code, and stand in both histories: nothing secret."""

    workflow: Callable[..., Any] | type | str
    args: Sequence[Any]
    options: dict[str, Any]
    headers: dict[str, str]
    _start: Callable[[StartChildWorkflowInput], ChildStart[Any]] = field(repr=False)


@dataclass
class SignalChildWorkflowInput:
    child_workflow_id: str
    signal: Callable[..., Any] | str
    args: Sequence[Any]
    _send: Callable[[Callable[..., Any] | str, Sequence[Any]], Awaitable[None]] = field(repr=False)


@dataclass
class SignalExternalWorkflowInput:
    """workflow_run_id: None for the newest run of the id."""

    workflow_id: str
    workflow_run_id: str | None
    signal: Callable[..., Any] | str
    args: Sequence[Any]
    _send: Callable[[Callable[..., Any] | str, Sequence[Any]], Awaitable[None]] = field(repr=False)


@dataclass
class ContinueAsNewInput:
    """As `workflow.continue_as_new` was called, or a checkpoint that rolls over."""

    args: Sequence[Any]
    workflow: Callable[..., Any] | type | str | None
    task_queue: str | None
    deadline: timedelta | None
    _end: Callable[[ContinueAsNewInput], NoReturn] = field(repr=False)


class WorkflowInboundInterceptor:
    """What reaches a run. Override what you need, and go on with `self.next`.

    One is made for each run in a worker's memory, and again for each replay. It must do the same each time: the rules
    of workflow code hold. `workflow.unsafe.is_replaying()` says whether what it does has been done before.
    """

    def __init__(self, next: WorkflowInboundInterceptor) -> None:  # noqa: A002 - the field's name for it
        self.next = next

    def init(self, outbound: WorkflowOutboundInterceptor) -> None:
        """Give `self.next.init(YourOutbound(outbound))` to stand around what the run asks for."""
        self.next.init(outbound)

    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:  # noqa: A002 - as above
        return await self.next.execute_workflow(input)

    async def handle_signal(self, input: HandleSignalInput) -> None:  # noqa: A002 - as above
        """Of a plain handler it may not wait: it is done at once."""
        await self.next.handle_signal(input)

    async def handle_query(self, input: HandleQueryInput) -> Any:  # noqa: A002 - as above
        """It may not wait, nor act."""
        return await self.next.handle_query(input)

    def handle_update_validator(self, input: HandleUpdateInput) -> None:  # noqa: A002 - as above
        """It may only read. Whatever it raises rejects the update. Called for updates without a validator too, and
        never on replay."""
        self.next.handle_update_validator(input)

    async def handle_update_handler(self, input: HandleUpdateInput) -> Any:  # noqa: A002 - as above
        """Of a plain handler it may not wait: it is done at once."""
        return await self.next.handle_update_handler(input)


class WorkflowOutboundInterceptor:
    """What a run asks for."""

    def __init__(self, next: WorkflowOutboundInterceptor) -> None:  # noqa: A002 - as above
        self.next = next

    def start_activity(self, input: StartActivityInput) -> ActivityHandle[Any]:  # noqa: A002 - as above
        return self.next.start_activity(input)

    def start_child_workflow(self, input: StartChildWorkflowInput) -> ChildStart[Any]:  # noqa: A002 - as above
        return self.next.start_child_workflow(input)

    async def signal_child_workflow(self, input: SignalChildWorkflowInput) -> None:  # noqa: A002 - as above
        await self.next.signal_child_workflow(input)

    async def signal_external_workflow(self, input: SignalExternalWorkflowInput) -> None:  # noqa: A002 - as above
        await self.next.signal_external_workflow(input)

    def continue_as_new(self, input: ContinueAsNewInput) -> NoReturn:  # noqa: A002 - as above
        """It raises what ends the run."""
        self.next.continue_as_new(input)


class _Inbound(WorkflowInboundInterceptor):
    """The innermost: calls the code."""

    outbound: WorkflowOutboundInterceptor

    def __init__(self) -> None: ...

    def init(self, outbound: WorkflowOutboundInterceptor) -> None:
        self.outbound = outbound

    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:  # noqa: A002 - as above
        return await input.run_fn(*input.args, **input._keywords)  # noqa: SLF001 - its own

    async def handle_signal(self, input: HandleSignalInput) -> None:  # noqa: A002 - as above
        found = input._call(*input.args, **input._keywords)  # noqa: SLF001 - its own
        if found is not None:
            await found

    async def handle_query(self, input: HandleQueryInput) -> Any:  # noqa: A002 - as above
        return input._call(*input.args, **input._keywords)  # noqa: SLF001 - its own

    def handle_update_validator(self, input: HandleUpdateInput) -> None:  # noqa: A002 - as above
        input._call(*input.args, **input._keywords)  # noqa: SLF001 - its own

    async def handle_update_handler(self, input: HandleUpdateInput) -> Any:  # noqa: A002 - as above
        found = input._call(*input.args, **input._keywords)  # noqa: SLF001 - its own
        return await found if inspect.isawaitable(found) else found


class _Outbound(WorkflowOutboundInterceptor):
    def __init__(self) -> None: ...

    def start_activity(self, input: StartActivityInput) -> ActivityHandle[Any]:  # noqa: A002 - as above
        return input._schedule(input)  # noqa: SLF001 - its own

    def start_child_workflow(self, input: StartChildWorkflowInput) -> ChildStart[Any]:  # noqa: A002 - as above
        return input._start(input)  # noqa: SLF001 - its own

    async def signal_child_workflow(self, input: SignalChildWorkflowInput) -> None:  # noqa: A002 - as above
        await input._send(input.signal, input.args)  # noqa: SLF001 - its own

    async def signal_external_workflow(self, input: SignalExternalWorkflowInput) -> None:  # noqa: A002 - as above
        await input._send(input.signal, input.args)  # noqa: SLF001 - its own

    def continue_as_new(self, input: ContinueAsNewInput) -> NoReturn:  # noqa: A002 - as above
        input._end(input)  # noqa: SLF001 - its own


def chain(
    classes: Sequence[type[WorkflowInboundInterceptor]],
) -> tuple[WorkflowInboundInterceptor, WorkflowOutboundInterceptor]:
    """Of one run: the outermost of each direction. The first class stands outermost."""
    root = _Inbound()
    inbound: WorkflowInboundInterceptor = root
    for each in reversed(classes):
        inbound = each(inbound)
    inbound.init(_Outbound())
    return inbound, root.outbound


def main(
    machine: Machine, headers: Mapping[str, str] | None, run_fn: Callable[..., Any], args: Sequence[Any], kwargs: Any
) -> Callable[[], Any]:
    """What is to run in place of the run method."""
    machine.inbound, machine.context.outbound = chain(machine.interceptors)
    given = ExecuteWorkflowInput(machine.identity.workflow_type, run_fn, args, headers or {}, kwargs)
    return functools.partial(machine.inbound.execute_workflow, given)


def signal(machine: Machine, name: str, call: functools.partial[Any], *, is_async: bool) -> functools.partial[Any]:
    """The call of a signal's handler: of an async one a coroutine function, of a plain one a plain function."""
    inbound = machine.inbound
    assert inbound is not None
    run = functools.partial(inbound.handle_signal, HandleSignalInput(name, call.args, call.func, call.keywords))
    return run if is_async else functools.partial(_at_once, run, f"the signal {name!r}")


def query(machine: Machine, name: str, call: functools.partial[Any]) -> Any:
    inbound = machine.inbound
    assert inbound is not None
    run = functools.partial(inbound.handle_query, HandleQueryInput(name, call.args, call.func, call.keywords))
    return _at_once(run, f"the query {name!r}")


def validator(machine: Machine, update: UpdateAccepted, call: functools.partial[Any]) -> functools.partial[Any]:
    inbound = machine.inbound
    assert inbound is not None
    return functools.partial(inbound.handle_update_validator, _update_input(update, call))


def update(
    machine: Machine, accepted: UpdateAccepted, call: functools.partial[Any], *, is_async: bool
) -> functools.partial[Any]:
    """As `signal`, of an update's handler."""
    inbound = machine.inbound
    assert inbound is not None
    run = functools.partial(inbound.handle_update_handler, _update_input(accepted, call))
    return run if is_async else functools.partial(_at_once, run, f"the update {accepted.name!r}")


def _update_input(update: UpdateAccepted, call: functools.partial[Any]) -> HandleUpdateInput:
    return HandleUpdateInput(update.update_id, update.name, call.args, call.func, call.keywords)


def _at_once(run: Callable[[], Any], what: str) -> Any:
    """What a coroutine gives that does not wait."""
    coroutine = run()
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    coroutine.close()
    raise UsageError(f"an interceptor waits at {what}, whose handler is a plain function and done at once")


def start_activity(
    outbound: WorkflowOutboundInterceptor,
    activity: str,
    args: Sequence[Any],
    schedule: Callable[[Sequence[Any], dict[str, str] | None], ActivityHandle[Any]],
) -> ActivityHandle[Any]:
    """schedule: does it, with the arguments and the headers that are left in the end."""
    given = StartActivityInput(activity, args, {}, lambda last: schedule(last.args, last.headers or None))
    return outbound.start_activity(given)
