"""Leases of worker processes, and what they own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from pledger.engine.port.lanes import is_apart
from pledger.engine.port.pauses import Part
from pledger.engine.port.records import Outlook, RunRow, SessionRow
from pledger.store.memory import pauses
from pledger.store.memory.state import State
from pledger.store.memory.tasks import expiring_tasks, queued_tasks


def now_ms(state: State) -> int:
    return state.clock()


def read_sessions(state: State, namespace: str) -> list[SessionRow]:
    return [session for session in state.sessions.values() if session.namespace == namespace]


def open_session(state: State, identity: str, namespace: str, task_queue: str, code: str, lease_ms: int) -> SessionRow:
    now = state.clock()
    session = SessionRow(next(state.keys), identity, namespace, task_queue, code, now, now + lease_ms)
    state.sessions[session.session_key] = session
    return session


def renew_session(state: State, session_key: int, lease_ms: int) -> int | None:
    session = state.sessions.get(session_key)
    if session is None:
        return None
    now = state.clock()
    state.sessions[session_key] = replace(session, expires_ms=now + lease_ms)
    return now


def bury_sessions(state: State, namespace: str) -> list[SessionRow]:
    now = state.clock()
    buried = [session for session in read_sessions(state, namespace) if session.expires_ms <= now]
    for session in buried:
        close_session(state, session.session_key)
    return buried


def close_session(state: State, session_key: int) -> None:
    state.news = True
    state.sessions.pop(session_key, None)
    for run_key in list(state.open_runs):
        run = state.runs[run_key]
        if run.owner == session_key:
            state.runs[run_key] = replace(state.let_go(run, 0), claims=run.claims + 1)
    for tasks in state.tasks.values():
        for event_id, task in tasks.items():
            if task.owner == session_key:
                expires_ms = 0 if task.cancel_requested else task.expires_ms
                tasks[event_id] = replace(task, state="queued", owner=None, due_ms=0, lost=True, expires_ms=expires_ms)


def claim_runs(
    state: State,
    session_key: int,
    now_ms: int,
    namespace: str,
    task_queue: str,
    codes: Mapping[str, str],
    limit: int,
) -> list[RunRow]:
    return _claim(state, session_key, now_ms, (namespace, task_queue), codes, Part(list(codes), [], limit))


def claim_lifted_runs(
    state: State,
    session_key: int,
    now_ms: int,
    namespace: str,
    task_queue: str,
    codes: Mapping[str, str],
    limit: int,
) -> list[RunRow]:
    lifting = pauses.lifting(state, namespace, task_queue)
    claimed: list[RunRow] = []
    for part in lifting.of_runs(codes, limit):
        taken = _claim(state, session_key, now_ms, (namespace, task_queue), codes, part)
        lifting.pay(part, taken)
        claimed += taken
    pauses.settle(state, lifting)
    return claimed


def _claim(
    state: State, session_key: int, now_ms: int, place: tuple[str, str], codes: Mapping[str, str], part: Part
) -> list[RunRow]:
    """place: namespace and task queue. part: types, how many, and what does not stand in the way."""
    if session_key not in state.sessions:
        return []
    due = [
        run
        for run in _ownerless(state, *place)
        if run.workflow_type in part.names and run.due_ms is not None and run.due_ms <= now_ms
        if run.blocked is None or _may_unblock(state, run, codes)
        if not pauses.holds_run(state, run, part.lifted)
    ]
    due.sort(key=lambda run: (run.due_ms, run.run_key))
    claimed = [
        replace(run, owner=session_key, fence=run.fence + 1, blocked=None, blocked_code=None)
        for run in due[: part.room]
    ]
    state.runs.update((run.run_key, run) for run in claimed)
    return claimed


def woken_runs(state: State, session_key: int) -> list[int]:
    woken = sorted(run_key for run_key in state.wakes if state.runs[run_key].owner == session_key)
    state.wakes.difference_update(woken)
    return woken


def owned_runs(state: State, session_key: int) -> list[RunRow]:
    runs = [state.runs[run_key] for run_key in sorted(state.open_runs)]
    return [run for run in runs if run.owner == session_key]


def look(
    state: State,
    session_key: int,
    now_ms: int,
    namespace: str,
    task_queue: str,
    codes: Mapping[str, str],
    held: Sequence[int],
) -> Outlook:
    runs = _ownerless(state, namespace, task_queue)
    queued = queued_tasks(state, namespace)
    runs_due = [
        run.due_ms
        for run in runs
        if run.due_ms is not None and run.blocked is None and not (state.pauses and pauses.holds_run(state, run))
    ]
    mine = [task for task in queued if task.task_queue == task_queue]
    due = runs_due + [
        task.due_ms for task in mine if not is_apart(task) and not (state.pauses and pauses.holds_task(state, task))
    ]
    now = state.clock()
    return Outlook(
        overdue=any(session.expires_ms <= now for session in read_sessions(state, namespace)),
        woken=bool(state.wakes) and any(state.runs[run_key].owner == session_key for run_key in state.wakes),
        expired=any((task.expires_ms or 0) <= now_ms for task in expiring_tasks(state, namespace)),
        unblocked=any(run.blocked and _may_unblock(state, run, codes) for run in runs),
        ended=tuple(run_key for run_key in held if run_key not in state.open_runs),
        due_ms=min(due, default=None),
        pauses=tuple(pauses.of_places(state, namespace)),
        paused=tuple(
            each.scope.run_key
            for each in state.pauses.values()
            if each.scope.run_key in state.open_runs and state.runs[each.scope.run_key].owner == session_key
        ),
        lanes=any(map(is_apart, mine)),
        runs_due_ms=min(runs_due, default=None),
        partings=any(state.runs[run_key].namespace == namespace for run_key in state.partings),
    )


def _may_unblock(state: State, run: RunRow, codes: Mapping[str, str]) -> bool:
    """Whether the code for the blocked run has not failed on it where it stands."""
    code = codes.get(run.workflow_type, run.blocked_code)
    return code != run.blocked_code and code not in state.tried_codes(run)


def _ownerless(state: State, namespace: str, task_queue: str) -> list[RunRow]:
    runs = [state.runs[run_key] for run_key in state.open_runs]
    return [run for run in runs if (run.owner, run.namespace, run.task_queue) == (None, namespace, task_queue)]
