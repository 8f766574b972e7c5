"""An operator resets and redrives runs at any moment: nothing is lost, and nothing is done under two names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from pledger.testing import Faults
from tests.simulation.running import case, simulate

SEEDS = {"memory": range(30), "sqlite": range(8), "postgres": range(8)}
#: What has to have been looked at, by the seeds of each store.
CHECKS = {"a reset repeats nothing", "one key, one input", "tokens go up over a reset"}


@pytest.mark.parametrize("store", SEEDS)
def test_every_promise_holds(store: str, record_property: Callable[[str, object], None]) -> None:
    hits: Counter[str] = Counter()
    checked: Counter[str] = Counter()
    seconds, steps = 0.0, 0
    for seed in SEEDS[store]:
        # A bit that flips in what is copied at that moment is of two runs; see `engine/test_resets.py`.
        faults = replace(Faults.swarm(seed, store), reset=0.6, bit_flip=0.0)
        sim = simulate(seed, faults, [case("errand")] * 3, store=store)
        hits += sim.hits
        checked += sim.checked
        seconds, steps = seconds + sim.now_s, steps + sim.steps
    told = {"store": store, "seeds": len(SEEDS[store]), "seconds": seconds, "steps": steps}
    record_property("simulated", {**told, "hits": dict(hits), "checked": dict(checked)})
    assert hits["reset"]
    assert hits["redrive"]
    assert checked.keys() >= CHECKS
