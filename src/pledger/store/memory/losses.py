"""A ledger that has gone back behind what it had acknowledged: see the port's `Losses`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from msgspec.structs import replace

from pledger.engine.port.records import RunRow
from pledger.store.losses import JUMP
from pledger.store.memory.state import State


def declare_loss(state: State) -> int:
    state.news = True
    now = state.clock()
    moved = {run_key: _may_have_moved(state, state.runs[run_key], now) for run_key in state.open_runs}
    state.losses |= {run_key: each or state.losses.get(run_key, False) for run_key, each in moved.items()}
    state.keys = itertools.count(next(state.keys) + JUMP)
    state.sessions.clear()
    state.wakes.clear()
    for run_key in state.open_runs:
        run = state.runs[run_key]
        due_ms = run.due_ms if run.owner is None else 0
        state.runs[run_key] = replace(run, owner=None, fence=run.fence + JUMP, due_ms=due_ms)
    for streams in state.streams.values():
        for stream in streams.values():
            stream.next += 0 if stream.is_forgotten else JUMP
    for tasks in state.tasks.values():
        for event_id, task in tasks.items():
            if task.state == "started" or (task.state == "queued" and task.due_ms <= now):
                expires_ms = 0 if task.cancel_requested else task.expires_ms
                tasks[event_id] = replace(task, state="queued", owner=None, due_ms=0, lost=True, expires_ms=expires_ms)
    return sum(state.losses[run_key] for run_key in moved)


def read_losses(state: State, run_keys: Sequence[int]) -> dict[int, bool]:
    return {run_key: state.losses[run_key] for run_key in run_keys if run_key in state.losses}


def _may_have_moved(state: State, run: RunRow, now_ms: int) -> bool:
    """Not one that sleeps, and is to sleep on: nothing that the ledger knows of could wake it meanwhile. A message may
    have, which is gone too."""
    if run.owner is not None or run.due_ms is None or run.due_ms <= now_ms:
        return True
    return bool(state.tasks.get(run.run_key) or state.waiting(run.chain_key))
