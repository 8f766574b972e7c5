"""Reverts of what makes an activation that is written in parts one all the same."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from pledger.engine.active_run import ActiveRun
from pledger.engine.building import InFlight
from pledger.engine.limits import Limits
from pledger.engine.runs import Runs
from pledger.history import transition
from pledger.history.transition import Transition
from pledger.machine import sealing
from pledger.machine.context import Asked
from pledger.machine.machine import Machine
from tests.simulation.reverts.revert import DEATHS, Revert, several


def what_was_cut_off_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    rule = sealing._cut

    def cut(machine: Machine, asked: Sequence[Asked]) -> Sequence[Asked]:
        taken = rule(machine, asked)
        machine.unrecorded = ()
        return taken

    patch.setattr(sealing, "_cut", cut)


def a_transition_does_not_say_that_it_continues(patch: pytest.MonkeyPatch) -> None:
    rule = transition.encode_parts

    def encode_parts(*parts: Any, continues: bool = False) -> bytes:
        return rule(*parts)

    patch.setattr(transition, "encode_parts", encode_parts)


def inputs_come_between_the_parts(patch: pytest.MonkeyPatch) -> None:
    rule = Runs.transition

    def with_inputs(self: Runs, run: ActiveRun, now_ms: int) -> InFlight | None:
        unrecorded = run.machine.unrecorded
        if not (unrecorded and run.inputs):
            return rule(self, run, now_ms)
        run.machine.unrecorded = ()
        built = rule(self, run, now_ms)
        run.machine.unrecorded = [*run.machine.unrecorded, *unrecorded]
        return built

    patch.setattr(Runs, "transition", with_inputs)


def whoever_loads_a_run_forgets_what_is_unrecorded(patch: pytest.MonkeyPatch) -> None:
    rule = Machine.replay_all

    def replay_all(self: Machine, transitions: Iterable[Transition]) -> None:
        rule(self, transitions)
        self.unrecorded = ()

    patch.setattr(Machine, "replay_all", replay_all)


#: Workers with room for one attempt, which write a fan-out one by one.
_WIDE: dict[str, Any] = {
    "cases": several("fan-out", 4, args=(6,)),
    "options": {"limits": Limits(commands_max=2, concurrent_activities_max=1, lease_ms=2_000)},
}

REVERTS = [
    Revert(
        what_was_cut_off_is_forgotten, ("everything finishes", "replay equals the record", "no run blocks"), **_WIDE
    ),
    Revert(a_transition_does_not_say_that_it_continues, ("replay equals the record", "no run blocks"), **_WIDE),
    Revert(inputs_come_between_the_parts, ("replay equals the record", "no run blocks"), **_WIDE),
    Revert(
        whoever_loads_a_run_forgets_what_is_unrecorded,
        ("everything finishes", "replay equals the record", "no run blocks"),
        DEATHS,
        **_WIDE,
    ),
]
