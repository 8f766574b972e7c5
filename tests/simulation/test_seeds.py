"""Many seeds, each with its own mix of faults, processes and workflows; every promise is checked in each.

`PLEDGER_SEEDS=17` runs seed 17, `PLEDGER_SEEDS=0-99999` a hundred thousand.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable

import pytest

from tests.simulation.running import simulate

#: What `make test` runs. About 70 ms each on one core.
SEEDS = range(1_000)
#: Seeds of one test: few enough that the cores end at about the same time.
CHUNK = 25


def chosen_seeds() -> range:
    chosen = os.environ.get("PLEDGER_SEEDS", "")
    if not chosen:
        return SEEDS
    first, _, last = chosen.partition("-")
    return range(int(first), int(last or first) + 1)


def chunks() -> list[range]:
    seeds = chosen_seeds()
    return [seeds[at : at + CHUNK] for at in range(0, len(seeds), CHUNK)]


@pytest.mark.parametrize("seeds", chunks(), ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}")
def test_every_promise_holds(seeds: range, record_property: Callable[[str, object], None]) -> None:
    hits: Counter[str] = Counter()
    seconds = steps = 0.0
    for seed in seeds:
        sim = simulate(seed)
        hits += sim.hits
        seconds += sim.now_s
        steps += sim.steps
    # The root's conftest sums these up over all processes of the test run.
    record_property("simulated", {"seeds": len(seeds), "seconds": seconds, "steps": steps, "hits": dict(hits)})
