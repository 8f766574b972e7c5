"""`replay`: a recorded history against the code as it is now."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pledger.client import History
from pledger.history import payloads
from pledger.interceptors import Interceptor, checked, of_workflows
from pledger.machine import guards
from pledger.machine.definitions import WorkflowDefinition
from pledger.machine.machine import Machine


def replay(
    history: History | bytes | str | Path,
    workflow: Callable[..., Any] | type,
    *,
    payload_bytes_max: int = payloads.PAYLOAD_BYTES_MAX,
    interceptors: Sequence[Interceptor] = (),
) -> int:
    """Replay a history against the workflow; how many events it has.

    history: from `handle.history()`, the JSON text that `pledger history --json` writes, or the path of a file with it.
    payload_bytes_max, interceptors: those of the worker.
    Raises NondeterminismError naming the first difference, PayloadError for what is no history, what the code raises.
    """
    found = history if isinstance(history, History) else _read(history)
    definition = WorkflowDefinition.of(workflow)
    guards.install()
    if asyncio._get_running_loop() is None:  # noqa: SLF001 - documented for event loops
        return _replay(found, definition, payload_bytes_max, interceptors)
    # Workflow code never runs inside a task of another loop (see `machine.loop`): from one, go to another thread.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(_replay, found, definition, payload_bytes_max, interceptors).result()


def _replay(
    history: History,
    definition: WorkflowDefinition,
    payload_bytes_max: int,
    interceptors: Sequence[Interceptor],
) -> int:
    classes = of_workflows(checked(interceptors, "replay(interceptors=...)"))
    machine = Machine(definition, history.identity, payload_bytes_max=payload_bytes_max, interceptors=classes)
    try:
        for transition in history.transitions:
            machine.replay(transition)
    finally:
        machine.destroy()
    return machine.last_event


def _read(history: bytes | str | Path) -> History:
    data = history if isinstance(history, bytes) else Path(history).read_bytes()
    return History.read(data)
