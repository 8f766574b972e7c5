"""Ctrl-C, and sys.exit() in a handler for SIGTERM, come wherever the thread happens to be: they end the program, and
take no run and no batch with them."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from pledger import RetryPolicy, activity, workflow
from pledger.engine.activities import Activities
from pledger.engine.committer import Committer
from pledger.engine.interrupts import is_interrupt
from pledger.errors import ActivityError
from tests.engine.harness import PATIENCE_S, Ledger

Interrupt = Callable[[], None]


@pytest.fixture(params=["Ctrl-C", "SIGTERM"])
def interrupt(request: pytest.FixtureRequest) -> Iterator[Interrupt]:
    """Once: what the operator's signal does to the main thread."""
    number = signal.SIGINT if request.param == "Ctrl-C" else signal.SIGTERM
    before = signal.signal(number, signal.default_int_handler if number == signal.SIGINT else lambda *_: sys.exit(0))
    left = [number]

    def once() -> None:
        if left:
            signal.raise_signal(left.pop())

    yield once
    signal.signal(number, before)


@activity.defn
async def charge() -> str:
    return "charged"


def interrupted_and_run_again(ledger: Ledger, flow: Any, step: Any = charge) -> str:
    """The result of a run whose worker is interrupted, stops in good order, and is followed by another one."""
    loop = asyncio.new_event_loop()  # a Runner's handler of Ctrl-C only cancels what it runs

    def run(work: Any) -> Any:
        return loop.run_until_complete(asyncio.wait_for(work, PATIENCE_S))

    connecting = ledger.connect()
    client = run(connecting.__aenter__())
    worker = ledger.worker(client, flow, step, grace=timedelta(seconds=5))
    run(worker.__aenter__())
    starting = loop.create_task(client.start_workflow(flow, id="order-1"))
    loop.call_later(PATIENCE_S, loop.stop)
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        loop.run_forever()
    run(starting)
    run(worker.__aexit__(None, None, None))

    async def again() -> str:
        async with ledger.worker(client, flow, step):
            return str(await client.handle("order-1").result())

    result: str = run(again())
    run(connecting.__aexit__(None, None, None))
    loop.close()
    return result


def test_one_that_comes_while_workflow_code_runs_strands_no_run(ledger: Ledger, interrupt: Interrupt) -> None:
    @workflow.defn
    async def fulfil() -> str:
        said = await charge()
        interrupt()
        return said

    assert interrupted_and_run_again(ledger, fulfil) == "charged"


def test_one_that_comes_while_an_activity_runs_says_nothing_of_it(ledger: Ledger, interrupt: Interrupt) -> None:
    """It is lost with its worker, and not a failure that the activity has reported."""

    @activity.defn(retry_policy=RetryPolicy(maximum_attempts=1))
    async def pay() -> str:
        interrupt()
        return "paid"

    @workflow.defn
    async def fulfil() -> str:
        await asyncio.sleep(0.001)
        try:
            return await pay()
        except ActivityError as error:
            return str(error.__cause__)

    result = interrupted_and_run_again(ledger, fulfil, pay)
    assert result == "the program was ended while the activity ran; its effect is unknown"


def test_one_that_comes_while_a_run_goes_on_from_its_commit(
    ledger: Ledger, interrupt: Interrupt, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = Activities.start_eager

    def start_eager(self: Activities, *place: Any) -> None:
        interrupt()
        start(self, *place)

    monkeypatch.setattr(Activities, "start_eager", start_eager)

    @workflow.defn
    async def fulfil() -> str:
        await asyncio.sleep(0.001)
        return await charge()

    assert interrupted_and_run_again(ledger, fulfil) == "charged"


def test_one_that_comes_out_of_a_commit_leaves_no_batch_behind(
    ledger: Ledger, interrupt: Interrupt, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the store commits on the thread that asks, it comes when the batch is written."""
    write, armed = Committer._write, []

    def interrupted(self: Committer) -> None:
        store = self._store
        commit = store.commit

        def and_then(batch: Any) -> Any:
            answers = commit(batch)
            if armed:
                interrupt()
            return answers

        self._store = type("Store", (), {"commit": staticmethod(and_then)})()
        try:
            write(self)
        finally:
            self._store = store

    monkeypatch.setattr(Committer, "_write", interrupted)

    @workflow.defn
    async def fulfil() -> str:
        await asyncio.sleep(0.001)
        armed.append(True)
        return await charge()

    assert interrupted_and_run_again(ledger, fulfil) == "charged"


def test_one_that_comes_while_a_run_is_replayed_holds_up_no_stop(ledger: Ledger, interrupt: Interrupt) -> None:
    loop, armed = asyncio.new_event_loop(), []

    @workflow.defn
    class Waits:
        said = ""

        @workflow.run
        async def run(self) -> str:
            if armed:
                interrupt()
            await workflow.wait_condition(lambda: self.said != "")
            return self.said

        @workflow.signal
        def say(self, text: str) -> None:
            self.said = text

    def run(work: Any) -> Any:
        return loop.run_until_complete(asyncio.wait_for(work, PATIENCE_S))

    connecting = ledger.connect()
    client = run(connecting.__aenter__())

    async def start() -> None:
        async with ledger.worker(client, Waits):
            await client.start_workflow(Waits, id="order-1")

    run(start())
    armed.append(True)
    worker = ledger.worker(client, Waits)
    run(worker.__aenter__())
    loop.create_task(client.handle("order-1").signal("say", "yes"))
    loop.call_later(PATIENCE_S, loop.stop)
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        loop.run_forever()
    run(worker.__aexit__(None, None, None))

    async def again() -> str:
        async with ledger.worker(client, Waits):
            await client.handle("order-1").signal("say", "yes")
            return str(await client.handle("order-1").result())

    assert run(again()) == "yes"
    run(connecting.__aexit__(None, None, None))
    loop.close()


def test_what_code_raises_itself_is_no_interrupt(interrupt: Interrupt) -> None:
    with pytest.raises(SystemExit) as own:
        sys.exit(1)
    assert not is_interrupt(own.value)
    assert not is_interrupt(ValueError())
    with pytest.raises((KeyboardInterrupt, SystemExit)) as handlers:
        interrupt()
    assert is_interrupt(handlers.value)
