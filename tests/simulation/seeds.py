"""Which seeds a run of the tests simulates, and what it tells about them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable

from tests.simulation.running import simulate


def chunks(seeds: range, size: int) -> list[range]:
    """`seeds`, or those that PLEDGER_SEEDS names, in pieces of one test each: few enough that the cores end at about
    the same time."""
    chosen = os.environ.get("PLEDGER_SEEDS", "")
    if chosen:
        first, _, last = chosen.partition("-")
        seeds = range(int(first), int(last or first) + 1)
    return [seeds[at : at + size] for at in range(0, len(seeds), size)]


def run_chunk(seeds: range, record_property: Callable[[str, object], None], store: str) -> None:
    hits: Counter[str] = Counter()
    checked: Counter[str] = Counter()
    seconds = steps = 0.0
    for seed in seeds:
        sim = simulate(seed, store=store)
        hits += sim.hits
        checked += sim.checked
        seconds += sim.now_s
        steps += sim.steps
    # The root's conftest sums these up over all processes of the test run.
    told = {"store": store, "seeds": len(seeds), "seconds": seconds, "steps": steps}
    record_property("simulated", told | {"hits": dict(hits), "checked": dict(checked)})
