"""Runs that leave a worker while the store fails for a moment: nothing of what their activities do is lost by it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from pledger import Client, RetryPolicy, activity, workflow
from pledger.engine import leaving
from pledger.engine.port.operations import Append, Block, Release
from pledger.errors import QueryFailedError, StoreError, StoreUnavailableError
from tests.engine.harness import Ledger, until

LONG = timedelta(minutes=1)


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch) -> Callable[[Client, Exception], list[Any]]:
    """Have the store refuse the next operation that lets go of a run; it is in the list then."""

    def arm(client: Client, error: Exception) -> list[Any]:
        store = client.internals.store
        commit, refused = store.commit, []

        def refusing(batch: list[Any]) -> asyncio.Future[list[Any]]:
            if refused or not any(isinstance(each, Release | Block) for each in batch):
                return commit(batch)
            refused.extend(each for each in batch if isinstance(each, Release | Block))
            answers: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
            if isinstance(error, StoreUnavailableError):
                answers.set_exception(error)  # as a whole
                return answers
            written = commit([each for each in batch if each not in refused])

            def answer(written: asyncio.Future[list[Any]]) -> None:
                others = iter(written.result())
                answers.set_result([error if each in refused else next(others) for each in batch])

            if written.done():
                answer(written)
            else:
                written.add_done_callback(answer)
            return answers

        monkeypatch.setattr(store, "commit", refusing)
        return refused

    return arm


async def tasks_of(client: Client) -> Any:
    store = client.internals.store
    return await store.read_tasks((await store.find_run("default", "order-1")).run_key)


AWAY = StoreUnavailableError("the disk is full")


async def test_an_attempt_that_may_run_once_is_not_forgotten_with_its_run(ledger: Ledger, refuse: Any) -> None:
    """A query that wakes somebody has its run begun again; the attempt goes on beside it."""
    began, go_on = asyncio.Event(), asyncio.Event()

    @activity.defn(retry_policy=RetryPolicy(maximum_attempts=1))
    async def charge() -> str:
        began.set()
        await go_on.wait()
        return "charged"

    @workflow.defn
    class Fulfil:
        def __init__(self) -> None:
            self.event = asyncio.Event()

        @workflow.run
        async def run(self) -> str:
            waiting = asyncio.create_task(self.event.wait())
            said = await charge()
            waiting.cancel()
            return said

        @workflow.query
        def peek(self) -> None:
            self.event.set()

    async with ledger.connect() as client, ledger.worker(client, Fulfil, charge, lease=LONG):
        handle = await client.start_workflow(Fulfil, id="order-1")
        await began.wait()
        refused = refuse(client, AWAY)
        with pytest.raises(QueryFailedError, match="woke somebody up"):
            await handle.query(Fulfil.peek)
        await until(lambda: refused)
        go_on.set()
        assert await handle.result() == "charged"


async def test_a_heartbeat_before_its_row_is_there_does_not_end_the_attempt(ledger: Ledger, refuse: Any) -> None:
    """A paused run's attempt gets a row as the run leaves. Until that is written it is no row of somebody else's."""
    began, go_on = asyncio.Event(), asyncio.Event()
    refused: list[Any] = []

    @activity.defn(heartbeat_timeout=timedelta(minutes=1))
    async def charge() -> str:
        began.set()
        await until(lambda: refused)
        activity.heartbeat("half way")
        await go_on.wait()
        return "charged"

    @workflow.defn
    async def fulfil() -> str:
        return await charge()

    async with ledger.connect() as client, ledger.worker(client, fulfil, charge, lease=LONG):
        handle = await client.start_workflow(fulfil, id="order-1")
        await began.wait()
        refused = refuse(client, AWAY)
        await handle.pause()
        row = await until(lambda: tasks_of(client))
        assert row[0].state == "started"
        go_on.set()
        await handle.resume()
        assert await handle.result() == "charged"


async def test_a_run_that_could_not_be_let_go_is_loaded_again(
    ledger: Ledger, refuse: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would be this worker's, and in nobody's memory: its signals would be taken, and never read."""
    monkeypatch.setattr(leaving, "REFUSED_S", 0.01)

    @workflow.defn
    class Waits:
        said = ""

        @workflow.run
        async def run(self) -> str:
            await workflow.wait_condition(lambda: self.said != "")
            return self.said

        @workflow.signal
        def say(self, text: str) -> None:
            self.said = text

    async with ledger.connect() as client, ledger.worker(client, Waits, lease=LONG, max_cached_runs=1):
        refused = refuse(client, StoreError("a page is damaged"))
        handles = [await client.start_workflow(Waits, id=f"order-{number}") for number in range(2)]
        await until(lambda: refused)
        for handle in handles:
            await handle.signal(Waits.say, "yes")
            assert await handle.result() == "yes"


async def test_a_worker_that_stops_waits_for_what_is_to_be_written_again(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A result that is in no row would be lost with it, and that of an attempt that may run once is then unknown."""

    @activity.defn(retry_policy=RetryPolicy(maximum_attempts=1))
    async def charge() -> str:
        return "charged"

    @workflow.defn
    async def fulfil() -> str:
        return await charge()

    async with ledger.connect() as client:
        store = client.internals.store
        commit, failed = store.commit, asyncio.Event()

        def failing(batch: list[Any]) -> asyncio.Future[list[Any]]:
            if failed.is_set() or not any(isinstance(each, Append) and each.closed for each in batch):
                return commit(batch)
            failed.set()
            answers: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
            answers.set_exception(AWAY)
            return answers

        monkeypatch.setattr(store, "commit", failing)
        async with ledger.worker(client, fulfil, charge, grace=LONG):
            handle = await client.start_workflow(fulfil, id="order-1")
            await failed.wait()
        async with ledger.worker(client, fulfil, charge):
            assert await handle.result() == "charged"
