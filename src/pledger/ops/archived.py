"""Runs that are in an archive, for those who look one up: what the ledger has forgotten is told as what it knows is."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import msgspec

from pledger.client import Description, History
from pledger.engine.port.records import AttemptRecord, Message, RunStatus
from pledger.errors import PayloadError, UsageError, WorkflowNotFoundError
from pledger.history.failures import Failure
from pledger.history.state import fold
from pledger.history.times import utc
from pledger.ops.archive import read_lines
from pledger.views import RunSummary


class _Line(msgspec.Struct):
    """What an archive has beside the history (`pledger.ops.archive` writes it)."""

    status: RunStatus
    started_ms: int
    closed_ms: int | None
    last_event: int
    attempts: list[_Attempt] = []
    undelivered: list[_Message] = []


class _Attempt(msgspec.Struct):
    event_id: int
    attempt: int
    outcome: str
    started_ms: int | None
    ended_ms: int
    worker: str
    failure: dict[str, str] | None = None


class _Message(msgspec.Struct):
    kind: str
    message_id: str
    name: str
    sent_ms: int
    args: msgspec.Raw = msgspec.Raw(b"null")
    verdict: str | None = None


def find_archived(path: Path, workflow_id: str, run_id: str | None = None, *, now: datetime) -> Description:
    """The run of that id in an archive; where there are several, the one that was started last. A run id will do too.

    Of a run that was open when it was exported, what it waited for then is not known. now: what ages are told by.
    Raises UsageError for a file that is none, WorkflowNotFoundError.
    """
    found: Description | None = None
    runs = 0
    wanted = [msgspec.json.encode(each) for each in (workflow_id, run_id) if each is not None]
    for where, line in read_lines(path):
        runs += 1
        # Most lines are of others, and not worth a look at what is in them.
        if not all(each in line for each in wanted):
            continue
        read = _read(where, line, now)
        of_it = (read.summary.workflow_id, read.summary.run_id)
        is_it = workflow_id in of_it if run_id is None else of_it == (workflow_id, run_id)
        if is_it and (found is None or found.summary.started <= read.summary.started):
            found = read
    if found is None:
        which = "" if run_id is None else f" with run id {run_id}"
        raise WorkflowNotFoundError(
            f"no workflow {workflow_id!r}{which} among the {runs:,} runs of {path}. Look in other archives; "
            "what was not exported before it was removed is gone"
        )
    return found


def _read(where: str, line: bytes, now: datetime) -> Description:
    try:
        history = History.read(line)
        known = msgspec.json.decode(line, type=_Line)
    except (msgspec.MsgspecError, PayloadError) as error:
        raise UsageError(f"{where}: {error}") from error
    run = history.identity
    summary = RunSummary(
        run.workflow_id,
        run.run_id,
        run.workflow_type,
        run.task_queue,
        known.status,
        utc(known.started_ms),
        None if known.closed_ms is None else utc(known.closed_ms),
        None,
        first_run_id=run.chain_id,
        segment=run.segment,
        history_length=known.last_event,
    )
    return Description(
        summary=summary,
        history=history,
        state=fold(history.transitions),
        last_event=known.last_event,
        owner=None,
        due=None,
        pending=[],
        attempts=list(_attempts(known)),
        inbox=[],
        undelivered=[_message(each) for each in known.undelivered],
        blocked=None,
        workers=(),
        now=now,
    )


def _attempts(line: _Line) -> Iterator[AttemptRecord]:
    for each in line.attempts:
        told = each.failure
        failure = (
            None if told is None else msgspec.msgpack.encode(Failure("application", told["type"], told["message"]))
        )
        yield AttemptRecord(
            0, each.event_id, each.attempt, each.outcome, each.started_ms, each.ended_ms, each.worker, failure
        )


def _message(line: _Message) -> Message:
    body = bytes(line.args) if line.kind == "signal" else b""
    return Message(0, line.kind, line.message_id, line.name, body, line.sent_ms, line.verdict)
