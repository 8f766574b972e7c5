"""Planted bugs: with one defence taken out, how many seeds the simulation takes to find what it defends against."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from proof.results import Planted, Violation
from proof.spread import spread
from tests.simulation.reverts.every import EVERY

#: Within so many seeds each must be found.
SEEDS: Final = 500


def run(done: Callable[[int], None]) -> tuple[list[Planted], list[Violation]]:
    """In the order of the list. done: told of each that is over."""
    found = {}
    for planted in spread(_find, [revert.name for revert in EVERY]):
        found[planted.name] = planted
        done(1)
    again = "make test ARGS='tests/simulation/test_reverts.py -k {}'"
    return [found[revert.name] for revert in EVERY], [
        Violation(f"the planted bug {name} was not found in {SEEDS} seeds", again.format(name))
        for name, planted in found.items()
        if planted.seeds is None
    ]


def _find(name: str) -> Planted:
    revert = next(each for each in EVERY if each.name == name)
    found = revert.find(range(SEEDS))
    if found is None or not any(each.startswith(revert.broken) for each in found.violations):
        return Planted(name, revert.store, None, "")
    promise = next(each for each in found.violations if each.startswith(revert.broken)).partition(":")[0]
    return Planted(name, revert.store, found.seed + 1, promise)
