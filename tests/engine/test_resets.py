"""A run that goes on from a part of another one's history: what was done stays done, under its names."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from datetime import timedelta
from typing import Any

import pytest

from pledger import RetryPolicy, activity, errors, workflow
from pledger.client import Client, IdReusePolicy, ResetReapplyType, WorkflowHandle
from pledger.history import events
from pledger.history.transition import Transition
from pledger.sync import SyncClient
from tests.engine.harness import Ledger, until, worker_process


class Bank:
    """What the outside has seen of each step: (idempotency key, fencing token). fails: the steps that it refuses."""

    def __init__(self) -> None:
        self.seen: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)
        self.fails: set[str] = set()
        self.hangs: set[str] = set()


bank = Bank()


@pytest.fixture(autouse=True)
def _nobody_has_paid_yet(ledger: Ledger) -> None:
    ledger.worker_lease = timedelta(minutes=1)  # attempts are counted here: none is to be lost with its lease
    bank.seen.clear()
    bank.fails, bank.hangs = set(), set()


@activity.defn(retry_policy=RetryPolicy(maximum_attempts=2, initial_interval=timedelta(milliseconds=1)))
async def pay(what: str) -> str:
    info = activity.info()
    bank.seen[what].append((info.idempotency_key, info.fencing_token))
    if what in bank.fails:
        raise errors.ApplicationError(f"{what} is refused")
    while what in bank.hangs:  # noqa: ASYNC110 - until the test says so
        await asyncio.sleep(0.01)
    return f"{what} paid"


@workflow.defn
class Order:
    """Three steps, the second one after a signal; ids of its own."""

    def __init__(self) -> None:
        self.approved: list[str] = []

    @workflow.run
    async def run(self, last: str) -> list[str]:
        first = await pay(f"first {workflow.uuid4()}")
        await workflow.wait_condition(lambda: bool(self.approved))
        second = await pay("second")
        return [first, second, await pay(last), *self.approved]

    @workflow.signal
    def approve(self, by: str) -> None:
        self.approved.append(by)


@workflow.defn
class Tally:
    """Adds up what updates give it, each after a payment; it takes no more than three."""

    def __init__(self) -> None:
        self.added: list[int] = []
        self.is_closed = False

    @workflow.run
    async def run(self) -> list[int]:
        await pay("first")
        await workflow.wait_condition(lambda: self.is_closed)
        await workflow.wait_condition(workflow.all_handlers_finished)
        return self.added

    @workflow.update
    async def add(self, number: int) -> str:
        self.added.append(number)
        return await pay(f"add {number}")

    @add.validator
    def _has_room(self, number: int) -> None:
        if len(self.added) == 3:
            raise ValueError(f"{number} is one too many")

    @workflow.signal
    def close(self) -> None:
        self.is_closed = True


@workflow.defn
class Shipment:
    """Waits for as long as nobody ends it."""

    @workflow.run
    async def run(self) -> str:
        picked = await pay("pick")
        try:
            await workflow.sleep(timedelta(days=1))
        finally:
            await asyncio.shield(pay("clean up"))
        return picked


def named(client: Client, handle: WorkflowHandle[Any]) -> WorkflowHandle[Any]:
    """Of this run, whichever goes on from it."""
    return client.handle(handle.workflow_id, run_id=handle.run_id)


async def began(step: str) -> None:
    await until(lambda: bool(bank.seen[step]))


async def types(handle: WorkflowHandle[Any]) -> list[str]:
    return [each.type for each in (await handle.history()).events]


async def event_of(handle: WorkflowHandle[Any], type_: str, number: int = 0) -> int:
    return [each.event_id for each in (await handle.history()).events if each.type == type_][number]


async def test_a_failed_run_is_redriven_from_the_step_that_failed(ledger: Ledger) -> None:
    bank.fails = {"third"}
    async with ledger.connect() as client, ledger.worker(client, Order, pay):
        old = named(client, await client.start_workflow(Order.run, "third", id="order-1"))
        await old.signal(Order.approve, "ada", message_id="m1")
        with pytest.raises(errors.WorkflowFailedError):
            await old.result()
        plan = await old.plan_redrive()
        assert (plan.how, plan.open_run_id, plan.reapplied) == ("redrive", None, ())
        [again] = plan.repetitions
        key = f"{old.run_id}/1/{again.event_id}"
        assert (again.activity_type, again.outcome, again.certain) == ("pay", "failed", True)
        assert again.idempotency_key == key
        bank.fails = set()
        new = await old.redrive(reason="the bank is back", by="ada@ops")
        result = await new.result()
        assert result == await client.handle("order-1").result(), "the newest run answers for the id"
        assert result[1:] == ["second paid", "third paid", "ada"]
        # Two attempts before, one after: under the same key, with a higher token, and a budget of its own.
        assert bank.seen.pop("third") == [(key, 1), (key, 2), (key, 1_001)]
        assert [len(each) for each in bank.seen.values()] == [1, 1], "what was done is not done again"
        history = await new.history()
        before = await old.history()
        assert history.transitions[: len(before.transitions) - 1] == before.transitions[:-1]
        told, was = await new.describe(), await old.describe()
        assert told.resets == was.resets
        [link] = told.resets
        assert (link.base_run_id, link.run_id, link.how) == (old.run_id, new.run_id, "redrive")
        assert (link.reason, link.by) == ("the bank is back", "ada@ops")
        assert was.summary.status == "failed", "terminal states absorb"
        with pytest.raises(errors.RunClosedError, match="is completed, and only a run that has ended badly"):
            await new.redrive()


async def test_an_open_run_is_ended_and_its_messages_go_on(ledger: Ledger) -> None:
    bank.hangs = {"third"}
    async with ledger.connect() as client, ledger.worker(client, Order, pay):
        old = named(client, await client.start_workflow(Order.run, "third", id="order-1"))
        await old.signal(Order.approve, "ada", message_id="m1")
        await old.signal(Order.approve, "bob", message_id="m2")
        await began("third")
        point = await event_of(old, "ActivityCompleted")
        plan = await old.plan_reset(point)
        assert (plan.open_run_id, plan.event_id) == (old.run_id, point)
        assert [each.outcome for each in plan.repetitions] == ["completed", "pending"]
        assert not any(each.certain for each in plan.repetitions)
        assert plan.reapplied == ("approve", "approve")
        new = await old.reset(point, reason="once more")
        bank.hangs = set()
        assert (await new.result())[1:] == ["second paid", "third paid", "ada", "bob"]
        with pytest.raises(errors.WorkflowFailedError, match=f"reset to event {point}: run {new.run_id} goes on"):
            await old.result()
        # Whoever asks for the same again gets the key again: the outside can tell that it knows it.
        for step in ("second", "third"):
            keys = {key for key, _ in bank.seen[step]}
            tokens = [token for _, token in bank.seen[step]]
            assert (len(keys), tokens) == (1, [1, 1_001])
        assert [each.event.message_id for each in (await new.history()).events if each.type == "SignalReceived"] == [
            "m1",
            "m2",
        ]


async def test_messages_after_the_point_are_left_out_if_that_is_asked(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, Order, pay):
        old = named(client, await client.start_workflow(Order.run, "third", id="order-1"))
        await until(lambda: len(bank.seen) == 1)
        await old.signal(Order.approve, "ada")
        await old.result()
        new = await old.reset(1, reapply=ResetReapplyType.NONE)
        await until(lambda: any(len(each) == 2 for each in bank.seen.values()))
        assert "SignalReceived" not in await types(new)
        await new.signal(Order.approve, "bob")
        assert (await new.result())[-1] == "bob"
        first = next(each for step, each in bank.seen.items() if step.startswith("first"))
        assert [token for _, token in first] == [1, 1_001], "ids are drawn again as they were, and so is the key"
        assert len({key for key, _ in first}) == 1


async def test_updates_after_the_point_are_accepted_as_they_were(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, Tally, pay):
        old = named(client, await client.start_workflow(Tally.run, id="order-1"))
        for number in range(3):
            await old.execute_update(Tally.add, number, id=f"add-{number}")
        with pytest.raises(errors.UpdateRejectedError):
            await old.execute_update(Tally.add, 3, id="add-3")
        accepted = await event_of(old, "UpdateAccepted", 1)
        plan = await old.plan_reset(accepted)
        assert plan.reapplied == ("add",), "those before are facts"
        assert (await old.plan_reset(accepted, reapply=ResetReapplyType.SIGNAL)).reapplied == ()
        # The first one has paid by then: it is full before the last one of those that are given again is.
        new = await old.reset(accepted)
        assert await new.execute_update(Tally.add, 2, id="add-2") == "add 2 paid"
        with pytest.raises(errors.UpdateConflictError):
            await new.execute_update(Tally.add, 7, id="add-2")
        with pytest.raises(errors.UpdateRejectedError, match="3 is one too many"):
            await new.execute_update(Tally.add, 3, id="add-3")
        history = await new.history()
        began = next(
            each for each in history.transitions if any(isinstance(one, events.RunReset) for one in each.inputs)
        )
        assert [type(each).__name__ for each in began.inputs] == ["RunReset", *["UpdateAccepted"] * 2]
        await new.signal(Tally.close)
        assert await new.result() == [0, 1, 2]
        assert [len(bank.seen[f"add {number}"]) for number in range(3)] == [1, 2, 2]
        assert len({key for key, _ in bank.seen["add 2"]}) == 1


async def test_updates_after_the_point_are_left_out_if_that_is_asked(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, Tally, pay):
        old = named(client, await client.start_workflow(Tally.run, id="order-1"))
        await old.execute_update(Tally.add, 7, id="add")
        await old.signal(Tally.close, message_id="close")
        assert await old.result() == [7]
        new = await old.reset(1, reapply=ResetReapplyType.NONE)
        assert await new.execute_update(Tally.add, 8, id="add") == "add 8 paid", "it is not known here"
        await new.signal(Tally.close)
        assert await new.result() == [8]


async def test_a_message_that_waited_before_the_reset_is_no_beginning(ledger: Ledger) -> None:
    """It is older than the start of the new run, and comes after it."""
    async with ledger.connect() as client:
        async with ledger.worker(client, Order, pay):
            old = named(client, await client.start_workflow(Order.run, "third", id="order-1"))
            await until(lambda: len(bank.seen) == 1)
        await old.signal(Order.approve, "ada", message_id="m1")
        new = await old.reset(1)
        assert [each.message_id for each in (await new.describe()).inbox] == ["m1", ""]
        async with ledger.worker(client, Order, pay):
            assert (await new.result())[-1] == "ada"


async def test_a_second_reset_still_draws_the_same(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, Order, pay):
        first = named(client, await client.start_workflow(Order.run, "third", id="order-1"))
        await first.signal(Order.approve, "ada")
        results = [await first.result()]
        handle: WorkflowHandle[Any] = first
        for _ in range(2):
            handle = await handle.reset(1)
            results.append(await handle.result())
        assert results[0] == results[1] == results[2]
        every = list(bank.seen.values())
        assert [[token for _, token in each] for each in every] == [[1, 1_001, 2_001]] * 3
        assert all(len({key for key, _ in each}) == 1 for each in every)


async def test_what_was_pending_is_attempted_again_and_timers_keep_their_time(ledger: Ledger) -> None:
    @workflow.defn
    async def beside() -> list[str]:
        step = asyncio.ensure_future(pay("slow"))
        await workflow.sleep(timedelta(milliseconds=20))
        await pay("quick")
        return [await step]

    bank.hangs = {"slow"}
    async with ledger.connect() as client, ledger.worker(client, beside, pay):
        old = named(client, await client.start_workflow(beside, id="order-1"))
        await began("quick")
        scheduled = await event_of(old, "ActivityScheduled")
        timer = await event_of(old, "TimerStarted")
        assert timer == scheduled + 1
        # In the midst of what the code asked for at once: all of that is decided anew.
        assert (await old.plan_reset(scheduled)).event_id == 1
        plan = await old.plan_reset(timer)
        assert [(each.event_id, each.certain) for each in plan.repetitions] == [
            (scheduled, True),
            (await event_of(old, "ActivityScheduled", 1), False),
        ]
        new = await old.reset(timer)
        await until(lambda: len(bank.seen["quick"]) == 2)
        bank.hangs = set()
        assert await new.result() == ["slow paid"]
        before = {each.event_id: each.event for each in (await old.history()).events}
        after = {each.event_id: each.event for each in (await new.history()).events}
        assert after[timer] == before[timer]
        assert isinstance(after[timer + 1], events.RunReset)
        assert [token for _, token in bank.seen["slow"]] == [1, 1_001]
        assert len({key for key, _ in bank.seen["slow"]}) == 1


async def test_recorded_outcomes_before_the_point_count_also_where_the_code_decides_anew(ledger: Ledger) -> None:
    """The point lies between what reached the run and what its code made of it: the outcome is a fact."""
    async with ledger.connect() as client, ledger.worker(client, Order, pay):
        old = named(client, await client.start_workflow(Order.run, "third", id="order-1"))
        await old.signal(Order.approve, "ada")
        await old.result()
        point = await event_of(old, "ActivityCompleted", 1)  # of the second step
        new = await old.reset(point)
        await new.result()
        history = await new.history()
        reset_at = await event_of(new, "RunReset")
        assert [each.type for each in history.events[reset_at : reset_at + 2]] == [
            "ActivityCompleted",
            "ActivityScheduled",
        ]
        assert len(bank.seen["second"]) == 1
        assert len(bank.seen["third"]) == 2


@pytest.mark.parametrize("how", ["cancelled", "terminated", "timed_out"])
async def test_a_run_that_was_ended_goes_on_where_it_stood(ledger: Ledger, how: str) -> None:
    async with ledger.connect() as client, ledger.worker(client, Shipment, pay):
        limit = timedelta(seconds=1) if how == "timed_out" else timedelta(hours=1)
        old = named(client, await client.start_workflow(Shipment.run, id="shipment-1", execution_timeout=limit))
        if how != "timed_out":
            await until(lambda: _has(old, "TimerStarted"))
            await (old.cancel("by mistake") if how == "cancelled" else old.terminate("by mistake"))
        with pytest.raises(errors.WorkflowFailedError):
            await old.result()
        assert (await old.describe()).summary.status == how
        before = await types(old)
        kept = before[: before.index("CancelRequested")] if how == "cancelled" else before[:-1]
        new = await old.redrive()
        description = await until(lambda: _taken(new))
        assert [each.type for each in description.history.events][: len(kept) + 1] == [*kept, "RunReset"]
        # As much time as it had at first, from now on.
        assert description.state.deadline_ms is not None
        reset_ms = next(each.time_ms for each in description.history.transitions if _is_reset(each))
        assert 0 < description.state.deadline_ms - reset_ms <= limit.total_seconds() * 1000
        assert how == "timed_out" or len(bank.seen["pick"]) == 1
        with contextlib.suppress(errors.RunClosedError):  # its time is up once more
            await new.terminate()


def _is_reset(transition: Transition) -> bool:
    return any(isinstance(each, events.RunReset) for each in transition.inputs)


async def _has(handle: WorkflowHandle[Any], type_: str) -> bool:
    return type_ in await types(handle)


async def _taken(handle: WorkflowHandle[Any]) -> Any:
    description = await handle.describe()
    return description if description.state.resets else None


async def test_a_cancellation_is_given_again_only_if_that_is_asked(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, Shipment, pay):
        old = named(client, await client.start_workflow(Shipment.run, id="shipment-1"))
        await until(lambda: _has(old, "TimerStarted"))
        await old.cancel("enough")
        with pytest.raises(errors.WorkflowFailedError):
            await old.result()
        timer = await event_of(old, "TimerStarted")
        assert (await old.plan_reset(timer)).reapplied == ()
        assert (await old.plan_reset(timer, reapply=ResetReapplyType.ALL_ELIGIBLE)).reapplied == ("cancel",)
        new = await old.reset(timer, reapply=ResetReapplyType.ALL_ELIGIBLE)
        with pytest.raises(errors.WorkflowFailedError):
            await new.result()
        assert (await new.describe()).summary.status == "cancelled"
        assert [token for _, token in bank.seen["clean up"]] == [1, 1_001]


async def test_a_blocked_run_is_reset_to_before_the_bug(ledger: Ledger) -> None:
    ledger.replay_at_end = False  # the code changes under it
    is_wrong = True

    @workflow.defn
    async def counts() -> list[str]:
        first = await pay("count")
        if is_wrong:
            return [await pay("wrong"), str(1 / 0)]
        return [first, await pay("right")]

    async with ledger.connect() as client:
        async with ledger.worker(client, counts, pay, build_id="one"):
            old = named(client, await client.start_workflow(counts, id="order-1"))
            with pytest.raises(errors.RunBlockedError):
                await old.result()
            is_wrong = False
            with pytest.raises(errors.UsageError, match="it is blocked"):
                await old.plan_redrive()
        async with ledger.worker(client, counts, pay, build_id="two"):
            # New code asks for something else than is recorded, and blocks again, until its past is put right.
            new = await old.reset(await event_of(old, "ActivityCompleted"), reason="the wrong thing was paid")
            assert await new.result() == ["count paid", "right paid"]
    assert {step: len(each) for step, each in bank.seen.items()} == {"count": 1, "wrong": 1, "right": 1}


async def test_patches_hold_before_the_point_and_are_new_after_it(ledger: Ledger) -> None:
    ledger.replay_at_end = False

    @workflow.defn(name="deploys")
    async def before() -> list[str]:
        return [await pay("one"), await pay("two"), await pay("three")]

    @workflow.defn(name="deploys")
    async def after() -> list[str]:
        done = [await pay("one")]
        if workflow.patched("checks"):
            done.append(await pay("check"))
        done.append(await pay("two"))
        if workflow.patched("checks-later"):
            done.append(await pay("check later"))
        return [*done, await pay("three")]

    async with ledger.connect() as client:
        async with ledger.worker(client, before, pay):
            old = named(client, await client.start_workflow(before, id="order-1"))
            await old.result()
        async with ledger.worker(client, after, pay):
            new = await old.reset(await event_of(old, "ActivityCompleted", 1))
            assert await new.result() == ["one paid", "two paid", "check later paid", "three paid"]
            last = await new.reset(await event_of(old, "ActivityCompleted", 1))
            assert await last.result() == await new.result()


async def test_what_cannot_be_reset_says_why(ledger: Ledger) -> None:
    async with ledger.connect() as client:
        unbegun = await client.start_workflow(Order.run, "third", id="order-0")
        with pytest.raises(errors.UsageError, match="no worker has begun it yet"):
            await unbegun.reset(1)
        await unbegun.terminate()
        with pytest.raises(errors.UsageError, match="ended before any worker had begun it"):
            await unbegun.redrive()
        async with ledger.worker(client, Order, pay):
            handle = await client.start_workflow(Order.run, "third", id="order-1")
            await until(lambda: len(bank.seen) == 1)
            with pytest.raises(errors.UsageError, match="is open, and only a run that has ended badly"):
                await handle.redrive()
            for event_id in (0, 99):
                with pytest.raises(errors.UsageError, match=f"has no event {event_id}: its history has"):
                    await handle.reset(event_id)
            await handle.signal(Order.approve, "ada")
            await handle.result()
            another = await client.start_workflow(
                Order.run, "third", id="order-1", id_reuse_policy=IdReusePolicy.ALLOW_DUPLICATE
            )
            with pytest.raises(errors.UsageError, match=f"was started anew since, as run {another.run_id}"):
                await handle.reset(1)
            await another.terminate()
            store = client.internals.store
            row = await store.find_run("default", "order-1")
            assert row is not None
            chains = [row.chain_key, (await store.read_run(handle._run_key or 0)).chain_key]

            async def is_forgotten() -> bool:
                await store.forget_chains(chains, 0)
                return (await store.read_run(row.run_key)).is_forgotten

            await until(is_forgotten)
            with pytest.raises(errors.NoLongerKeptError):
                await another.reset(1)
            ledger.replay_at_end = False


def test_the_blocking_client_resets_and_redrives(ledger: Ledger) -> None:
    bank.fails = {"third"}
    with worker_process(ledger, Order, pay), SyncClient(ledger.url) as client:
        old = client.start_workflow(Order.run, "third", id="order-1")
        old.signal(Order.approve, "ada")
        with pytest.raises(errors.WorkflowFailedError):
            old.result()
        bank.fails = set()
        assert [each.outcome for each in old.plan_redrive().repetitions] == ["failed"]
        new = old.redrive(reason="again")
        assert new.result()[-1] == "ada"
        assert [each.outcome for each in new.plan_reset(1).repetitions] == ["completed"] * 3
        assert new.reset(1, reason="once more").result() == new.result()
