"""`pledger show`: one run in full, and what it waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from pledger.cli import options, words
from pledger.cli.ledger import find_run, opened
from pledger.cli.listing import run_document
from pledger.cli.output import STATUS_STYLES, Output, failure_document, iso_ms, raw
from pledger.cli.timeline import Entry, timeline
from pledger.cli.waits import Wait, waits
from pledger.client import Description
from pledger.engine.port import AttemptRecord, Message
from pledger.history import failures

if TYPE_CHECKING:
    from rich.table import Table

#: Entries and attempts shown without --full: the first ones, and the newest.
_FIRST, _NEWEST = 10, 90
_ATTEMPTS_FIRST, _ATTEMPTS_NEWEST = 1, 4
#: Waits shown without --full: a run that has fanned out waits for thousands of things alike.
_WAITS_MAX: Final = 10

_OUTCOME_STYLES: Final = {"completed": "green", "fired": "", "failed": "red", "cancelled": "yellow", "abandoned": "yellow"}


def show(
    workflow_id: options.WorkflowId,
    *,
    full: Annotated[bool, typer.Option("--full", help="Every entry, attempt and wait, however many.")] = False,
    run_id: options.RunId = None,
    url: options.Url = options.DEFAULT_URL,
    namespace: options.Namespace = "default",
    as_json: options.Json = False,
) -> int:
    """Show what happened to a run: steps, attempts, failures; and what it waits for, and why."""
    output = Output(as_json=as_json)

    async def read() -> Description:
        async with opened(url, namespace) as client:
            return await (await find_run(client, workflow_id, run_id)).describe()

    run = asyncio.run(read())
    entries = timeline(run.history.transitions, run.attempts, run.pending)
    if as_json:
        output.document(_document(run, entries, waits(run)))
        return 0
    view = _View(output, words.milliseconds(run.now), full=full)
    view.header(run)
    view.timeline(entries)
    view.messages(run)
    view.ending(run)
    return 0


# For people -----------------------------------------------------------------------------------------------------------


class _View:
    def __init__(self, output: Output, now_ms: int, *, full: bool) -> None:
        self._output = output
        self._now_ms = now_ms
        self._full = full
        self._chars = output.cell_chars_max
