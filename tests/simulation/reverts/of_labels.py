"""Reverts of what keeps lists in step with histories: search attributes and memos."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from pledger.engine.port.filters import Attribute
from pledger.history.transition import Transition
from pledger.machine.machine import Machine
from pledger.store.memory import labels
from pledger.store.memory.state import State
from tests.simulation.reverts.revert import DEATHS, Revert, several


def what_is_taken_away_stays_in_the_index(patch: pytest.MonkeyPatch) -> None:
    rule = labels.write

    def write(state: State, run_key: int, attributes: Sequence[Attribute], memo: bytes | None) -> None:
        rule(state, run_key, [each for each in attributes if each.values], memo)

    patch.setattr(labels, "write", write)


def whoever_loads_a_run_forgets_its_memo(patch: pytest.MonkeyPatch) -> None:
    rule = Machine.replay_all

    def replay_all(self: Machine, transitions: Iterable[Transition], sizes: Iterable[int] = ()) -> None:
        rule(self, transitions, sizes)
        if self.context.labels is not None:
            self.context.labels.sealed_memo = {}

    patch.setattr(Machine, "replay_all", replay_all)


_CASES: dict[str, Any] = {"cases": several("labelled", 3)}

REVERTS = [
    Revert(what_is_taken_away_stays_in_the_index, ("labels and history agree",), **_CASES),
    Revert(whoever_loads_a_run_forgets_its_memo, ("labels and history agree",), DEATHS, **_CASES),
]
