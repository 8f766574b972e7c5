"""The shapes of JSON answers. Times are ISO 8601 in UTC; payloads stand in them as they stand in the ledger, digit by
digit. Fields are only ever added: programs read them.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from pledger import errors
from pledger.cli.exits import exit_of
from pledger.cli.timeline import Entry
from pledger.cli.waits import Wait, owner_and_deadline
from pledger.client import (
    DependencySummary,
    Description,
    LimitSummary,
    PauseSummary,
    QueueSummary,
    ResetPlan,
    ResetSummary,
    RunSummary,
)
from pledger.engine.port.records import AttemptRecord, Message, PlaceRow
from pledger.following import StreamItem
from pledger.history import failures, payloads
from pledger.history.failures import Failure
from pledger.history.times import utc
from pledger.ops.audit import Problem, Report
from pledger.views import StreamSummary
from pledger.waiting import WaitingFor


def to_json(value: Any) -> str:
    """Strict JSON, indented. Integers of any size and what `raw` marks keep their digits."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def raw(payload: bytes | None) -> msgspec.Raw | None:
    """A payload as a part of a document."""
    return None if payload is None else msgspec.Raw(payload)


def _iso(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat(timespec="milliseconds")


def _iso_ms(ms: int | None) -> str | None:
    return None if ms is None else _iso(utc(ms))


# Runs -----------------------------------------------------------------------------------------------------------------


def run_summary(run: RunSummary) -> dict[str, Any]:
    return {
        "workflow_id": run.workflow_id,
        "run_id": run.run_id,
        "workflow_type": run.workflow_type,
        "task_queue": run.task_queue,
        "status": run.status,
        "started": _iso(run.started),
        "closed": _iso(run.closed),
        "blocked": run.blocked,
        "paused": run.paused,
        "first_run_id": run.first_run_id,
        "segment": run.segment,
        "history_length": run.history_length,
        "search_attributes": {pair.key.name: _attribute(pair.value) for pair in run.search_attributes},
        "memo": raw(payloads.encode(dict(run.memo))),
        "answers_for": run.owner,
        "deadline": _iso(run.deadline),
        "attention": run.attention,
    }


def _attribute(value: Any) -> Any:
    return _iso(value) if isinstance(value, datetime) else value


def pause(found: PauseSummary) -> dict[str, Any]:
    return {
        "kind": found.kind,
        "name": found.name,
        "run_id": found.run_id,
        "reason": found.reason,
        "paused_by": found.paused_by,
        "since": _iso(found.since),
        "rate": found.rate,
        "backlog": found.backlog,
        "released": found.released,
    }


def queue(found: QueueSummary) -> dict[str, Any]:
    return {
        "task_queue": found.task_queue,
        "queued": found.queued,
        "oldest": _iso(found.oldest),
        "later": found.later,
        "started": found.started,
        "workers": found.workers,
    }


def limit(found: LimitSummary) -> dict[str, Any]:
    return {
        "name": found.name,
        "concurrency": found.concurrency,
        "rate": found.rate,
        "per_seconds": found.per.total_seconds(),
        "overridden": found.overridden,
        "keys": [{"key": each.key, "used": each.used, "queued": each.queued} for each in found.keys],
    }


def dependency(found: DependencySummary) -> dict[str, Any]:
    return {
        "name": found.name,
        "phase": found.phase,
        "since": _iso(found.since),
        "reason": found.reason,
        "by": found.by,
        "until": _iso(found.until),
        "limit": found.limit,
        "calls": found.calls,
        "retries": found.retries,
        "succeeded": found.succeeded,
        "failed": found.failed,
        "window_seconds": found.window.total_seconds(),
        "retries_left": found.retries_left,
        "ratio": found.ratio,
        "minimum_per_second": found.minimum_per_second,
        "has_breaker": found.has_breaker,
        "last_failure": found.last_failure,
        "activity_types": list(found.activity_types),
        "changes": [
            {"at": _iso(each.at), "phase": each.phase, "reason": each.reason, "by": each.by} for each in found.changes
        ],
    }


def reset(found: ResetSummary) -> dict[str, Any]:
    return {
        "run_id": found.run_id,
        "base_run_id": found.base_run_id,
        "event_id": found.event_id,
        "how": found.how,
        "reason": found.reason,
        "by": found.by,
        "at": _iso(found.at),
    }


def stream(found: StreamSummary) -> dict[str, Any]:
    return {
        "topic": found.topic,
        "first_offset": found.first_offset,
        "next_offset": found.next_offset,
        "bytes": found.bytes,
        "published": _iso(found.published),
    }


def stream_item(item: StreamItem[Any]) -> dict[str, Any]:
    return {
        "offset": item.offset,
        "value": raw(payloads.encode(item.value)),
        "run_id": item.run_id,
        "published": _iso(item.published),
        "activity_event_id": item.activity_event_id,
        "attempt": item.attempt,
    }


def reset_plan(plan: ResetPlan, new_run_id: str | None) -> dict[str, Any]:
    """new_run_id: of the run that goes on, None where it was only planned."""
    return {
        "how": plan.how,
        "run_id": plan.run_id,
        "event_id": plan.event_id,
        "new_run_id": new_run_id,
        "ends_run_id": plan.open_run_id,
        "repetitions": [
            {
                "event_id": each.event_id,
                "activity_type": each.activity_type,
                "input": raw(each.args),
                "outcome": each.outcome,
                "idempotency_key": each.idempotency_key,
                "certain": each.certain,
            }
            for each in plan.repetitions
        ],
        "reapplied": list(plan.reapplied),
    }


def run_in_full(run: Description, entries: list[Entry], waits: list[Wait]) -> dict[str, Any]:
    owner, deadline_ms = owner_and_deadline(run)
    return {
        "run": {**run_summary(run.summary), "owner": run.owner, "last_event": run.last_event, "due": _iso(run.due)},
        "input": raw(run.state.args),
        "result": raw(run.state.result),
        "failure": _failure(run.state.failure),
        "owner": owner,
        "deadline": _iso_ms(deadline_ms),
        "waiting_for": _waiting_for(run.waiting_for),
        "overdue": [each.begun.name for each in run.overdue],
        "waits": [_wait(each, owner) for each in waits],
        "timeline": [_entry(each) for each in entries],
        "inbox": [_message(each) for each in run.inbox],
        "undelivered": [_message(each) for each in run.undelivered],
        "buffered": [
            {"event_id": each.event_id, "name": each.attributes["name"], "time": each.time.isoformat()}
            for each in run.buffered
        ],
        "blocked": run.blocked,
        "pauses": [pause(each) for each in run.pauses],
        "places": [_place(each) for each in run.places],
        "resets": [reset(each) for each in run.resets],
        "streams": [stream(each) for each in run.streams],
        "history_warnings": list(run.history_warnings),
        "damage": None if run.history.damage is None else str(run.history.damage),
    }


def _waiting_for(waiting: WaitingFor | None) -> dict[str, Any] | None:
    if waiting is None:
        return None
    plain = {name: getattr(waiting, name) for name in WaitingFor.__slots__}
    times = {name: _iso(plain[name]) for name in ("since", "wakes_at", "deadline")}
    return {**plain, **times, "text": str(waiting)}


def _wait(wait: Wait, owner: str | None) -> dict[str, Any]:
    return {
        "kind": wait.kind,
        "text": wait.text,
        "until": _iso_ms(wait.until_ms),
        "event_id": wait.event_id,
        "needs_help": wait.needs_help,
        "deadline": _iso_ms(wait.deadline_ms),
        "owner": wait.owner or owner,
    }


def _place(place: PlaceRow) -> dict[str, Any]:
    return {
        "event_id": place.event_id,
        "position": place.position,
        "limits": [{"name": name, "key": key, "used": used} for name, key, used in place.limits],
    }


def _entry(entry: Entry) -> dict[str, Any]:
    """Without the fields that say nothing of its kind."""
    task = entry.task
    document = {
        "event_id": entry.event_id,
        "time": _iso_ms(entry.at_ms),
        "kind": entry.kind,
        "name": entry.name,
        "input": raw(entry.input),
        "ended": _iso_ms(entry.ended_ms),
        "outcome": entry.outcome or ("pending" if entry.is_pending else None),
        "result": raw(entry.result),
        "failure": _failure(entry.failure),
        "retry_state": entry.retry_state,
        "update_id": entry.update_id,
        "due": _iso_ms(entry.due_ms if task is None else task.due_ms),
        "attempt": entry.attempt if task is None else task.attempt,
        "attempts": [_attempt(each) for each in entry.attempts],
    }
    return {name: value for name, value in document.items() if value not in (None, "", 0, [])}


def _attempt(attempt: AttemptRecord) -> dict[str, Any]:
    return {
        "attempt": attempt.attempt,
        "outcome": attempt.outcome,
        "started": _iso_ms(attempt.started_ms),
        "ended": _iso_ms(attempt.ended_ms),
        "worker": attempt.worker,
        "failure": _failure(None if attempt.failure is None else failures.decode(attempt.failure)),
    }


def _message(message: Message) -> dict[str, Any]:
    return {
        "kind": message.kind,
        "message_id": message.message_id,
        "name": message.name,
        "args": raw(message.body) if message.kind == "signal" else None,
        "sent": _iso_ms(message.sent_ms),
        "verdict": message.verdict,
    }


def _failure(failure: Failure | None) -> dict[str, Any] | None:
    """With its causes inside."""
    if failure is None:
        return None
    return {
        "kind": failure.kind,
        "type": failure.type,
        "message": failure.message,
        "details": raw(failure.details),
        "attributes": failure.attributes or {},
        "traceback": failure.traceback,
        "cause": _failure(failure.cause),
    }


def audit(report: Report) -> dict[str, Any]:
    return {
        "runs": report.runs,
        "wakers": dict(report.wakers),
        "problems": [{name: getattr(each, name) for name in Problem.__slots__} for each in report.problems],
        "overdue": [{"workflow_id": workflow_id, "name": name} for workflow_id, name in report.overdue],
        "no_owner": report.no_owner,
        "no_deadline": report.no_deadline,
    }


# Errors ---------------------------------------------------------------------------------------------------------------


def error(found: errors.PledgerError) -> dict[str, Any]:
    """What a command ended with."""
    return {"error": {**problem(found), "exit_code": int(exit_of(found))}}


def problem(found: BaseException) -> dict[str, Any]:
    """Type, message, attributes that are plain, and the recorded failure that caused it, if one did."""
    attributes: dict[str, Any] = {
        name: value for name, value in vars(found).items() if isinstance(value, str | int | None)
    }
    message = attributes.pop("message", str(found))
    document = {"type": type(found).__name__, "message": message, **attributes}
    if isinstance(found.__cause__, errors.FailureError):
        document["cause"] = _failure(failures.from_exception(found.__cause__))
    return document
