"""The blocking facade and `pledger.run`, from code that has no event loop."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

import pledger
from pledger import RetryPolicy, SyncClient, activity, workflow
from pledger.errors import (
    ApplicationError,
    RunBlockedError,
    StoreError,
    UnknownSignalError,
    UsageError,
    WorkflowFailedError,
    WorkflowNotFoundError,
)
from tests.engine.harness import Ledger, worker_process

CHARGED: list[str] = []


@activity.defn(retry_policy=RetryPolicy(maximum_attempts=1))
def charge(order: str) -> str:
    CHARGED.append(order)
    if order == "declined":
        raise ApplicationError("no money", type="CardDeclined")
    return f"receipt for {order}"


@workflow.defn
async def fulfil(order: str) -> str:
    return await charge(order)


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

    @workflow.query
    def heard(self) -> str:
        return self.said


@pytest.fixture(autouse=True)
def _nothing_is_charged_yet() -> None:
    CHARGED.clear()


def test_a_run_is_started_talked_to_and_waited_for(ledger: Ledger) -> None:
    with worker_process(ledger, fulfil, Waits, charge), SyncClient(ledger.url) as client:
        assert client.execute_workflow(fulfil, "A1", id="order-1") == "receipt for A1"
        handle = client.start_workflow(Waits, id="order-2")
        assert (handle.workflow_id, handle.query(Waits.heard)) == ("order-2", "")
        with pytest.raises(UnknownSignalError):
            handle.signal("nope")
        handle.signal(Waits.say, "hello", message_id="m1")
        assert handle.result() == "hello"
        assert [each.type for each in handle.history().events][-1] == "RunCompleted"
        assert handle.describe().state.status == "completed"
        assert [run.workflow_id for run in client.list()] == ["order-2", "order-1"]
        assert [run.workflow_id for run in client.list(limit=1)] == ["order-2"]
        assert client.count("status = 'completed'") == 2


def test_runs_end_badly_as_they_do_for_the_other_client(ledger: Ledger) -> None:
    with worker_process(ledger, fulfil, Waits, charge), SyncClient(ledger.url) as client:
        with pytest.raises(WorkflowFailedError, match="CardDeclined"):
            client.execute_workflow(fulfil, "declined", id="order-1")
        cancelled = client.start_workflow(Waits, id="order-2")
        request = cancelled.cancel("enough")
        with pytest.raises(WorkflowFailedError):
            cancelled.result()
        assert cancelled.cancel_verdict(request.request_id).verdict == "cancelled"
        terminated = client.start_workflow(Waits, id="order-3")
        terminated.terminate("enough")
        with pytest.raises(WorkflowFailedError, match="terminated"):
            terminated.result()
        with pytest.raises(WorkflowNotFoundError):
            client.handle("nobody").describe()


def test_many_threads_share_one_client(ledger: Ledger) -> None:
    with worker_process(ledger, fulfil, charge), SyncClient(ledger.url) as client, ThreadPoolExecutor(8) as threads:
        orders = [f"A{n}" for n in range(40)]
        results = threads.map(lambda order: client.execute_workflow(fulfil, order, id=order), orders)
        assert list(results) == [f"receipt for {order}" for order in orders]
    assert sorted(CHARGED) == sorted(orders)


def test_a_client_that_cannot_open_leaves_no_thread(file_ledger: Ledger) -> None:
    before = threading.active_count()
    with pytest.raises((UsageError, StoreError)):
        SyncClient("sqlite:////no/such/directory/ledger.db")
    assert threading.active_count() == before


def test_closing_twice_is_harmless(ledger: Ledger) -> None:
    client = SyncClient(ledger.url)
    client.close()
    client.close()
    with pytest.raises(UsageError, match="this SyncClient is closed; open another one"):
        client.count()


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_client_that_was_opened_before_a_fork_says_so(ledger: Ledger) -> None:
    """A server that forks its workers, with a client that its module has opened: the thread of it stays behind."""
    with SyncClient(ledger.url) as client:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                client.count()
            except UsageError as error:
                os.write(writing, str(error).encode())
            client.close()
            os._exit(0)
        os.close(writing)
        os.waitpid(child, 0)
        assert b"was opened before this process forked" in os.read(reading, 1_000)
        os.close(reading)
        assert client.count() == 0


async def test_a_notebook_whose_loop_runs_already(file_ledger: Ledger) -> None:
    with worker_process(file_ledger, fulfil, charge), SyncClient(file_ledger.url) as client:
        assert client.execute_workflow(fulfil, "A1", id="order-1") == "receipt for A1"
    with pytest.raises(UsageError, match="this thread runs one already"):
        pledger.run(fulfil, "A1", id="order-1", url=file_ledger.url)
    again = await asyncio.to_thread(pledger.run, fulfil, "A1", id="order-1", url=file_ledger.url)
    assert again == "receipt for A1"


# pledger.run ----------------------------------------------------------------------------------------------------------


def test_run_does_the_whole_thing(file_ledger: Ledger) -> None:
    assert pledger.run(fulfil, "A1", id="order-1", url=file_ledger.url) == "receipt for A1"
    # The same id and input is the same run: nothing is done again.
    assert pledger.run(fulfil, "A1", id="order-1", url=file_ledger.url) == "receipt for A1"
    assert CHARGED == ["A1"]


def test_run_tells_how_it_failed_each_time(file_ledger: Ledger) -> None:
    for _ in range(2):
        with pytest.raises(WorkflowFailedError, match="CardDeclined: no money"):
            pledger.run(fulfil, "declined", id="order-1", url=file_ledger.url)
    assert CHARGED == ["declined"]


def test_run_gives_up_waiting_and_the_run_goes_on_at_the_next_call(file_ledger: Ledger) -> None:
    for _ in range(2):
        with pytest.raises(TimeoutError):
            pledger.run(Waits, id="order-1", url=file_ledger.url, timeout=timedelta(milliseconds=50))
    with SyncClient(file_ledger.url) as client:
        client.handle("order-1").signal("say", "hello")
    assert pledger.run(Waits, id="order-1", url=file_ledger.url) == "hello"


def test_run_tells_a_bug_at_once(file_ledger: Ledger) -> None:
    @workflow.defn
    async def breaks() -> str:
        raise ValueError("a bug")

    with pytest.raises(RunBlockedError, match="ValueError: a bug"):
        pledger.run(breaks, id="order-1", url=file_ledger.url)


def test_run_takes_the_activities_that_it_is_given(file_ledger: Ledger) -> None:
    @activity.defn(name="charge")
    async def pretend(order: str) -> str:
        return f"pretended for {order}"

    assert pledger.run(fulfil, "A1", id="order-1", url=file_ledger.url, activities=[pretend]) == "pretended for A1"
    assert CHARGED == []


class SaysAtTheFirstRecord(logging.Handler):
    """Lets the run `order-1` end once the log tells of it."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        self.told: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.told.append(record.getMessage())
        with SyncClient(self._url) as client:
            client.handle("order-1").signal("say", "hello")


def test_run_tells_which_other_process_holds_the_run(file_ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pledger.sync.SILENCE_S", 0.01)
    handler = SaysAtTheFirstRecord(file_ledger.url)
    logger = logging.getLogger("pledger.run")
    logger.addHandler(handler)
    try:
        with worker_process(file_ledger, Waits, identity="elsewhere") as process:
            process.call(process.client.start_workflow(Waits, id="order-1"))
            assert pledger.run(Waits, id="order-1", url=file_ledger.url) == "hello"
    finally:
        logger.removeHandler(handler)
    [told] = handler.told
    assert told.startswith(
        "workflow 'order-1' is held by another process, worker elsewhere, and goes on there; should "
    )
