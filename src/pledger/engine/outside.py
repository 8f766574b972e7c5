"""Attempts that were handed out: nobody here runs them, and a token completes them. What is written of them. Pure.

Such an attempt is a task row, `started` by OUTSIDE: a session that never ends. So no slot, thread or coroutine is held,
no worker's death touches it, and whoever ends it does so as a worker ends an attempt: the row decides, once.
"""

from __future__ import annotations

import msgspec

from pledger.engine.port.operations import FinishTask
from pledger.engine.port.records import OUTSIDE, TaskRow
from pledger.engine.task_rows import decode_command, decode_failure, encode_record, identity_of, queued_row, record_of
from pledger.engine.verdicts import GiveUp, Retry, after_failure, damaged, timed_out
from pledger.history.events import ActivityCompleted, ActivityFailed, ActivityOptions, ScheduleActivity
from pledger.history.failures import Failure

#: Who an entry of the attempt log names that no worker made.
WHO = "outside"


def expiry_ms(options: ActivityOptions, row: TaskRow, beat_ms: int) -> int | None:
    """When the attempt times out that has been heard of at `beat_ms`; None for never."""
    deadline_ms, _, _ = _deadline(options, row)
    silence_ms = None if options.heartbeat_ms is None else beat_ms + options.heartbeat_ms
    return min((each for each in (deadline_ms, silence_ms) if each is not None), default=None)


def _deadline(options: ActivityOptions, row: TaskRow) -> tuple[int | None, str, int]:
    """When, by which of its bounds, and how long that was; as `Attempt` has it."""
    started_ms = row.scheduled_ms if row.started_ms is None else row.started_ms
    bounds = (
        ("start_to_close", started_ms, options.start_to_close_ms),
        ("schedule_to_close", row.scheduled_ms, options.schedule_to_close_ms),
    )
    found = [(start + bound, kind, bound) for kind, start, bound in bounds if bound is not None]
    if options.run_deadline_ms is not None:
        found.append((options.run_deadline_ms, "run", options.run_deadline_ms - row.scheduled_ms))
    return min(found, key=lambda each: each[0], default=(None, "start_to_close", 0))


def completed(row: TaskRow, result: bytes) -> FinishTask:
    """result: encoded."""
    outcome = encode_record(ActivityCompleted(row.event_id, result, row.attempt))
    return FinishTask(row.run_key, row.event_id, row.attempt, OUTSIDE, outcome)


def timed_out_outside(row: TaskRow, now_ms: int, worker: str, draw: float) -> FinishTask:
    """Its time was over when the row was read, and is unless a heartbeat comes first."""
    try:
        options = decode_command(row.command).options
    except msgspec.MsgspecError:
        options = ActivityOptions()
    deadline_ms, kind, bound_ms = _deadline(options, row)
    if options.heartbeat_ms is not None and (deadline_ms is None or (row.expires_ms or 0) < deadline_ms):
        kind, bound_ms = "heartbeat", options.heartbeat_ms
    failure = timed_out(kind, bound_ms, heartbeat=row.heartbeat)
    finish = failed(row, failure, now_ms, worker, draw)
    finish.expires_ms = row.expires_ms
    return finish


def failed(row: TaskRow, failure: Failure, now_ms: int, worker: str, draw: float) -> FinishTask:
    """The attempt has brought no result: there is a next one, or that is the outcome. draw: as in `after_failure`."""
    try:
        command = decode_command(row.command)
        last = None if row.last_failure is None else decode_failure(row.last_failure)
    except msgspec.MsgspecError as error:
        command, last = ScheduleActivity(row.activity_type, b"[]", ActivityOptions()), None
        failure = damaged(row.attempt, error)
    verdict = after_failure(
        command,
        attempt=row.attempt,
        failure=failure,
        scheduled_ms=row.scheduled_ms,
        now_ms=now_ms,
        last_failure=last,
        draw=draw,
        cancel_requested=row.cancel_requested,
    )
    place = (row.run_key, row.event_id, row.attempt)
    outcome = {"timeout": "timed_out", "cancelled": "cancelled"}.get(failure.kind, "failed")
    finish = FinishTask(*place, OUTSIDE, attempts=[record_of(place, outcome, row.started_ms, now_ms, worker, failure)])
    match verdict:
        case GiveUp():
            ended = ActivityFailed(row.event_id, verdict.failure, verdict.retry_state, row.attempt)
            finish.outcome = encode_record(ended)
        case Retry():
            finish.requeue = queued_row(
                identity_of(row),
                row.run_key,
                row.event_id,
                command,
                number=row.attempt + 1,
                due_ms=verdict.due_ms,
                scheduled_ms=row.scheduled_ms,
                heartbeat=row.heartbeat,
                last_failure=verdict.failure,
            )
    return finish
