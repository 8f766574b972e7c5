"""Reverts of retry budgets and circuit breakers: what is held up starts when it may, and then it does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from pledger.engine.budgets import Budgets
from pledger.engine.port import choosing, circuit, gates
from pledger.engine.port.circuit import Dependency
from pledger.engine.port.gates import Gates
from pledger.engine.port.lanes import Choice, Situation, Slot, SlotKey
from pledger.store.memory import State, queues
from pledger.store.memory.state import QueueState
from pledger.testing import Faults
from tests.reference.cases import DEPENDING
from tests.simulation.reverts.revert import DEATHS, Revert


def an_open_circuit_is_never_tried(patch: pytest.MonkeyPatch) -> None:
    def in_time(found: Dependency, now_ms: int) -> Dependency:
        is_open = found.phase == "open"
        return replace(found, until_ms=now_ms + found.pause_ms) if is_open and found.until_ms <= now_ms else found

    patch.setattr(circuit, "_in_time", in_time)


def probes_are_not_counted(patch: pytest.MonkeyPatch) -> None:
    """A circuit that is half open lets all through."""
    patch.setattr(choosing._Limits, "in_use", lambda self, use: 0)
    patch.setattr(choosing._Limits, "_rule", lambda self, use: self._rules.get(use[0]))


def a_dead_worker_keeps_its_probe(patch: pytest.MonkeyPatch) -> None:
    def live_slots(state: State, held: QueueState) -> dict[SlotKey, Slot]:
        for key, slot in list(held.slots.items()):
            if slot.session_key in state.sessions and slot.event_id not in state.tasks.get(slot.run_key, {}):
                del held.slots[key]
        return held.slots

    patch.setattr(queues, "live_slots", live_slots)


def workers_start_what_they_like(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Budgets, "may_start", lambda self, activity_type: True)


def what_a_worker_knows_never_ages(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("pledger.engine.budgets.FRESH_S", 3_600.0)


def each_worker_has_a_budget_of_its_own(patch: pytest.MonkeyPatch) -> None:
    """What it takes of it nobody else sees."""
    rule = circuit.granted

    def granted(found: Dependency, **options: Any) -> Dependency:
        return replace(rule(found, **options), tokens=found.tokens)

    patch.setattr(circuit, "granted", granted)


def what_is_open_starts_from_the_queue(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Gates, "hold_up", lambda self, line: False)
    patch.setattr(choosing._Limits, "_rule", lambda self, use: self._rules.get(use[0]))


def what_is_set_aside_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    rule = choosing.choose

    def choose(found: Situation, *args: Any) -> Choice:
        found.heads = [head for head in found.heads if gates.held_up_by(head.lane) is None]
        return rule(found, *args)

    patch.setattr(choosing, "choose", choose)


CASES: Mapping[str, Any] = {"cases": (DEPENDING[0],) * 3, "options": {"workers": 3}}
WITHIN = ("retries are within their budget",)
SHUT = ("nothing begins while a circuit is open",)
FEW = ("a half open circuit is tried with few",)
LIVE = ("everything finishes",)
REFUSED = Faults(effect_refused=0.3)

REVERTS = [
    Revert(an_open_circuit_is_never_tried, LIVE, **CASES),
    Revert(probes_are_not_counted, (*FEW, *SHUT), REFUSED, **CASES),
    Revert(a_dead_worker_keeps_its_probe, LIVE, DEATHS, **CASES),
    Revert(workers_start_what_they_like, SHUT, REFUSED, **CASES),
    Revert(what_a_worker_knows_never_ages, SHUT, Faults(effect_refused=0.6, pause=0.5, cut_off=0.3), **CASES),
    Revert(each_worker_has_a_budget_of_its_own, WITHIN, REFUSED, **CASES),
    Revert(what_is_open_starts_from_the_queue, (*SHUT, *WITHIN), **CASES),
    Revert(what_is_set_aside_is_forgotten, LIVE, **CASES),
]
