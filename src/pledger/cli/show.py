"""`pledger show`: one run in full, and what it waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer

from pledger.cli import documents, options, telling, words
from pledger.cli.exits import Exit
from pledger.cli.ledger import find_run, opened
from pledger.cli.output import STATUS_STYLES, Output
from pledger.cli.timeline import Entry, timeline
from pledger.cli.waits import Wait, waits
from pledger.client import Description
from pledger.engine.port import AttemptRecord

if TYPE_CHECKING:
    from rich.table import Table

T = TypeVar("T")

#: How many are shown without --full, from the beginning and from the end. A run that has fanned out has thousands.
_ENTRIES_SHOWN: Final = (10, 90)
_ATTEMPTS_SHOWN: Final = (1, 4)
_WAITS_SHOWN: Final = (8, 2)

_OUTCOME_STYLES: Final = {"failed": "red", "cancelled": "yellow", "abandoned": "yellow", "": "cyan"}


def show(
    workflow_id: options.WorkflowId,
    *,
    full: Annotated[bool, typer.Option("--full", help="Every entry, attempt and wait, however many.")] = False,
    run_id: options.RunId = None,
    url: options.Url = options.DEFAULT_URL,
    namespace: options.Namespace = "default",
    as_json: options.Json = False,
) -> int:
    """Show what happened to a run, what it waits for, and why."""
    output = Output(as_json=as_json)

    async def read() -> Description:
        async with opened(url, namespace) as client:
            return await (await find_run(client, workflow_id, run_id)).describe()

    run = asyncio.run(read())
    entries = timeline(run.history.transitions, run.attempts, run.pending)
    found = waits(run)
    if as_json:
        output.document(documents.run_in_full(run, entries, found))
        return _exit(run)
    view = _View(output, words.milliseconds(run.now), full=full)
    view.header(run)
    view.timeline(entries)
    view.ending(run, found)
    return _exit(run)


def _exit(run: Description) -> Exit:
    return Exit.OK if run.history.damage is None else Exit.STORE


class _View:
    """Prints a run. full: nothing is left out."""

    def __init__(self, output: Output, now_ms: int, *, full: bool) -> None:
        self._output = output
        self._now_ms = now_ms
        self._full = full
        self._cell = output.cell_chars_max
        self._line = output.line_chars_max

    def header(self, run: Description) -> None:
        from rich.table import Table  # noqa: PLC0415 - only where a table is drawn
        from rich.text import Text  # noqa: PLC0415

        summary = run.summary
        started_ms = words.milliseconds(summary.started)
        status = "blocked" if run.blocked is not None else summary.status
        grid = Table.grid(padding=(0, 2, 0, 0))
        for label, value, style in (
            ("workflow", summary.workflow_id, "bold"),
            ("type", summary.workflow_type, ""),
            ("run", summary.run_id, ""),
            ("status", status, STATUS_STYLES.get(status, "")),
            ("started", f"{self._moment(started_ms)} ({words.distance(started_ms, self._now_ms)})", ""),
            ("task queue", summary.task_queue, ""),
            ("worker", run.owner or "none", ""),
            ("events", f"{run.last_event:,}", ""),
        ):
            if label != "worker" or summary.closed is None:
                grid.add_row(Text(label, style="dim"), Text(words.printable(value), style=style, overflow="fold"))
        self._output.print(grid, "")

    def timeline(self, entries: list[Entry]) -> None:
        if not entries:
            return
        table = self._output.table("EVENT", "TIME", "WHAT", "TOOK", "OUTCOME", right=("EVENT", "TOOK"))
        first, left_out, last = self._shown(entries, _ENTRIES_SHOWN)
        for entry in first:
            self._entry(table, entry)
        if left_out:
            self._row(table, ("", "", _more(left_out), "", ""), "dim")
        for entry in last:
            self._entry(table, entry)
        self._output.print(table, "")

    def ending(self, run: Description, found: list[Wait]) -> None:
        from rich.text import Text  # noqa: PLC0415 - only where it is drawn

        if run.summary.closed is not None:
            self._output.print(*telling.closing(run, self._line))
        for message in run.undelivered:
            told, when = telling.message(message, self._line), self._moment(message.sent_ms)
            self._output.print(f"Undelivered: {told}, sent {when}, when the code had returned")
        if run.history.damage is not None:
            self._output.print(f"Only what stands before a damaged row is shown: {run.history.damage}")
        first, left_out, last = self._shown(found, _WAITS_SHOWN)
        for wait in first:
            self._output.print(Text(_sentence(wait), style="yellow" if wait.needs_help else ""))
        if left_out:
            self._output.print(_more(left_out))
        for wait in last:
            self._output.print(Text(_sentence(wait), style="yellow" if wait.needs_help else ""))

    # Rows -------------------------------------------------------------------------------------------------------------

    def _entry(self, table: Table, entry: Entry) -> None:
        is_end = entry.kind == "end"
        took = "" if entry.ended_ms is None or is_end else words.duration(entry.ended_ms - entry.at_ms)
        what = telling.what(entry, self._cell)
        outcome = telling.outcome(entry, self._now_ms, self._cell, self._line)
        style = _OUTCOME_STYLES.get(entry.outcome, "") if entry.kind in ("activity", "timer") else ""
        self._row(table, (str(entry.event_id), self._fine(entry.at_ms), what, took, outcome), style)
        first, left_out, last = self._shown(entry.attempts, _ATTEMPTS_SHOWN)
        for attempt in first:
            self._attempt(table, attempt)
        if left_out:
            self._row(table, ("", "", f"  {_more(left_out)}", "", ""), "dim")
        for attempt in last:
            self._attempt(table, attempt)

    def _attempt(self, table: Table, attempt: AttemptRecord) -> None:
        at_ms = attempt.ended_ms if attempt.started_ms is None else attempt.started_ms
        took = words.duration(attempt.ended_ms - at_ms)
        outcome = telling.attempt(attempt, self._line)
        self._row(table, ("", self._fine(at_ms), f"  attempt {attempt.attempt}", took, outcome), "red")

    def _row(self, table: Table, cells: tuple[str, str, str, str, str], style: str) -> None:
        from rich.text import Text  # noqa: PLC0415 - only where a table is drawn

        event, time, what, took, outcome = cells
        table.add_row(event, Text(time, style="dim"), Text(what), took, Text(outcome, style=style))

    def _shown(self, items: Sequence[T], shown: tuple[int, int]) -> tuple[Sequence[T], int, Sequence[T]]:
        """The first ones, how many are left out, the last ones."""
        first, last = shown
        left_out = 0 if self._full else max(0, len(items) - first - last)
        return (items[:first], left_out, items[-last:]) if left_out else (items, 0, ())

    def _moment(self, ms: int) -> str:
        return words.moment(ms, self._now_ms)

    def _fine(self, ms: int) -> str:
        return words.fine_moment(ms, self._now_ms)


def _sentence(wait: Wait) -> str:
    return words.printable(f"It {wait.text}")


def _more(left_out: int) -> str:
    return f"… {left_out:,} more; --full shows them"
