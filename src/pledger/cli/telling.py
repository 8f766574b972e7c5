"""A run's entries, attempts, messages and end, in words. Pure text; `show` gives it its colours and columns.

Limits are in characters: `cell` for what stands in a column, `line` for what may fill a line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from pledger.cli import words
from pledger.cli.timeline import Entry
from pledger.client import Description, ResetSummary, RunSummary
from pledger.engine.port.records import AttemptRecord, Message
from pledger.history import chains, failures
from pledger.views import StreamSummary

#: Why there was no further attempt, by `retry_state`.
_RETRY_STATES: Final = {
    "maximum_attempts": "failed, no attempt left",
    "non_retryable": "failed, not to be retried",
    "timeout": "failed, no time left",
}
_ATTEMPT_OUTCOMES: Final = {
    "timed_out": "timed out",
    "lost": "lost with its worker",
    "late": "too late to count",
    "refused": "a token was refused",
}
_MESSAGE_OUTCOMES: Final = {
    "": "on its way",
    "not_found": "reaches nobody: there is no such run",
    "closed": "reaches nobody: that run has ended",
    "inbox_full": "reaches nobody: more messages wait for it than its inbox takes",
    "abandoned": "the run closed first",
}
_NAMED: Final = {"patch": "patch", "label": "now", "code": "code is now"}


def what(entry: Entry, cell: int) -> str:  # noqa: C901 - a line for each kind
    """What an entry is about."""
    name, args = words.one_line(entry.name, cell), entry.input or b"[]"
    match entry.kind:
        case "start":
            return f"started {words.call(name, args, cell - 8)}"
        case "activity":
            return words.call(name, args, cell)
        case "signal":
            return f"signal {words.call(name, args, cell - 7)}"
        case "update":
            return f"update {words.call(name, args, cell - 7)}"
        case "timer":
            kind = "deadline" if entry.is_deadline else "timer"
            return f"{kind} {words.duration(entry.delay_ms or 0)}"
        case "phase" | "wait":
            owner = "" if entry.owner is None else f" ({words.one_line(entry.owner, cell)})"
            return f"{entry.kind} {name}{owner}"
        case "child":
            return f"child {words.call(name, args, cell - 6)} as {words.one_line(entry.workflow_id, cell)}"
        case "message":
            return f"{name} to {words.one_line(entry.workflow_id, cell)}"
        case "cancel":
            return f"cancel requested: {name}" if name else "cancel requested"
        case "patch" | "label" | "code":
            return f"{_NAMED[entry.kind]} {name}"
        case "reset" | "end":
            return _turn(entry)


def _turn(entry: Entry) -> str:
    """Where a run goes on from another one, or how it ends."""
    if entry.kind == "end":
        return entry.outcome.replace("_", " ")
    return f"{'redrives' if entry.outcome == 'redrive' else 'goes on from'} run {entry.name}"


def outcome(entry: Entry, now_ms: int, cell: int, line: int) -> str:  # noqa: C901 - a line for each kind
    """What came of it, or when that is to be expected. An end's is told by `closing`."""
    match entry.kind:
        case "start":
            return "" if entry.due_ms is None else f"must end by {words.moment(entry.due_ms, now_ms)}"
        case "update" if entry.is_pending:
            return "its handler is at work"
        case "timer" | "activity" if entry.is_pending:
            return _pending(entry, now_ms)
        case "timer":
            # A block that ends in time has no more use for its deadline.
            return ("passed" if entry.outcome == "fired" else "") if entry.is_deadline else entry.outcome
        case "phase" | "wait":
            return _stage(entry, now_ms)
        case "child":
            return _child(entry, cell, line)
        case "message":
            return _MESSAGE_OUTCOMES.get(entry.outcome, entry.outcome)
        case "activity" | "update":
            told = _activity(entry, cell, line)
            return f"{told}  (attempt {entry.attempt})" if entry.attempt > 1 else told
        case "reset":
            return words.one_line(f"by {entry.by}{f': {entry.reason}' if entry.reason else ''}", line)
        case "signal" if entry.failure is not None:
            return f"not handled: {words.one_line(entry.failure.message, line)}"
        case _:
            return ""


def _child(entry: Entry, cell: int, line: int) -> str:
    if entry.result is not None:
        return f"→ {words.preview(entry.result, cell - 2)}"
    if entry.failure is not None:
        return f"{entry.outcome.replace('_', ' ')}: {words.failure_line(entry.failure, line)}"
    if entry.outcome == "not_started":
        return f"not started: its id is taken by run {entry.run_id}"
    if entry.outcome == "abandoned":
        return "the run closed first"
    return entry.outcome or (f"run {entry.run_id} …" if entry.run_id else "…")


def _pending(entry: Entry, now_ms: int) -> str:
    task = entry.task
    if task is not None and task.state == "queued":
        return f"attempt {task.attempt} {_due(task.due_ms, now_ms)}"
    if task is not None and task.state == "done":
        return f"attempt {task.attempt} has ended"
    if entry.due_ms is not None:
        return _due(entry.due_ms, now_ms)
    return f"attempt {1 if task is None else task.attempt} …"


def _stage(entry: Entry, now_ms: int) -> str:
    """Of a phase or a wait: whether it is late, or was."""
    if entry.due_ms is None:
        return ""
    late_ms = (now_ms if entry.ended_ms is None else entry.ended_ms) - entry.due_ms
    if late_ms > 0:
        return f"overdue by {words.duration(late_ms)}"
    return _due(entry.due_ms, now_ms) if entry.is_pending else ""


def _due(due_ms: int, now_ms: int) -> str:
    return f"due {words.moment(due_ms, now_ms)} ({words.distance(due_ms, now_ms)})"


def _activity(entry: Entry, cell: int, line: int) -> str:
    if entry.result is not None:
        return f"→ {words.preview(entry.result, cell - 2)}"
    if entry.failure is not None:
        verdict = _RETRY_STATES.get(entry.retry_state, entry.outcome)
        return f"{verdict}: {words.failure_line(entry.failure, line)}"
    return "the run closed first" if entry.outcome == "abandoned" else entry.outcome


def attempt(record: AttemptRecord, line: int) -> str:
    """How an attempt ended that brought no result."""
    told = _ATTEMPT_OUTCOMES.get(record.outcome, record.outcome)
    failure = None if record.failure is None else failures.decode(record.failure)
    if failure is None or failure.kind == "worker_lost":
        return told
    return f"{told}: {words.failure_line(failure, line)}"


def message(found: Message, cell: int) -> str:
    """A message of an inbox."""
    if found.kind == "notice":
        return "a notice from another run"
    return f"signal {words.call(found.name, found.body, cell)}" if found.kind == "signal" else "request to cancel"


def chain(run: RunSummary) -> str:
    """Which run of its chain it is, where that has several."""
    goes_on = run.status == "continued_as_new"
    told = [f"segment {run.segment}"] if goes_on or run.segment > 1 else []
    if run.segment > 1:
        told.append(f"goes on for {chains.run_id_of(run.first_run_id, run.segment - 1)}")
    if goes_on:
        told.append(f"goes on as {chains.run_id_of(run.first_run_id, run.segment + 1)}")
    return ", ".join(told)


def reset_from(found: ResetSummary) -> str:
    """Where a run goes on from another one."""
    return f"run {found.base_run_id}, event {found.event_id}{_asked(found)}"


def reset_into(found: ResetSummary) -> str:
    """Which run goes on from it."""
    return f"run {found.run_id}, from event {found.event_id}{_asked(found)}"


def streams(found: Sequence[StreamSummary]) -> list[str]:
    """What a chain has published, in a line, if it has."""
    told = "; ".join(
        f"{each.topic} to offset {each.next_offset - 1:,} ({_from_offset(each)}{each.bytes:,} bytes)" for each in found
    )
    return [told] if told else []


def _from_offset(found: StreamSummary) -> str:
    return f"kept from {found.first_offset:,} on, " if found.first_offset else ""


def _asked(found: ResetSummary) -> str:
    return f" ({found.how} by {found.by}{f': {found.reason}' if found.reason else ''})"


def closing(run: Description, line: int) -> Iterator[str]:
    """How a closed run ended: a line for that, then its result, or its failure and what caused it."""
    assert run.summary.closed is not None
    took = words.duration(words.milliseconds(run.summary.closed) - words.milliseconds(run.summary.started))
    reason = f": {words.one_line(run.state.reason, line)}" if run.state.reason else ""
    yield f"{run.summary.status.replace('_', ' ').capitalize()} after {took}{reason}"
    if run.state.result is not None:
        yield f"→ {words.preview(run.state.result, line - 2)}"
    for depth, told in enumerate(words.cause_lines(run.state.failure, "", line)):
        yield f"caused by {told}" if depth else told
