"""Code that does not give the thread back, in an activation or anywhere else, does not hold its worker."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, Final

import pytest

from pledger import workflow
from pledger.errors import QueryFailedError, RunBlockedError
from tests.engine.harness import Ledger

#: Code that spins does so for as long as this, in real time: the thread of the watchdog looks at a real clock.
IMPATIENT: Final[dict[str, Any]] = {"deadlock_timeout": timedelta(milliseconds=100)}


@workflow.defn
async def healthy() -> str:
    return "ok"


async def test_a_query_and_clean_up_that_spin_are_interrupted(ledger: Ledger) -> None:
    spinning: list[str] = []

    def spin(where: str) -> None:
        spinning.append(where)
        while True:
            pass

    @workflow.defn
    class Spins:
        @workflow.run
        async def run(self) -> None:
            try:
                await asyncio.sleep(3600)
            finally:
                spin("clean-up")

        @workflow.query
        def state(self) -> None:
            spin("query")

    async with ledger.connect() as client, ledger.worker(client, Spins, healthy, **IMPATIENT):
        handle = await client.start_workflow(Spins, id="order-1")
        with pytest.raises(QueryFailedError, match="raised StuckError: the code ran on without waiting"):
            await handle.query(Spins.state)
        await handle.terminate()
        assert await client.execute_workflow(healthy, id="order-2") == "ok"
        assert spinning == ["query", "clean-up"]
    ledger.replay_at_end = False  # it would be left, and spin, again


async def test_a_replay_that_spins_is_interrupted_and_blocks_the_run(ledger: Ledger) -> None:
    ledger.replay_at_end = False  # the code is made to spin
    spins = False

    @workflow.defn
    async def waits() -> None:
        while spins:
            pass
        await asyncio.sleep(3600)

    async with ledger.connect() as client, ledger.worker(client, waits):
        await client.start_workflow(waits, id="order-1")
    spins = True
    async with ledger.connect() as client, ledger.worker(client, waits, healthy, **IMPATIENT):
        handle = client.handle("order-1")
        await handle.cancel()
        with pytest.raises(RunBlockedError) as caught:
            await handle.result()
        assert caught.value.failure_type == "StuckError"
        assert await client.execute_workflow(healthy, id="order-2") == "ok"


@pytest.mark.parametrize("how", ["terminated", "handed back"])
async def test_code_that_catches_everything_leaves_all_the_same(
    ledger: Ledger, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    @workflow.defn
    async def stubborn() -> None:
        while True:
            try:
                await asyncio.sleep(3600)
            except:  # noqa: E722 - what users do
                continue

    async with ledger.connect() as client:
        async with ledger.worker(client, stubborn, healthy):
            handle = await client.start_workflow(stubborn, id="order-1")
            if how == "terminated":
                await handle.terminate()
                assert await client.execute_workflow(healthy, id="order-2") == "ok"
        if how == "handed back":
            await handle.terminate()
    assert "workflow 'order-1' (stubborn, run" in caplog.text
    assert "has left memory, and 1 of its coroutines did not end" in caplog.text
