"""Activities that wait in the store or run away from their run's owner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from pledger.engine.port.answers import Answer, Reply
from pledger.engine.port.lanes import Served, is_apart
from pledger.engine.port.operations import ExpireTask, FinishTask, HandOut, Heartbeat, LogAttempts, PutTask
from pledger.engine.port.records import OUTSIDE, AttemptRecord, TaskRow
from pledger.store.memory import pauses
from pledger.store.memory.state import State

#: Lines of the attempt log that are kept for each activity: the newest ones.
ATTEMPTS_MAX: Final = 100

# Operations -----------------------------------------------------------------------------------------------------------


def put_task(state: State, op: PutTask) -> Answer:
    if state.owned_run(op.task.run_key, op.fence) is None:
        return Reply.LOST
    if _has_attempt(state, op.task.run_key, op.task):
        return Reply.DUPLICATE
    change_tasks(state, op.task.run_key, (op.task,), (), ())
    log_attempts(state, op.attempts)
    return Reply.WON


def finish_task(state: State, op: FinishTask) -> Answer:
    task = _started(state, op.run_key, op.event_id, op.attempt, op.owner)
    if task is None or op.expires_ms not in {None, task.expires_ms}:
        return Reply.LOST
    if op.requeue is not None:
        change_tasks(state, op.run_key, (op.requeue,), (), ())
    else:
        change_tasks(state, op.run_key, (replace(task, state="done", owner=None, outcome=op.outcome),), (), ())
        state.wake(op.run_key)
    log_attempts(state, op.attempts)
    return Reply.WON


def hand_out(state: State, op: HandOut) -> Answer:
    task = _started(state, op.run_key, op.event_id, op.attempt, op.owner)
    if task is None:
        is_out = _started(state, op.run_key, op.event_id, op.attempt, OUTSIDE) is not None
        return Reply.DUPLICATE if is_out else Reply.LOST
    details = task.heartbeat if op.details is None else op.details
    out = replace(task, owner=OUTSIDE, expires_ms=op.expires_ms, heartbeat=details)
    change_tasks(state, op.run_key, (out,), (), ())
    for slots in (queues.slots for queues in state.queues.values()):
        for key, slot in slots.items():
            place = (slot.session_key, slot.run_key, slot.event_id, slot.attempt)
            if place == (op.owner, op.run_key, op.event_id, op.attempt):
                slots[key] = slot._replace(session_key=OUTSIDE)
    return Reply.WON


def expire_task(state: State, op: ExpireTask) -> Answer:
    task = state.tasks.get(op.run_key, {}).get(op.event_id)
    if task is None or (task.state, task.attempt, task.expires_ms) != ("queued", op.attempt, op.expires_ms):
        return Reply.LOST
    change_tasks(state, op.run_key, (replace(task, state="done", outcome=op.outcome),), (), ())
    state.wake(op.run_key)
    log_attempts(state, op.attempts)
    return Reply.WON


def heartbeat(state: State, op: Heartbeat) -> Answer:
    task = _started(state, op.run_key, op.event_id, op.attempt, op.owner)
    if task is None:
        return Reply.LOST
    details = task.heartbeat if op.details is None else op.details
    expires_ms = task.expires_ms if op.expires_ms is None else op.expires_ms
    change_tasks(state, op.run_key, (replace(task, heartbeat=details, expires_ms=expires_ms),), (), ())
    return Reply.CANCEL_REQUESTED if task.cancel_requested else Reply.HEARTBEAT_OK


def log_late(state: State, op: LogAttempts) -> Answer:
    log_attempts(state, op.attempts)
    return Reply.WON


def _has_attempt(state: State, run_key: int, task: TaskRow) -> bool:
    """Whether the row of this attempt or a later one is there."""
    there = state.tasks.get(run_key, {}).get(task.event_id)
    return there is not None and there.attempt >= task.attempt


def _started(state: State, run_key: int, event_id: int, attempt: int, owner: int) -> TaskRow | None:
    """The row, if exactly this attempt is the one that runs."""
    task = state.tasks.get(run_key, {}).get(event_id)
    if task is None or (task.state, task.attempt, task.owner) != ("started", attempt, owner):
        return None
    return task


# Parts of an append ---------------------------------------------------------------------------------------------------


def change_tasks(
    state: State, run_key: int, put: Sequence[TaskRow], dropped: Sequence[int], cancelled: Sequence[int]
) -> None:
    tasks = state.tasks.setdefault(run_key, {})
    for task in put:
        there = tasks.get(task.event_id)
        tasks[task.event_id] = replace(task, run_key=run_key)
        state.news = state.news or task.state == "queued"
        if there is not None and there.cancel_requested:
            _request_cancel(tasks, task.event_id)
    for event_id in dropped:
        there = tasks.pop(event_id, None)
        # Its slots are free, for whoever waits for one.
        state.news = state.news or (there is not None and there.owner is not None)
    for event_id in cancelled:
        if event_id in tasks:
            _request_cancel(tasks, event_id)
            state.news = True


def put_unwritten(state: State, run_key: int, rows: Sequence[TaskRow]) -> None:
    """Rows that may be there already."""
    change_tasks(state, run_key, [row for row in rows if not _has_attempt(state, run_key, row)], (), ())


def _request_cancel(tasks: dict[int, TaskRow], event_id: int) -> None:
    """What waits in the queue waits no longer."""
    task = tasks[event_id]
    expires_ms = 0 if task.state == "queued" else task.expires_ms
    tasks[event_id] = replace(task, cancel_requested=True, expires_ms=expires_ms)


def log_attempts(state: State, records: Sequence[AttemptRecord], run_key: int | None = None) -> None:
    """run_key: in place of the records' own, for the first append of a run that had no key yet."""
    for record in records:
        line = record if run_key is None else replace(record, run_key=run_key)
        log = state.attempts.setdefault(line.run_key, [])
        log.append(line)
        same = [i for i, other in enumerate(log) if other.event_id == line.event_id]
        if len(same) > ATTEMPTS_MAX:
            del log[same[0]]


# Verbs ----------------------------------------------------------------------------------------------------------------


def claim_tasks(state: State, session_key: int, now_ms: int, served: Served, room: int) -> list[TaskRow]:
    if session_key not in state.sessions:
        return []
    due = [
        task
        for task in queued_tasks(state, served.namespace)
        if task.due_ms <= now_ms and task.task_queue == served.task_queue
        if task.activity_type in served.activity_types
        if not pauses.holds_task(state, task)
        if not is_apart(task)
    ]
    due.sort(key=lambda task: (task.due_ms, task.run_key, task.event_id))
    return start_tasks(state, session_key, now_ms, due[:room])


def start_tasks(state: State, session_key: int, now_ms: int, tasks: Sequence[TaskRow]) -> list[TaskRow]:
    """Their attempts are the session's from now on."""
    started = [
        # Of an attempt that was lost with its worker the log shall say when it started.
        replace(task, state="started", owner=session_key, started_ms=(task.lost and task.started_ms) or now_ms)
        for task in tasks
    ]
    for task in started:
        state.tasks[task.run_key][task.event_id] = task
    return started


def expired_tasks(state: State, namespace: str, now_ms: int, limit: int) -> list[TaskRow]:
    expired = [task for task in expiring_tasks(state, namespace) if (task.expires_ms or 0) <= now_ms]
    return sorted(expired, key=lambda task: (task.expires_ms or 0, task.run_key, task.event_id))[:limit]


def queued_tasks(state: State, namespace: str) -> list[TaskRow]:
    return [
        task
        for tasks in state.tasks.values()
        for task in tasks.values()
        if task.state == "queued" and task.namespace == namespace
    ]


def expiring_tasks(state: State, namespace: str) -> list[TaskRow]:
    """Those whose time a worker has to watch that does not run them: in the queue, or outside."""
    rows = [task for tasks in state.tasks.values() for task in tasks.values() if task.namespace == namespace]
    waits = [task for task in rows if task.state == "queued" or task.owner == OUTSIDE]
    return [task for task in waits if task.expires_ms is not None]


def owned_tasks(state: State, session_key: int) -> list[TaskRow]:
    tasks = [task for _, tasks in sorted(state.tasks.items()) for _, task in sorted(tasks.items())]
    return [task for task in tasks if task.owner == session_key]


def read_tasks(state: State, run_key: int) -> list[TaskRow]:
    return [task for _, task in sorted(state.tasks.get(run_key, {}).items())]


def read_attempts(state: State, run_key: int) -> list[AttemptRecord]:
    return list(state.attempts.get(run_key, []))
