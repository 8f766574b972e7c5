"""The fault matrix as data, for the test of it, for the end of a test run, and for `make prove`."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

MATRIX: Final[dict[str, dict[str, dict[str, Any]]]] = tomllib.loads(
    Path(__file__).with_name("matrix.toml").read_text(encoding="utf-8")
)
FAULTS: Final = MATRIX["faults"]
INVARIANTS: Final = MATRIX["invariants"]
#: The checks that simulations make, each once, with the invariants that it holds.
CHECKS: Final[dict[str, list[str]]] = {}
for _name, _row in INVARIANTS.items():
    for _check in _row.get("checks", ()):
        CHECKS.setdefault(_check, []).append(_name)


def never_made(checked: Iterable[Mapping[str, int]]) -> list[str]:
    """The checks that none of these counts has; a check may have nothing to look at on some store, but not on all."""
    made = {name for counts in checked for name, count in counts.items() if count}
    return [name for name in CHECKS if name not in made]
