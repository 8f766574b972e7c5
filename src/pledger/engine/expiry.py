"""How an activity ends that no worker here will begin, or goes on with outside: what is written of it. Pure."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from pledger.engine.outside import timed_out_outside
from pledger.engine.port.operations import ExpireTask, FinishTask
from pledger.engine.port.records import OUTSIDE, AttemptRecord, TaskRow
from pledger.engine.task_rows import decode_command, decode_failure, encode_record, record_of
from pledger.engine.verdicts import cancelled_unstarted, damaged, timed_out, worker_lost
from pledger.history.events import ActivityFailed


def expire(task: TaskRow, now_ms: int, worker: str, draw: Callable[[], float]) -> ExpireTask | FinishTask:
    """A queued task that waited too long, or was cancelled: its activity ends without a further attempt. Or an attempt
    outside whose time is over, and that may be followed by another one. draw: gives one of [0, 1), for the jitter."""
    if task.owner == OUTSIDE:
        return timed_out_outside(task, now_ms, worker, draw())
    failed, records = _cancelled(task, now_ms, worker) if task.cancel_requested else (_timed_out(task), ())
    expires_ms = task.expires_ms or 0
    return ExpireTask(task.run_key, task.event_id, task.attempt, expires_ms, encode_record(failed), records)


def _cancelled(task: TaskRow, now_ms: int, worker: str) -> tuple[ActivityFailed, tuple[AttemptRecord, ...]]:
    """An attempt that was lost with its worker has begun, and nobody knows how far it came; else none has."""
    failure = worker_lost(task.attempt) if task.lost else cancelled_unstarted()
    outcome, started_ms = ("lost", task.started_ms) if task.lost else ("cancelled", None)
    record = record_of((task.run_key, task.event_id, task.attempt), outcome, started_ms, now_ms, worker, failure)
    return ActivityFailed(task.event_id, failure, "cancelled", task.attempt), (record,)


def _timed_out(task: TaskRow) -> ActivityFailed:
    try:
        options = decode_command(task.command).options
        last = None if task.last_failure is None else decode_failure(task.last_failure)
    except msgspec.MsgspecError as error:
        return ActivityFailed(task.event_id, damaged(task.attempt, error), "non_retryable", task.attempt)
    whole_ms = options.schedule_to_close_ms
    over = whole_ms is not None and task.expires_ms == task.scheduled_ms + whole_ms
    kind = "schedule_to_close" if over else "schedule_to_start"
    bound = (whole_ms if over else options.schedule_to_start_ms) or 0
    return ActivityFailed(task.event_id, timed_out(kind, bound, last, task.heartbeat), "timeout", task.attempt)
