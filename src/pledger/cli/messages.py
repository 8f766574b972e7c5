"""`pledger signal`, `pledger query` and `pledger update`."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Annotated, Any

import typer

from pledger.cli import documents, options
from pledger.cli.arguments import read_arguments
from pledger.cli.durations import parse_duration
from pledger.cli.ledger import find_run, opened
from pledger.cli.output import Output
from pledger.client import QUERY_TIMEOUT, WorkflowUpdateStage
from pledger.history import payloads


def signal(
    workflow_id: options.WorkflowId,
    name: Annotated[str, typer.Argument(metavar="SIGNAL", help="The signal's name.")],
    arguments: options.Arguments = None,
    *,
    message_id: Annotated[
        str | None,
        typer.Option("--message-id", help="Your name for it: sent again, it is delivered once.", show_default=False),
    ] = None,
    run_id: options.RunId = None,
    payload_bytes_max: options.PayloadBytesMax = payloads.PAYLOAD_BYTES_MAX,
    url: options.Url = options.DEFAULT_URL,
    namespace: options.Namespace = "default",
    as_json: options.Json = False,
) -> int:
    """Send a message to a run. It is durable when the command returns, and reaches the run exactly once."""
    output = Output(as_json=as_json)
    values = read_arguments(arguments or [])

    async def run() -> None:
        async with opened(url, namespace, payload_bytes_max=payload_bytes_max) as client:
            handle = await find_run(client, workflow_id, run_id)
            await handle.signal(name, *values, message_id=message_id)

    asyncio.run(run())
    if as_json:
        output.document({"workflow_id": workflow_id, "signal": name, "accepted": True})
    else:
        output.lines(f"{workflow_id} has accepted the signal {name}")
    return 0


def query(
    workflow_id: options.WorkflowId,
    name: Annotated[str, typer.Argument(metavar="QUERY", help="The query's name.")],
    arguments: options.Arguments = None,
    *,
    timeout: Annotated[
        timedelta,
        typer.Option(
            "--timeout",
            parser=parse_duration,
            metavar="DURATION",
            help="How long a worker may take to answer.",
            show_default="10s",
        ),
    ] = QUERY_TIMEOUT,
    run_id: options.RunId = None,
    url: options.Url = options.DEFAULT_URL,
    namespace: options.Namespace = "default",
    as_json: options.Json = False,
) -> int:
    """Ask an open run; the worker that holds it answers. The answer is JSON, with --json or without."""
    output = Output(as_json=as_json)
    values = read_arguments(arguments or [])

    async def run() -> Any:
        async with opened(url, namespace) as client:
            handle = await find_run(client, workflow_id, run_id)
            return await handle.query(name, *values, timeout=timeout)

    output.document(documents.raw(payloads.encode(asyncio.run(run()))))
    return 0


def update(
    workflow_id: options.WorkflowId,
    name: Annotated[str, typer.Argument(metavar="UPDATE", help="The update's name.")],
    arguments: options.Arguments = None,
    *,
    update_id: Annotated[
        str | None,
        typer.Option("--update-id", help="Your name for it: sent again, it is done once.", show_default=False),
    ] = None,
    accepted: Annotated[
        bool, typer.Option("--accepted", help="Return as soon as it is accepted, and not with its result.")
    ] = False,
    timeout: Annotated[
        timedelta,
        typer.Option(
            "--timeout",
            parser=parse_duration,
            metavar="DURATION",
            help="How long a worker may take to accept it.",
            show_default="10s",
        ),
    ] = QUERY_TIMEOUT,
    run_id: options.RunId = None,
    payload_bytes_max: options.PayloadBytesMax = payloads.PAYLOAD_BYTES_MAX,
    url: options.Url = options.DEFAULT_URL,
    namespace: options.Namespace = "default",
    as_json: options.Json = False,
) -> int:
    """Send a run a message that it answers: refused without a trace, or recorded and done. The answer is JSON.

    What was accepted is done whatever happens; with --update-id its result can be asked for again.
    """
    output = Output(as_json=as_json)
    values = read_arguments(arguments or [])
    stage = WorkflowUpdateStage.ACCEPTED if accepted else WorkflowUpdateStage.COMPLETED

    async def run() -> tuple[str, Any]:
        async with opened(url, namespace, payload_bytes_max=payload_bytes_max) as client:
            handle = await find_run(client, workflow_id, run_id)
            sent = await handle.start_update(name, *values, wait_for_stage=stage, id=update_id, timeout=timeout)
            return sent.id, None if accepted else await sent.result()

    sent_id, result = asyncio.run(run())
    document = {"workflow_id": workflow_id, "update": name, "update_id": sent_id, "accepted": True}
    if accepted and not as_json:
        output.lines(f"{workflow_id} has accepted the update {name}: {sent_id}")
    elif accepted:
        output.document(document)
    else:
        told = documents.raw(payloads.encode(result))
        output.document({**document, "result": told} if as_json else told)
    return 0
