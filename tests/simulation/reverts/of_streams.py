"""Reverts of what has each value published once, by who may, and before the end."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from pledger import workflow
from pledger.engine.port.answers import Answer
from pledger.engine.port.operations import Publish
from pledger.machine.context import required
from pledger.store.memory import store, streams
from pledger.store.memory.state import State
from pledger.testing import Faults
from tests.simulation.reverts.revert import ANSWERS_LOST, DEATHS, Revert, several


def a_replay_publishes_again(patch: pytest.MonkeyPatch) -> None:
    rule = workflow.publish

    def publish(topic: str, value: Any) -> None:
        context = required("workflow.publish")
        replaying, context.replaying = context.replaying, False
        try:
            rule(topic, value)
        finally:
            context.replaying = replaying

    patch.setattr(workflow, "publish", publish)


def a_batch_that_is_there_is_written_again(patch: pytest.MonkeyPatch) -> None:
    def publish(state: State, op: Publish) -> Answer:
        state.published.pop((op.run_key, op.event_id, op.attempt), None)
        return streams.publish(state, replace(op, number=0))

    patch.setitem(store._RULES, Publish, publish)


def an_attempt_that_has_lost_its_right_publishes_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(streams, "_may_publish", lambda state, op: op.run_key in state.runs)


_ONCE = ("what is published is published once", "followers read each value once")
_RECITING: dict[str, Any] = {"cases": several("reciting", 3), "options": {"workers": 2}}

REVERTS = [
    Revert(a_replay_publishes_again, _ONCE, DEATHS, **_RECITING),
    Revert(a_batch_that_is_there_is_written_again, _ONCE, ANSWERS_LOST, **_RECITING),
    Revert(
        an_attempt_that_has_lost_its_right_publishes_on,
        ("attempts publish one after another", *_ONCE),
        Faults(pause=0.5, cut_off=0.5),
        **_RECITING,
    ),
]
