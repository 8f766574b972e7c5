"""The simulated SQLite ledger: a file that cannot be read is a finding, and no error of the simulation."""

from __future__ import annotations

import pytest

from pledger.testing import Faults, SimulationFailedError
from pledger.testing.fault_plan import FaultPlan
from tests.simulation.running import prepare, simulate


def test_a_file_that_is_no_database_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    sim = prepare(0, Faults(), store="sqlite")
    rule = FaultPlan.end

    def end(plan: FaultPlan) -> None:
        rule(plan)
        disk = sim._ledger.disk
        for file in disk.files.values():
            file.data[:100] = file.synced[:100] = bytes(100)
        disk.changes += 1

    monkeypatch.setattr(FaultPlan, "end", end)
    with pytest.raises(SimulationFailedError, match="the file is sound"):
        sim.run_until_idle()


@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_somebody_elses_lock_keeps_writers_out_and_is_over_with_the_faults(store: str) -> None:
    refused = 0
    for seed in range(5):
        sim = simulate(seed, Faults(locked=0.3), store=store)
        refused += sim.hits["locked"]
        assert set(sim.hits) <= {"locked"}
    assert refused > 0
