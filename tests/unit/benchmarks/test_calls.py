"""A step costs no more function calls than written down: the one figure that a busy machine does not change."""

from pathlib import Path

import pytest

from benchmarks import calls, parent

#: What a change may add before it has to be looked at and written down.
GROWTH_MAX = 0.10


@pytest.mark.parametrize("workload", calls.COUNTED)
def test_a_step_makes_no_more_calls_than_written_down(workload: str, tmp_path: Path) -> None:
    written = calls.baseline(workload)
    if written is None:
        pytest.skip("nothing is written down for this version of Python")
    counted = parent.count_calls(workload, tmp_path)
    assert isinstance(counted, float), counted
    assert counted <= written * (1 + GROWTH_MAX), (
        f"a step of {workload} now makes {counted:.0f} calls instead of {written:.0f}. Find them with `python -m "
        f"benchmarks --profile {workload}`; if they are worth it: `python -m benchmarks --quick --only "
        f"{','.join(calls.COUNTED)} --write-calls`"
    )
