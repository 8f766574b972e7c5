"""What an attempt reports while it runs."""

from __future__ import annotations

from typing import Any

import pytest

from pledger import activity, workflow
from tests.engine.harness import Ledger, until
from tests.engine.steps import AT_ONCE, result_of


@pytest.mark.parametrize("executor", ["async", "thread"])
async def test_the_next_attempt_reads_what_the_last_one_reported(ledger: Ledger, executor: str) -> None:
    seen: list[Any] = []

    def work() -> str:
        seen.append(activity.info().heartbeat_details)
        if activity.info().attempt == 1:
            activity.heartbeat("page", 1)
            activity.heartbeat("page", 2)
            # What is read is the attempt before's, not one's own.
            seen.append(activity.info().heartbeat_details)
            raise ValueError("crash")
        return "done"

    @activity.defn(retry_policy=AT_ONCE)
    async def pages() -> str:
        return work()

    @activity.defn(retry_policy=AT_ONCE)
    def pages_in_a_thread() -> str:
        return work()

    chosen = pages if executor == "async" else pages_in_a_thread

    @workflow.defn
    async def fulfil() -> str:
        return await chosen()

    assert await result_of(ledger, fulfil, chosen) == "done"
    assert seen == [(), (), ("page", 2)]


async def test_an_attempt_that_beats_and_ends_leaves_no_task_behind(ledger: Ledger) -> None:
    """Its heartbeat is on its way to the store when its result comes; nobody may find the row and run it again."""
    made: list[int] = []

    @activity.defn
    async def beats() -> str:
        made.append(activity.info().attempt)
        activity.heartbeat("once")
        return "done"

    @workflow.defn
    class Fulfil:
        go = False

        @workflow.run
        async def run(self) -> str:
            result = await beats()
            await workflow.wait_condition(lambda: self.go)
            return result

        @workflow.signal
        def finish(self) -> None:
            self.go = True

    async with ledger.connect() as client:
        async with ledger.worker(client, Fulfil, beats):
            handle = await client.start_workflow(Fulfil, id="order-1")

            async def done() -> bool:
                return (await handle.describe()).state.activities_done == 1

            await until(done)
        assert (await handle.describe()).pending == []
        async with ledger.worker(client, Fulfil, beats):
            await handle.signal(Fulfil.finish)
            assert await handle.result() == "done"
    assert made == [1]
