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

_OUTCOME_STYLES: Final = {
    "completed": "green",
    "fired": "",
    "failed": "red",
    "cancelled": "yellow",
    "abandoned": "yellow",
}


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
    """Prints a run. full: nothing is left out."""

    def __init__(self, output: Output, now_ms: int, *, full: bool) -> None:
        self._output = output
        self._now_ms = now_ms
        self._full = full
        self._chars = output.cell_chars_max

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
        table = self._output.table("EVENT", "TIME", "WHAT", "TOOK", "OUTCOME", right=("EVENT", "TOOK"))
        left_out = 0 if self._full else max(0, len(entries) - _FIRST - _NEWEST)
        for position, entry in enumerate(entries):
            if _FIRST <= position < _FIRST + left_out:
                continue
            if left_out and position == _FIRST + left_out:
                self._row(table, "", "", f"… {left_out:,} more; --full shows them", "", "", "dim")
            self._entry(table, entry)
        self._output.print(table)

    def messages(self, run: Description) -> None:
        """What reached the run too late for its code."""
        for message in run.undelivered:
            when = self._moment(message.sent_ms)
            self._output.print(
                f"undelivered: {_message(message, self._chars)}, sent {when}, when the code had returned"
            )

    def ending(self, run: Description) -> None:
        from rich.text import Text  # noqa: PLC0415 - only where it is drawn

        self._output.print("")
        found = waits(run)
        shown = found if self._full or len(found) <= _WAITS_MAX else [*found[: _WAITS_MAX - 1], found[-1]]
        for position, wait in enumerate(shown):
            if len(shown) < len(found) and position == len(shown) - 1:
                self._output.print(f"It waits for {len(found) - len(shown):,} things more; --full shows them")
            text = words.printable(f"It {wait.text}")
            self._output.print(Text(text, style="yellow" if wait.needs_help else ""))
        if run.summary.closed is not None:
            self._output.print(*_closing(run, self._chars))
        if run.history.damage is not None:
            self._output.print(f"Its history is damaged: {run.history.damage}")

    # Rows -------------------------------------------------------------------------------------------------------------

    def _entry(self, table: Table, entry: Entry) -> None:
        took = "" if entry.ended_ms is None or entry.kind == "end" else words.duration(entry.ended_ms - entry.at_ms)
        what, outcome = what_words(entry, self._chars), outcome_words(entry, self._now_ms, self._chars)
        style = (
            STATUS_STYLES.get(entry.outcome, "") if entry.kind == "end" else _OUTCOME_STYLES.get(entry.outcome, "cyan")
        )
        self._row(table, str(entry.event_id), self._fine(entry.at_ms), what, took, outcome, style)
        first = len(entry.attempts) if self._full else _ATTEMPTS_FIRST
        skipped = 0 if self._full else max(0, len(entry.attempts) - _ATTEMPTS_FIRST - _ATTEMPTS_NEWEST)
        for position, attempt in enumerate(entry.attempts):
            if first <= position < first + skipped:
                continue
            if skipped and position == first + skipped:
                self._row(
                    table, "", "", f"  … {words.count(skipped, 'attempt')} more; --full shows them", "", "", "dim"
                )
            self._attempt(table, attempt)

    def _attempt(self, table: Table, attempt: AttemptRecord) -> None:
        at_ms = attempt.ended_ms if attempt.started_ms is None else attempt.started_ms
        took = words.duration(attempt.ended_ms - at_ms)
        outcome = attempt_words(attempt, self._chars)
        self._row(table, "", self._fine(at_ms), f"  attempt {attempt.attempt}", took, outcome, "red")

    def _row(self, table: Table, event: str, time: str, what: str, took: str, outcome: str, style: str) -> None:
        from rich.text import Text  # noqa: PLC0415 - only where a table is drawn

        table.add_row(event, Text(time, style="dim"), Text(what), took, Text(outcome, style=style))

    def _moment(self, ms: int) -> str:
        return words.moment(ms, self._now_ms)

    def _fine(self, ms: int) -> str:
        return words.fine_moment(ms, self._now_ms)


# In words -------------------------------------------------------------------------------------------------------------


def what_words(entry: Entry, chars: int) -> str:
    """What an entry is about."""
    name = words.printable(entry.name)
    match entry.kind:
        case "start":
            return f"started {words.call(entry.name, entry.input or b'[]', chars)}"
        case "activity":
            return words.call(entry.name, entry.input or b"[]", chars)
        case "timer":
            return f"timer {words.duration(entry.delay_ms or 0)}"
        case "signal":
            return f"signal {words.call(entry.name, entry.input or b'[]', chars)}"
        case "cancel":
            return "cancel requested" + (f": {words.one_line(name, chars)}" if name else "")
        case "patch":
            return f"patch {name}"
        case "code":
            return f"code changed to {name}"
        case "end":
            return entry.outcome.replace("_", " ")


def outcome_words(entry: Entry, now_ms: int, chars: int) -> str:
    """What came of it, or when that is to be expected."""
    if entry.kind == "start":
        return "" if entry.due_ms is None else f"must end by {words.moment(entry.due_ms, now_ms)}"
    if entry.is_pending:
        return _pending_words(entry, now_ms)
    told = {"abandoned": "abandoned: the run closed first", "fired": "fired", "cancelled": "cancelled"}.get(
        entry.outcome, ""
    )
    if entry.failure is not None:
        why = _RETRY_STATES.get(entry.retry_state, "")
        told = f"failed{why}: " if entry.kind == "activity" else ""
        told += words.failure_line(entry.failure, chars)
    elif entry.result is not None:
        told = f"→ {words.preview(entry.result, chars)}"
    elif entry.kind == "end":
        told = words.one_line(entry.name, chars)
    return f"{told}  (attempt {entry.attempt})" if entry.attempt > 1 else told


#: Why there was no further attempt.
_RETRY_STATES: Final = {
    "maximum_attempts": ", no attempt left",
    "non_retryable": ", not to be retried",
    "timeout": ", no time left",
    "cancelled": " as cancelled",
}


def _pending_words(entry: Entry, now_ms: int) -> str:
    if entry.due_ms is not None:
        return f"until {words.moment(entry.due_ms, now_ms)} ({words.distance(entry.due_ms, now_ms)})"
    task = entry.task
    if task is None:
        return "attempt 1 …"
    match task.state:
        case "queued":
            return f"attempt {task.attempt} due {words.moment(task.due_ms, now_ms)} ({words.distance(task.due_ms, now_ms)})"
        case "started":
            return f"attempt {task.attempt} …"
        case "done":
            return f"attempt {task.attempt} has ended"


def attempt_words(attempt: AttemptRecord, chars: int) -> str:
    """How an attempt ended."""
    outcome = {"timed_out": "timed out", "lost": "lost with its worker", "late": "came too late"}.get(
        attempt.outcome, attempt.outcome
    )
    if attempt.failure is None or attempt.outcome == "lost":
        return f"{outcome} {attempt.worker}" if attempt.outcome == "lost" else outcome
    return f"{outcome}: {words.failure_line(failures.decode(attempt.failure), chars)}"


def _message(message: Message, chars: int) -> str:
    if message.kind == "signal":
        return f"signal {words.call(message.name, message.body, chars)}"
    return "request to cancel"


def _closing(run: Description, chars: int) -> Iterator[str]:
    """How it ended, and why."""
    assert run.summary.closed is not None
    took = words.duration(words.milliseconds(run.summary.closed) - words.milliseconds(run.summary.started))
    yield f"It is {run.summary.status.replace('_', ' ')} after {took}" + (
        f": {run.state.reason}" if run.state.reason else ""
    )
    if run.state.result is not None:
        yield f"  → {words.preview(run.state.result, chars)}"
    if run.state.failure is not None:
        for depth, failure in enumerate(words.causes(run.state.failure)):
            yield f"{'  caused by ' if depth else '  '}{words.failure_line(failure, chars)}"


# As JSON --------------------------------------------------------------------------------------------------------------


def _document(run: Description, entries: list[Entry], found: list[Wait]) -> dict[str, Any]:
    return {
        "run": {**run_document(run.summary), "owner": run.owner, "last_event": run.last_event},
        "input": raw(run.state.args),
        "result": raw(run.state.result),
        "failure": failure_document(run.state.failure),
        "waits": [
            {
                "kind": each.kind,
                "text": each.text,
                "until": iso_ms(each.until_ms),
                "event_id": each.event_id,
                "needs_help": each.needs_help,
            }
            for each in found
        ],
        "timeline": [_entry_document(each) for each in entries],
        "inbox": [_message_document(each) for each in run.inbox],
        "undelivered": [_message_document(each) for each in run.undelivered],
        "blocked": run.blocked,
        "damage": None if run.history.damage is None else str(run.history.damage),
    }


def _entry_document(entry: Entry) -> dict[str, Any]:
    document = {
        "event_id": entry.event_id,
        "time": iso_ms(entry.at_ms),
        "kind": entry.kind,
        "name": entry.name,
        "input": raw(entry.input),
        "ended": iso_ms(entry.ended_ms),
        "outcome": entry.outcome or ("pending" if entry.is_pending else None),
        "result": raw(entry.result),
        "failure": failure_document(entry.failure),
        "due": iso_ms(entry.due_ms if entry.task is None else entry.task.due_ms),
        "attempt": entry.attempt if entry.task is None else entry.task.attempt,
        "attempts": [_attempt_document(each) for each in entry.attempts],
    }
    return {name: value for name, value in document.items() if value not in (None, "", 0, [])}


def _attempt_document(attempt: AttemptRecord) -> dict[str, Any]:
    return {
        "attempt": attempt.attempt,
        "outcome": attempt.outcome,
        "started": iso_ms(attempt.started_ms),
        "ended": iso_ms(attempt.ended_ms),
        "worker": attempt.worker,
        "failure": failure_document(None if attempt.failure is None else failures.decode(attempt.failure)),
    }


def _message_document(message: Message) -> dict[str, Any]:
    return {
        "kind": message.kind,
        "message_id": message.message_id,
        "name": message.name,
        "args": raw(message.body) if message.kind == "signal" else None,
        "sent": iso_ms(message.sent_ms),
        "verdict": message.verdict,
    }
