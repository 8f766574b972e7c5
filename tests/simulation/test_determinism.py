"""One seed is one execution, bit for bit: in this process, in another one, and whatever strings hash to there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pledger.testing import Faults
from tests.simulation.running import simulate

ROOT = Path(__file__).parents[2]
PROGRAM = "from tests.simulation.running import simulate; print(simulate({seed}).digest)"


@pytest.mark.parametrize("seed", range(10))
def test_a_seed_runs_again_bit_for_bit(seed: int) -> None:
    first, again = simulate(seed), simulate(seed)
    assert (first.digest, first.steps, first.now_s) == (again.digest, again.steps, again.now_s)
    assert first.state.histories == again.state.histories


def test_seeds_differ() -> None:
    assert len({simulate(seed, Faults()).digest for seed in range(10)}) == 10


@pytest.mark.parametrize("hash_seed", ["0", "1", "random"])
def test_another_process_does_the_same(hash_seed: str) -> None:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    program = [sys.executable, "-c", PROGRAM.format(seed=7)]
    done = subprocess.run(program, env=environment, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == simulate(7).digest
