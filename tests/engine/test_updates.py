"""Updates from clients, here and elsewhere: acknowledged once durable, done once, refused where nobody takes them."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from pledger import Client, activity, errors, workflow
from pledger.client import IdReusePolicy, WithStartWorkflowOperation, WorkflowHandle, WorkflowUpdateStage
from pledger.engine.port.records import Request
from pledger.engine.update_rows import question
from pledger.errors import (
    NoWorkerError,
    RunBlockedError,
    RunClosedError,
    UnknownUpdateError,
    UpdateConflictError,
    UpdateFailedError,
    UpdateRejectedError,
    UpdateUnfinishedError,
    UsageError,
)
from pledger.history import payloads
from pledger.history.events import UpdateAccepted
from tests.engine.harness import Ledger, until, worker_process

ACCEPTED, COMPLETED = WorkflowUpdateStage.ACCEPTED, WorkflowUpdateStage.COMPLETED
SOON = timedelta(milliseconds=300)


class Gate:
    """Where the activity of the test waits. entered: how often it was begun."""

    def __init__(self) -> None:
        self.entered = 0
        self.open = asyncio.Event()


gate: Gate


@pytest.fixture(autouse=True)
def _new_gate() -> None:
    global gate  # noqa: PLW0603 - the activity is a function of this module
    gate = Gate()


@pytest.fixture
def ledger(ledger: Ledger) -> Ledger:
    """Attempts are counted here: no busy machine outlasts a lease."""
    ledger.worker_lease = timedelta(minutes=1)
    return ledger


@activity.defn
async def pass_gate(item: str) -> str:
    gate.entered += 1
    await gate.open.wait()
    return item


@workflow.defn
class Cart:
    """code: stands for how many lines its validators have let through."""

    def __init__(self) -> None:
        self.items: list[str] = []
        self.open = True

    @workflow.run
    async def run(self, name: str = "") -> list[str]:
        await workflow.wait_condition(lambda: not self.open)
        return self.items

    @workflow.update
    def add(self, item: str) -> int:
        self.items.append(item)
        return len(self.items)

    @add.validator
    def _check_add(self, item: str) -> None:
        if not item:
            raise ValueError("an item needs a name")

    @workflow.update
    async def fetch(self, item: str) -> str:
        self.items.append(await pass_gate(item))
        return f"{item} is here"

    @workflow.update
    def refuse(self) -> None:
        raise errors.ApplicationError("sold out", type="SoldOut")

    @workflow.update
    def breaks(self) -> None:
        raise KeyError("a bug")

    @workflow.update
    def check_out(self) -> int:
        self.open = False
        return len(self.items)

    @workflow.signal
    def put(self, item: str) -> None:
        self.items.append(item)

    @workflow.signal
    def close(self) -> None:
        self.open = False

    @workflow.query
    def seen(self) -> list[str]:
        return self.items


async def types_of(handle: WorkflowHandle[Any]) -> list[str]:
    return [each.type for each in (await handle.history()).events]


@pytest.mark.parametrize("elsewhere", [False, True], ids=["here", "elsewhere"])
async def test_an_update_is_answered_and_known_for_ever(ledger: Ledger, elsewhere: bool) -> None:
    async with ledger.connect() as client, ledger.connect() as other, ledger.worker(client, Cart, pass_gate):
        await client.start_workflow(Cart, id="cart")
        handle = (other if elsewhere else client).handle("cart", workflow=Cart)
        assert await handle.execute_update(Cart.add, "lamp", id="u1") == 1
        assert await handle.execute_update(Cart.add, "chair") == 2
        # Sent once more it is the same, under another name or with other arguments an error.
        assert await handle.execute_update("add", "lamp", id="u1") == 1
        for name, args in (("add", ("sofa",)), ("fetch", ("lamp",))):
            with pytest.raises(UpdateConflictError, match="has an update 'u1' with another name or other arguments"):
                await handle.execute_update(name, *args, id="u1")
        with pytest.raises(UpdateRejectedError, match="ValueError: an item needs a name") as rejected:
            await handle.execute_update(Cart.add, "", id="u2")
        assert str(rejected.value.__cause__) in ("an item needs a name", "ValueError: an item needs a name")
        assert (rejected.value.update_id, rejected.value.workflow_id) == ("u2", "cart")
        # Of what was refused nothing is recorded: the id is free.
        assert await handle.execute_update(Cart.add, "bed", id="u2") == 3
        with pytest.raises(UpdateFailedError, match="failed: SoldOut: sold out") as failed:
            await handle.execute_update(Cart.refuse, id="u3")
        assert isinstance(failed.value.__cause__, errors.ApplicationError)
        assert not isinstance(failed.value, UpdateRejectedError)
        with pytest.raises(UpdateFailedError, match="sold out"):
            await handle.get_update_handle("u3").result()
        assert await handle.execute_update(Cart.check_out) == 3
        assert await handle.result() == ["lamp", "chair", "bed"]
        # The run has ended, and knows what it has done.
        assert await handle.execute_update(Cart.add, "lamp", id="u1") == 1
        assert await handle.get_update_handle("u2", update=Cart.add).result() == 3
        with pytest.raises(UpdateConflictError):
            await handle.execute_update(Cart.add, "sofa", id="u1")
        with pytest.raises(RunClosedError, match="is completed and takes no update"):
            await handle.execute_update(Cart.add, "lamp", id="u9")
        assert (await types_of(handle)).count("UpdateAccepted") == 5
        state = (await handle.describe()).state
        assert {key: each.completed is not None for key, each in state.updates.items() if len(key) == 2} == {
            "u1": True,
            "u2": True,
            "u3": True,
        }


@pytest.mark.parametrize("elsewhere", [False, True], ids=["here", "elsewhere"])
async def test_accepted_comes_before_completed(ledger: Ledger, elsewhere: bool) -> None:
    async with ledger.connect() as client, ledger.connect() as other, ledger.worker(client, Cart, pass_gate):
        await client.start_workflow(Cart, id="cart")
        handle = (other if elsewhere else client).handle("cart", workflow=Cart)
        sent = await handle.start_update(Cart.fetch, "lamp", wait_for_stage=ACCEPTED, id="u1")
        assert (await types_of(handle))[-2:] == ["UpdateAccepted", "ActivityScheduled"]
        again = asyncio.create_task(handle.execute_update(Cart.fetch, "lamp", id="u1"))
        await until(lambda: gate.entered)
        assert not again.done()
        gate.open.set()
        assert await sent.result() == await again == "lamp is here"
        assert gate.entered == 1
        assert (sent.id, sent.workflow_run_id) == ("u1", (await handle.describe()).summary.run_id)
        await handle.signal(Cart.close)
        assert await handle.result() == ["lamp"]


async def test_an_update_is_behind_what_its_sender_has_sent_before(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, Cart, pass_gate):
        handle = await client.start_workflow(Cart, id="cart")
        for n in range(20):
            await handle.signal(Cart.put, f"{n}")
            assert await handle.execute_update(Cart.add, "x") == 2 * n + 2
        await handle.signal(Cart.put, "last")
        assert (await handle.query(Cart.seen))[-1] == "last"
        await handle.terminate()


async def test_updates_at_once_each_see_what_those_before_have_done(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, Cart, pass_gate):
        handle = await client.start_workflow(Cart, id="cart")
        items = ["a", "", "b", "c", "", "d"]
        sent = [handle.execute_update(Cart.add, item) for item in items]
        told = await asyncio.gather(*sent, return_exceptions=True)
        assert [each if isinstance(each, int) else type(each) for each in told] == [
            *(1, UpdateRejectedError, 2, 3, UpdateRejectedError, 4)
        ]
        await handle.terminate()


async def test_nobody_can_take_it(ledger: Ledger) -> None:
    async with ledger.connect() as client:
        handle = await client.start_workflow(Cart, id="cart")
        with pytest.raises(
            NoWorkerError, match=r"no worker answered the update 'add'.* may still be accepted: send it "
        ):
            await handle.execute_update(Cart.add, "lamp", id="u1", timeout=SOON)
        await handle.pause("a look at it")
        with pytest.raises(NoWorkerError, match="takes no update: 'add' was not sent: it is paused by"):
            await handle.execute_update(Cart.add, "lamp", timeout=SOON)
        await handle.resume()
        async with ledger.worker(client, Cart, pass_gate):
            assert await handle.execute_update(Cart.add, "lamp", id="u1") == 1
            with pytest.raises(UnknownUpdateError, match="workflow 'Cart' has no update 'nope'; it has: add, breaks"):
                await handle.execute_update("nope")
            with pytest.raises(UnknownUpdateError, match="has no update 'nope'; it has: add, breaks"):
                await client.handle("cart").execute_update("nope")
            with pytest.raises(UnknownUpdateError, match="has accepted no update of the id 'u7'"):
                await handle.get_update_handle("u7").result()
            with pytest.raises(UnknownUpdateError, match="is not an update: decorate the method with"):
                await handle.execute_update(Cart.put, "lamp")
            with pytest.raises(UpdateRejectedError, match="was sent what it does not take"):
                await client.handle("cart").execute_update("add", 7)
            with pytest.raises(UsageError, match="names nothing"):
                await handle.execute_update(Cart.add, "lamp", id="")
            with pytest.raises(UsageError, match=r"the timeout of update 'add' .* must be a timedelta"):
                await handle.execute_update(Cart.add, "lamp", timeout=5)  # type: ignore[call-overload] # no duration
            with pytest.raises(UsageError, match="names that begin with 'pledger:' are Pledger's own"):
                await client.handle("cart").signal("pledger:update", 1)
            await handle.terminate()


async def test_a_run_that_nobody_holds_is_taken_up_for_it(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, Cart, pass_gate, max_cached_runs=1):
        handles = [await client.start_workflow(Cart, id=f"cart-{n}") for n in range(3)]
        for handle in handles:
            assert await handle.execute_update(Cart.add, "lamp", id="u1") == 1
        for handle in handles:  # known after a replay, too
            assert await handle.execute_update(Cart.add, "lamp", id="u1") == 1
            assert await handle.execute_update(Cart.add, "chair") == 2
            await handle.terminate()


async def test_an_update_that_the_code_does_not_get_to_is_refused_and_not_dropped(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, Cart, pass_gate):
        handle = await client.start_workflow(Cart, id="cart")
        sent = [
            asyncio.create_task(handle.execute_update(*each))
            for each in ((Cart.check_out,), (Cart.add, "too late"), (Cart.add, "later still"))
        ]
        assert await sent[0] == 0
        for late in sent[1:]:
            with pytest.raises(RunClosedError, match="is completed and takes no update"):
                await late
        assert await handle.result() == []
        assert (await types_of(handle)).count("UpdateAccepted") == 1


@pytest.mark.parametrize("order", list(itertools.permutations(["update", "signal", "cancel", "close"])), ids="-".join)
async def test_a_message_at_the_moment_of_completion_in_every_order(
    memory_ledger: Ledger, order: tuple[str, ...]
) -> None:
    """All of them wait when the run is taken up; one ends it. Each is done, refused or told, and none is lost."""
    async with memory_ledger.connect() as client, memory_ledger.connect() as other:
        async with memory_ledger.worker(client, Cart, pass_gate):
            handle = await client.start_workflow(Cart, id="cart")
        sent: dict[str, asyncio.Task[Any]] = {}
        for each in order:
            match each:
                case "update":
                    call: Any = other.handle("cart").execute_update("add", "lamp", id="u1")
                case "signal":
                    call = handle.signal(Cart.put, "chair")
                case "cancel":
                    call = handle.cancel()
                case _:
                    call = handle.signal(Cart.close)
            sent[each] = asyncio.create_task(call)
            await asyncio.sleep(0.02)
        async with memory_ledger.worker(client, Cart, pass_gate):
            ended = "completed"
            try:
                items = await handle.result()
            except errors.WorkflowFailedError as error:
                ended, items = error.status, []
            [update] = await asyncio.gather(sent["update"], return_exceptions=True)
        # Messages come before questions. Whichever of the two ends it comes first, the update finds it closed.
        assert ended == ("completed" if order.index("close") < order.index("cancel") else "cancelled")
        assert isinstance(update, RunClosedError)
        assert "UpdateAccepted" not in await types_of(handle)
        before = order.index("signal") < order.index("close")
        assert items == (["chair"] if before and ended == "completed" else [])
        described = await handle.describe()
        assert [each.name for each in described.undelivered if each.kind == "signal"] == [
            name
            for name, at in sorted(
                (("put", order.index("signal")), ("close", order.index("close"))), key=lambda e: e[1]
            )
            if at > min(order.index("close"), order.index("cancel"))
        ]


@workflow.defn
class Rolling:
    """Adds up what it is sent; goes on as a new run whenever that is asked."""

    @workflow.init
    def __init__(self, total: int) -> None:
        self.total = total
        self.must_roll = self.is_closed = False

    @workflow.run
    async def run(self, total: int) -> int:
        await workflow.wait_condition(lambda: self.must_roll or self.is_closed)
        if self.must_roll:
            workflow.continue_as_new(self.total)
        return self.total

    @workflow.update
    def add(self, number: int) -> int:
        self.total += number
        return self.total

    @workflow.signal
    def roll(self) -> None:
        self.must_roll = True

    @workflow.signal
    def close(self) -> None:
        self.is_closed = True


@pytest.mark.parametrize("elsewhere", [False, True], ids=["here", "elsewhere"])
async def test_updates_at_the_moment_of_the_roll_over_in_every_order(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, *, elsewhere: bool
) -> None:
    """Each is done once, by the run that ends or by the one that goes on."""
    async with ledger.connect() as client, ledger.worker(client, Rolling):
        if elsewhere:
            monkeypatch.setattr(type(client.internals), "owner_of", lambda *_: None)
        for number, order in enumerate(itertools.permutations(["roll", 1, 2])):
            handle = await client.start_workflow(Rolling, 0, id=f"rolling-{number}")
            sends = [
                handle.signal(Rolling.roll)
                if each == "roll"
                else handle.execute_update(Rolling.add, each, id=f"add-{each}")
                for each in order
            ]
            told = await asyncio.gather(*sends)
            assert sorted(each for each in told if each) in ([1, 3], [2, 3]), (order, told)
            again = [await handle.execute_update(Rolling.add, each, id=f"add-{each}") for each in (1, 2)]
            assert sorted(again) == sorted(each for each in told if each)
            await handle.signal(Rolling.close)
            assert await handle.result() == 3


async def test_a_run_that_ends_before_its_update_says_so(ledger: Ledger, caplog: pytest.LogCaptureFixture) -> None:
    async with ledger.connect() as client, ledger.worker(client, Cart, pass_gate):
        handle = await client.start_workflow(Cart, id="cart")
        sent = await handle.start_update(Cart.fetch, "lamp", wait_for_stage=ACCEPTED, id="u1")
        waits = asyncio.create_task(handle.execute_update(Cart.fetch, "lamp", id="u1"))
        await handle.signal(Cart.close)
        for each in (sent.result(), waits, handle.get_update_handle("u1").result()):
            with pytest.raises(UpdateUnfinishedError, match="has ended before its update 'u1' has"):
                await each
        assert "ended while handlers of updates were still at work: 'fetch'" in caplog.text
        gate.open.set()


async def test_a_bug_in_an_update_blocks_the_run_and_nothing_is_accepted(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, Cart, pass_gate):
        handle = await client.start_workflow(Cart, id="cart")
        with pytest.raises(RunBlockedError, match="KeyError"):
            await handle.execute_update(Cart.breaks)
        assert "UpdateAccepted" not in await types_of(handle)
        await handle.terminate()


async def test_what_was_accepted_survives_the_worker_and_is_done_once(ledger: Ledger) -> None:
    async with ledger.connect() as client:
        with worker_process(ledger, Cart, pass_gate) as first:
            handle = await client.start_workflow(Cart, id="cart")
            sent = await handle.start_update(Cart.fetch, "lamp", wait_for_stage=ACCEPTED, id="u1")
            waits = asyncio.create_task(sent.result())
            await until(lambda: gate.entered)
            await asyncio.to_thread(first.freeze)
            gate.open = asyncio.Event()
            gate.open.set()
            async with ledger.worker(client, Cart, pass_gate):
                assert await waits == "lamp is here"
                assert await handle.execute_update(Cart.fetch, "lamp", id="u1") == "lamp is here"
                assert await handle.execute_update(Cart.check_out) == 1
                assert await handle.result() == ["lamp"]
                found = await types_of(handle)
                assert (found.count("UpdateAccepted"), found.count("UpdateCompleted")) == (2, 2)


async def test_what_was_refused_is_not_judged_again_while_its_answer_is_on_the_way(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The question is read a second time, when the run would take it: whoever was told no must not get a yes."""
    async with ledger.connect() as client, ledger.worker(client, Cart, pass_gate):
        handle = await client.start_workflow(Cart, id="cart")
        await handle.query(Cart.seen)
        [engine] = client.internals.engines
        run = next(iter(engine.runs.active.values()))
        update = UpdateAccepted("add", payloads.encode_args_untyped([""]), "u1")
        written: list[bool] = []

        async def write(_: int, answer: bytes | None, failure: bytes | None, fence: int | None = None) -> None:
            assert fence == run.fence
            written.append(failure is not None)

        monkeypatch.setattr(engine.connection.store, "answer_request", write)
        request = Request(1, run.run_key, "update", *question(update), 2**60)
        engine.intake.mail._take_update(run, request)
        await until(lambda: written)
        monkeypatch.setattr(Cart, "_check_add", lambda self, item: None)
        engine.intake.mail._take_update(run, request)
        await until(lambda: len(written) == 2)
        assert written == [True, True]
        assert await handle.query(Cart.seen) == []
        monkeypatch.undo()
        await handle.terminate()


# With a start ---------------------------------------------------------------------------------------------------------


@workflow.defn
class AtOnce:
    """Returns at once, without any wait."""

    @workflow.init
    def __init__(self, prefix: str) -> None:
        self.got = ""
        self.prefix = prefix

    @workflow.run
    async def run(self, prefix: str) -> str:
        return self.got

    @workflow.signal
    def note(self, text: str) -> None:
        self.got += self.prefix + text

    @workflow.update
    def put(self, text: str) -> str:
        self.got += self.prefix + text
        return self.got

    @put.validator
    def _check_put(self, text: str) -> None:
        if text == "no":
            raise ValueError(text)


Served = Callable[[Ledger, Client], Any]


@pytest.mark.parametrize("served", [True, False], ids=["here", "elsewhere"])
async def test_what_is_sent_with_a_start_is_handled_before_the_first_line(ledger: Ledger, served: bool) -> None:
    async with (
        ledger.connect() as client,
        ledger.connect() as worker,
        ledger.worker(client if served else worker, AtOnce),
    ):
        note = {"start_signal": AtOnce.note, "start_signal_args": ["b"]}
        handle = await client.start_workflow(AtOnce, "a-", id="one", **note)
        assert await handle.result() == "a-b"
        assert await types_of(handle) == ["RunStarted", "SignalReceived", "RunCompleted"]
        # Remembered by its id: the second start finds the run, and what it has got.
        for _ in range(2):
            handle = await client.start_workflow(AtOnce, "a-", id="two", **note, start_signal_id="m1")
            assert await handle.result() == "a-b"
        with pytest.raises(RunClosedError, match="takes no signal"):
            await client.start_workflow(AtOnce, "a-", id="two", **note)
        operation = WithStartWorkflowOperation[str](AtOnce, "a-", id="three")
        sent = client.execute_update_with_start_workflow(AtOnce.put, "c", start_workflow_operation=operation, id="u1")
        assert await sent == "a-c"
        handle = await operation.workflow_handle()
        assert await handle.result() == "a-c"
        assert await types_of(handle) == ["RunStarted", "UpdateAccepted", "UpdateCompleted", "RunCompleted"]
        again = WithStartWorkflowOperation[str](AtOnce, "a-", id="three")
        sent = client.execute_update_with_start_workflow("put", "c", start_workflow_operation=again, id="u1")
        assert await sent == "a-c"
        refused = WithStartWorkflowOperation[str](AtOnce, "a-", id="four")
        with pytest.raises((UpdateRejectedError, RunClosedError)):
            await client.execute_update_with_start_workflow(AtOnce.put, "no", start_workflow_operation=refused)
        assert await (await refused.workflow_handle()).result() == ""
        assert await types_of(await refused.workflow_handle()) == ["RunStarted", "RunCompleted"]
        with pytest.raises(UsageError, match="is for one call"):
            await client.execute_update_with_start_workflow(AtOnce.put, "c", start_workflow_operation=refused)


async def test_an_open_run_gets_what_is_sent_with_a_start(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, Cart, pass_gate):
        for n in range(3):
            item = f"item {n}"
            handle = await client.start_workflow(Cart, id="cart", start_signal="put", start_signal_args=[item])
            operation = WithStartWorkflowOperation[Any](Cart, id="cart")
            sent = await client.start_update_with_start_workflow(
                Cart.add, item, start_workflow_operation=operation, wait_for_stage=COMPLETED
            )
            assert await sent.result() == 2 * n + 2
        await handle.signal(Cart.close)
        assert len(await handle.result()) == 6
        # One that has ended makes room for a new one, where that is asked for.
        handle = await client.start_workflow(
            *(Cart,),
            id="cart",
            id_reuse_policy=IdReusePolicy.ALLOW_DUPLICATE,
            start_signal=Cart.put,
            start_signal_args=["new"],
        )
        assert await handle.execute_update(Cart.check_out) == 1
        with pytest.raises(UsageError, match="are of a start_signal"):
            await client.start_workflow(Cart, id="other", start_signal_args=["lamp"])
