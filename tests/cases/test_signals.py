"""The cases about signals."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from pledger import activity, workflow
from pledger.client import History, WorkflowUpdateStage
from pledger.errors import UpdateConflictError
from pledger.testing import replay
from tests.cases.harness import asked_again, recorded, recorded_commands
from tests.engine.harness import Ledger, until, worker_process

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


@pytest.mark.parametrize("served", [False, True], ids=["before its worker", "with its worker"])
async def test_SIG_03_a_signal_with_the_start_is_visible_to_the_first_line(ledger: Ledger, served: bool) -> None:
    async with ledger.connect() as client:
        start = {"start_signal": "note", "start_signal_args": ["b"], "id": "order-1"}
        if not served:
            await client.start_workflow(Note, {"prefix": "a-"}, **start)
        async with ledger.worker(client, Note):
            handle = client.handle("order-1")
            if served:
                handle = await client.start_workflow(Note, {"prefix": "a-"}, **start)
            assert await handle.result() == "a-b"
            assert recorded(await handle.history()) == ["RunStarted", "SignalReceived", "RunCompleted"]


@workflow.defn
class Registers:
    """Has no handler before its first line."""

    @workflow.init
    def __init__(self, args: dict[str, str]) -> None:
        self.got: str | None = None
        self.prefix = args["prefix"]

    @workflow.run
    async def run(self, args: dict[str, str]) -> str | None:
        workflow.set_signal_handler("note", self.take)
        return self.got

    def take(self, text: str) -> None:
        self.got = self.prefix + text


async def test_SIG_03_a_handler_that_is_registered_in_the_first_activation_gets_it(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, Registers):
        start = {"start_signal": "note", "start_signal_args": ["b"], "id": "order-1"}
        handle = await client.start_workflow(Registers, {"prefix": "a-"}, **start)
        assert await handle.result() == "a-b"


async def test_SIG_03_without_a_signal_there_is_none(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, Note):
        assert await client.execute_workflow(Note, {"prefix": "a-"}, id="order-1") is None


# SIG-04 ---------------------------------------------------------------------------------------------------------------

let_it_finish = threading.Event()
begun = threading.Event()


@activity.defn
def slow() -> str:
    begun.set()
    let_it_finish.wait(30)
    return "done"


class Judged:
    """How often the validator was asked."""

    times = 0


@workflow.defn
class Slow:
    def __init__(self) -> None:
        self.over = False

    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: self.over)

    @workflow.update
    async def act(self) -> str:
        return await slow()

    @act.validator
    def _judge(self) -> None:
        Judged.times += 1

    @workflow.signal
    def finish(self) -> None:
        self.over = True


async def test_SIG_04_an_update_whose_worker_dies_is_accepted_once_and_has_one_result(ledger: Ledger) -> None:
    let_it_finish.clear()
    begun.clear()
    Judged.times = 0
    async with ledger.connect() as client:
        with worker_process(ledger, Slow, slow) as first:
            handle = await client.start_workflow(Slow, id="order-1")
            sent = await handle.start_update(Slow.act, wait_for_stage=WorkflowUpdateStage.ACCEPTED, id="u1")
            waiting = asyncio.create_task(sent.result())
            await until(begun.is_set)
            await asyncio.to_thread(first.freeze)
            let_it_finish.set()
            async with ledger.worker(client, Slow, slow):
                # Whoever was waiting gets the one result, and so does who asks anew.
                assert await waiting == "done"
                assert await handle.execute_update(Slow.act, id="u1") == "done"
                await handle.signal(Slow.finish)
                await handle.result()
        history: History = await handle.history()
    assert Judged.times == 1
    found = recorded(history)
    assert (found.count("UpdateAccepted"), found.count("UpdateCompleted")) == (1, 1)
    # It replays cleanly, by code that knows nothing but the history; nothing is judged again.
    assert replay(history, Slow) == len(history.events)
    assert asked_again(history, Slow) == recorded_commands(history)
    assert Judged.times == 1


# SIG-05 ---------------------------------------------------------------------------------------------------------------


@workflow.defn
class Total:
    @workflow.init
    def __init__(self, total: int) -> None:
        self.total = total
        self.must_roll = False

    @workflow.run
    async def run(self, total: int) -> None:
        await workflow.wait_condition(lambda: self.must_roll)
        workflow.continue_as_new(self.total)

    @workflow.update
    def add(self, number: int) -> int:
        self.total += number
        self.must_roll = True
        return self.total

    @workflow.query
    def now(self) -> int:
        return self.total


async def test_SIG_05_an_update_that_is_sent_again_after_a_roll_over_is_not_done_again(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, Total):
        handle = await client.start_workflow(Total, 0, id="order-1")
        assert await handle.execute_update(Total.add, 5, id="u-1") == 5
        # As if the first response had been lost: the one who sent it tries again, and meets the next run.
        await until(lambda: _total(handle, 5))
        assert await handle.execute_update(Total.add, 5, id="u-1") == 5
        assert await handle.query(Total.now) == 5
        with pytest.raises(UpdateConflictError):
            await handle.execute_update(Total.add, 6, id="u-1")
        assert await handle.execute_update(Total.add, 5, id="u-2") == 10
        await until(lambda: _total(handle, 10))
        await handle.terminate()


async def _total(handle: Any, total: int) -> bool:
    return bool(await handle.query(Total.now) == total)
