"""Wide fan-outs: written in parts, so that they keep nobody else waiting, and wide all the same."""

from __future__ import annotations

import asyncio

from pledger import activity, workflow
from pledger.client import History
from tests.engine.harness import Ledger

WIDTH = 250


@activity.defn
async def square(number: int) -> int:
    return number * number


@workflow.defn
async def squares(task_queue: str | None) -> int:
    handles = [workflow.start_activity(square, number, task_queue=task_queue) for number in range(WIDTH)]
    return sum(await asyncio.gather(*handles))


def scheduled(history: History) -> list[int]:
    """How many commands each transition has until all is scheduled; the last of them does not continue."""
    found = []
    for each in history.transitions:
        found.append(len(each.commands))
        if not each.continues:
            return found
    raise AssertionError("it continues, and nothing follows")


async def test_a_fan_out_is_written_in_parts(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, squares, square):
        handle = await client.start_workflow(squares, None, id="here")
        assert await handle.result() == sum(number * number for number in range(WIDTH))
        assert scheduled(await handle.history()) == [100, 100, 50]


async def test_so_is_one_for_another_queue(ledger: Ledger) -> None:
    async with (
        ledger.connect() as client,
        ledger.worker(client, squares),
        ledger.worker(client, square, task_queue="elsewhere"),
    ):
        handle = await client.start_workflow(squares, "elsewhere", id="there")
        assert await handle.result() == sum(number * number for number in range(WIDTH))
        assert scheduled(await handle.history()) == [100, 100, 50]
