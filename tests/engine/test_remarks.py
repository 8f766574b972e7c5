"""What the log says of code that blocks nothing, and is hardly meant as it is."""

from __future__ import annotations

import asyncio
import contextlib
import logging

import pytest

from pledger import activity, workflow
from tests.engine.harness import Ledger, until


@activity.defn
async def step(name: str) -> str:
    return name


@workflow.defn
class Order:
    def __init__(self) -> None:
        self.tasks: list[asyncio.Task[str]] = []

    async def work(self) -> str:
        await step("A1")
        raise KeyError("a bug")

    @workflow.run
    async def run(self, how: str) -> str:
        match how:
            case "left alone":
                self.tasks.append(asyncio.create_task(self.work()))
                await workflow.wait_condition(lambda: len(self.tasks) > 1)
            case "gathered":
                await asyncio.gather(self.work(), return_exceptions=True)
            case "awaited":
                with contextlib.suppress(KeyError):
                    await asyncio.create_task(self.work())
        return "done"

    @workflow.signal
    def finish(self) -> None:
        self.tasks *= 2


def _told(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [each for each in caplog.records if "Nobody has awaited it so far" in each.getMessage()]


async def test_the_bug_of_a_task_that_nobody_awaits_is_told_once(
    ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    async with ledger.connect() as client:
        async with ledger.worker(client, Order, step):
            handle = await client.start_workflow(Order, "left alone", id="order-1")
            await until(lambda: _told(caplog))
        async with ledger.worker(client, Order, step):  # which replays it, and has nothing new to tell
            await handle.signal(Order.finish)
            assert await handle.result() == "done"
    (record,) = _told(caplog)
    assert record.levelno == logging.WARNING
    assert record.getMessage().startswith("workflow 'order-1' (Order, run ")
    assert "its task-0.0 has raised KeyError: 'a bug'" in record.getMessage()
    assert record.exc_info is not None


@pytest.mark.parametrize("how", ["gathered", "awaited"])
async def test_of_what_is_awaited_there_is_nothing_to_tell(
    ledger: Ledger, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with ledger.connect() as client, ledger.worker(client, Order, step):
        assert await client.execute_workflow(Order, how, id="order-1") == "done"
    assert _told(caplog) == []


async def test_a_finished_run_that_gives_other_values_on_replay_is_told(
    ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[int] = []

    @workflow.defn
    async def counts() -> str:
        seen.append(1)  # a variable that no history holds
        return await step(f"order {len(seen)}")

    async with ledger.connect() as client, ledger.worker(client, counts, step):
        assert await client.execute_workflow(counts, id="order-1") == "order 1"
        await until(lambda: "a finished run does not replay" in caplog.text)
    assert """recorded  ScheduleActivity 'step' with ["order 1"]""" in caplog.text
    assert """replayed  ScheduleActivity 'step' with ["order 2"]""" in caplog.text
