"""The cases about signals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pledger import workflow
from pledger.client import History
from tests.cases.harness import recorded
from tests.engine.harness import Ledger

# SIG-03 ---------------------------------------------------------------------------------------------------------------


@workflow.defn
class Note:
    """Returns at once, without any wait; its handlers use what is set from the start's arguments."""

    @workflow.init
    def __init__(self, args: dict[str, str]) -> None:
        self.got: str | None = None
        self.prefix = args["prefix"]

    @workflow.run
    async def run(self, args: dict[str, str]) -> str | None:
        return self.got

    @workflow.signal
    def note(self, text: str) -> None:
        self.got = self.prefix + text

    @workflow.signal
    async def note_in_a_task(self, text: str) -> None:
        self.got = self.prefix + text


@pytest.mark.parametrize("signal", [Note.note, Note.note_in_a_task], ids=["plain", "async"])
@pytest.mark.parametrize("cached", [1, 1_000], ids=["cache off", "cache on"])
async def test_SIG_03_a_signal_before_the_first_worker_is_visible_to_the_first_line(
    ledger: Ledger, signal: Callable[..., Any], cached: int
) -> None:
    """Start and signal lie there when the first worker comes up; what one call for both would do, two do as well."""
    async with ledger.connect() as client:
        handle = await client.start_workflow(Note, {"prefix": "a-"}, id="order-1")
        await handle.signal(signal, "b")
        async with ledger.worker(client, Note, max_cached_runs=cached):
            assert await handle.result() == "a-b"
            history: History = await handle.history()
    # One transition: the state is initialised, then the handler runs, then the code.
    assert recorded(history) == ["RunStarted", "SignalReceived", "RunCompleted"]
    assert len(history.transitions) == 1
    assert history.events[0].attributes["args"] == [{"prefix": "a-"}]


async def test_SIG_03_without_a_signal_there_is_none(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, Note):
        assert await client.execute_workflow(Note, {"prefix": "a-"}, id="order-1") is None
