"""The same seeds' worth of trouble over a model of the PostgreSQL store: connections that break around a commit,
statements that outlive theirs, deadlocks, lost and late hints, and replicas that take over without the newest commits.

`PLEDGER_SEEDS=17` runs seed 17 here too, `PLEDGER_SEEDS=0-99999` a hundred thousand.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pledger.testing import Faults
from tests.simulation.running import case, simulate
from tests.simulation.seeds import chunks, run_chunk

#: What `make test` runs. About 400 ms each on one core.
SEEDS = range(220)
CHUNK = 10


@pytest.mark.parametrize("seeds", chunks(SEEDS, CHUNK), ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}")
def test_every_promise_holds_on_a_server(seeds: range, record_property: Callable[[str, object], None]) -> None:
    run_chunk(seeds, record_property, store="postgres")


@pytest.mark.parametrize("seed", range(5))
def test_a_seed_runs_again_bit_for_bit(seed: int) -> None:
    first, again = simulate(seed, store="postgres"), simulate(seed, store="postgres")
    assert (first.digest, first.steps, first.now_s) == (again.digest, again.steps, again.now_s)
    assert first.state.histories == again.state.histories
    assert first.hits == again.hits


def test_what_may_run_once_comes_out_as_unknown_when_the_tail_is_lost() -> None:
    """And in the simulation that does happen."""
    lost = unknown = 0
    for seed in range(10):
        sim = simulate(seed, Faults(tail_lost=0.3), [case("at-most-once")] * 6, store="postgres")
        lost += sim.hits["tail_lost"]
        ended = [outcome.value for program in sim.programs for outcome in program.journal.outcomes]
        unknown += sum(
            value.count("WorkerLostError") for value in ended if value is not None
        )  # None: forgotten by then
    assert lost
    assert unknown
