"""The simulated SQLite ledger: a file that cannot be read is a finding, and no error of the simulation."""

from __future__ import annotations

import pytest

from pledger.testing import Faults, SimulationFailedError
from pledger.testing.fault_plan import FaultPlan
from tests.simulation.running import prepare


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
