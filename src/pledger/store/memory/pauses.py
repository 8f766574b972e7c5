"""What stands still because somebody said so."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from pledger.engine.port.pauses import Lifting, Pause, Scope, lifted_at, paused_again
from pledger.engine.port.records import RunRow, TaskRow
from pledger.store.memory.state import State


def pause(state: State, scope: Scope, reason: str, paused_by: str) -> Pause:
    state.news = True
    now_ms = state.clock()
    there = _find(state, scope)
    if there is None:
        row = Pause(next(state.keys), scope, reason, paused_by, now_ms)
    else:
        row = paused_again(there, reason, paused_by, now_ms)
    state.pauses[row.pause_key] = row
    return row


def resume(state: State, scope: Scope, rate: float | None) -> Pause | None:
    there = _find(state, scope)
    if there is None:
        return None
    state.news = True
    now_ms = state.clock()
    _write(state, there.pause_key, lifted_at(there, rate, _backlog(state, scope, now_ms), now_ms))
    return there


def hand_on(state: State, run_key: int, successor_key: int, run_id: str) -> None:
    """A pause of one run is that of its chain."""
    for key, each in state.pauses.items():
        if each.scope.run_key == run_key:
            state.pauses[key] = replace(each, scope=replace(each.scope, run_key=successor_key, name=run_id))


def read_pauses(state: State, namespace: str) -> list[Pause]:
    return [
        each
        for each in state.pauses.values()
        if each.scope.namespace == namespace and (each.scope.run_key is None or each.scope.run_key in state.open_runs)
    ]


# For claims and looks -------------------------------------------------------------------------------------------------


def of_places(state: State, namespace: str) -> list[Pause]:
    """All of the namespace but those of single runs."""
    return [each for each in read_pauses(state, namespace) if each.scope.kind != "run"]


def holds_run(state: State, run: RunRow, lifted: Sequence[int] = ()) -> bool:
    """Whether a run is paused, by another pause than those that are `lifted`."""
    return any(
        each.covers(run.run_key, run.workflow_type, run.task_queue)
        for each in state.pauses.values()
        if each.scope.namespace == run.namespace and each.pause_key not in lifted
    )


def holds_task(state: State, task: TaskRow, lifted: Sequence[int] = ()) -> bool:
    """The same for an attempt that waits: its queue is its own, which may be another one than its run's."""
    return any(
        each.covers(task.run_key, task.workflow_type, task.task_queue)
        for each in state.pauses.values()
        if each.scope.namespace == task.namespace and each.pause_key not in lifted
    )


def lifting(state: State, namespace: str, task_queue: str) -> Lifting:
    return Lifting(of_places(state, namespace), task_queue, state.clock())


def settle(state: State, lifting: Lifting) -> None:
    for key, row in lifting.paid.items():
        _write(state, key, row)


def _write(state: State, key: int, row: Pause | None) -> None:
    if row is None:
        del state.pauses[key]
    else:
        state.pauses[key] = row


def _find(state: State, scope: Scope) -> Pause | None:
    place = (scope.namespace, scope.kind, scope.name)
    return next(
        (each for each in state.pauses.values() if (each.scope.namespace, each.scope.kind, each.scope.name) == place),
        None,
    )


def _backlog(state: State, scope: Scope, now_ms: int) -> int:
    """How much of what the scope covers waits to be taken."""
    covers = Pause(0, scope, "", "", 0).covers
    runs = sum(
        run.owner is None and run.blocked is None and run.due_ms is not None and run.due_ms <= now_ms
        for run in (state.runs[key] for key in state.open_runs)
        if run.namespace == scope.namespace and covers(run.run_key, run.workflow_type, run.task_queue)
    )
    rows = [task for tasks in state.tasks.values() for task in tasks.values()]
    tasks = sum(
        task.due_ms <= now_ms
        for task in rows
        if (task.state, task.namespace) == ("queued", scope.namespace)
        and covers(task.run_key, task.workflow_type, task.task_queue)
    )
    return runs + tasks
