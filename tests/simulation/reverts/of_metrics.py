"""Reverts of what workers count."""

from __future__ import annotations

import pytest

from pledger.engine.active_run import ActiveRun
from pledger.engine.building import InFlight
from pledger.engine.runs import Runs
from tests.simulation.reverts.revert import ANSWERS_LOST, DEATHS, Revert


def _count(built: InFlight) -> None:
    runs, closed = built.runs, built.append.closed
    assert isinstance(runs, Runs)
    if closed is not None and runs.meter is not None:
        runs.meter.closed(built.run.identity.workflow_type, closed, 0.0)


def an_end_is_counted_whenever_it_is_tried(patch: pytest.MonkeyPatch) -> None:
    """And not once it is durable: the store that could not answer has it twice."""
    rule = Runs.failed

    def failed(self: Runs, built: InFlight, error: Exception) -> None:
        _count(built)
        rule(self, built, error)

    patch.setattr(Runs, "failed", failed)


def an_end_is_counted_before_it_is_durable(patch: pytest.MonkeyPatch) -> None:
    """Its worker dies, and who takes the run over ends it, and counts that too."""
    made, won = Runs.transition, Runs.won

    def transition(self: Runs, run: ActiveRun, now_ms: int) -> InFlight | None:
        built = made(self, run, now_ms)
        if built is not None:
            _count(built)
        return built

    def uncounted(self: Runs, built: InFlight) -> None:
        meter, self.meter = self.meter, None
        try:
            won(self, built)
        finally:
            self.meter = meter

    patch.setattr(Runs, "transition", transition)
    patch.setattr(Runs, "won", uncounted)


REVERTS = [
    Revert(an_end_is_counted_whenever_it_is_tried, ("ends are counted once",), ANSWERS_LOST),
    Revert(
        an_end_is_counted_before_it_is_durable,
        ("ends are counted once",),
        DEATHS,
        ("drawing", "retrying", "beating") * 2,
    ),
]
