"""The cases about chains."""

from __future__ import annotations

import asyncio
from typing import Any

from pledger import Client, workflow
from pledger.engine.runs import Runs
from pledger.history import events
from tests.engine.harness import Ledger

# SIG-01 ---------------------------------------------------------------------------------------------------------------

#: Each producer's share, and how many a run takes.
EACH, PRODUCERS, IN_A_RUN = 200, 5, 20


@workflow.defn
class Seen:
    """A queue: each run takes so many messages, and hands on how many there were."""

    def __init__(self) -> None:
        self.seen = 0

    @workflow.run
    async def run(self, before: int) -> int:
        await workflow.wait_condition(lambda: before + self.seen >= EACH * PRODUCERS)
        return before + self.seen

    @workflow.signal
    def handle(self, producer: int, number: int) -> None:
        self.seen += 1
        before = IN_A_RUN * (workflow.info().segment - 1)
        if self.seen == IN_A_RUN and before + self.seen < EACH * PRODUCERS:
            workflow.continue_as_new(before + self.seen)


async def test_SIG_01_signals_that_race_with_roll_overs_are_all_delivered_once_and_in_order(
    ledger: Ledger, monkeypatch: Any
) -> None:
    aborted = 0
    lost = Runs.lost

    def count(self: Runs, built: Any) -> None:
        nonlocal aborted
        aborted += 1
        lost(self, built)

    monkeypatch.setattr(Runs, "lost", count)
    async with ledger.connect() as client, ledger.worker(client, Seen, max_history_events=IN_A_RUN + 5):
        handle = await client.start_workflow(Seen, 0, id="queue")

        async def produce(producer: int) -> None:
            for number in range(EACH):  # the sender never gets an error while the chain is alive
                await handle.signal(Seen.handle, producer, number, message_id=f"{producer}-{number}")

        await asyncio.gather(*map(produce, range(PRODUCERS)))
        assert await handle.result() == EACH * PRODUCERS
        runs = [each async for each in client.list()]
        delivered = [event async for each in _delivered(client, runs) for event in each]
    # The union over all runs is every number exactly once, and the order of one producer is kept.
    for producer in range(PRODUCERS):
        assert [n for p, n in delivered if p == producer] == list(range(EACH))
    assert len(delivered) == EACH * PRODUCERS
    assert len(runs) == EACH * PRODUCERS // IN_A_RUN
    assert aborted <= 1, "a roll-over is never put off by a message"


async def _delivered(client: Client, runs: list[Any]) -> Any:
    """Of each run, in their order. No run exceeds its limit."""
    for run in reversed(runs):
        history = await client.handle(run.workflow_id, run_id=run.run_id).history()
        assert len(history.events) <= IN_A_RUN + 5
        yield [
            tuple(each.attributes["args"]) for each in history.events if isinstance(each.event, events.SignalReceived)
        ]
