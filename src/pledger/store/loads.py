"""Rows of several runs, put together as what each is brought into memory with."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from pledger.engine.port.records import Message, StoredRun, TaskRow
from pledger.history.transition import StoredTransition


def gather(
    run_keys: Sequence[int],
    transitions: Iterable[tuple[int, StoredTransition]],
    messages: Iterable[tuple[int, Message]],
    tasks: Iterable[TaskRow],
) -> list[StoredRun]:
    """transitions, messages: each with the key of its run. Those of a run in the order in which they are to stand."""
    histories: dict[int, list[StoredTransition]] = defaultdict(list)
    inboxes: dict[int, list[Message]] = defaultdict(list)
    pending: dict[int, list[TaskRow]] = defaultdict(list)
    for run_key, stored in transitions:
        histories[run_key].append(stored)
    for run_key, message in messages:
        inboxes[run_key].append(message)
    for task in tasks:
        pending[task.run_key].append(task)
    return [
        StoredRun(run_key, tuple(histories[run_key]), tuple(inboxes[run_key]), tuple(pending[run_key]))
        for run_key in run_keys
    ]
