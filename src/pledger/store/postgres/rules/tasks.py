"""Activities that wait in the store or run away from their run's owner."""

from __future__ import annotations

from collections.abc import Sequence

from pledger.engine.port.answers import Answer, Reply
from pledger.engine.port.lanes import APART_MS, is_apart
from pledger.engine.port.operations import ExpireTask, FinishTask, HandOut, Heartbeat, LogAttempts, PutTask
from pledger.engine.port.records import OUTSIDE, AttemptRecord, TaskRow
from pledger.store.postgres.found import Found, Needs, Task
from pledger.store.postgres.rules import mailbox
from pledger.store.postgres.writes import Writes

# Operations -----------------------------------------------------------------------------------------------------------


def needs_of_put(op: PutTask, needs: Needs) -> None:
    needs.runs.add(op.task.run_key)
    needs.tasks.add((op.task.run_key, op.task.event_id))


def put_task(op: PutTask, found: Found, writes: Writes) -> Answer:
    run = found.runs.get(op.task.run_key)
    if run is None or run.owner is None or run.fence != op.fence:
        return Reply.LOST
    if _has_attempt(op.task.run_key, op.task, found):
        return Reply.DUPLICATE
    put(op.task.run_key, op.task, writes)
    log(op.attempts, writes)
    return Reply.WON


def needs_of_finish(op: FinishTask | ExpireTask, needs: Needs) -> None:
    needs.tasks.add((op.run_key, op.event_id))
    needs.addressees.add(op.run_key)


def finish_task(op: FinishTask, found: Found, writes: Writes) -> Answer:
    task = found.tasks.get((op.run_key, op.event_id))
    if task is None or not _runs(task, op.attempt, op.owner) or op.expires_ms not in {None, task.expires_ms}:
        return Reply.LOST
    ended(task, found.addressees[op.run_key].namespace, writes)
    if op.requeue is not None:
        put(op.run_key, op.requeue, writes)
    else:
        writes.add("finish_tasks", op.run_key, op.event_id, op.outcome)
        mailbox.wake(found.addressees[op.run_key], found, writes)
    log(op.attempts, writes)
    return Reply.WON


def needs_of_hand_out(op: HandOut, needs: Needs) -> None:
    needs.tasks.add((op.run_key, op.event_id))


def hand_out(op: HandOut, found: Found, writes: Writes) -> Answer:
    task = found.tasks.get((op.run_key, op.event_id))
    if not _runs(task, op.attempt, op.owner):
        return Reply.DUPLICATE if _runs(task, op.attempt, OUTSIDE) else Reply.LOST
    writes.add("hand_out_tasks", op.run_key, op.event_id, op.expires_ms, op.details)
    if task is not None and task.limited:
        writes.add("hand_out_slots", op.run_key, op.event_id, op.attempt, op.owner)
    return Reply.WON


def expire_task(op: ExpireTask, found: Found, writes: Writes) -> Answer:
    task = found.tasks.get((op.run_key, op.event_id))
    if task is None or (task.state, task.attempt, task.expires_ms) != ("queued", op.attempt, op.expires_ms):
        return Reply.LOST
    writes.add("finish_tasks", op.run_key, op.event_id, op.outcome)
    mailbox.wake(found.addressees[op.run_key], found, writes)
    log(op.attempts, writes)
    return Reply.WON


def needs_of_heartbeat(op: Heartbeat, needs: Needs) -> None:
    needs.tasks.add((op.run_key, op.event_id))


def heartbeat(op: Heartbeat, found: Found, writes: Writes) -> Answer:
    task = found.tasks.get((op.run_key, op.event_id))
    if not _runs(task, op.attempt, op.owner):
        return Reply.LOST
    if op.details is not None or op.expires_ms is not None:
        writes.add("beat_tasks", op.run_key, op.event_id, op.details, op.expires_ms)
    return Reply.CANCEL_REQUESTED if task is not None and task.cancel_requested else Reply.HEARTBEAT_OK


def needs_of_log(_: LogAttempts, __: Needs) -> None:
    return


def log_late(op: LogAttempts, _: Found, writes: Writes) -> Answer:
    log(op.attempts, writes)
    return Reply.WON


# Parts ----------------------------------------------------------------------------------------------------------------


def put(run_key: int, task: TaskRow, writes: Writes) -> None:
    writes.add(
        "put_tasks",
        run_key,
        task.event_id,
        task.namespace,
        task.task_queue,
        task.activity_type,
        task.state,
        task.attempt,
        APART_MS if is_apart(task) else task.due_ms,
        task.command,
        task.scheduled_ms,
        task.started_ms,
        task.expires_ms,
        task.owner,
        task.lost,
        task.heartbeat,
        task.last_failure,
        task.outcome,
        task.cancel_requested,
        task.lane,
        task.weight,
        task.due_ms,
    )
    if task.state == "queued":
        writes.queue_has_work(task.namespace, task.task_queue)


def ended(task: Task | None, namespace: str, writes: Writes) -> None:
    """The row's attempt runs no more: its slots are free by that, and who waits for one is told."""
    if task is not None and task.limited and task.owner is not None:
        writes.slots_are_free(namespace)


def put_unwritten(run_key: int, rows: Sequence[TaskRow], found: Found, writes: Writes) -> None:
    """Rows that may be there already."""
    for row in rows:
        if not _has_attempt(run_key, row, found):
            put(run_key, row, writes)


def log(records: Sequence[AttemptRecord], writes: Writes, run_key: int | None = None) -> None:
    """run_key: in place of the records' own, for the first append of a run that had no key yet."""
    for each in records:
        key = each.run_key if run_key is None else run_key
        row = (each.attempt, each.outcome, each.started_ms, each.ended_ms, each.worker, each.failure)
        writes.add("log_attempts", key, each.event_id, *row)


def _has_attempt(run_key: int, row: TaskRow, found: Found) -> bool:
    task = found.tasks.get((run_key, row.event_id))
    return task is not None and task.attempt >= row.attempt


def _runs(task: Task | None, attempt: int, owner: int) -> bool:
    return task is not None and (task.attempt, task.owner) == (attempt, owner)
