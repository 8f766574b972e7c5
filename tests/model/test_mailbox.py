"""The mailbox with roll-over, state by state: nothing is lost, doubled, out of a sender's order, or left unread."""

from __future__ import annotations

from typing import Final

import pytest

from tests.model.explorer import explore
from tests.model.mailbox import CODE, GUARDS, Mailbox


def test_whatever_happens_the_invariants_hold() -> None:
    explored = explore(Mailbox(3))
    assert explored.violation is None, str(explored.violation)
    assert explored.complete
    assert explored.states >= 520_000
    assert explored.steps == set(CODE), "a move that never happens proves nothing"


FOUND: Final = {
    "messages are consumed by id": ("no message is lost", 11),
    "an id is known again after delivery": ("no message is delivered twice", 14),
    "the mailbox belongs to the chain": ("no message is lost", 9),
    "an ended chain takes no message": ("every message that waits has somebody who will look", 12),
    "the end waits for open senders": ("no message of an ended chain is left unread", 9),
    "letting go waits for open senders": ("every message that waits has somebody who will look", 5),
    "a read belongs to its run": ("no message is delivered twice", 15),
    "a late read delivers nothing again": ("no message is delivered twice", 15),
    "each message wakes for itself": ("every message that waits has somebody who will look", 9),
}


def test_each_guard_has_its_revert() -> None:
    assert list(FOUND) == list(GUARDS)


@pytest.mark.parametrize("guard", GUARDS)
def test_a_missing_guard_is_found(guard: str) -> None:
    broken, steps_max = FOUND[guard]
    found = explore(Mailbox(1, without=guard), states_max=200_000).violation
    assert found is not None
    assert found.what.startswith(broken)
    assert len(found.trace) - 1 <= steps_max, str(found)
