"""`pledger show`: one run in full, and what it waits for."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final, TypeAlias, TypeVar

import typer

from pledger.cli import documents, options, telling, words
from pledger.cli.exits import Exit
from pledger.cli.ledger import find_run, opened
from pledger.cli.output import STATUS_STYLES, Output, Styled, Words
from pledger.cli.timeline import Entry, timeline
from pledger.cli.waits import Wait, owner_and_deadline, waits
from pledger.client import Description
from pledger.engine.port.records import AttemptRecord
from pledger.history.attributes import shown
from pledger.ops.archived import find_archived
from pledger.waiting import WaitingFor

T = TypeVar("T")
Row: TypeAlias = tuple[Words, Words, Words, Words, Words]

#: How many are shown without --full, from the beginning and from the end. A run that has fanned out has thousands.
_ENTRIES_SHOWN: Final = (10, 90)
_ATTEMPTS_SHOWN: Final = (1, 4)
_WAITS_SHOWN: Final = (8, 2)

#: Characters of one value, message or line, however wide the terminal is or where there is none.
_VALUE_CHARS: Final = 500
_LINE_CHARS: Final = 2_000
_CUT: Final = "…"

_OUTCOME_STYLES: Final = {
    "failed": "red",
    "cancelled": "yellow",
    "abandoned": "yellow",
    "not_handled": "yellow",
    "": "cyan",
}


def show(
    workflow_id: options.WorkflowId,
    *,
    full: Annotated[bool, typer.Option("--full", help="Every entry, attempt and wait, however many.")] = False,
    run_id: options.RunId = None,
    archive: options.Archive = None,
    url: options.Url = options.DEFAULT_URL,
    namespace: options.Namespace = "default",
    as_json: options.Json = False,
) -> int:
    """Show what happened to a run, what it waits for, and why. With --archive, what happened to an exported one."""
    output = Output(as_json=as_json)

    async def read() -> Description:
        if archive is not None:
            return find_archived(archive, workflow_id, run_id, now=datetime.now(UTC))
        async with opened(url, namespace) as client:
            return await (await find_run(client, workflow_id, run_id)).describe()

    run = asyncio.run(read())
    tell(output, run, full=full, archive=archive)
    return Exit.OK if run.history.damage is None else Exit.STORE


def tell(output: Output, run: Description, *, full: bool = False, archive: Path | None = None) -> None:
    """The run in words or as a document. full: every entry, attempt and wait; long values are cut all the same.
    archive: the file that it was found in: what a run waited for that was open then is not in it."""
    entries = timeline(run.history.transitions, run.attempts, run.pending)
    found = waits(run) if archive is None else []
    if output.as_json:
        output.document(documents.run_in_full(run, entries, found))
        return
    view = _View(output, words.milliseconds(run.now), full=full, archive=archive)
    view.header(run)
    view.timeline(entries)
    view.ending(run, found)


class _View:
    """Prints a run. full: nothing is left out. archive: where it was found, if not in the ledger."""

    def __init__(self, output: Output, now_ms: int, *, full: bool, archive: Path | None) -> None:
        self._output = output
        self._now_ms = now_ms
        self._full = full
        self._archive = archive
        self._cell = min(output.cell_chars_max, _VALUE_CHARS)
        self._line = output.line_chars_max
        self._is_cut = False

    def header(self, run: Description) -> None:
        summary = run.summary
        started_ms = words.milliseconds(summary.started)
        status = "blocked" if run.blocked is not None else "paused" if summary.paused else summary.status
        pairs: dict[str, Words] = {
            "workflow": Styled(summary.workflow_id, "bold"),
            "type": summary.workflow_type,
            "run": summary.run_id,
            "status": Styled(status, STATUS_STYLES.get(status, "")),
            "started": f"{self._moment(started_ms)} ({words.distance(started_ms, self._now_ms)})",
            "task queue": summary.task_queue,
            "worker": run.owner or "none",
            "events": f"{run.last_event:,}",
        }
        if chain := telling.chain(summary):
            pairs["chain"] = chain
        if (parent := run.parent or run.state.parent) is not None:  # of an archive only its own history is known
            pairs["parent"] = f"{words.one_line(parent.workflow_id, _LINE_CHARS)} (run {parent.run_id})"
        owner, deadline_ms = owner_and_deadline(run)
        if owner is not None or summary.closed is None:
            pairs["owner"] = "nobody is named" if owner is None else words.one_line(owner, _LINE_CHARS)
        if summary.closed is not None or self._archive is not None:
            del pairs["worker"]
        if self._archive is not None:
            pairs["archive"] = str(self._archive)
        for found in run.resets:
            is_base = found.base_run_id == summary.run_id
            told = telling.reset_into(found) if is_base else telling.reset_from(found)
            name = "goes on as" if is_base else "goes on from"
            pairs[name] = f"{pairs[name]}; {told}" if name in pairs else words.one_line(told, _LINE_CHARS)
        pairs.update(("published", words.one_line(each, _LINE_CHARS)) for each in telling.streams(run.streams))
        if summary.closed is None and deadline_ms is None:
            pairs["deadline"] = "none"
        elif summary.closed is None and deadline_ms is not None:
            pairs["deadline"] = f"{self._moment(deadline_ms)} ({words.distance(deadline_ms, self._now_ms)})"
        waiting = run.waiting_for if self._archive is None else None
        if waiting is not None:
            pairs["in short"] = Styled(self._seen(words.one_line(str(waiting), _LINE_CHARS)), _style_of(waiting))
        pairs |= self._labels(run)
        self._output.table((), [(Styled(name, "dim"), value) for name, value in pairs.items()])
        self._output.lines("")

    def _labels(self, run: Description) -> dict[str, Words]:
        """What it says of itself."""
        state, pairs = run.state, dict[str, Words]()
        if state.search_attributes:
            found = (words.attribute(each.name, shown(each)) for _, each in sorted(state.search_attributes.items()))
            pairs["attributes"] = words.one_line(", ".join(found), _LINE_CHARS)
        for name, value in state.memo.items():
            pairs[f"memo {words.one_line(name, _VALUE_CHARS)}"] = words.preview(value, self._cell)
        return pairs

    def timeline(self, entries: list[Entry]) -> None:
        if entries:
            rows = (row for entry in self._shown(entries, _ENTRIES_SHOWN) for row in self._rows(entry))
            self._output.table(("EVENT", "TIME", "WHAT", "TOOK", "OUTCOME"), rows, right=("EVENT", "TOOK"))
            self._output.lines("")

    def ending(self, run: Description, found: list[Wait]) -> None:
        if run.summary.closed is not None:
            self._output.lines(*map(self._seen, telling.closing(run, self._line)))
        for message in run.undelivered:
            told, when = self._seen(telling.message(message, self._line)), self._moment(message.sent_ms)
            self._output.lines(f"Undelivered: {told}, sent {when}, when the code had returned")
        for warning in run.history_warnings[-1:]:
            self._output.lines(Styled(words.one_line(warning, self._line), "yellow"))
        if run.history.damage is not None:
            self._output.lines(f"Only what stands before a damaged row is shown: {run.history.damage}")
        for wait in self._shown(found, _WAITS_SHOWN):
            if isinstance(wait, int):
                self._output.lines(_more(wait))
            else:
                text = self._seen(words.bounded(f"It {wait.text}", _LINE_CHARS))
                self._output.lines(Styled(text, "yellow" if wait.needs_help else ""))
        if self._archive is not None and run.summary.closed is None:
            self._output.lines("It was open when it was exported; what it waited for then is not in an archive")
        if self._is_cut:
            id_ = shlex.quote(words.printable(run.summary.workflow_id))
            where = "" if self._archive is None else f" --archive {shlex.quote(str(self._archive))}"
            self._output.lines(
                "", Styled(f"{_CUT} stands for the rest of a long value: pledger show {id_}{where} --json", "dim")
            )

    # Rows -------------------------------------------------------------------------------------------------------------

    def _rows(self, entry: Entry | int) -> Iterator[Row]:
        """An entry and below it its attempts. A number stands for so many that are left out."""
        if isinstance(entry, int):
            yield _row_of_more(entry)
            return
        is_step = entry.kind in ("activity", "timer", "phase", "wait", "child", "message", "update")
        has_outcome = is_step or entry.outcome == "not_handled"
        outcome = telling.outcome(entry, self._now_ms, self._cell, self._line)
        yield (
            str(entry.event_id),
            self._time(entry.at_ms),
            self._seen(telling.what(entry, self._cell)),
            words.duration(entry.ended_ms - entry.at_ms) if is_step and entry.ended_ms is not None else "",
            Styled(
                outcome if entry.is_pending else self._seen(outcome),
                _OUTCOME_STYLES.get(entry.outcome, "") if has_outcome else "",
            ),
        )
        for attempt in self._shown(entry.attempts, _ATTEMPTS_SHOWN):
            yield _row_of_more(attempt) if isinstance(attempt, int) else self._attempt(attempt)

    def _attempt(self, attempt: AttemptRecord) -> Row:
        at_ms = attempt.ended_ms if attempt.started_ms is None else attempt.started_ms
        outcome = Styled(self._seen(telling.attempt(attempt, self._line)), "red")
        took = words.duration(attempt.ended_ms - at_ms)
        return ("", self._time(at_ms), f"  attempt {attempt.attempt}", took, outcome)

    def _shown(self, items: Sequence[T], shown: tuple[int, int]) -> Iterator[T | int]:
        """The first and the last of many, and between them how many are left out."""
        first, last = shown
        left_out = 0 if self._full else max(0, len(items) - first - last)
        yield from items[: first if left_out else None]
        if left_out:
            yield left_out
            yield from items[-last:]

    def _seen(self, text: str) -> str:
        """The text, and whether it is not the whole: one that holds the mark by itself costs a line too many."""
        self._is_cut = self._is_cut or _CUT in text
        return text

    def _moment(self, ms: int) -> str:
        return words.moment(ms, self._now_ms)

    def _time(self, ms: int) -> Words:
        return Styled(words.fine_moment(ms, self._now_ms), "dim")


def _style_of(waiting: WaitingFor) -> str:
    return "yellow" if waiting.overdue or waiting.problem is not None or waiting.waker == "person" else ""


def _row_of_more(left_out: int) -> Row:
    return ("", "", Styled(_more(left_out), "dim"), "", "")


def _more(left_out: int) -> str:
    return f"… {left_out:,} more; --full shows them"
