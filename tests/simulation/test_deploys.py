"""Old and new code side by side: runs block where the code does not fit, lose nothing by it, and go on with code that
does."""

from __future__ import annotations

import pytest

from pledger.engine.activities import Activities
from pledger.testing import Faults, Simulation
from tests.reference.activities import ACTIVITIES
from tests.reference.changing import AFTER, BEFORE, mended, with_a_bug, with_a_step_more, with_two_steps


def deploy(seed: int, faults: Faults) -> Simulation:
    sim = Simulation(seed, workflows=BEFORE, deploy=AFTER, activities=ACTIVITIES, faults=faults)
    for number in range(3):
        sim.start(with_a_bug, f"one {number}", id=f"mended-{number}", within_s=15)
        sim.start(with_two_steps, f"two {number}", id=f"extended-{number}", within_s=15)
    sim.run_until_idle()
    sim.check()
    return sim


@pytest.mark.parametrize("seeds", [range(at, at + 20) for at in range(0, 100, 20)], ids=str)
def test_runs_go_on_across_a_deployment(seeds: range) -> None:
    for seed in seeds:
        sim = deploy(seed, Faults.swarm(seed))
        assert {row.status for row in sim.state.runs.values()} == {"completed"}


@pytest.mark.parametrize("seed", range(20))
def test_a_bug_loses_nothing_that_was_done(seed: int) -> None:
    """The activity had its effect and its result when the code met its bug; another one was running. Neither is made
    again, and what came of them is there for the code that is mended."""
    sim = deploy(seed, Faults())
    for program in sim.programs:
        if program.workflow is with_a_bug:
            [outcome] = program.journal.outcomes
            assert outcome.value[0].startswith("one"), outcome
            assert outcome.value[1] == "lingered"
    assert {len(activity.attempts) for activity in sim.world.activities.values()} == {1}


def test_a_block_that_leaves_nothing_behind_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The revert test of the one above: an outcome that the code had not taken was lost with the block."""
    monkeypatch.setattr(Activities, "leave_behind", lambda self, run_key, outcomes: [])
    sim = deploy(0, Faults())
    assert any(len(activity.attempts) > 1 for activity in sim.world.activities.values())
    outcomes = [program.journal.outcomes[0].value for program in sim.programs if program.workflow is with_a_bug]
    assert "WorkerLostError" in {value[0] for value in outcomes}


def test_both_sides_are_the_same_workflow() -> None:
    sim = Simulation(0, workflows=BEFORE, deploy=AFTER, activities=ACTIVITIES)
    assert {each.target for each in sim.workflows.values()} == {mended, with_a_step_more}
