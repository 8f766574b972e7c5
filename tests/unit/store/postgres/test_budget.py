"""The number of connections that a process takes is a promise, not a habit."""

from __future__ import annotations

import pytest

from pledger.errors import InternalError
from pledger.store.postgres.budget import Budget


def test_a_budget_is_kept_to() -> None:
    budget, one, other = Budget(2), object(), object()
    budget.take("writer", one)
    budget.take("writer", one)  # in place of one that was lost
    budget.take("reader", one)
    for purpose, who in (("lists", one), ("writer", other)):
        with pytest.raises(InternalError, match=r"more than the 2 that a process takes \(writer, reader\)"):
            budget.take(purpose, who)
    budget.give("reader", other)  # not theirs
    assert budget.open == ("writer", "reader")
    budget.give("reader", one)
    budget.take("lists", other)
