"""Other runs, as the code of one sees them: its children, and those that it only knows by their id.

Each call here is a command of the transition that it is made in, so what it asks for is written with that, exactly
once. What becomes of it (the child is there, it has ended, the message is delivered) comes back as an input.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Sequence
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pledger import errors
from pledger.history import events, failures, memos, payloads
from pledger.history.attributes import records_of
from pledger.history.calls import encode_call
from pledger.history.names import check_id, clean
from pledger.history.placement import Priority, place
from pledger.history.reuse import IdReusePolicy
from pledger.history.times import DURATION_MAX, check_duration, in_words, milliseconds
from pledger.machine.definitions import WorkflowDefinition
from pledger.machine.handlers import handler_name
from pledger.machine.interception import SignalChildWorkflowInput, SignalExternalWorkflowInput
from pledger.machine.loop import WorkflowFuture
from pledger.machine.scoping import current_scope

if TYPE_CHECKING:
    from pledger.machine.context import Asked, RunContext
    from pledger.machine.machine import Machine

T = TypeVar("T")

#: Children that one run may have open at a time, of those that it has not given up (promise 10).
PENDING_CHILDREN_MAX: Final = 10_000


class ParentClosePolicy(Enum):
    """What becomes of a child that is open when its parent ends, however that ends."""

    TERMINATE = "terminate"
    REQUEST_CANCEL = "request_cancel"
    ABANDON = "abandon"


class ChildWorkflowCancellationType(Enum):
    """What it is to cancel what waits for a child.

    ABANDON: the child is not told, and nobody waits for it any more. TRY_CANCEL: it is asked to stop, and nobody waits.
    WAIT_CANCELLATION_REQUESTED: the same, once the request is in its inbox. WAIT_CANCELLATION_COMPLETED: it is asked to
    stop, and what it ends as is waited for.
    """

    ABANDON = "abandon"
    TRY_CANCEL = "try_cancel"
    WAIT_CANCELLATION_REQUESTED = "wait_cancellation_requested"
    WAIT_CANCELLATION_COMPLETED = "wait_cancellation_completed"


class Family:
    """Of one run, by the events that asked. children: those whose end the code still takes. messages: those to other
    runs that are on their way; requests: those to children whose cancellation waits for its receipt.

    has_dependants: whether it has ever had children that are not to outlive it.
    """

    def __init__(self) -> None:
        self.children: dict[int, ChildWorkflowHandle[Any]] = {}
        self.messages: dict[int, Delivery] = {}
        self.requests: dict[int, CancelRequest] = {}
        self.has_dependants = False


class ChildWorkflowHandle(WorkflowFuture[T]):
    """A child that has started: awaiting it gives its result. Cancelling it is what its cancellation type says.

    id, workflow_type: of the child. run_id: of its first run.
    The awaited handle raises ChildWorkflowError when the child ended otherwise than completed.
    """

    __slots__ = ("_decode", "_run", "asked", "cancel_asked", "command", "event_id", "run_id", "start")

    def __init__(self, context: RunContext, command: events.StartChild, decode: Callable[[bytes], Any]) -> None:
        super().__init__(loop=context.loop)
        self._run = context
        self._decode = decode
        self.command = command
        self.event_id = 0
        self.run_id = ""
        self.asked: Asked | None = None
        self.cancel_asked = False
        self.start: ChildStart[T] = ChildStart(context, self)

    @property
    def id(self) -> str:
        return self.command.workflow_id

    @property
    def workflow_type(self) -> str:
        return self.command.workflow_type

    def __repr__(self) -> str:
        return f"<child workflow {self.id!r} ({self.workflow_type})>"

    async def signal(self, signal: Callable[..., Any] | str, *args: Any) -> None:
        """Send it a message, which reaches it exactly once. Done when it is in the child's inbox.

        signal: the decorated method, or its name. Raises ExternalWorkflowError when the child has ended, or its inbox
        is full.
        """
        send = functools.partial(send_signal, self._run, self.id, self.run_id or None, self.event_id)
        if (outbound := self._run.outbound) is not None:
            await outbound.signal_child_workflow(SignalChildWorkflowInput(self.id, signal, args, send))
        else:
            await send(signal, args)

    def cancel(self, msg: Any | None = None) -> bool:
        """Ask the child to stop, as its cancellation type says; whether that was of use."""
        return not self.done() and (self._waits_on(msg) or super().cancel(msg))

    def give_up(self, msg: Any | None = None) -> None:
        """Nobody waits for it any more."""
        super().cancel(msg)

    def recorded(self, event_id: int, command: events.StartChild) -> None:
        family = self._run.with_family()
        self.asked = None
        self.event_id, self.command = event_id, command
        family.children[event_id] = self
        family.has_dependants |= command.parent_close_policy != ParentClosePolicy.ABANDON.value

    def _waits_on(self, msg: Any | None) -> bool:
        """Do what cancelling is to the child; whether its handle waits on all the same."""
        run = self._run
        if run.may_not_act():
            return False
        if self.asked is not None:
            run.withdraw(self.asked)
            self.asked = None
            return False
        kind = ChildWorkflowCancellationType(self.command.cancellation)
        if kind is not ChildWorkflowCancellationType.ABANDON and not self.cancel_asked:
            self.cancel_asked = True
            is_acknowledged = kind is ChildWorkflowCancellationType.WAIT_CANCELLATION_REQUESTED
            command = events.CancelChild(self.event_id, self.id, _reason_of(msg), is_acknowledged or None)
            run.ask(command, CancelRequest(run, self) if is_acknowledged else None)
        if kind in {ChildWorkflowCancellationType.ABANDON, ChildWorkflowCancellationType.TRY_CANCEL}:
            run.with_family().children.pop(self.event_id, None)
            return False
        return True

    def close(self, closed: events.ChildClosed) -> None:
        """It has ended."""
        if self.done():
            return
        if closed.failure is None:
            try:
                self.set_result(self._decode(closed.result or b"null"))
            except errors.PayloadError as error:
                self.set_exception(error)
            return
        cause = failures.to_exception(closed.failure)
        if closed.status == "cancelled" and self.cancel_asked:
            self.give_up(closed.failure.message or None)
            return
        failed = errors.ChildWorkflowError(
            f"child workflow {self.id!r} ({self.workflow_type}, run {self.run_id}) {closed.status}: {cause}",
            workflow_id=self.id,
            run_id=self.run_id,
            workflow_type=self.workflow_type,
            status=closed.status,
            started_event_id=self.event_id,
        )
        failed.__cause__ = cause
        self.set_exception(failed)


class ChildStart(WorkflowFuture[ChildWorkflowHandle[T]]):
    """The start of a child: awaiting it gives its handle, once the child is there.

    It is asked for whether or not anybody awaits this. Cancelling it cancels the child, as its cancellation type says.
    """

    __slots__ = ("_handle", "_run")

    def __init__(self, context: RunContext, handle: ChildWorkflowHandle[T]) -> None:
        super().__init__(loop=context.loop)
        self._run = context
        self._handle = handle

    def cancel(self, msg: Any | None = None) -> bool:
        if self.done():
            return False
        # A child that is to be waited for has to be there first: its handle then raises the cancellation.
        if self._handle.cancel(msg) and not self._handle.done():
            return True
        return super().cancel(msg)


class Delivery(WorkflowFuture[None]):
    """A message to another run. Done when it is in the inbox of that one."""

    __slots__ = ("_run", "asked", "command", "event_id")

    def __init__(self, context: RunContext, command: events.SendSignal | events.SendCancel) -> None:
        super().__init__(loop=context.loop)
        self._run = context
        self.command = command
        self.event_id = 0
        self.asked: Asked | None = None

    def cancel(self, msg: Any | None = None) -> bool:
        """What is not sent yet is not sent; what is sent cannot be taken back."""
        if self.done():
            return False
        if not self._run.may_not_act():
            if self.asked is not None:
                self._run.withdraw(self.asked)
                self.asked = None
            else:
                self._run.with_family().messages.pop(self.event_id, None)
        return super().cancel(msg)

    def recorded(self, event_id: int, command: events.SendSignal | events.SendCancel) -> None:
        self.asked = None
        self.event_id, self.command = event_id, command
        self._run.with_family().messages[event_id] = self


class CancelRequest:
    """A request to a child whose handle waits for its receipt."""

    __slots__ = ("_run", "event_id", "handle")

    def __init__(self, context: RunContext, handle: ChildWorkflowHandle[Any]) -> None:
        self._run = context
        self.event_id = 0
        self.handle = handle

    def recorded(self, event_id: int, _: events.CancelChild) -> None:
        self.event_id = event_id
        self._run.with_family().requests[event_id] = self


class ExternalWorkflowHandle:
    """A run that is known by its id alone. run_id: None for the newest one of the id, at the time of each call."""

    def __init__(self, context: RunContext, workflow_id: str, run_id: str | None) -> None:
        self._run = context
        self.id = workflow_id
        self.run_id = run_id

    def __repr__(self) -> str:
        return f"<external workflow {self.id!r} run {self.run_id or '(newest)'}>"

    async def signal(self, signal: Callable[..., Any] | str, *args: Any) -> None:
        """Send it a message, which reaches it exactly once. Done when it is in the inbox of that run.

        signal: the decorated method, or its name. Raises ExternalWorkflowError: there is no such run, it has ended, or
        its inbox is full.
        """
        send = functools.partial(send_signal, self._run, self.id, self.run_id, None)
        if (outbound := self._run.outbound) is not None:
            await outbound.signal_external_workflow(
                SignalExternalWorkflowInput(self.id, self.run_id, signal, args, send)
            )
        else:
            await send(signal, args)

    async def cancel(self, reason: str = "") -> None:
        """Ask it to stop. Done when the request is in its inbox. Raises ExternalWorkflowError, as `signal`."""
        what = f"the reason of a request to cancel workflow {self.id!r}"
        await _send(self._run, events.SendCancel(self.id, self.run_id, clean(reason, what)))


# What the code asks for -----------------------------------------------------------------------------------------------


def start_child(
    context: RunContext,
    workflow: Callable[..., Any] | type | str,
    args: tuple[Any, ...],
    caller: str,
    headers: dict[str, str] | None = None,
    *,
    id: str | None,  # noqa: A002 - the field's name for it
    task_queue: str | None,
    parent_close_policy: ParentClosePolicy,
    cancellation_type: ChildWorkflowCancellationType,
    id_reuse_policy: IdReusePolicy,
    execution_timeout: timedelta | None,
    priority: Priority | None,
    result_type: Any,
    search_attributes: object = (),
    memo: object = None,
) -> ChildStart[Any]:
    """Start a child. caller: the function that asks, which the id is drawn for where none is given. headers: of
    interceptors."""
    definition = None if isinstance(workflow, str) else WorkflowDefinition.of(workflow)
    name = check_id(workflow if definition is None else definition.name, "the name of a workflow")
    workflow_id, timeout = id, execution_timeout
    if workflow_id is None:
        workflow_id = str(context.draw_uuid(caller, None))
    elif not workflow_id:
        raise errors.UsageError(
            f"the child workflow {name!r} has an empty id: give one of yours, or None for a new one"
        )
    workflow_id = check_id(workflow_id, f"the id of the child workflow {name!r}")
    what = f"the child workflow {workflow_id!r} ({name})"
    _check_policies(what, parent_close_policy, cancellation_type, id_reuse_policy, priority)
    if timeout is not None and check_duration(timeout, f"the timeout of {what}", or_none=_NO_TIMEOUT) <= timedelta(0):
        raise errors.InvalidPolicyError(
            f"the timeout of {what} is {in_words(timeout)}; it must be more than 0, or {_NO_TIMEOUT}"
        )
    family = context.with_family()
    if len(family.children) + len(context.asked) >= PENDING_CHILDREN_MAX and _is_full(context, family):
        raise errors.UsageError(
            f"{context.identity} has {PENDING_CHILDREN_MAX} children open, the bound of one run; wait for some before "
            f"starting more, or let children of it start their own"
        )
    timeout = timeout or (None if definition is None else definition.deadline)
    command = events.StartChild(
        name,
        encode_call(
            None if definition is None else definition.signature,
            args,
            call=name,
            what=f"the input of {what}",
            bytes_max=context.payload_bytes_max,
        ),
        workflow_id,
        check_id(task_queue or context.identity.task_queue, f"the task queue of {what}"),
        parent_close_policy.value,
        cancellation_type.value,
        None if timeout is None else milliseconds(min(timeout, DURATION_MAX)),
        id_reuse_policy.value,
        place(context.priority if priority is None else priority.over(context.priority)),
        context.owner if definition is None or definition.owner is None else definition.owner,
        records_of(search_attributes) or None,
        None if memo is None else memos.encode(memo, f"the memo of {what}", context.payload_bytes_max),
        headers,
    )
    if definition is None:
        decode: Callable[[bytes], Any] = lambda data: payloads.decode(data, result_type)  # noqa: E731
    else:
        decode = definition.signature.decode_result
    handle: ChildWorkflowHandle[Any] = ChildWorkflowHandle(context, command, decode)
    handle.asked = context.ask(command, handle)
    scope = current_scope.get() if context.scoped else None
    if scope is not None:
        scope.note(handle.start)
        scope.note(handle)
    return handle.start


_NO_TIMEOUT: Final = "None for the deadline of its definition"


def _check_policies(what: str, *given: object) -> None:
    kinds = (ParentClosePolicy, ChildWorkflowCancellationType, IdReusePolicy, Priority)
    for value, kind in zip(given, kinds, strict=True):
        if not isinstance(value, kind) and not (kind is Priority and value is None):
            raise errors.InvalidPolicyError(f"{what}: {value!r} must be a {kind.__name__}")


def _is_full(context: RunContext, family: Family) -> bool:
    """Exactly: not everything that was asked for is a child, nor still wanted."""
    asked = sum(type(one.command) is events.StartChild and not one.withdrawn for one in context.asked)
    return len(family.children) + asked >= PENDING_CHILDREN_MAX


async def send_signal(
    context: RunContext,
    workflow_id: str,
    run_id: str | None,
    started_event_id: int | None,
    signal: Callable[..., Any] | str,
    args: Sequence[Any],
) -> None:
    """Send a signal, and wait until it is in the other run's inbox. Raises ExternalWorkflowError."""
    name = signal if isinstance(signal, str) else handler_name(signal, "signal")
    if name is None:
        raise errors.UnknownSignalError(f"{signal!r} is not a signal: decorate the method with @workflow.signal")
    name = check_id(name, f"the name of a signal to workflow {workflow_id!r}")
    encoded = encode_call(
        None if isinstance(signal, str) else payloads.Signature.of(signal, skip_self=True),
        tuple(args),
        call=name,
        what=f"the signal {name!r} to workflow {workflow_id!r}",
        bytes_max=context.payload_bytes_max,
    )
    await _send(context, events.SendSignal(workflow_id, name, encoded, run_id, started_event_id))


async def _send(context: RunContext, command: events.SendSignal | events.SendCancel) -> None:
    delivery = Delivery(context, command)
    delivery.asked = context.ask(command, delivery)
    await delivery


def _reason_of(msg: object) -> str:
    return "" if msg is None else clean(str(msg), "the reason of a cancellation")


# What comes of it -----------------------------------------------------------------------------------------------------

# A child that nobody waits for any more, a message that its sender has given up: what is told of it is no news.


def child_started(machine: Machine, started: events.ChildStarted) -> None:
    handle = machine.context.with_family().children.get(started.started_event_id)
    if handle is not None:
        handle.run_id = started.run_id
        if not handle.start.done():
            handle.start.set_result(handle)


def child_start_failed(machine: Machine, failed: events.ChildStartFailed) -> None:
    handle = machine.context.with_family().children.pop(failed.started_event_id, None)
    if handle is None:
        return
    handle.give_up()
    if handle.start.done():
        return
    if handle.cancel_asked:
        asyncio.Future.cancel(handle.start)
        return
    handle.start.set_exception(
        errors.WorkflowAlreadyStartedError(
            f"the child workflow {handle.id!r} ({handle.workflow_type}) has not started: its id is taken by run "
            f"{failed.run_id}. Use another id for another piece of work, or id_reuse_policy=ALLOW_DUPLICATE where that "
            f"run has ended",
            workflow_id=handle.id,
            run_id=failed.run_id,
        )
    )


def child_closed(machine: Machine, closed: events.ChildClosed) -> None:
    handle = machine.context.with_family().children.pop(closed.started_event_id, None)
    if handle is not None:
        handle.close(closed)


def message_delivered(machine: Machine, delivered: events.MessageDelivered) -> None:
    delivery = _settled(machine, delivered.sent_event_id)
    if delivery is not None and not delivery.done():
        delivery.set_result(None)


def message_refused(machine: Machine, refused: events.MessageRefused) -> None:
    delivery = _settled(machine, refused.sent_event_id)
    if delivery is None or delivery.done():
        return
    command = delivery.command
    what = f"the signal {command.name!r}" if isinstance(command, events.SendSignal) else "the request to cancel"
    which = f"workflow {command.workflow_id!r}" + (f" (run {command.run_id})" if command.run_id else "")
    delivery.set_exception(
        errors.ExternalWorkflowError(
            f"{what} reaches nobody: {which} {_REFUSALS.get(refused.reason, refused.reason)}",
            workflow_id=command.workflow_id,
            run_id=command.run_id,
            reason=refused.reason,
        )
    )


_REFUSALS: Final = {
    "not_found": "is not there",
    "closed": "has ended",
    "inbox_full": "has more messages waiting than its inbox takes; send it again later",
}


def _settled(machine: Machine, event_id: int) -> Delivery | None:
    """The message whose fate has come. What waited for the receipt of a request goes on."""
    family = machine.context.with_family()
    request = family.requests.pop(event_id, None)
    if request is not None and not request.handle.done():
        family.children.pop(request.handle.event_id, None)
        request.handle.give_up()
        if not request.handle.start.done():
            asyncio.Future.cancel(request.handle.start)
    return family.messages.pop(event_id, None)
