"""Old and new workers over the same runs, state by state: nothing breaks, nothing is lost, and it comes to rest.

`PLEDGER_MODEL=full` adds all that one kill or lost lease can do to it (some minutes).
"""

from __future__ import annotations

import os
from typing import Final

import pytest

from tests.model.explorer import explore, explore_to_the_end
from tests.model.rollout import CODE, GUARDS, Rollout
from tests.model.rollout_state import KINDS

#: What takes a fault.
FAULTY: Final = {"kill", "lease_runs_out", "renew_session", "bury_sessions"}


@pytest.mark.parametrize("kind", KINDS)
def test_every_order_of_claims_and_drains_is_safe_and_comes_to_rest(kind: str) -> None:
    explored = explore_to_the_end(Rollout(kind, faults=0))
    assert explored.violation is None, str(explored.violation)
    assert explored.complete
    assert explored.states >= 12_000
    blocks = {"block"} if kind == "same" else set()
    assert explored.steps == set(CODE) - FAULTY - blocks, "a move that never happens proves nothing"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.skipif(os.environ.get("PLEDGER_MODEL") != "full", reason="PLEDGER_MODEL=full runs it")
def test_so_it_does_with_a_fault(kind: str) -> None:
    explored = explore_to_the_end(Rollout(kind, faults=1))
    assert explored.violation is None, str(explored.violation)
    assert explored.complete
    assert explored.states >= 210_000


def test_the_nearest_states_with_faults_hold() -> None:
    explored = explore(Rollout("patched", faults=1), states_max=40_000)
    assert explored.violation is None, str(explored.violation)
    assert explored.steps > FAULTY, "a move that never happens proves nothing"


def test_the_nearest_states_of_two_runs_hold() -> None:
    explored = explore(Rollout("patched", "both bugs", faults=0), states_max=40_000)
    assert explored.violation is None, str(explored.violation)


#: What is found without each guard, of which run, with how many faults, within how many steps.
FOUND: Final = {
    "the fence is compared": ("a transition is written by the owner with the fence only", "same", 1, 9),
    "a session that has ended claims nothing": ("no run is lost", "same", 1, 6),
    "who drains claims nothing more": ("it comes to rest", "same", 0, 10),
    "the end of a session lets go of what it holds": ("no run is lost", "same", 0, 14),
    "a burial makes its runs due": ("no run is lost", "same", 1, 6),
    "what lags behind is due at once": ("no run is lost", "same", 0, 11),
    "a block leaves what was done": ("what an attempt has brought is not done again", "old bug", 0, 15),
    "a block is not for its own code": ("it comes to rest", "old bug", 0, 14),
    "a block remembers every code": ("it comes to rest", "both bugs", 0, 25),
    "other code is another identity": ("each run finishes or is blocked by code that cannot", "old bug", 0, 16),
}


def test_each_guard_has_its_revert() -> None:
    assert list(FOUND) == list(GUARDS)


@pytest.mark.parametrize("guard", GUARDS)
def test_a_missing_guard_is_found(guard: str) -> None:
    broken, kind, faults, steps_max = FOUND[guard]
    found = explore_to_the_end(Rollout(kind, faults=faults, without=guard), states_max=200_000).violation
    assert found is not None
    assert found.what.startswith(broken)
    assert len(found.trace) - 1 <= steps_max, str(found)
