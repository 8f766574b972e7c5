"""Verification by replay, where the store does not play along."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from pledger import errors, workflow
from pledger.engine.verification import Verification
from pledger.engine.watchdog import Watchdog
from pledger.machine.definitions import WorkflowDefinition


@workflow.defn
async def nothing() -> None: ...


class Failing:
    """A store that cannot be read at present."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.asked: list[int] = []

    async def read_run(self, run_key: int) -> Any:
        self.asked.append(run_key)
        raise self.error


async def verified_over(store: Any, *run_keys: int) -> Verification:
    definitions = {"nothing": WorkflowDefinition.of(nothing)}
    verification = Verification(
        store, definitions, asyncio.get_running_loop(), random.Random(1), 1.0, 1_000, watchdog=Watchdog(), codes={}
    )
    for run_key in run_keys:
        verification.closed(run_key)
    await verification.stop()
    return verification


def test_an_outage_of_the_store_says_nothing_of_a_run() -> None:
    store = Failing(errors.StoreUnavailableError("the disk is full"))
    verification = asyncio.run(verified_over(store, 1, 2))
    assert store.asked == [1, 2]
    assert verification.failures == []


def test_a_damaged_run_is_reported_and_the_next_one_looked_at() -> None:
    store = Failing(errors.CorruptHistoryError("row 7 is damaged"))
    verification = asyncio.run(verified_over(store, 1, 2))
    assert store.asked == [1, 2]
    assert [str(each) for each in verification.failures] == ["row 7 is damaged"] * 2
