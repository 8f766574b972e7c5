"""Reverts of how attempts are handed out, and completed from outside."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pledger.engine.port.answers import Answer, Reply
from pledger.engine.port.operations import FinishTask, HandOut
from pledger.store.memory import State, store, tasks
from tests.simulation.reverts.revert import DEATHS, Revert


def a_second_completion_is_taken_too(patch: pytest.MonkeyPatch) -> None:
    """The row does not decide any more: whoever comes last before the run has looked is right."""
    rule = tasks.finish_task

    def finish_task(state: State, op: FinishTask) -> Answer:
        task = state.tasks.get(op.run_key, {}).get(op.event_id)
        if task is not None and task.state == "done" and op.outcome is not None:
            state.tasks[op.run_key][op.event_id] = replace(task, outcome=op.outcome)
            return Reply.WON
        return rule(state, op)

    patch.setitem(store._RULES, FinishTask, finish_task)


def what_is_out_stays_its_workers(patch: pytest.MonkeyPatch) -> None:
    """Nobody looks after its time, and a burial takes it for an attempt that was lost."""

    def hand_out(state: State, op: HandOut) -> Answer:
        task = state.tasks.get(op.run_key, {}).get(op.event_id)
        if task is None or (task.attempt, task.owner) != (op.attempt, op.owner):
            return Reply.LOST
        state.tasks[op.run_key][op.event_id] = replace(task, expires_ms=op.expires_ms, heartbeat=op.details)
        return Reply.WON

    patch.setitem(store._RULES, HandOut, hand_out)


REVERTS = [
    Revert(a_second_completion_is_taken_too, ("nothing acknowledged is lost",), cases=("delivering",)),
    Revert(what_is_out_stays_its_workers, ("everything finishes once faults stop",), DEATHS, cases=("delivering",)),
]
