"""Activities that wait in the store or run away from their run's owner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pledger.engine.port.answers import Answer, Reply
from pledger.engine.port.lanes import APART_MS, Served, is_apart
from pledger.engine.port.operations import ExpireTask, FinishTask, HandOut, Heartbeat, LogAttempts, PutTask
from pledger.engine.port.records import AttemptRecord, TaskRow
from pledger.store.sqlfiles import as_json, load_queries
from pledger.store.sqlite import mailbox, sessions
from pledger.store.sqlite.handle import SqliteHandle
from pledger.store.sqlite.writer import Cursor

_SQL: Final = load_queries(__package__, "tasks")

#: Lines of the attempt log that are kept for each activity: the newest ones.
ATTEMPTS_MAX: Final = 100

# Operations -----------------------------------------------------------------------------------------------------------


def put_task(cursor: Cursor, op: PutTask) -> Answer:
    if cursor.row(_SQL["holds_run"], (op.task.run_key, op.fence)) is None:
        return Reply.LOST
    if _has_attempt(cursor, op.task.run_key, op.task):
        return Reply.DUPLICATE
    change_tasks(cursor, op.task.run_key, (op.task,))
    log_attempts(cursor, op.attempts)
    return Reply.WON


def finish_task(cursor: Cursor, op: FinishTask) -> Answer:
    place = (op.run_key, op.event_id, op.attempt, op.owner, op.expires_ms)
    if op.requeue is not None:
        if cursor.row(_SQL["runs_task"], place) is None:
            return Reply.LOST
        change_tasks(cursor, op.run_key, (op.requeue,))
    else:
        cursor.execute(_SQL["finish_task"], (op.outcome, *place))
        if not cursor.changes():
            return Reply.LOST
        mailbox.wake(cursor, op.run_key)
    log_attempts(cursor, op.attempts)
    return Reply.WON


def hand_out(cursor: Cursor, op: HandOut) -> Answer:
    place = (op.run_key, op.event_id, op.attempt)
    cursor.execute(_SQL["hand_out"], (op.expires_ms, op.details, *place, op.owner))
    if not cursor.changes():
        is_out = cursor.row(_SQL["is_out"], place) is not None
        return Reply.DUPLICATE if is_out else Reply.LOST
    cursor.execute(_SQL["hand_out_slots"], (*place, op.owner))
    return Reply.WON


def expire_task(cursor: Cursor, op: ExpireTask) -> Answer:
    cursor.execute(_SQL["expire_task"], (op.outcome, op.run_key, op.event_id, op.attempt, op.expires_ms))
    if not cursor.changes():
        return Reply.LOST
    mailbox.wake(cursor, op.run_key)
    log_attempts(cursor, op.attempts)
    return Reply.WON


def heartbeat(cursor: Cursor, op: Heartbeat) -> Answer:
    place = (op.run_key, op.event_id, op.attempt, op.owner)
    row = cursor.row(_SQL["heartbeat"], (op.details, op.expires_ms, *place))
    if row is None:
        return Reply.LOST
    return Reply.CANCEL_REQUESTED if row[0] else Reply.HEARTBEAT_OK


def log_late(cursor: Cursor, op: LogAttempts) -> Answer:
    log_attempts(cursor, op.attempts)
    return Reply.WON


# Parts of an append ---------------------------------------------------------------------------------------------------


def change_tasks(
    cursor: Cursor,
    run_key: int,
    put: Sequence[TaskRow],
    dropped: Sequence[int] = (),
    cancelled: Sequence[int] = (),
) -> None:
    for task in put:
        cursor.execute(_SQL["put_task"], _task_bindings(run_key, task))
    for event_id in dropped:
        cursor.execute(_SQL["drop_task"], (run_key, event_id))
    for event_id in cancelled:
        cursor.execute(_SQL["request_task_cancel"], (run_key, event_id))


def put_unwritten(cursor: Cursor, run_key: int, rows: Sequence[TaskRow]) -> None:
    """Rows that may be there already."""
    change_tasks(cursor, run_key, [row for row in rows if not _has_attempt(cursor, run_key, row)])


def _has_attempt(cursor: Cursor, run_key: int, task: TaskRow) -> bool:
    return cursor.row(_SQL["has_attempt"], (run_key, task.event_id, task.attempt)) is not None


def log_attempts(cursor: Cursor, records: Sequence[AttemptRecord], run_key: int | None = None) -> None:
    """run_key: in place of the records' own, for the first append of a run that had no key yet."""
    for record in records:
        key = record.run_key if run_key is None else run_key
        cursor.execute(
            _SQL["log_attempt"],
            (
                key,
                record.event_id,
                record.attempt,
                record.outcome,
                record.started_ms,
                record.ended_ms,
                record.worker,
                record.failure,
            ),
        )
        cursor.execute(_SQL["trim_attempts"], (key, record.event_id, ATTEMPTS_MAX))


def _claim(cursor: Cursor, session_key: int, now_ms: int, candidates: tuple[Any, ...]) -> list[TaskRow]:
    if not sessions.is_alive(cursor, session_key):
        return []
    found = cursor.rows(_SQL["claimable_tasks"], candidates)
    return [start_task(cursor, session_key, now_ms, task_key) for (task_key,) in found]


def _task_bindings(run_key: int, task: TaskRow) -> tuple[Any, ...]:
    due_ms = APART_MS if is_apart(task) else task.due_ms
    return (
        run_key,
        task.event_id,
        task.namespace,
        task.task_queue,
        task.activity_type,
        task.state,
        task.attempt,
        due_ms,
        task.command,
        task.scheduled_ms,
        task.started_ms,
        task.expires_ms,
        task.owner,
        int(task.lost),
        task.heartbeat,
        task.last_failure,
        task.outcome,
        int(task.cancel_requested),
        task.lane,
        task.weight,
        task.due_ms,
    )


def task_row(row: tuple[Any, ...]) -> TaskRow:
    lost, heartbeat_details, last_failure, outcome, cancel_requested, lane, weight = row[16:]
    # SQLite has no booleans.
    found = (*row[:16], bool(lost), heartbeat_details, last_failure, outcome, bool(cancel_requested))
    return TaskRow(*(*found, lane, weight))


def start_task(cursor: Cursor, session_key: int, now_ms: int, task_key: int) -> TaskRow:
    """Its attempt is the session's from now on."""
    [identity] = cursor.rows(_SQL["claim_task"], (session_key, now_ms, task_key))
    [row] = cursor.rows(_SQL["read_task"], identity)
    return task_row(row)


# Verbs ----------------------------------------------------------------------------------------------------------------


class SqliteTasks(SqliteHandle):
    async def claim_tasks(self, session_key: int, now_ms: int, served: Served, room: int) -> list[TaskRow]:
        candidates = (as_json(served.activity_types), served.namespace, served.task_queue, now_ms, room)
        # Looked at first without the write lock: mostly there is nothing to do.
        if not self._rows(_SQL["claimable_tasks"], *candidates):
            return []
        # Durable, unlike a claim of a run: it is the record that an attempt was made.
        return await self._submit(lambda cursor: _claim(cursor, session_key, now_ms, candidates), durable=True)

    async def expired_tasks(self, namespace: str, now_ms: int, limit: int) -> list[TaskRow]:
        return [task_row(row) for row in self._rows(_SQL["expired_tasks"], namespace, now_ms, limit)]

    async def owned_tasks(self, session_key: int) -> list[TaskRow]:
        return [task_row(row) for row in self._rows(_SQL["owned_tasks"], session_key)]

    async def read_tasks(self, run_key: int) -> list[TaskRow]:
        return [task_row(row) for row in self._rows(_SQL["read_tasks"], run_key)]

    async def read_attempts(self, run_key: int) -> list[AttemptRecord]:
        return [AttemptRecord(*row) for row in self._rows(_SQL["read_attempts"], run_key)]
