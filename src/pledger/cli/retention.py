"""`pledger export` and `pledger prune`: what leaves the ledger."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from pledger import errors
from pledger.cli import documents, options, words
from pledger.cli.durations import parse_duration
from pledger.cli.exits import Exit
from pledger.cli.ledger import find_run, opened
from pledger.cli.output import Output
from pledger.cli.progress import Progress
from pledger.client import Client
from pledger.engine.port.records import RunRow
from pledger.ops.archive import Archive, archive_row
from pledger.ops.retention import Removed, prune, what_may_go

OlderThan: TypeAlias = Annotated[
    timedelta,
    typer.Option(
        "--older-than",
        parser=parse_duration,
        metavar="DURATION",
        help="What has been finished for longer than this.",
        show_default="30d",
    ),
]


# Export ---------------------------------------------------------------------------------------------------------------


def export(
    destination: Annotated[
        Path, typer.Argument(metavar="FILE", help="The new file, *.jsonl or *.jsonl.gz; one that is there is refused.")
    ],
    workflow_id: Annotated[
        str | None, typer.Argument(metavar="WORKFLOW_ID", help="One run.", show_default=False)
    ] = None,
    *,
    run_id: options.RunId = None,
    filter_: Annotated[
        str, typer.Option("--filter", metavar="FILTER", help="Runs that meet it, as for `pledger list`.")
    ] = "",
    older_than: Annotated[
        timedelta | None,
        typer.Option(
            "--older-than",
            parser=parse_duration,
            metavar="DURATION",
            help="Runs that have been finished for longer than this.",
            show_default=False,
        ),
    ] = None,
    url: options.Url = options.DEFAULT_URL,
    namespace: options.Namespace = "default",
    as_json: options.Json = False,
) -> int:
    """Write runs with their histories to a file, one a line of JSON; `pledger replay FILE` reads it.

    One run, those that meet a filter, or all of the namespace. Checksums are verified; a run that is damaged is named
    and left out. The file has mode 0600.
    """
    output = Output(as_json=as_json)
    if workflow_id is not None and (filter_ or older_than is not None):
        raise errors.UsageError("name one run, or say which with --filter and --older-than")

    async def run() -> tuple[int, list[errors.CorruptHistoryError]]:
        async with opened(url, namespace) as client:
            damaged = []
            with Archive(destination) as archive, Progress(output, "runs exported") as progress:
                rows = _one(client, workflow_id, run_id) if workflow_id else _rows(client, filter_, older_than)
                async for row in rows:
                    problem = await archive_row(client, archive, row)
                    if problem is not None:
                        damaged.append(problem)
                    progress.advance()
            return archive.runs, damaged

    runs, damaged = asyncio.run(run())
    if as_json:
        document = {"path": str(destination.absolute()), "runs": runs}
        output.document({**document, "damaged": [documents.problem(each) for each in damaged]})
    else:
        output.lines(f"{destination} has {words.count(runs, 'run')}")
        _tell_damaged(output, damaged, "are not in it")
    return Exit.STORE if damaged else Exit.OK


async def _one(client: Client, workflow_id: str, run_id: str | None) -> AsyncIterator[RunRow]:
    handle = await find_run(client, workflow_id, run_id)
    internals = client.internals
    row = await internals.store.find_run(internals.namespace, handle.workflow_id, handle.run_id)
    if row is None:
        await handle.history()  # which says that there is none
    else:
        yield row


async def _rows(client: Client, filter_: str, older_than: timedelta | None) -> AsyncIterator[RunRow]:
    internals = client.internals
    before = None if older_than is None else await client.now() - older_than
    async for summary in client.list(filter_):
        if before is not None and (summary.closed is None or summary.closed >= before):
            continue
        row = await internals.store.find_run(internals.namespace, summary.workflow_id, summary.run_id)
        if row is not None and not row.is_forgotten:
            yield row


# Prune ----------------------------------------------------------------------------------------------------------------


def prune_runs(
    *,
    older_than: OlderThan = timedelta(days=30),
    types: Annotated[
        list[str] | None,
        typer.Option("--type", metavar="TYPE", help="Of this workflow type; may be given more than once."),
    ] = None,
    undelivered: Annotated[
        bool, typer.Option("--undelivered", help="Also runs with signals that came too late, and that nobody took.")
    ] = False,
    archive: Annotated[
        Path | None,
        typer.Option("--export", metavar="FILE", help="Write what goes to this new file first.", show_default=False),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run/--yes", help="Only tell what would go, or remove it.")] = True,
    url: options.Url = options.DEFAULT_URL,
    namespace: options.Namespace = "default",
    as_json: options.Json = False,
) -> int:
    """Remove the histories of runs that finished long ago; their ids are remembered.

    Tells what would go, and removes it with --yes. Never what is open. Workers go on meanwhile, and do the same by
    themselves for the workflows that they know.
    """
    output = Output(as_json=as_json)

    async def run() -> Removed:
        async with opened(url, namespace) as client:
            if dry_run:
                return await what_may_go(client, older_than, types or (), undelivered=undelivered)
            with (
                nullcontext() if archive is None else Archive(archive) as out,
                Progress(output, "workflows removed") as progress,
            ):
                return await prune(
                    client, older_than, types or (), undelivered=undelivered, archive=out, progress=progress.advance
                )

    removed = asyncio.run(run())
    if as_json:
        output.document(_document(removed, dry_run=dry_run))
    else:
        _tell(output, removed, dry_run=dry_run)
    return Exit.STORE if removed.damaged else Exit.OK


def _tell(output: Output, removed: Removed, *, dry_run: bool) -> None:
    rows = [(name, f"{chains:,}") for name, chains in sorted(removed.by_type.items())]
    if rows:
        output.table(("TYPE", "WORKFLOWS"), rows, right=("WORKFLOWS",))
    total = words.count(removed.chains, "workflow")
    output.lines(f"{total} would go; --yes removes them" if dry_run else f"{total} removed; their ids are remembered")
    if removed.held:
        output.note(f"{removed.held:,} stay for signals that nobody took; --undelivered takes them too")
    _tell_damaged(output, removed.damaged, "stay")


def _tell_damaged(output: Output, damaged: list[errors.CorruptHistoryError], what: str) -> None:
    if damaged:
        output.lines(f"{words.count(len(damaged), 'damaged run')} {what}: {damaged[0]}")


def _document(removed: Removed, *, dry_run: bool) -> dict[str, Any]:
    return {
        "dry_run": dry_run,
        "workflows": removed.chains,
        "held": removed.held,
        "by_type": removed.by_type,
        "damaged": [documents.problem(each) for each in removed.damaged],
    }
