from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.unit.machine.harness import DrivenRun


@pytest.fixture
def drive() -> Iterator[Callable[..., DrivenRun]]:
    """Makes a `DrivenRun`. At the end every one is replayed in a fresh machine, and leaves memory without a trace."""
    driven: list[DrivenRun] = []

    def make(workflow: Any, *args: Any, **options: Any) -> DrivenRun:
        driven.append(DrivenRun(workflow, *args, **options))
        return driven[-1]

    yield make
    try:
        for run in driven:
            if run.replay_at_end:
                again = run.replay()
                assert again.last_event == run.machine.last_event == len(run.events)
                again.destroy()
    finally:
        for run in driven:
            run.machine.destroy()
        driven.clear()
        gc.collect()  # a coroutine that was left behind warns here, in the test that left it
