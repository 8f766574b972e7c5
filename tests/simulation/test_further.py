"""The reference workflows that no seed of `test_seeds.py` draws, each under the mixes of faults that seeds draw."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from pledger.testing import Faults
from tests.reference.cases import DEPENDING, FURTHER, HANDED_OUT, PUBLISHING, ROLLING, SHOP, Case
from tests.simulation.running import simulate

#: A seed on a simulated disk, or a server, takes about twice as long.
SEEDS = {"memory": range(6), "sqlite": range(4), "postgres": range(2)}


@pytest.mark.parametrize("store", SEEDS)
@pytest.mark.parametrize(
    "case", [*FURTHER, *ROLLING, *PUBLISHING, *DEPENDING, *SHOP, *HANDED_OUT], ids=lambda case: case.name
)
def test_every_promise_holds(case: Case, store: str, record_property: Callable[[str, object], None]) -> None:
    if case.beside is not None and store != "sqlite":
        pytest.skip("a model has no transaction that a start could join")
    hits: Counter[str] = Counter()
    checked: Counter[str] = Counter()
    seconds = steps = 0.0
    for seed in SEEDS[store]:
        sim = simulate(seed, Faults.swarm(seed, store), [case] * 2, store=store)
        hits += sim.hits
        checked += sim.checked
        seconds += sim.now_s
        steps += sim.steps
    told = {"store": store, "seeds": len(SEEDS[store]), "seconds": seconds, "steps": steps}
    record_property("simulated", told | {"hits": dict(hits), "checked": dict(checked)})
