"""Golden histories on every Python that is here, whatever strings hash to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from proof.results import Replayed, Violation
from tests.histories import test_golden
from tests.histories.cases import replay_all

#: Python 3.x.
MINORS: Final = range(11, 15)


def run(done: Callable[[int], None]) -> tuple[list[Replayed], list[Violation]]:
    """done: told of each version, found or not."""
    counts = [count for _, count in replay_all()]
    found, violations = [], []
    for minor in MINORS:
        try:
            python = test_golden.python_of(minor)
        except pytest.skip.Exception:
            done(1)
            continue
        for varied in test_golden.VARIED:
            ended = test_golden.run(python, minor, "-W", "error", "-c", test_golden.REPLAY, **varied)
            if ended.returncode != 0 or int(ended.stdout) != sum(counts):
                what = f"Python 3.{minor} under {varied}: {ended.stderr.strip()[-500:]}"
                violations.append(Violation(what, f"make test ARGS='tests/histories -k 3.{minor}'"))
        found.append(Replayed(f"3.{minor}", len(counts), sum(counts), len(test_golden.VARIED)))
        done(1)
    return found, violations
