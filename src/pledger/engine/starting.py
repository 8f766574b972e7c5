"""A client starts a run: through the worker of its own process that can take it at once, or for whoever comes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pledger import errors
from pledger.engine.port.answers import Answer, Started
from pledger.engine.port.operations import StartRun
from pledger.engine.port.records import RunRow
from pledger.history import memos
from pledger.history.attributes import AttributeRecord, records_of
from pledger.history.events import RunStarted, SignalReceived, UpdateAccepted
from pledger.machine.identity import RunIdentity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pledger.engine.connection import Connection


def check_known(connection: Connection, name: str, task_queue: str) -> None:
    """Raises UnknownWorkflowError where workers of this process serve the queue and none of them knows the type."""
    served = [each for each in connection.engines if each.task_queue == task_queue]
    if served and all(name not in each.workflows for each in served):
        known = ", ".join(sorted({each for engine in served for each in engine.workflows})) or "none"
        raise errors.UnknownWorkflowError(
            f"the worker of task queue {task_queue!r} in this process does not know the workflow {name!r}; "
            f"it knows: {known}. Add it to Worker(workflows=[...]), or name the queue of the worker that has it"
        )


async def read_labels(
    connection: Connection, attributes: object, memo: object, what: str
) -> tuple[tuple[AttributeRecord, ...] | None, bytes | None]:
    """The search attributes and the memo of a start, as they are kept. what: names the memo. Raises as `records_of`,
    `memos.encode` and `check_kinds`."""
    records = records_of(attributes)
    if records:
        await check_kinds(connection, records)
    return records or None, None if memo is None else memos.encode(memo, what, connection.payload_bytes_max)


async def check_kinds(connection: Connection, records: Sequence[AttributeRecord]) -> None:
    """Raises UsageError for a search attribute that other runs have with another kind: a filter could not tell what its
    value is to be compared with."""
    known = connection.attribute_kinds
    if any(known.get(each.name) != each.kind for each in records):
        known.clear()
        known.update(await connection.store.attribute_kinds(connection.namespace))
    for each in records:
        if known.setdefault(each.name, each.kind) != each.kind:
            raise errors.UsageError(
                f"the search attribute {each.name!r} is of kind {known[each.name]} in this namespace, and {each.kind} "
                f"here; use SearchAttributeKey.for_{known[each.name]}({each.name!r}), or another name"
            )


async def start(
    connection: Connection, operation: StartRun, started: RunStarted, beside: SignalReceived | UpdateAccepted | None
) -> Answer:
    """What came of it, once it is durable. beside: what `operation.beside` is as an input."""
    engine = connection.engine_for(operation.workflow_type, operation.task_queue)
    if operation.beside is not None and operation.beside.keep_id and engine is not None:
        answer = await connection.committer.write(operation)  # as a message it is remembered
        engine.changed()
        return answer
    if engine is None:
        return await connection.committer.write(operation)
    future: asyncio.Future[Answer] = connection.loop.create_future()

    def done(answer: Answer) -> None:
        if isinstance(answer, Started) and operation.owner is None:
            engine.changed()
        if future.done():
            return
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)

    identity = RunIdentity(
        namespace=operation.namespace,
        workflow_id=operation.workflow_id,
        run_id=operation.run_id,
        workflow_type=operation.workflow_type,
        task_queue=operation.task_queue,
    )
    engine.begin(operation, started, identity, done, beside)
    return await future


def taken(operation: StartRun, existing: RunRow) -> errors.WorkflowAlreadyStartedError:
    """What a start is told whose id another run has."""
    same = existing.input_digest == operation.input_digest and existing.workflow_type == operation.workflow_type
    what = (
        "with the same input, and the chosen policy does not take it"
        if same
        else f"of type {existing.workflow_type!r}"
        if existing.workflow_type != operation.workflow_type
        else "with another input"
    )
    return errors.WorkflowAlreadyStartedError(
        f"workflow id {operation.workflow_id!r} is taken by run {existing.run_id} ({existing.status}) {what}. "
        f"Use another id for another piece of work, or choose an id_reuse_policy / id_conflict_policy",
        workflow_id=operation.workflow_id,
        run_id=existing.run_id,
    )
