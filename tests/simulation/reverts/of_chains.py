"""Reverts of what makes the runs of a chain one."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from pledger.engine.limits import Limits
from pledger.engine.port.answers import Answer, Reply
from pledger.engine.port.operations import Send
from pledger.engine.port.records import RunRow, RunStatus
from pledger.history import transition
from pledger.store.memory import mailbox, store
from pledger.store.memory.state import State
from tests.simulation.reverts.revert import DEATHS, Revert, several


def the_end_of_a_run_settles_the_mailbox_of_its_chain(patch: pytest.MonkeyPatch) -> None:
    rule = State.close_run

    def close_run(self: State, run: RunRow, status: RunStatus, closed_ms: int) -> None:
        inbox = self.inboxes[run.chain_key]
        for key, message in inbox.items():
            if message.verdict is None and status == "continued_as_new":
                inbox[key] = replace(message, verdict="undelivered")
        rule(self, run, status, closed_ms)

    patch.setattr(State, "close_run", close_run)


def a_message_goes_to_the_run_that_it_names(patch: pytest.MonkeyPatch) -> None:
    def send(state: State, op: Send) -> Answer:
        run = state.run(op.run_key)
        known = (run.chain_key, op.message_id) in state.message_keys
        return Reply.CLOSED if run.status != "running" and not known else mailbox.send(state, op)

    patch.setitem(store._RULES, Send, send)


def what_the_code_was_told_of_its_history_is_not_recorded(patch: pytest.MonkeyPatch) -> None:
    rule = transition.encode_parts
    patch.setattr(transition, "encode_parts", lambda *parts, **flags: rule(*parts, **{**flags, "suggests": False}))


#: A bound that the second round comes to.
_COUNTING: dict[str, Any] = {"cases": several("counting", 2), "options": {"limits": Limits(history_events_max=20)}}
#: Messages that meet the ends of runs, from workers that die and answers that are lost.
_ROLLING: dict[str, Any] = {"cases": several("rolling", 4), "options": {"workers": 2}}
_LOST = "nothing acknowledged is lost"

REVERTS = [
    Revert(the_end_of_a_run_settles_the_mailbox_of_its_chain, (_LOST, "everything finishes"), DEATHS, **_ROLLING),
    Revert(
        what_the_code_was_told_of_its_history_is_not_recorded,
        ("replay equals the record", "no run blocks"),
        **_COUNTING,
    ),
    Revert(a_message_goes_to_the_run_that_it_names, ("refused is refused", _LOST), DEATHS, **_ROLLING),
]
