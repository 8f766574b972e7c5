"""`pledger list`."""

from __future__ import annotations

import asyncio
from typing import Annotated, Final

import typer

from pledger.cli import documents, options, words
from pledger.cli.ledger import opened
from pledger.cli.output import STATUS_STYLES, Output, Styled, Words
from pledger.client import RunSummary

#: Columns from which a terminal has room for run ids as well.
_WIDE: Final = 110


def list_runs(
    filter_: Annotated[
        str,
        typer.Argument(
            metavar="FILTER",
            help="Like \"status = 'running' and type = 'fulfil'\". Fields: workflow_id, run_id, type, task_queue, "
            "status, started, closed, blocked. Operators: = != < <= > >= in, joined by and.",
            show_default=False,
        ),
    ] = "",
    *,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many.")] = 50,
    url: options.Url = options.DEFAULT_URL,
    namespace: options.Namespace = "default",
    as_json: options.Json = False,
) -> int:
    """List runs, newest first."""
    output = Output(as_json=as_json)

    async def read() -> tuple[list[RunSummary], int, int]:
        async with opened(url, namespace) as client:
            found = [each async for each in client.list(filter_, limit=limit)]
            # Only then is there something to count.
            total = await client.count(filter_) if len(found) == limit else len(found)
            return found, total, words.milliseconds(await client.now())

    found, total, now_ms = asyncio.run(read())
    if as_json:
        output.document({"runs": [documents.run_summary(each) for each in found], "total": total})
    elif found:
        _show(output, found, now_ms)
        if total > len(found):
            output.note(f"{len(found):,} of {total:,} runs; --limit shows more")
    else:
        output.note("no runs" if not filter_.strip() else "no runs meet the filter")
    return 0


def _show(output: Output, found: list[RunSummary], now_ms: int) -> None:
    with_run_id = output.width is None or output.width >= _WIDE
    with_reason = any(each.blocked or each.paused for each in found)
    headers = ["WORKFLOW ID", "RUN ID", "TYPE", "STATUS", "STARTED", "TOOK", "WHY"]
    shown = [header for header in headers if {"RUN ID": with_run_id, "WHY": with_reason}.get(header, True)]
    rows = [dict(zip(headers, _row(each, now_ms, output.cell_chars_max), strict=True)) for each in found]
    output.table(shown, [[row[header] for header in shown] for row in rows], right=("TOOK",))


def _row(run: RunSummary, now_ms: int, cell: int) -> tuple[Words, ...]:
    status = "blocked" if run.blocked else "paused" if run.paused else run.status
    started_ms = words.milliseconds(run.started)
    ended_ms = now_ms if run.closed is None else words.milliseconds(run.closed)
    took = words.duration(ended_ms - started_ms)
    return (
        run.workflow_id,
        run.run_id,
        run.workflow_type,
        Styled(status, STATUS_STYLES.get(status, "")),
        words.moment(started_ms, now_ms),
        f"{took} …" if run.closed is None else took,
        words.one_line(run.blocked or run.paused or "", cell),
    )
