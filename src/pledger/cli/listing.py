"""`pledger list`."""

from __future__ import annotations

import asyncio
from typing import Annotated, Final

import typer

from pledger.cli import documents, options, words
from pledger.cli.ledger import opened
from pledger.cli.output import STATUS_STYLES, Output
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
    from rich.text import Text  # noqa: PLC0415 - only where a table is drawn

    with_run_id = output.width is None or output.width >= _WIDE
    with_remark = any(each.blocked for each in found)
    table = output.table(
        "WORKFLOW ID",
        *(["RUN ID"] if with_run_id else []),
        "TYPE",
        "STATUS",
        "STARTED",
        "TOOK",
        *(["WHY"] if with_remark else []),
        right=("TOOK",),
    )
    for each in found:
        status = "blocked" if each.blocked else each.status
        started_ms = words.milliseconds(each.started)
        closed_ms = None if each.closed is None else words.milliseconds(each.closed)
        took = words.duration((closed_ms or now_ms) - started_ms)
        table.add_row(
            Text(words.printable(each.workflow_id)),
            *([each.run_id] if with_run_id else []),
            Text(words.printable(each.workflow_type)),
            Text(status, style=STATUS_STYLES.get(status, "")),
            words.moment(started_ms, now_ms),
            took if closed_ms is not None else f"{took} …",
            *([Text(words.one_line(each.blocked or "", output.line_chars_max))] if with_remark else []),
        )
    output.print(table)
