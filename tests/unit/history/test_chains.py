"""What a run id says of a chain."""

from __future__ import annotations

import pytest

from pledger.engine.ids import new_run_id
from pledger.history import chains


@pytest.mark.parametrize("segment", [1, 2, 9, 10, 12_345])
def test_a_run_id_says_which_chain_and_segment_it_is_of(segment: int) -> None:
    chain_id = new_run_id(0, b"0123456789")
    assert chains.place_of(chains.run_id_of(chain_id, segment)) == (chain_id, segment)


@pytest.mark.parametrize("given", ["", ".", "a.", "a.b", ".2b", "order-1"])
def test_any_other_id_is_a_chain_of_its_own(given: str) -> None:
    assert chains.place_of(given) == (given, 1)


def test_each_segment_has_a_seed_of_its_own() -> None:
    seeds = [bytes(16)]
    for _ in range(100):
        seeds.append(chains.next_seed(seeds[-1]))
    assert len(set(seeds)) == len(seeds)
    assert {len(seed) for seed in seeds} == {16}
