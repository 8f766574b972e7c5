"""`pledger start`."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from pledger.cli import documents, labels, options, words
from pledger.cli.arguments import read_arguments
from pledger.cli.durations import parse_duration
from pledger.cli.ledger import ledger_file, opened, within
from pledger.cli.output import Output
from pledger.cli.progress import Progress
from pledger.client import IdConflictPolicy, IdReusePolicy, WorkflowHandle
from pledger.history import payloads

if TYPE_CHECKING:
    from pledger.client import Client


def _choices(policies: type[Enum]) -> str:
    return ", ".join(str(policy.value) for policy in policies)


Type: TypeAlias = Annotated[str, typer.Argument(metavar="TYPE", help="The workflow's name.")]
Id: TypeAlias = Annotated[
    str, typer.Option("--id", metavar="WORKFLOW_ID", help="Your name for this piece of work, like order-7421.")
]
ExecutionTimeout: TypeAlias = Annotated[
    timedelta | None,
    typer.Option(
        "--execution-timeout",
        parser=parse_duration,
        metavar="DURATION",
        help="The run times out after so long.",
        show_default=False,
    ),
]
Reuse: TypeAlias = Annotated[
    IdReusePolicy,
    typer.Option(
        "--id-reuse-policy", metavar="POLICY", help=f"When a closed run has the id: {_choices(IdReusePolicy)}."
    ),
]
Conflict: TypeAlias = Annotated[
    IdConflictPolicy,
    typer.Option(
        "--id-conflict-policy", metavar="POLICY", help=f"When an open run has the id: {_choices(IdConflictPolicy)}."
    ),
]


Signal: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--signal",
        metavar="SIGNAL",
        help="Send it with the start, or to the open run that has the id.",
        show_default=False,
    ),
]
SignalArguments: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--signal-arg", metavar="ARGUMENT", help="An argument of the signal; as often as it takes.", show_default=False
    ),
]


def start(
    workflow_type: Type,
    arguments: options.Arguments = None,
    *,
    workflow_id: Id,
    task_queue: options.TaskQueue = "default",
    wait: options.Wait = False,
    timeout: options.Timeout = None,
    execution_timeout: ExecutionTimeout = None,
    reuse: Reuse = IdReusePolicy.SAME_INPUT,
    conflict: Conflict = IdConflictPolicy.SAME_INPUT,
    signal: Signal = None,
    signal_args: SignalArguments = None,
    search_attribute: labels.SearchAttributes = None,
    memo: labels.Memo = None,
    payload_bytes_max: options.PayloadBytesMax = payloads.PAYLOAD_BYTES_MAX,
    url: options.Url = options.DEFAULT_URL,
    namespace: options.Namespace = "default",
    as_json: options.Json = False,
) -> int:
    """Start a run. It is durable when the command returns; the same id with the same input gives the same run.

    With --wait, the result goes to stdout, or the failure to stderr.
    """
    output = Output(as_json=as_json)
    values, signal_values = read_arguments(arguments or []), read_arguments(signal_args or [])
    memo_values = labels.read_memo(memo or [])

    async def run() -> None:
        file = ledger_file(url)
        is_new_ledger = file is not None and not file.exists()
        async with opened(url, namespace, may_create=True, payload_bytes_max=payload_bytes_max) as client:
            handle = await client.start_workflow(
                workflow_type,
                *values,
                id=workflow_id,
                task_queue=task_queue,
                id_reuse_policy=reuse,
                id_conflict_policy=conflict,
                execution_timeout=execution_timeout,
                start_signal=signal,
                start_signal_args=signal_values,
                search_attributes=await labels.read_search_attributes(search_attribute or [], client),
                memo=memo_values,
            )
            if is_new_ledger:
                output.note(f"made a new ledger at {url}")
            started = {
                "workflow_id": handle.workflow_id,
                "run_id": handle.run_id,
                "workflow_type": workflow_type,
                "task_queue": task_queue,
                "is_new": handle.is_new,
            }
            if not wait:
                _show_started(output, started)
            await _note_missing_worker(output, client, task_queue)
            if wait:
                _show_result(output, started, await _result(output, handle, timeout))

    asyncio.run(run())
    return 0


def _show_result(output: Output, started: dict[str, Any], result: Any) -> None:
    output.document({**started, "status": "completed", "result": result} if output.as_json else result)


def _show_started(output: Output, started: dict[str, Any]) -> None:
    if output.as_json:
        output.document(started)
    elif started["is_new"]:
        output.lines(f"started {started['workflow_id']} ({started['workflow_type']}, run {started['run_id']})")
    else:
        output.lines(f"{started['workflow_id']} was started before with this input: run {started['run_id']}")


async def _note_missing_worker(output: Output, client: Client, task_queue: str) -> None:
    if not any(each.live and each.task_queue == task_queue for each in await client.workers()):
        command = words.worker_command(task_queue, client.internals.namespace)
        output.note(f"no live worker serves task queue {task_queue!r}; start one: {command}")


async def _result(output: Output, handle: WorkflowHandle[Any], timeout: timedelta | None) -> Any:
    """The result as a part of a JSON document. Raises what `handle.result()` raises, and WaitTimeoutError."""
    with Progress(output, f"waiting for {handle.workflow_id}"):
        result = await within(timeout, handle.result(), f"workflow {handle.workflow_id!r} (run {handle.run_id})")
    # As text again: decoded without its annotation, it has lost nothing that JSON can say.
    return documents.raw(payloads.encode(result))
