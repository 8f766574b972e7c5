"""Interceptors: code of yours around what clients ask, what runs and activities are given, and what runs ask for.

    class Audit(Interceptor):
        def intercept_activity(self, next):
            return AuditActivity(next)

    connect(url, interceptors=[Audit()])       # for the client, and for the workers on it
    Worker(client, interceptors=[Audit()])     # for one worker alone

The first one stands outermost. Each class gets the next one, overrides what it needs, and goes on with `self.next`.
What one side knows travels in *headers*, texts by name: from the start of a run to its code, and from there to each
attempt of its activities. They stand in the history.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pledger.engine.interception import ActivityInboundInterceptor, ExecuteActivityInput, RootActivity
from pledger.errors import UsageError
from pledger.machine.interception import (
    ContinueAsNewInput,
    ExecuteWorkflowInput,
    HandleQueryInput,
    HandleSignalInput,
    HandleUpdateInput,
    SignalChildWorkflowInput,
    SignalExternalWorkflowInput,
    StartActivityInput,
    StartChildWorkflowInput,
    WorkflowInboundInterceptor,
    WorkflowOutboundInterceptor,
)

if TYPE_CHECKING:
    from datetime import timedelta

    from pledger.client import Client
    from pledger.handle import WorkflowHandle
    from pledger.updates import WithStartWorkflowOperation, WorkflowUpdateHandle, WorkflowUpdateStage
    from pledger.views import CancelVerdict

__all__ = [
    "ActivityInboundInterceptor",
    "CancelWorkflowInput",
    "ClientOutboundInterceptor",
    "ContinueAsNewInput",
    "ExecuteActivityInput",
    "ExecuteWorkflowInput",
    "HandleQueryInput",
    "HandleSignalInput",
    "HandleUpdateInput",
    "Interceptor",
    "QueryWorkflowInput",
    "ResetWorkflowInput",
    "SignalChildWorkflowInput",
    "SignalExternalWorkflowInput",
    "SignalWorkflowInput",
    "StartActivityInput",
    "StartChildWorkflowInput",
    "StartWorkflowInput",
    "StartWorkflowUpdateInput",
    "StartWorkflowUpdateWithStartInput",
    "TerminateWorkflowInput",
    "WorkflowInboundInterceptor",
    "WorkflowOutboundInterceptor",
]


class Interceptor:
    """Makes the interceptors of each side; by default none."""

    def intercept_client(self, next: ClientOutboundInterceptor) -> ClientOutboundInterceptor:  # noqa: A002 - the field's name for it
        """Around what a client asks."""
        return next

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002 - as above
        """Around the attempts of a worker."""
        return next

    def workflow_interceptor_class(self) -> type[WorkflowInboundInterceptor] | None:
        """What stands around the code of a worker's runs. Replays of a history (`replay`) are given it too, where it
        asks for activities of its own."""
        return None


@dataclass
class StartWorkflowInput:
    """options: those of `Client.start_workflow`, `id` among them. headers: for the run."""

    workflow: Callable[..., Any] | type | str
    args: Sequence[Any]
    options: dict[str, Any]
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class SignalWorkflowInput:
    handle: WorkflowHandle[Any]
    signal: Callable[..., Any] | str
    args: Sequence[Any]
    message_id: str | None


@dataclass
class QueryWorkflowInput:
    handle: WorkflowHandle[Any]
    query: Callable[..., Any] | str
    args: Sequence[Any]
    timeout: timedelta


@dataclass
class StartWorkflowUpdateInput:
    """id: None for one that is drawn. `execute_update` is this and a wait for the result."""

    handle: WorkflowHandle[Any]
    update: Callable[..., Any] | str
    args: Sequence[Any]
    id: str | None
    wait_for_stage: WorkflowUpdateStage
    timeout: timedelta


@dataclass
class StartWorkflowUpdateWithStartInput:
    """headers: for the run, where one is started."""

    start_workflow_operation: WithStartWorkflowOperation[Any]
    update: Callable[..., Any] | str
    args: Sequence[Any]
    id: str | None
    wait_for_stage: WorkflowUpdateStage
    timeout: timedelta
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class CancelWorkflowInput:
    handle: WorkflowHandle[Any]
    reason: str


@dataclass
class TerminateWorkflowInput:
    handle: WorkflowHandle[Any]
    reason: str


@dataclass
class ResetWorkflowInput:
    """event_id: None for a redrive. options: those of `WorkflowHandle.reset`, as far as they were given."""

    handle: WorkflowHandle[Any]
    event_id: int | None
    options: dict[str, Any]


class ClientOutboundInterceptor:
    """What a client asks. Override what you need, and go on with `self.next`."""

    def __init__(self, next: ClientOutboundInterceptor) -> None:  # noqa: A002 - as above
        self.next = next

    async def start_workflow(self, input: StartWorkflowInput) -> WorkflowHandle[Any]:  # noqa: A002 - as above
        return await self.next.start_workflow(input)

    async def signal_workflow(self, input: SignalWorkflowInput) -> None:  # noqa: A002 - as above
        await self.next.signal_workflow(input)

    async def query_workflow(self, input: QueryWorkflowInput) -> Any:  # noqa: A002 - as above
        return await self.next.query_workflow(input)

    async def start_workflow_update(self, input: StartWorkflowUpdateInput) -> WorkflowUpdateHandle[Any]:  # noqa: A002 - as above
        return await self.next.start_workflow_update(input)

    async def start_update_with_start_workflow(
        self,
        input: StartWorkflowUpdateWithStartInput,  # noqa: A002 - as above
    ) -> WorkflowUpdateHandle[Any]:
        return await self.next.start_update_with_start_workflow(input)

    async def cancel_workflow(self, input: CancelWorkflowInput) -> CancelVerdict:  # noqa: A002 - as above
        return await self.next.cancel_workflow(input)

    async def terminate_workflow(self, input: TerminateWorkflowInput) -> None:  # noqa: A002 - as above
        await self.next.terminate_workflow(input)

    async def reset_workflow(self, input: ResetWorkflowInput) -> WorkflowHandle[Any]:  # noqa: A002 - as above
        """A reset, or a redrive; the handle is that of the new run."""
        return await self.next.reset_workflow(input)


class _Asks(ClientOutboundInterceptor):
    """The innermost: asks."""

    def __init__(self, client: Client) -> None:
        self._client: Any = client

    async def start_workflow(self, input: StartWorkflowInput) -> WorkflowHandle[Any]:  # noqa: A002 - as above
        handle: WorkflowHandle[Any] = await self._client._start(  # noqa: SLF001 - as below
            input.workflow, tuple(input.args), input.headers or None, **input.options
        )
        return handle

    async def signal_workflow(self, input: SignalWorkflowInput) -> None:  # noqa: A002 - as above
        await input.handle._signal(input.signal, tuple(input.args), input.message_id)  # noqa: SLF001 - its other half

    async def query_workflow(self, input: QueryWorkflowInput) -> Any:  # noqa: A002 - as above
        return await input.handle._query(input.query, tuple(input.args), input.timeout)  # noqa: SLF001 - as above

    async def start_workflow_update(self, input: StartWorkflowUpdateInput) -> WorkflowUpdateHandle[Any]:  # noqa: A002 - as above
        return await input.handle._start_update(input)  # noqa: SLF001 - as above

    async def start_update_with_start_workflow(
        self,
        input: StartWorkflowUpdateWithStartInput,  # noqa: A002 - as above
    ) -> WorkflowUpdateHandle[Any]:
        handle: WorkflowUpdateHandle[Any] = await self._client._update_with_start(input)  # noqa: SLF001 - as above
        return handle

    async def cancel_workflow(self, input: CancelWorkflowInput) -> CancelVerdict:  # noqa: A002 - as above
        return await input.handle._cancel(input.reason)  # noqa: SLF001 - as above

    async def terminate_workflow(self, input: TerminateWorkflowInput) -> None:  # noqa: A002 - as above
        await input.handle._terminate(input.reason)  # noqa: SLF001 - as above

    async def reset_workflow(self, input: ResetWorkflowInput) -> WorkflowHandle[Any]:  # noqa: A002 - as above
        return await input.handle._go_on(input.event_id, **input.options)  # noqa: SLF001 - as above


def of_client(client: Client, interceptors: Sequence[Interceptor]) -> ClientOutboundInterceptor | None:
    """The outermost; None without any, which costs nothing."""
    if not interceptors:
        return None
    found: ClientOutboundInterceptor = _Asks(client)
    for each in reversed(interceptors):
        found = each.intercept_client(found)
    return found


def of_activities(interceptors: Sequence[Interceptor]) -> ActivityInboundInterceptor | None:
    """The outermost of a worker; None where no interceptor stands around activities."""
    root = RootActivity()
    found: ActivityInboundInterceptor = root
    for each in reversed(interceptors):
        found = each.intercept_activity(found)
    return None if found is root else found


def of_workflows(interceptors: Sequence[Interceptor]) -> tuple[type[WorkflowInboundInterceptor], ...]:
    """The outermost first."""
    return tuple(found for each in interceptors if (found := each.workflow_interceptor_class()) is not None)


def checked(interceptors: Sequence[object], where: str) -> tuple[Interceptor, ...]:
    """Raises UsageError for what is none. where: like `Worker(interceptors=...)`."""
    for each in interceptors:
        if not isinstance(each, Interceptor):
            hint = "; give an instance of it" if isinstance(each, type) else ""
            raise UsageError(f"{where} holds {each!r}, which is no pledger.interceptors.Interceptor{hint}")
    return tuple(interceptors)  # type: ignore[arg-type] # it has been looked at
