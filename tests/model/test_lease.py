"""The lease-and-fence protocol, state by state: nothing that can happen breaks an invariant.

`PLEDGER_MODEL=full` adds the whole of what one fault can do (some minutes).
"""

from __future__ import annotations

import os
from typing import Any, Final

import pytest

from tests.model.explorer import explore
from tests.model.lease import GUARDS, Lease
from tests.model.lease_links import CODE

#: What is left out, how many faults: and at least so many states there are. The second and the mailbox's three faults
#: (`test_mailbox.py`) are more than a million together.
WHOLE: Final[list[tuple[str, dict[str, Any], int]]] = [
    ("everything and no fault", {"faults": 0}, 200_000),
    (
        "two faults, and rows of tasks that nobody takes",
        {"faults": 2, "old_code": False, "leave_out": ("claim_tasks", "terminate")},
        570_000,
    ),
]
FULL: Final[list[tuple[str, dict[str, Any], int]]] = [
    ("one fault and no old code", {"faults": 1, "old_code": False}, 2_400_000),
]


@pytest.mark.parametrize(
    ("options", "states_min"),
    [pytest.param(options, least, id=name) for name, options, least in WHOLE]
    + [
        pytest.param(
            options,
            least,
            id=name,
            marks=pytest.mark.skipif(os.environ.get("PLEDGER_MODEL") != "full", reason="PLEDGER_MODEL=full runs it"),
        )
        for name, options, least in FULL
    ],
)
def test_whatever_happens_the_invariants_hold(options: dict[str, Any], states_min: int) -> None:
    explored = explore(Lease(**options))
    assert explored.violation is None, str(explored.violation)
    assert explored.complete
    assert explored.states >= states_min


def test_the_nearest_states_with_everything_in_them_hold() -> None:
    explored = explore(Lease(2), states_max=100_000)
    assert explored.violation is None, str(explored.violation)
    assert explored.steps == set(CODE), "a move that never happens proves nothing"


FOUND: Final = {
    "the fence is compared": ("no write with an old fence", 8),
    "the last event is compared": ("at most one outcome per position", 8),
    "a repeated append is known again": ("every open run has a waker", 8),
    "letting go looks at the mail": ("every open run has a waker", 9),
    "a burial makes its runs due": ("every open run has a waker", 5),
    "a session that has ended bears no run": ("every open run has a waker", 5),
    "a lost attempt counts": ("an attempt begins once", 13),
    "a retry is not put over what is there": ("an attempt begins once", 12),
    "who sent a message looks, whatever became of the answer": ("every open run has a waker", 5),
    "after a lost answer the worker asks what it owns": ("every open run has a waker", 3),
    "one worker's writes keep their order": ("an attempt begins once", 14),
}


def test_each_guard_has_its_revert() -> None:
    assert list(FOUND) == list(GUARDS)


@pytest.mark.parametrize("guard", GUARDS)
def test_a_missing_guard_is_found(guard: str) -> None:
    broken, steps_max = FOUND[guard]
    found = explore(Lease(1, old_code=False, without=guard), states_max=200_000).violation
    assert found is not None
    assert found.what.startswith(broken)
    assert len(found.trace) - 1 <= steps_max, str(found)
