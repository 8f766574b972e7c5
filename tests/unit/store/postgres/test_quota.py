"""The number of connections that a client takes is a promise, not a habit."""

from __future__ import annotations

import pytest

from pledger.errors import InternalError
from pledger.store.postgres.quota import Quota


def test_a_quota_is_kept_to() -> None:
    quota, one, other = Quota(2), object(), object()
    quota.take("writer", one)
    quota.take("writer", one)  # in place of one that was lost
    quota.take("reader", one)
    for purpose, who in (("lists", one), ("writer", other)):
        with pytest.raises(InternalError, match=r"more than the 2 that a client takes \(writer, reader\)"):
            quota.take(purpose, who)
    quota.give("reader", other)  # not theirs
    assert quota.open == ("writer", "reader")
    quota.give("reader", one)
    quota.take("lists", other)
