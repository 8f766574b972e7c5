"""The reference workflows that no seed of `test_seeds.py` draws, each under the mixes of faults that seeds draw."""

from __future__ import annotations

import pytest

from pledger.testing import Faults
from tests.reference.cases import FURTHER, Case
from tests.simulation.running import simulate

SEEDS = range(8)


@pytest.mark.parametrize("case", FURTHER, ids=lambda case: case.name)
def test_every_promise_holds(case: Case) -> None:
    for seed in SEEDS:
        simulate(seed, Faults.swarm(seed), [case] * 2)
