"""How a client starts a run: the call is checked, written, and what the store answers made a handle of."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from pledger import errors
from pledger.engine import starting, update_rows
from pledger.engine.ids import new_run_id
from pledger.engine.port.answers import Answer, Existing, Started
from pledger.engine.port.filters import attribute_of
from pledger.engine.port.operations import FirstMessage, IdConflictPolicy, StartRun
from pledger.handle import WorkflowHandle
from pledger.history import payloads, transition
from pledger.history.attributes import AttributeRecord, SearchAttributePair, TypedSearchAttributes
from pledger.history.calls import encode_call
from pledger.history.events import RunStarted, SignalReceived, UpdateAccepted
from pledger.history.names import check_id
from pledger.history.placement import Priority, place
from pledger.history.reuse import IdReusePolicy
from pledger.history.times import DURATION_MAX, check_duration, in_words, milliseconds
from pledger.machine.definitions import WorkflowDefinition

if TYPE_CHECKING:
    from pledger.client import Client
    from pledger.engine.connection import Connection


class Beside(NamedTuple):
    """What is sent with a start: as a message, where no worker of this process bears the run, and as its input."""

    message: FirstMessage
    event: SignalReceived | UpdateAccepted


@dataclass(slots=True, kw_only=True)
class StartCall:
    """The arguments of `Client.start_workflow`, the headers of interceptors, and what is sent with the start.

    name, definition: of the workflow; definition is None where only the name is known. The names are plain texts.
    Raises UsageError and InvalidPolicyError.
    """

    workflow: Callable[..., Any] | type | str
    args: tuple[Any, ...]
    id: str
    task_queue: str = "default"
    id_reuse_policy: IdReusePolicy = IdReusePolicy.SAME_INPUT
    id_conflict_policy: IdConflictPolicy = IdConflictPolicy.SAME_INPUT
    execution_timeout: timedelta | None = None
    priority: Priority | None = None
    search_attributes: TypedSearchAttributes | Sequence[SearchAttributePair[Any]] = ()
    memo: Mapping[str, Any] | None = None
    connection: object | None = None
    headers: dict[str, str] | None = None
    beside: Beside | None = None
    name: str = field(init=False)
    definition: WorkflowDefinition | None = field(init=False)

    def __post_init__(self) -> None:
        workflow = self.workflow
        if isinstance(workflow, str):
            name, self.definition = workflow, None
        else:
            self.definition = definition = WorkflowDefinition.of(workflow)
            name = definition.name
        if not self.id:
            raise errors.UsageError(f"workflow {name!r} needs an id: a name of yours for this piece of work")
        self.name = name = check_id(name, "the name of a workflow")
        self.id = id_ = check_id(self.id, f"the id of a run of workflow {name!r}")
        self.task_queue = check_id(self.task_queue, f"the task queue of workflow {id_!r}")
        if self.priority is not None and not isinstance(self.priority, Priority):
            raise errors.InvalidPolicyError(
                f"the priority of workflow {id_!r} is {self.priority!r}; it must be a Priority"
            )
        if self.execution_timeout is not None:
            what, or_none = f"execution_timeout of workflow {id_!r} ({name})", "None for the deadline of the definition"
            if check_duration(self.execution_timeout, what, or_none=or_none) <= timedelta(0):
                raise errors.InvalidPolicyError(
                    f"{what} is {in_words(self.execution_timeout)}; it must be more than 0, or {or_none}"
                )


async def start(client: Client, call: StartCall) -> WorkflowHandle[Any]:
    """See `Client.start_workflow`."""
    internals, definition = client.internals, call.definition
    starting.check_known(internals, call.name, call.task_queue)
    if call.connection is not None and call.id_conflict_policy is IdConflictPolicy.TERMINATE_EXISTING:
        raise errors.UsageError(
            f"workflow {call.id!r} ({call.name}): a run is not ended in a transaction of yours, where its worker would "
            "have to wait for you. End it first, by handle.terminate(), or choose another id_conflict_policy"
        )
    operation, started = await _operation(internals, call)
    if call.connection is not None:
        return _joined(client, call, operation, await internals.store.join(call.connection, operation))
    answer = await starting.start(internals, operation, started, None if call.beside is None else call.beside.event)
    if isinstance(answer, Started):
        keys = (answer.run_key, answer.chain_key)
        return WorkflowHandle(client, call.id, operation.run_id, definition, *keys, is_new=True)
    assert isinstance(answer, Existing)
    existing = answer.run
    if answer.decision == "use":
        handle: WorkflowHandle[Any] = WorkflowHandle(
            client, call.id, existing.chain_id, definition, existing.run_key, existing.chain_key, is_new=False
        )
        if call.beside is None or not isinstance(call.beside.event, SignalReceived):
            return handle
        try:
            keep_id = call.beside.message.keep_id
            await handle._send_beside_start(call.beside.event, keep_id=keep_id)  # noqa: SLF001 - as below
        except errors.RunClosedError:
            if existing.status != "running":
                raise
            return await start(client, call)  # it has just ended: there may be a new run now
        return handle
    if answer.decision == "terminate":
        with contextlib.suppress(errors.RunClosedError):  # it may end by itself meanwhile
            ended = client.handle(call.id, run_id=existing.run_id)
            await ended.terminate("replaced by a new run of the same workflow id")
        return await start(client, replace(call, id_reuse_policy=IdReusePolicy.ALLOW_DUPLICATE))
    raise starting.taken(operation, existing)


async def _operation(connection: Connection, call: StartCall) -> tuple[StartRun, RunStarted]:
    definition = call.definition
    encoded = encode_call(
        None if definition is None else definition.signature,
        call.args,
        call=call.name,
        what=f"the input of workflow {call.id!r} ({call.name})",
        bytes_max=connection.payload_bytes_max,
    )
    attributes: tuple[AttributeRecord, ...] | None = None
    memo: bytes | None = None
    if call.search_attributes or call.memo is not None:
        what = f"the memo of workflow {call.id!r} ({call.name})"
        attributes, memo = await starting.read_labels(connection, call.search_attributes, call.memo, what)
    now_ms = await connection.now_ms()
    limit = call.execution_timeout or (definition.deadline if definition is not None else None)
    deadline_ms = None if limit is None else now_ms + milliseconds(min(limit, DURATION_MAX))
    entropy = connection.entropy(26)
    owner = None if definition is None else definition.owner
    started = RunStarted(
        call.name,
        encoded,
        entropy[:16],
        call.task_queue,
        deadline_ms,
        place(call.priority),
        owner,
        headers=call.headers,
        search_attributes=attributes,
        memo=memo,
    )
    operation = StartRun(
        connection.namespace,
        call.id,
        new_run_id(now_ms, entropy[16:]),
        call.name,
        call.task_queue,
        connection.vault.digest(payloads.digest(encoded), connection.namespace, call.id),
        transition.encode_event(started),
        now_ms,
        call.id_reuse_policy,
        call.id_conflict_policy,
        beside=None if call.beside is None else call.beside.message,
        attributes=[attribute_of(each) for each in attributes] if attributes else (),
        memo=memo,
        answers_for=owner,
        deadline_ms=deadline_ms,
    )
    return operation, started


def _joined(client: Client, call: StartCall, operation: StartRun, answer: Answer) -> WorkflowHandle[Any]:
    """What came of a start in a user's transaction. Its keys are not told: they count once it is committed."""
    if isinstance(answer, Started):
        return WorkflowHandle(client, call.id, operation.run_id, call.definition, is_new=True)
    assert isinstance(answer, Existing)
    if answer.decision != "use":
        raise starting.taken(operation, answer.run)
    if call.beside is not None:
        raise errors.UsageError(
            f"workflow {call.id!r} ({call.name}) has run {answer.run.run_id} already, which is sent nothing in a "
            "transaction of yours. Send it the signal after the commit: handle.signal(...)"
        )
    return WorkflowHandle(client, call.id, answer.run.chain_id, call.definition, is_new=False)


def signal_beside(
    client: Client,
    workflow: Callable[..., Any] | type | str,
    workflow_id: str,
    signal: Callable[..., Any] | str,
    args: Sequence[Any],
    message_id: str | None,
) -> Beside:
    """A signal that goes with a start. Raises what `WorkflowHandle.signal` raises for what it is given."""
    if isinstance(args, str | bytes) or not isinstance(args, Sequence):
        raise errors.UsageError(
            f"start_signal_args of workflow {workflow_id!r} is {args!r}, of type {type(args).__name__}; it must be a "
            "list of the signal's arguments"
        )
    definition = None if isinstance(workflow, str) else WorkflowDefinition.of(workflow)
    handle: WorkflowHandle[Any] = WorkflowHandle(client, workflow_id, None, definition)
    name, encoded, _ = handle._message(  # noqa: SLF001 - a part of the same face
        "signal", signal, tuple(args)
    )
    keep_id = message_id is not None
    message_id = handle._message_id(name, message_id)  # noqa: SLF001 - as above
    message_id = message_id or client.internals.entropy(12).hex()
    message = FirstMessage(message_id, name, encoded, keep_id)
    return Beside(message, SignalReceived(name, encoded, message_id))


def update_beside(update: UpdateAccepted) -> Beside:
    return Beside(update_rows.beside_start(update), update)
