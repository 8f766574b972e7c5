"""A simulation has two phases over every store. Safety first: while faults happen, nothing may be wrong. Then liveness:
they stop, and everything must finish."""

from __future__ import annotations

import dataclasses
from collections import Counter

import pytest

from pledger.engine.claims import Claims
from pledger.testing import Faults, SimulationFailedError
from pledger.testing.fault_plan import FaultPlan
from tests.simulation.running import prepare

each_store = pytest.mark.parametrize("store", ["memory", "sqlite", "postgres"])


@each_store
def test_no_fault_happens_in_the_second_phase(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With every fault as often as the swarm draws it at most, and runs that outlast them."""
    mixes = [Faults.swarm(seed, store) for seed in range(100)]
    rates = {field.name: max(getattr(mix, field.name) for mix in mixes) for field in dataclasses.fields(Faults)}
    sim = prepare(1, Faults(**rates), store=store)
    hits: list[Counter[str]] = []
    rule = FaultPlan.end

    def end(plan: FaultPlan) -> None:
        rule(plan)
        hits.append(sim.hits.copy())

    monkeypatch.setattr(FaultPlan, "end", end)
    sim.run_until_idle()
    assert hits == [sim.hits]
    assert sum(sim.hits.values()) > 50
    still_open = {row.run_key for row in sim.state.runs.values() if row.status == "running"}
    assert still_open <= sim.auditor.parked  # those whose rows were damaged stay parked


@each_store
def test_who_does_not_finish_is_found(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is wrong with what is there; only nobody ever takes it up."""

    async def none(self: Claims, *_: object) -> int:
        return 0

    monkeypatch.setattr(Claims, "_claim_tasks", none)
    monkeypatch.setattr(Claims, "_claim_runs", none)
    with pytest.raises(SimulationFailedError, match="everything finishes once faults stop"):
        prepare(0, Faults(), store=store).run_until_idle()
