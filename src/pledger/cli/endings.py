"""`pledger cancel` and `pledger terminate`."""

from __future__ import annotations

import asyncio
import contextlib

from pledger import errors
from pledger.cli import options
from pledger.cli.exits import Exit
from pledger.cli.ledger import find_run, opened, within
from pledger.cli.output import Output
from pledger.cli.progress import Progress
from pledger.client import CancelVerdict, WorkflowHandle


def cancel(
    workflow_id: options.WorkflowId,
    *,
    reason: options.Reason = "",
    wait: options.Wait = False,
    timeout: options.Timeout = None,
    run_id: options.RunId = None,
    url: options.Url = options.DEFAULT_URL,
    namespace: options.Namespace = "default",
    as_json: options.Json = False,
) -> int:
    """Ask a run to stop; its code may clean up first. With --wait: what became of the request.

    The exit code is 1 when the run ended in another way: it was too late, or its code did not heed the request.
    """
    output = Output(as_json=as_json)

    async def run() -> CancelVerdict:
        async with opened(url, namespace) as client:
            handle = await find_run(client, workflow_id, run_id)
            verdict = await handle.cancel(reason)
            if not wait:
                return verdict
            with Progress(output, f"waiting for {workflow_id} to close"):
                await within(timeout, _closed(handle), f"workflow {workflow_id!r}")
            return await handle.cancel_verdict(verdict.request_id)

    verdict = asyncio.run(run())
    if as_json:
        output.document({"workflow_id": workflow_id, "request_id": verdict.request_id, "verdict": verdict.verdict})
    else:
        output.lines(_in_words(workflow_id, verdict))
    return Exit.BAD_NEWS if verdict.verdict not in (None, "cancelled") else Exit.OK


async def _closed(handle: WorkflowHandle[None]) -> None:
    with contextlib.suppress(errors.WorkflowFailedError):  # closed, which is all that was asked
        await handle.result()


def _in_words(workflow_id: str, verdict: CancelVerdict) -> str:
    match verdict.verdict:
        case None:
            return f"{workflow_id} was asked to cancel ({verdict.request_id}); --wait tells what becomes of it"
        case "cancelled":
            return f"{workflow_id} is cancelled"
        case other:
            return f"{workflow_id} is {other.rpartition(':')[2]}; the request did not cancel it"


def terminate(
    workflow_id: options.WorkflowId,
    *,
    reason: options.Reason = "",
    run_id: options.RunId = None,
    url: options.Url = options.DEFAULT_URL,
    namespace: options.Namespace = "default",
    as_json: options.Json = False,
) -> int:
    """End a run at once. Its code is not told and cleans nothing up; `pledger cancel` lets it."""
    output = Output(as_json=as_json)

    async def run() -> None:
        async with opened(url, namespace) as client:
            await (await find_run(client, workflow_id, run_id)).terminate(reason)

    asyncio.run(run())
    if as_json:
        output.document({"workflow_id": workflow_id, "status": "terminated"})
    else:
        output.lines(f"{workflow_id} is terminated")
    return Exit.OK
