"""Runs as a worker brings them into memory."""

from __future__ import annotations

from collections.abc import Sequence

from pledger.engine.port.records import StoredRun
from pledger.store.memory import ledger, mailbox, tasks
from pledger.store.memory.state import State


def read_stored_runs(state: State, run_keys: Sequence[int], limit: int) -> list[StoredRun]:
    return [_stored(state, run_key, limit) if run_key in state.runs else StoredRun(run_key) for run_key in run_keys]


def _stored(state: State, run_key: int, limit: int) -> StoredRun:
    transitions = ledger.read_history(state, run_key, 0, limit)
    messages = mailbox.read_inbox(state, state.run(run_key).chain_key)
    return StoredRun(run_key, tuple(transitions), tuple(messages), tuple(tasks.read_tasks(state, run_key)))
