"""Reverts of task queues: limits hold over all workers, and no dead worker keeps a slot."""

from __future__ import annotations

from typing import Any

import pytest

from pledger.engine.admission import Admission
from pledger.engine.claims import Claims
from pledger.engine.port import choosing
from pledger.engine.port.lanes import SlotKey
from pledger.store.memory import queues
from pledger.testing import Faults
from tests.simulation.reverts.revert import DEATHS, Revert, several


def slots_of_others_are_not_seen(patch: pytest.MonkeyPatch) -> None:
    """Each claim counts but what it takes itself."""
    patch.setattr(queues, "live_slots", lambda state, found: {})


def a_dead_workers_slot_is_never_free(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(queues, "live_slots", lambda state, found: found.slots)


def what_is_limited_starts_beside_its_run(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Admission, "_must_queue", lambda self, command: False)


def keys_are_not_told_apart(patch: pytest.MonkeyPatch) -> None:
    """The limit of a key is forgotten where another limit of the same attempt has been passed."""
    rule = choosing._Limits.take

    def take(self: Any, uses: Any) -> tuple[SlotKey, ...] | None:
        return rule(self, uses[:1])

    patch.setattr(choosing._Limits, "take", take)


def nobody_looks_at_lanes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Claims, "_has_order", lambda self, outlook: False)


BUSY = Faults(kill=0.2, effect_slow=0.2, effect_refused=0.3)
RATIONED = several("rationed", 3)
HOLD = ("limits hold over all workers",)
FINISHES = ("everything finishes once faults stop",)

REVERTS = [
    Revert(slots_of_others_are_not_seen, HOLD, BUSY, RATIONED),
    Revert(a_dead_workers_slot_is_never_free, FINISHES, DEATHS, RATIONED),
    Revert(what_is_limited_starts_beside_its_run, ("what is limited starts from the queue",), BUSY, RATIONED),
    Revert(keys_are_not_told_apart, HOLD, BUSY, RATIONED),
    Revert(nobody_looks_at_lanes, FINISHES, BUSY, RATIONED),
]
