"""What the cases look at: what was recorded, and what the code asks for when it runs again."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

from pledger.client import History
from pledger.history.events import Command
from pledger.machine.definitions import WorkflowDefinition
from pledger.machine.machine import Machine

#: When the virtual time of the cases begins.
BEGAN = datetime(2026, 3, 1, tzinfo=UTC)


def recorded(history: History) -> list[str]:
    """The types of its events."""
    return [each.type for each in history.events]


def moments(history: History) -> list[float]:
    """When its transitions were, in seconds after `BEGAN`."""
    return [each.time_ms / 1000 - BEGAN.timestamp() for each in history.transitions]


def transition_at(history: History, after: timedelta) -> list[str]:
    """The types of the events that were recorded at one moment, counted from `BEGAN`."""
    return [each.type for each in history.events if each.time == BEGAN + after]


def asked_again(history: History, workflow: Callable[..., Any] | type) -> list[Command]:
    """What the code asks for when it is given the recorded inputs once more, in a process that knows nothing else.

    More than a replay: that takes over what is recorded where an input differs (case RPL-08); here it shows.
    """

    def run() -> list[Command]:
        machine = Machine(WorkflowDefinition.of(workflow), history.identity)
        try:
            return [
                command
                for each in history.transitions
                for command in machine.activate(each.inputs, time_ms=each.time_ms)[1]
            ]
        finally:
            machine.destroy()

    with ThreadPoolExecutor(1) as thread:  # workflow code never runs inside of another loop
        return thread.submit(run).result()


def recorded_commands(history: History) -> list[Command]:
    return [command for each in history.transitions for command in each.commands]
