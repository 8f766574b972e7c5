"""Talking to runs: signals, queries, cancels and terminations, and what becomes of each."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from pledger import Client, RetryPolicy, activity, workflow
from pledger.engine.port import operations
from pledger.errors import (
    CancelledError,
    InboxFullError,
    NoWorkerError,
    PayloadError,
    PayloadTooLargeError,
    QueryFailedError,
    RunClosedError,
    TerminatedError,
    UnknownQueryError,
    UnknownSignalError,
    UsageError,
    WorkflowFailedError,
    WorkflowNotFoundError,
)
from pledger.history import failures
from tests.engine.harness import Ledger, until


@workflow.defn
class Order:
    def __init__(self) -> None:
        self.notes: list[str] = []
        self.finished = False

    @workflow.run
    async def run(self, order: str = "A1") -> list[str]:
        await workflow.wait_condition(lambda: self.finished)
        return self.notes

    @workflow.signal
    def note(self, text: str) -> None:
        self.notes.append(text)

    @workflow.signal
    def finish(self) -> None:
        self.finished = True

    @workflow.query
    def seen(self, last: int = 10) -> list[str]:
        return self.notes[-last:]

    @workflow.query
    def breaks(self) -> None:
        raise KeyError("missing")

    @workflow.query
    def draws(self) -> str:
        return str(workflow.uuid4())


@workflow.defn
class Other:
    @workflow.run
    async def run(self) -> None: ...

    @workflow.signal
    def elsewhere(self) -> None: ...

    @workflow.query
    def state(self) -> None: ...


@workflow.defn
async def plain(number: int) -> int:
    return number


# Signals --------------------------------------------------------------------------------------------------------------


async def test_signals_arrive_once_and_in_order(ledger: Ledger) -> None:
    sent = [f"{n:03}" for n in range(200)]
    async with ledger.connect() as client, ledger.worker(client, Order):
        handle = await client.start_workflow(Order, id="order-1")
        for text in sent:
            await handle.signal(Order.note, text)
        await handle.signal(Order.finish)
        assert await handle.result() == sent


async def test_signals_of_other_processes_arrive_too(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.connect() as other, ledger.worker(client, Order):
        await client.start_workflow(Order, id="order-1")
        handle = other.handle("order-1", workflow=Order)
        for text in "abc":
            await handle.signal(Order.note, text)
        await handle.signal(Order.finish)
        assert await handle.result() == ["a", "b", "c"]


async def test_SIG_03_a_signal_sent_before_any_worker_came_is_seen_by_the_first_line(ledger: Ledger) -> None:
    @workflow.defn
    class Note:
        @workflow.init
        def __init__(self, prefix: str) -> None:
            self.got = ""
            self.prefix = prefix

        @workflow.run
        async def run(self, prefix: str) -> str:
            return self.got

        @workflow.signal
        def note(self, text: str) -> None:
            self.got = self.prefix + text

    async with ledger.connect() as client:
        handle = await client.start_workflow(Note, "a-", id="order-1")
        await handle.signal(Note.note, "b")
        async with ledger.worker(client, Note):
            assert await handle.result() == "a-b"


async def test_a_message_id_is_delivered_once_however_often_it_is_sent(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, Order):
        handle = await client.start_workflow(Order, id="order-1")
        for _ in range(3):
            await handle.signal(Order.note, "once", message_id="m1")
        await until(lambda: _seen(handle, ["once"]))
        # Also after it was delivered, and also with something else in it.
        await handle.signal(Order.note, "again", message_id="m1")
        await handle.signal(Order.note, "another", message_id="m2")
        await handle.signal(Order.finish, message_id="m3")
        assert await handle.result() == ["once", "another"]
        # Whoever repeats it because the answer was lost learns that it had been accepted.
        await handle.signal(Order.finish, message_id="m3")


async def _seen(handle: Any, expected: list[str]) -> bool:
    return bool(await handle.query(Order.seen) == expected)


async def test_the_id_of_the_run_names_a_message_and_an_empty_one_does_not(ledger: Ledger) -> None:
    async with ledger.connect() as client:
        handle = await client.start_workflow(Order, id="order-1")
        with pytest.raises(UsageError, match=r"the message_id of signal 'note' to workflow 'order-1' is empty"):
            await handle.signal(Order.note, "nameless", message_id="")
        await handle.signal(Order.note, "early", message_id=handle.run_id)
        await handle.signal(Order.finish)
        async with ledger.worker(client, Order):
            assert await handle.result() == ["early"]


async def test_the_same_message_id_in_another_run_is_another_message(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, Order):
        for workflow_id in ("order-1", "order-2"):
            handle = await client.start_workflow(Order, id=workflow_id)
            await handle.signal(Order.note, workflow_id, message_id="m1")
            await handle.signal(Order.finish)
            assert await handle.result() == [workflow_id]


async def test_a_signal_that_no_handler_took_is_on_the_log_and_not_in_the_way_of_a_replay(ledger: Ledger) -> None:
    """It was sent by a process without the definition. The history has it as it has any other."""
    async with ledger.connect() as client, ledger.worker(client, Order):
        handle = await client.start_workflow(Order, id="order-1")
        other = client.handle("order-1")
        await other.signal("note", "taken")
        await other.signal("nope", 7)
        await other.signal("note", ["not", "a", "text"])
        await handle.signal(Order.finish)
        assert await handle.result() == ["taken"]
        run = await handle.describe()
    refused = [(each.event_id, failures.decode(each.failure or b"")) for each in run.attempts]
    signals = [each for each in run.history.events if each.type == "SignalReceived"]
    assert [event_id for event_id, _ in refused] == [each.event_id for each in signals[1:3]]
    assert refused[0][1].message == "the workflow has no such signal; it has: finish, note"
    assert "the argument text of Order.note() cannot be read" in refused[1][1].message


async def test_a_run_that_ends_before_its_handlers_is_told_in_the_log(
    ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    @workflow.defn
    class Hurries:
        noted = False

        @workflow.run
        async def run(self) -> None:
            await workflow.wait_condition(lambda: self.noted)

        @workflow.signal
        async def note(self) -> None:
            self.noted = True
            await asyncio.sleep(3600)

    async with ledger.connect() as client, ledger.worker(client, Hurries):
        handle = await client.start_workflow(Hurries, id="order-1")
        await handle.signal(Hurries.note)
        await handle.result()
    [told] = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert told.startswith(
        f"workflow 'order-1' (Hurries, run {handle.run_id}) ended while handlers of signals were still at work: 'note'."
    )


async def test_a_full_inbox_refuses_signals_and_can_still_be_stopped(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "INBOX_MAX", 4)
    async with ledger.connect() as client:
        handle = await client.start_workflow(Order, id="order-1")  # the start waits, too
        for n in range(3):
            await handle.signal(Order.note, f"note {n}")
        with pytest.raises(InboxFullError, match=r"'order-1'.* 4 messages wait.* no signal 'note'") as raised:
            await handle.signal(Order.note, "one too many")
        assert (raised.value.workflow_id, raised.value.run_id) == ("order-1", handle.run_id)
        request = await handle.cancel("enough")
        async with ledger.worker(client, Order):
            with pytest.raises(WorkflowFailedError):
                await handle.result()
        assert (await handle.cancel_verdict(request.request_id)).verdict == "cancelled"
        assert "one too many" not in str((await handle.history()).events)


async def test_a_worker_makes_room_in_a_full_inbox(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "INBOX_MAX", 3)
    async with ledger.connect() as client:
        handle = await client.start_workflow(Order, id="order-1")
        await handle.signal(Order.note, "one")
        await handle.signal(Order.note, "two")
        with pytest.raises(InboxFullError):
            await handle.signal(Order.finish)
        async with ledger.worker(client, Order):
            await until(lambda: _takes(handle))
            assert await handle.result() == ["one", "two"]


async def _takes(handle: Any) -> bool:
    try:
        await handle.signal(Order.finish)
    except InboxFullError:
        return False
    return True


async def test_a_signal_to_a_closed_run_is_refused(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, Order):
        handle = await client.start_workflow(Order, id="order-1")
        await handle.signal(Order.finish)
        await handle.result()
        with pytest.raises(RunClosedError) as caught:
            await handle.signal(Order.note, "too late")
        assert caught.value.status == "completed"
        assert str(caught.value) == (
            f"workflow 'order-1' (Order, run {handle.run_id}) is completed and takes no signal. What became of it: "
            "handle.result(), or pledger show order-1; to go on with it, start a run under another workflow id"
        )


async def test_a_signal_that_cannot_be_sent_names_the_workflow_it_was_for(ledger: Ledger) -> None:
    async with ledger.connect() as client:
        handle = await client.start_workflow(Order, id="order-1")
        with pytest.raises(PayloadError, match=r"^the signal 'note' to workflow 'order-1': the argument .* of "):
            await handle.signal(Order.note, object())
        with pytest.raises(
            PayloadError, match=r"^the signal 'note' to workflow 'order-1': the arguments cannot be kept"
        ):
            await client.handle("order-1").signal("note", object())
        with pytest.raises(
            UsageError, match=r"^the signal 'note' to workflow 'order-1': note\(.*\) was given 0 arguments"
        ):
            await handle.signal(Order.note)


async def test_a_signal_that_the_code_did_not_take_any_more_is_told_as_undelivered(ledger: Ledger) -> None:
    """Both were accepted while the run was open; the first one ends it."""
    async with ledger.connect() as client:
        async with ledger.worker(client, Order):
            handle = await client.start_workflow(Order, id="order-1")
        await handle.signal(Order.finish)
        await handle.signal(Order.note, "too late")
        assert [each.name for each in (await handle.describe()).inbox] == ["finish", "note"]
        async with ledger.worker(client, Order):
            assert await handle.result() == []
        described = await handle.describe()
        assert (described.inbox, [each.name for each in described.undelivered]) == ([], ["note"])


async def test_an_unknown_signal_is_refused_where_the_workflow_is_known(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, Order):
        handle = await client.start_workflow(Order, id="order-1")
        with pytest.raises(UnknownSignalError, match=r"has no signal 'nope'; it has: finish, note"):
            await handle.signal("nope")
        with pytest.raises(UnknownSignalError, match=r"has no signal 'elsewhere'"):
            await handle.signal(Other.elsewhere)
        with pytest.raises(UnknownSignalError, match=r"is not a signal: decorate the method with @workflow\.signal"):
            await handle.signal(Order.seen)
        await handle.terminate()


async def test_an_unknown_signal_from_who_cannot_know_is_kept_and_harms_nobody(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, Order):
        await client.start_workflow(Order, id="order-1")
        handle = client.handle("order-1")
        await handle.signal("nope", 1, 2)
        await handle.signal("finish")
        assert await handle.result() == []
        assert [each.type for each in (await handle.history()).events].count("SignalReceived") == 2


async def test_what_cannot_be_kept_is_refused_at_the_sender(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, Order):
        handle = await client.start_workflow(Order, id="order-1")
        with pytest.raises(PayloadError, match=r"the argument text of Order\.note\(\) cannot be kept"):
            await handle.signal(Order.note, object())
        with pytest.raises(PayloadTooLargeError, match="the signal 'note' to workflow 'order-1' has"):
            await handle.signal(Order.note, "x" * 300_000)
        await handle.terminate()


async def test_a_message_to_nobody_is_refused(ledger: Ledger) -> None:
    async with ledger.connect() as client:
        for call in (client.handle("nobody").signal("note"), client.handle("nobody").cancel()):
            with pytest.raises(WorkflowNotFoundError, match="no workflow 'nobody' in namespace 'default'"):
                await call


# Queries --------------------------------------------------------------------------------------------------------------


async def test_a_query_sees_what_was_acknowledged_before(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, Order):
        handle = await client.start_workflow(Order, id="order-1")
        assert await handle.query(Order.seen) == []
        await handle.signal(Order.note, "a")
        await until(lambda: _seen(handle, ["a"]))
        assert await handle.query(Order.seen, 0 + 1) == ["a"]
        await handle.terminate()


async def test_a_query_is_answered_by_the_process_that_holds_the_run(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.connect() as other, ledger.worker(client, Order):
        await client.start_workflow(Order, id="order-1")
        handle = other.handle("order-1", workflow=Order)
        await handle.signal(Order.note, "a")
        await until(lambda: _seen(handle, ["a"]))
        with pytest.raises(QueryFailedError, match="raised KeyError: 'missing'"):
            await handle.query(Order.breaks)
        await handle.terminate()


async def test_a_query_on_a_closed_run_is_refused_with_what_to_do_instead(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, Order):
        handle = await client.start_workflow(Order, id="order-1")
        await handle.signal(Order.finish)
        await handle.result()
        with pytest.raises(RunClosedError) as caught:
            await handle.query(Order.seen)
        assert caught.value.status == "completed"
        assert "Its result is in handle.result(), what happened in handle.history()" in str(caught.value)


async def test_a_query_that_fails_leaves_the_run_as_it_was(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, Order):
        handle = await client.start_workflow(Order, id="order-1")
        with pytest.raises(QueryFailedError):
            await handle.query(Order.breaks)
        with pytest.raises(QueryFailedError, match="may not act, wait or draw"):
            await handle.query(Order.draws)
        with pytest.raises(UnknownQueryError, match="has no query 'nope'; it has: breaks, draws, seen"):
            await handle.query("nope")
        with pytest.raises(UnknownQueryError, match="is not a query"):
            await handle.query(Order.note)
        await handle.signal(Order.finish)
        assert await handle.result() == []
        assert len((await handle.history()).events) == 3


async def test_a_query_that_wakes_somebody_leaves_the_run_as_it_was(ledger: Ledger) -> None:
    begun, shipped = asyncio.Event(), asyncio.Event()
    made: list[str] = []

    @activity.defn(retry_policy=RetryPolicy(maximum_attempts=1))
    async def ship() -> str:
        made.append("attempt")
        begun.set()
        await shipped.wait()
        return "shipped"

    @workflow.defn
    class Waits:
        def __init__(self) -> None:
            self.paid = asyncio.Event()

        @workflow.run
        async def run(self) -> str:
            shipping = workflow.start_activity(ship)
            await self.paid.wait()
            return await shipping

        @workflow.signal
        def pay(self) -> None:
            self.paid.set()

        @workflow.query
        def is_paid(self) -> bool:
            self.paid.set()
            return True

    async with ledger.connect() as client, ledger.worker(client, Waits, ship):
        handle = await client.start_workflow(Waits, id="order-1")
        await begun.wait()
        for _ in range(2):
            with pytest.raises(QueryFailedError, match="woke somebody up"):
                await handle.query(Waits.is_paid)
        await handle.signal(Waits.pay)
        shipped.set()
        assert await handle.result() == "shipped"
    assert made == ["attempt"]


def _raises(kind: type[BaseException]) -> type:
    @workflow.defn
    class Raises:
        def __init__(self) -> None:
            self.asked = 0

        @workflow.run
        async def run(self) -> None:
            await workflow.wait_condition(lambda: self.asked > 1)

        @workflow.signal
        def hit(self) -> None:
            self.asked += 1

        @workflow.query
        def state(self) -> None:
            raise kind

    return Raises


@pytest.mark.parametrize("kind", [asyncio.CancelledError, SystemExit, GeneratorExit])
async def test_a_query_that_raises_what_is_no_exception_harms_nobody(ledger: Ledger, kind: type[BaseException]) -> None:
    raises = _raises(kind)
    async with ledger.connect() as client, ledger.connect() as other, ledger.worker(client, raises, plain):
        handle = await client.start_workflow(raises, id="order-1")
        stated = pytest.raises(QueryFailedError, match=f"raised {kind.__name__}")
        with stated:
            await handle.query("state")
        with stated:
            await other.handle("order-1").query("state")
        # Asked while a transition is on its way: then it is answered when that is told to be durable.
        (run,) = client.internals.engines[0].runs.active.values()
        run.in_flight = True
        asked = [asyncio.create_task(handle.query("state")) for _ in range(2)]
        await until(lambda: len(run.waiting) == len(asked))
        run.in_flight = False
        await handle.signal("hit")
        for each in asked:
            with stated:
                await each
        assert await client.execute_workflow(plain, 7, id="order-2") == 7
        await handle.signal("hit")
        await handle.result()


async def test_a_query_without_a_worker_says_so(ledger: Ledger) -> None:
    async with ledger.connect() as client:
        handle = await client.start_workflow(Order, id="order-1")
        with pytest.raises(NoWorkerError) as caught:
            await handle.query(Order.seen, timeout=timedelta(milliseconds=20))
        assert "no worker answered the query 'seen' of workflow 'order-1'" in str(caught.value)
        assert "task queue 'default'" in str(caught.value)


# Cancels --------------------------------------------------------------------------------------------------------------


async def test_a_cancel_ends_the_run_and_its_verdict_says_so(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, Order):
        handle = await client.start_workflow(Order, id="order-1")
        request = await handle.cancel("customer left")
        with pytest.raises(WorkflowFailedError) as caught:
            await handle.result()
        assert caught.value.status == "cancelled"
        assert isinstance(caught.value.__cause__, CancelledError)
        assert str(caught.value.__cause__) == "customer left"
        assert (await handle.cancel_verdict(request.request_id)).verdict == "cancelled"


async def test_a_cancel_of_a_run_that_completes_all_the_same_came_too_late(ledger: Ledger) -> None:
    @workflow.defn
    class Shrugs:
        go = False

        @workflow.run
        async def run(self) -> str:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                await workflow.wait_condition(lambda: self.go)
            return "settled"

        @workflow.signal
        def finish(self) -> None:
            self.go = True

        @workflow.query
        def cancelled(self) -> bool:
            return False

    async with ledger.connect() as client, ledger.worker(client, Shrugs):
        handle = await client.start_workflow(Shrugs, id="order-1")
        request = await handle.cancel("stop")
        assert request.verdict is None
        # Delivered, and not decided while the run is open.
        await until(lambda: _event_count(handle, "CancelRequested"))
        assert (await handle.cancel_verdict(request.request_id)).verdict is None
        await handle.signal(Shrugs.finish)
        assert await handle.result() == "settled"
        assert (await handle.cancel_verdict(request.request_id)).verdict == "too_late:completed"


async def _event_count(handle: Any, type_: str) -> int:
    return [each.type for each in (await handle.history()).events].count(type_)


async def test_every_cancel_ends_in_a_verdict(ledger: Ledger) -> None:
    """Also those that were never delivered."""
    async with ledger.connect() as client:
        handle = await client.start_workflow(Order, id="order-1")
        first, second = await handle.cancel("one"), await handle.cancel("two")
        await handle.terminate("enough")
        for request in (first, second):
            assert (await handle.cancel_verdict(request.request_id)).verdict == "too_late:terminated"
        with pytest.raises(RunClosedError, match="is terminated and takes no request to cancel"):
            await handle.cancel("three")
        with pytest.raises(UsageError, match="has no cancel request 'nope'"):
            await handle.cancel_verdict("nope")


async def test_a_cancelled_run_cleans_up_by_activities(ledger: Ledger) -> None:
    done: list[str] = []

    @activity.defn
    async def step(name: str) -> None:
        done.append(name)

    @workflow.defn
    async def reserves() -> None:
        await step("reserve")
        try:
            await asyncio.sleep(3_600)
        finally:
            await step("release")

    async with ledger.connect() as client, ledger.worker(client, reserves, step):
        handle = await client.start_workflow(reserves, id="order-1")
        await until(lambda: done == ["reserve"])
        await until(lambda: _event_count(handle, "TimerStarted"))
        await handle.cancel()
        with pytest.raises(WorkflowFailedError):
            await handle.result()
    assert done == ["reserve", "release"]


# Terminations ---------------------------------------------------------------------------------------------------------


async def test_a_termination_ends_the_run_without_its_code(ledger: Ledger) -> None:
    cleaned: list[str] = []

    @activity.defn
    async def clean_up() -> None:
        cleaned.append("cleaned")

    @workflow.defn
    async def holds_on() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await clean_up()

    async with ledger.connect() as client, ledger.worker(client, holds_on, clean_up):
        handle = await client.start_workflow(holds_on, id="order-1")
        await handle.terminate("enough")
        with pytest.raises(WorkflowFailedError) as caught:
            await handle.result()
        assert caught.value.status == "terminated"
        assert isinstance(caught.value.__cause__, TerminatedError)
        assert str(caught.value.__cause__).endswith("was terminated: enough")
        with pytest.raises(RunClosedError, match=r"is terminated already: .* pledger show order-1$"):
            await handle.terminate("again")
    assert cleaned == []


async def test_a_termination_stops_the_running_activities(ledger: Ledger) -> None:
    began, stopped = asyncio.Event(), asyncio.Event()

    @activity.defn
    async def works() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    @workflow.defn
    async def waits() -> None:
        await works()

    async with ledger.connect() as client, ledger.worker(client, waits, works):
        handle = await client.start_workflow(waits, id="order-1")
        await began.wait()
        await handle.terminate()
        await stopped.wait()


async def test_a_termination_from_another_process_wins_over_the_owner(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.connect() as other, ledger.worker(client, Order):
        handle = await client.start_workflow(Order, id="order-1")
        await other.handle("order-1").terminate("from afar")
        with pytest.raises(WorkflowFailedError, match="terminated"):
            await handle.result()
        await until(lambda: _forgotten(client))


def _forgotten(client: Client) -> bool:
    """The worker has found out, and holds the run no more."""
    return not any(engine.runs.active for engine in client.internals.engines)


async def test_a_query_of_a_run_that_closes_before_it_is_answered_says_that_it_is_closed(ledger: Ledger) -> None:
    async with ledger.connect() as client:
        handle = await client.start_workflow(Order, id="order-1")
        asked = asyncio.create_task(handle.query(Order.seen, timeout=timedelta(seconds=30)))
        await asyncio.sleep(0.02)
        await handle.terminate("no longer wanted")
        with pytest.raises(RunClosedError):
            await asyncio.wait_for(asked, 10)


async def test_an_activity_that_was_called_and_never_awaited_is_told(
    ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    @workflow.defn
    async def forgets() -> str:
        workflow.start_activity("charge_card", "order-1")
        return "paid"

    async with ledger.connect() as client, ledger.worker(client, forgets):
        handle = await client.start_workflow(forgets, id="order-1")
        assert await handle.result() == "paid"
    [told] = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert "returned without awaiting what it had just called: 'charge_card'" in told
