"""Many seeds, each with its own mix of faults, processes and workflows; every promise is checked in each.

`PLEDGER_SEEDS=17` runs seed 17, `PLEDGER_SEEDS=0-99999` a hundred thousand.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulation.seeds import chunks, run_chunk

#: What `make test` runs. About 75 ms each on one core.
SEEDS = range(1500)
CHUNK = 25


@pytest.mark.parametrize("seeds", chunks(SEEDS, CHUNK), ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}")
def test_every_promise_holds(seeds: range, record_property: Callable[[str, object], None]) -> None:
    run_chunk(seeds, record_property, store="memory")
