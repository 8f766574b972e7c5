"""`pledger list`."""

from __future__ import annotations

import asyncio
from typing import Annotated, Final

import typer

from pledger.cli import documents, options, words
from pledger.cli.ledger import opened
from pledger.cli.output import STATUS_STYLES, Output, Styled, Words
from pledger.client import RunSummary
from pledger.engine.search.meaning import FIELDS
from pledger.engine.search.views import View

#: Columns from which a terminal has room for run ids as well.
_WIDE: Final = 110


_FILTER_HELP: Final = (
    "Like \"status = 'running' and amount > 100 order by started_at desc\". Names: "
    f"{', '.join(FIELDS)}, and search attributes. Conditions: = != < <= > >= in, between, is null, "
    "like 'prefix%', joined by and, or, not."
)


def list_runs(
    filter_: Annotated[
        str,
        typer.Argument(
            metavar="FILTER",
            help=_FILTER_HELP,
            show_default=False,
        ),
    ] = "",
    *,
    view: Annotated[
        View | None, typer.Option("--view", help="A ready-made question; with a filter, those that meet it too.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many.")] = 50,
    url: options.Url = options.DEFAULT_URL,
    namespace: options.Namespace = "default",
    as_json: options.Json = False,
) -> int:
    """List runs, newest first. `--view needs-attention`: blocked, retrying, overdue, or with a long history."""
    output = Output(as_json=as_json)

    async def read() -> tuple[list[RunSummary], int, int]:
        async with opened(url, namespace) as client:
            found = [each async for each in client.list_workflows(filter_, view=view, limit=limit)]
            # Only then is there something to count.
            total = await client.count_workflows(filter_, view=view) if len(found) == limit else len(found)
            return found, total, words.milliseconds(await client.now())

    found, total, now_ms = asyncio.run(read())
    if as_json:
        output.document({"runs": [documents.run_summary(each) for each in found], "total": total})
    elif found:
        _show(output, found, now_ms)
        if total > len(found):
            output.note(f"{len(found):,} of {total:,} runs; --limit shows more")
    else:
        output.note("no runs" if not filter_.strip() and view is None else "no runs meet the filter")
    return 0


def _show(output: Output, found: list[RunSummary], now_ms: int) -> None:
    with_run_id = output.width is None or output.width >= _WIDE
    headers = ["WORKFLOW ID", "RUN ID", "TYPE", "STATUS", "STARTED", "TOOK", "OWNER", "ATTRIBUTES", "WHY"]
    has = {
        "RUN ID": with_run_id,
        "OWNER": any(each.attention and each.owner for each in found),
        "ATTRIBUTES": any(len(each.search_attributes) for each in found),
        "WHY": any(each.blocked or each.paused or each.attention for each in found),
    }
    shown = [header for header in headers if has.get(header, True)]
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
        words.one_line(run.owner or "", cell),
        words.one_line(", ".join(words.attribute(each.key.name, each.value) for each in run.search_attributes), cell),
        words.one_line(run.blocked or run.paused or run.attention or "", cell),
    )
