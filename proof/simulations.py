"""Seeds of the simulation, over the store in memory, SQLite on a simulated disk, and a model of PostgreSQL."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from pledger.testing import SimulationFailedError
from pledger.testing.faults import DISK_KINDS, KINDS, SERVER_KINDS
from proof.results import Simulated, Violation
from proof.spread import spread
from tests.faults.matrix import never_made
from tests.simulation.running import FILES, simulate

#: Seeds of one job: few enough that the cores end at about the same time.
CHUNK: Final = 20
#: From so many seeds on every fault must have been hit.
SEEDS_FOR_ALL: Final = {"memory": 500, "sqlite": 150, "postgres": 150}
FAULTS: Final = {"memory": KINDS, "sqlite": KINDS + DISK_KINDS, "postgres": KINDS + SERVER_KINDS}


@dataclass
class Part:
    """What some of the seeds came to."""

    seeds: int = 0
    seconds: float = 0.0
    steps: int = 0
    runs: int = 0
    hits: Counter[str] = field(default_factory=Counter)
    checked: Counter[str] = field(default_factory=Counter)
    violations: list[Violation] = field(default_factory=list)

    def add(self, other: Part) -> None:
        self.seeds += other.seeds
        self.seconds += other.seconds
        self.steps += other.steps
        self.runs += other.runs
        self.hits += other.hits
        self.checked += other.checked
        self.violations += other.violations


def run(store: str, seeds: range, done: Callable[[int], None]) -> tuple[Simulated, list[Violation]]:
    """done: told of seeds that are over."""
    sums = Part()
    chunks = [seeds[at : at + CHUNK] for at in range(0, len(seeds), CHUNK)]
    for part in spread(_run_chunk, [(store, chunk) for chunk in chunks]):
        sums.add(part)
        done(part.seeds)
    missed = missed_faults(store, sums.seeds, sums.hits)
    for kind in missed:
        sums.violations.append(
            Violation(f"{store}: the fault {kind} was never hit", f"make prove ARGS='--only {store}'")
        )
    hours = sums.seconds / 3600
    found = Simulated(
        store, seeds.start, sums.seeds, hours, sums.steps, sums.runs, dict(sums.hits), missed, dict(sums.checked)
    )
    return found, sums.violations


def missed_faults(store: str, seeds: int, hits: Counter[str]) -> list[str]:
    return [kind for kind in FAULTS[store] if not hits[kind]] if seeds >= SEEDS_FOR_ALL[store] else []


def unchecked(found: Sequence[Simulated]) -> list[Violation]:
    """Of all that was simulated: checks that were never made, although enough seeds ran over every store."""
    if any(sum(each.seeds for each in found if each.store == store) < SEEDS_FOR_ALL[store] for store in FAULTS):
        return []
    names = never_made(each.checked for each in found)
    return [Violation(f"the check {name!r} was never made", "make prove") for name in names]


def _run_chunk(job: tuple[str, range]) -> Part:
    store, seeds = job
    part = Part()
    for seed in seeds:
        part.seeds += 1
        try:
            sim = simulate(seed, store=store)
        except SimulationFailedError as error:
            again = f"PLEDGER_SEEDS={seed} make test ARGS=tests/simulation/{FILES[store]}"
            part.violations.append(Violation(f"{store}, seed {seed}: {error.violations[0]}", again))
            continue
        part.seconds += sim.now_s
        part.steps += sim.steps
        part.runs += len(sim.state.runs)
        part.hits += sim.hits
        part.checked += sim.checked
    return part
