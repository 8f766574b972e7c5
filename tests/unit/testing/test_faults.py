"""Faults are rates; each seed draws its own mix."""

from __future__ import annotations

import dataclasses
from collections import Counter

import pytest

from pledger.testing import Faults
from pledger.testing.faults import DISK_KINDS, KINDS, SERVER_KINDS

#: What an operator does is asked for by name: no seed draws it.
RATES = [field.name for field in dataclasses.fields(Faults) if field.name != "reset"]
#: Without those that a store without one has too.
OF_A_DISK = {
    *(name for name in RATES if name.startswith(("disk_", "power_")) or name in {"kill_in_write", "bit_flip"})
} - {"disk_full", "disk_read_error"}


def test_by_default_nothing_goes_wrong() -> None:
    assert set(dataclasses.astuple(Faults())) == {0.0}


def test_a_seed_always_draws_the_same_mix() -> None:
    assert Faults.swarm(7) == Faults.swarm(7)
    assert len({Faults.swarm(seed) for seed in range(50)}) == 50


def test_every_rate_is_left_out_about_half_of_the_time() -> None:
    for store, others in {"sqlite": SERVER_KINDS, "postgres": OF_A_DISK}.items():
        mixes = [Faults.swarm(seed, store) for seed in range(200)]
        drawn = Counter(name for mix in mixes for name in RATES if getattr(mix, name) > 0)
        assert all(60 < drawn[name] < 140 for name in RATES if name not in others), drawn
        assert not drawn.keys() & {*others}


def test_without_a_disk_or_a_server_none_fails() -> None:
    mixes = [Faults.swarm(seed) for seed in range(200)]
    assert {name for mix in mixes for name in RATES if getattr(mix, name) > 0} == set(RATES) - OF_A_DISK - {
        *SERVER_KINDS
    }


#: Kinds that share a rate.
SHARED = {
    "kill_before_commit": "kill_at_commit",
    "kill_after_commit": "kill_at_commit",
    "disk_short_write": "disk_write_error",
    "disk_sync_lost": "disk_sync_error",
}


@pytest.mark.parametrize("kind", KINDS + DISK_KINDS + SERVER_KINDS)
def test_every_kind_has_a_rate(kind: str) -> None:
    assert SHARED.get(kind, kind) in RATES


@pytest.mark.parametrize("rate", RATES)
def test_every_rate_has_a_kind(rate: str) -> None:
    assert rate in KINDS + DISK_KINDS + SERVER_KINDS or rate in SHARED.values()
