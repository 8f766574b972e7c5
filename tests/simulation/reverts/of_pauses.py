"""Reverts of pauses: nobody takes what is paused, owners let go of it, and nothing is lost by that."""

from __future__ import annotations

from typing import Any

import pytest

from pledger.engine.activities import Activities
from pledger.engine.building import InFlight
from pledger.engine.pauses import KnownPauses
from pledger.engine.port.records import RunRow
from pledger.engine.runs import Runs
from pledger.store.memory import State, pauses
from pledger.testing import Faults
from tests.simulation.reverts.revert import Revert


def pauses_are_forgotten_at_a_take_over(patch: pytest.MonkeyPatch) -> None:
    rule = pauses.holds_run

    def holds_run(state: State, run: RunRow, lifted: Any = None) -> bool:
        return not run.claims and rule(state, run, lifted)

    patch.setattr(pauses, "holds_run", holds_run)


def attempts_of_paused_runs_are_taken(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(pauses, "holds_task", lambda state, task, lifted=None: False)


def owners_keep_what_is_paused(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(KnownPauses, "learn", lambda self, places, singly: None)


def what_a_paused_run_has_scheduled_begins(patch: pytest.MonkeyPatch) -> None:
    def won(self: KnownPauses, built: InFlight) -> None:
        self._loop.call_soon(self.set_aside, built.run)

    patch.setattr(KnownPauses, "won", won)


def runs_go_on_that_were_paused_while_they_were_born(patch: pytest.MonkeyPatch) -> None:
    rule = Runs.won

    def won(self: Runs, built: InFlight) -> None:
        if built.append.expected_event == 0:
            built.run.held = False
        rule(self, built)

    patch.setattr(Runs, "won", won)


def outcomes_are_lost_while_paused(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Activities, "leave_behind", lambda self, run_key, outcomes: [])


BUSY = Faults(paused=1.0, kill=0.3, effect_slow=0.2)
NOT_TAKEN = ("what is paused is not taken",)
STILL = ("what is paused stands still",)

REVERTS = [
    Revert(pauses_are_forgotten_at_a_take_over, NOT_TAKEN, BUSY),
    Revert(attempts_of_paused_runs_are_taken, NOT_TAKEN, Faults(paused=1.0, effect_refused=0.5)),
    Revert(owners_keep_what_is_paused, STILL, Faults(paused=1.0, effect_slow=0.2)),
    Revert(what_a_paused_run_has_scheduled_begins, STILL, Faults(paused=3.0, slow_store=0.5)),
    Revert(runs_go_on_that_were_paused_while_they_were_born, STILL, Faults(paused=2.0, slow_store=0.3)),
    Revert(outcomes_are_lost_while_paused, ("every open run has a waker",), Faults(paused=1.0, effect_slow=0.3)),
]
