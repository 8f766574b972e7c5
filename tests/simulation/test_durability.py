"""durability="process": a power cut may take the last of what was acknowledged, the death of a process may not."""

from __future__ import annotations

import pytest

from pledger.testing import Faults, SimulationFailedError
from tests.simulation.reverts.of_a_disk import LOST, POWER
from tests.simulation.running import simulate


def test_less_durability_by_choice_loses_what_it_may() -> None:
    """And the simulation sees it."""
    assert lost_at_a_power_cut(range(100)).startswith(LOST)


def lost_at_a_power_cut(seeds: range) -> str:
    for seed in seeds:
        try:
            simulate(seed, POWER, store="sqlite", durability="process")
        except SimulationFailedError as error:
            return error.violations[0]
    pytest.fail("nothing was found")


@pytest.mark.parametrize("seed", range(10))
def test_less_durability_survives_the_death_of_processes(seed: int) -> None:
    simulate(seed, Faults(kill=0.5, kill_in_write=0.01, disk_write_error=0.02), store="sqlite", durability="process")
