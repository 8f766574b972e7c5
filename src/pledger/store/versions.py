"""Versions of a schema, and which code may work with which: the rule that all stores on a disk share. Pure.

A version is the number of migrations that made it. Each migration says in a line of its own from which version on code
can live with it:

    -- compatible-from: 1

One that only adds (a table, an index, a column that may be NULL or has a constant default) keeps the number of the one
before: workers of older code go on while those of newer code come, and may be rolled back to. One that changes or takes
away what older code uses names its own number. So does, to be safe, one that says nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from pledger.errors import SchemaVersionError

_COMPATIBLE_FROM: Final = re.compile(r"^-- compatible-from: (\d+)$", re.MULTILINE)


def compatible_from(steps: Sequence[str]) -> int:
    """The oldest version whose code can live with the schema that these migrations make."""
    oldest = 0
    for number, step in enumerate(steps, 1):
        said = _COMPATIBLE_FROM.search(step)
        oldest = max(oldest, number if said is None else int(said[1]))
    return oldest


def check_version(version: int, oldest: int | None, newest: int, *, place: str, elsewhere: str) -> None:
    """Whether this code may open a ledger. Raises SchemaVersionError.

    version: of its schema, 0 for none yet. oldest: from which version on code can live with it, as the schema itself
    says; None for one that does not. newest: what this code knows. elsewhere: another place, in words.
    """
    if version <= newest or (oldest is not None and oldest <= newest):
        return
    raise SchemaVersionError(
        f"{place} has schema version {version}; this Pledger knows versions up to {newest}, and cannot live "
        "with that one. A newer Pledger has migrated it: upgrade this one (pip install --upgrade pledger), or "
        f"{elsewhere}."
    )
