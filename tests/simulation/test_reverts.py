"""Revert tests: with one defence taken out, the simulation must find what it defends against; with it in, nothing.

A check that has never failed proves nothing about what it checks. Each defence here was once missing, or is one of the
promises themselves.
"""

from __future__ import annotations

import pytest

from tests.simulation.reverts.every import EVERY
from tests.simulation.reverts.revert import Revert

#: Within so many seeds it must be found: the weakest take a tenth of them on average.
SEEDS = range(500)


@pytest.mark.parametrize("revert", EVERY, ids=lambda revert: revert.name)
def test_a_missing_defence_is_found(revert: Revert) -> None:
    found = revert.find(SEEDS)
    assert found is not None, f"nothing was found in {len(SEEDS)} seeds"
    assert any(each.startswith(revert.broken) for each in found.violations), found.violations
    revert.run(found.seed)  # with the defence in, the seed that found it holds


def test_there_are_at_least_twenty() -> None:
    assert len({revert.name for revert in EVERY}) == len(EVERY) >= 20
