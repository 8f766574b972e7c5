"""The same seeds' worth of trouble over the real SQLite store, on a disk that fails, fills up, and loses power.

`PLEDGER_SEEDS=17` runs seed 17 here too, `PLEDGER_SEEDS=0-99999` a hundred thousand.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.simulation.running import simulate
from tests.simulation.seeds import chunks, run_chunk

#: What `make test` runs. About 400 ms each on one core.
SEEDS = range(280)
CHUNK = 10


@pytest.mark.parametrize("seeds", chunks(SEEDS, CHUNK), ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}")
def test_every_promise_holds_on_a_disk(seeds: range, record_property: Callable[[str, object], None]) -> None:
    run_chunk(seeds, record_property, store="sqlite")


@pytest.mark.parametrize("seed", range(5))
def test_a_seed_runs_again_bit_for_bit(seed: int) -> None:
    first, again = simulate(seed, store="sqlite"), simulate(seed, store="sqlite")
    assert (first.digest, first.steps, first.now_s) == (again.digest, again.steps, again.now_s)
    assert first.state.histories == again.state.histories
    assert first.hits == again.hits


def test_nothing_is_left_on_the_real_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    simulate(0, store="sqlite")
    assert list(tmp_path.iterdir()) == []
