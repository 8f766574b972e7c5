"""The cases about chains."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pledger import Client, activity, workflow
from pledger.engine import loading
from pledger.engine.loading import HistoryReader
from pledger.engine.runs import Runs
from pledger.errors import RunBlockedError
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


# CHD-05 ---------------------------------------------------------------------------------------------------------------

EVENTS, BYTES = 1000, 1_000_000


@activity.defn
async def insert(batch: str) -> int:
    return len(batch)


@workflow.defn
async def insert_all(batches: int, row_bytes: int, looks: str) -> int:
    for left in range(batches, 0, -1):
        await insert(f"{left} ".ljust(row_bytes, "x"))
        if looks == "at the hint" and workflow.info().is_continue_as_new_suggested():
            # Well before either limit.
            assert workflow.info().history_length < EVENTS * 0.8
            assert workflow.info().history_size < BYTES * 0.8
            workflow.continue_as_new(left - 1, row_bytes, looks)
    return workflow.info().segment


BOUNDS = {"max_history_events": EVENTS, "max_history_bytes": BYTES}


@pytest.mark.parametrize(("batches", "row_bytes", "segments"), [(600, 100, 6), (30, 100_000, 8)], ids=["many", "large"])
async def test_CHD_05_growth_is_measured_in_events_and_in_bytes(
    ledger: Ledger, batches: int, row_bytes: int, segments: int
) -> None:
    async with ledger.connect() as client, ledger.worker(client, insert_all, insert, **BOUNDS):
        found = await client.execute_workflow(insert_all, batches, row_bytes, "at the hint", id="rows")
        assert segments / 2 <= found <= segments * 2


@pytest.mark.parametrize(("batches", "row_bytes", "limit"), [(600, 100, "events"), (30, 100_000, "bytes")])
async def test_CHD_05_without_the_check_the_reason_names_the_limit_and_the_sizes(
    ledger: Ledger, batches: int, row_bytes: int, limit: str
) -> None:
    """Where the case has the run ended, it is parked: its state is intact (docs/chains.md)."""
    async with ledger.connect() as client, ledger.worker(client, insert_all, insert, **BOUNDS):
        handle = await client.start_workflow(insert_all, batches, row_bytes, "never", id="rows")
        with pytest.raises(
            RunBlockedError, match=f"bound of its history in {limit}: .* of 1,000 events, .* of 1,000,000"
        ):
            await handle.result()
        # What was said before names the line that causes it.
        told = await handle.describe()
        assert len(told.history_warnings) >= 2
        assert all("insert_all (activity 'insert')" in each for each in told.history_warnings[1:])


async def test_CHD_05_a_page_of_a_history_is_bounded_in_bytes(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "FIRST_PAGE", 2)
    monkeypatch.setattr(loading, "PAGE_BYTES", 250_000)
    async with ledger.connect() as client:
        async with ledger.worker(client, insert_all, insert):
            handle = await client.start_workflow(insert_all, 20, 100_000, "never", id="rows")
            await handle.result()
        row = await client.internals.store.find_run("default", "rows")
        assert row is not None
        reader, pages = HistoryReader(client.internals.store, row.run_key, row.run_id), list[int]()
        while page := await reader.next_page():
            pages.append(len(page))
        assert sum(pages) == len((await handle.history()).transitions)
        assert max(pages) == 2, "two of 100 KB; a page with one that is larger would have that one"
        monkeypatch.setattr(loading, "PAGE_BYTES", 1)
        reader = HistoryReader(client.internals.store, row.run_key, row.run_id)
        await reader.next_page()
        assert len(await reader.next_page()) == 1
