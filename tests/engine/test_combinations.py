"""Chains, children, resets and what closes them, two at a time: each holds alone, and they meet."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from pledger import activity, errors, workflow
from pledger.client import Client, ResetReapplyType, WorkflowHandle
from pledger.engine.partings import Partings
from pledger.engine.port.posts import Parting
from pledger.workflow import ParentClosePolicy
from tests.engine.harness import Ledger, until


@workflow.defn
class Counted:
    """Counts signals; each third one is the last of its run, and a successor goes on."""

    def __init__(self) -> None:
        self.told: list[str] = []

    @workflow.run
    async def run(self, rounds: int = 2, before: list[str] | None = None) -> list[str]:
        await workflow.wait_condition(lambda: len(self.told) >= 3)
        told = [*(before or []), *self.told]
        if rounds > 1:
            workflow.continue_as_new(rounds - 1, told)
        return told

    @workflow.signal
    def tell(self, what: str) -> None:
        self.told.append(what)


@workflow.defn
class Parent:
    """Starts one child, and waits for it."""

    @workflow.run
    async def run(self, child: str, policy: str, rounds: int = 2) -> list[str]:
        started = await workflow.start_child_workflow(
            Counted, rounds, id=child, parent_close_policy=ParentClosePolicy(policy)
        )
        return await started


def named(client: Client, handle: WorkflowHandle[Any]) -> WorkflowHandle[Any]:
    return client.handle(handle.workflow_id, run_id=handle.run_id)


async def event_of(handle: WorkflowHandle[Any], type_: str, number: int = 0) -> int:
    return [each.event_id for each in (await handle.history()).events if each.type == type_][number]


async def runs_of(client: Client, workflow_id: str) -> list[str]:
    return [run.status for run in reversed([run async for run in client.list(f"workflow_id = '{workflow_id}'")])]


async def tell(handle: WorkflowHandle[Any], *what: str) -> None:
    for each in what:
        await handle.signal(Counted.tell, each, message_id=each)


@pytest.mark.parametrize("policy", ["terminate", "request_cancel"])
@pytest.mark.parametrize("how", ["rolls over", "is reset"])
async def test_a_child_that_goes_on_as_another_run_while_its_parent_parts_from_it(
    ledger: Ledger, policy: str, how: str
) -> None:
    async with ledger.connect() as client, ledger.worker(client, Parent, Counted):
        parent = await client.start_workflow(Parent.run, "child", policy, id="parent")
        store = client.internals.store
        row = await store.find_run("default", "parent")
        assert row is not None
        [seen] = await until(lambda: store.read_children(row.run_key, 10))
        child = client.handle("child")
        await until(lambda: _has_begun(child))
        if how == "rolls over":
            await tell(child, "1", "2", "3")
            await until(lambda: _is(client, "child", ["continued_as_new", "running"]))
        else:
            await child.reset(1)
        # What a worker does that has read the child just before.
        partings = Partings(client.internals, asyncio.get_running_loop(), lambda: None)
        await partings._see_to(Parting(row.run_key, "parent", row.run_id, "terminated", (seen,)), seen)
        with pytest.raises(errors.WorkflowFailedError) as told:
            await client.handle("child").result()
        assert told.value.status == ("terminated" if policy == "terminate" else "cancelled")
        with pytest.raises(errors.WorkflowFailedError):
            await parent.result()


async def _has_begun(handle: WorkflowHandle[Any], type_: str = "RunStarted") -> bool:
    try:
        return any(each.type == type_ for each in (await handle.history()).events)
    except errors.WorkflowNotFoundError:
        return False


async def _is(client: Client, workflow_id: str, statuses: list[str]) -> bool:
    return await runs_of(client, workflow_id) == statuses


async def test_who_has_a_handle_of_a_run_that_was_reset_writes_to_the_one_that_goes_on(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, Counted):
        old = await client.start_workflow(Counted.run, 1, id="counted")
        await tell(old, "1")
        await until(lambda: _has_begun(old))
        await client.handle("counted").reset(1)
        await tell(old, "2")
        await tell(named(client, old), "3")
        assert await client.handle("counted").result() == ["1", "2", "3"]


async def test_a_reset_into_the_midst_of_a_chain_gives_again_what_its_later_runs_were_told(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, Counted):
        first = named(client, await client.start_workflow(Counted.run, 2, id="counted"))
        newest = client.handle("counted")
        await tell(newest, *"123")
        await until(lambda: _is(client, "counted", ["continued_as_new", "running"]))
        await tell(newest, *"45")
        await until(lambda: _has_taken(newest, 2))
        plan = await first.plan_reset(1)
        assert len(plan.reapplied) == 5
        await first.reset(1)
        await tell(newest, *"3456")  # each is known by its id
        assert await newest.result() == list("123456")


async def _has_taken(handle: WorkflowHandle[Any], signals: int) -> bool:
    return sum(each.type == "SignalReceived" for each in (await handle.history()).events) >= signals


@workflow.defn
async def pays() -> str:
    return await pay()


@activity.defn
async def pay() -> str:
    info = activity.info()
    paid.append((info.idempotency_key, info.fencing_token))
    return info.idempotency_key


paid: list[tuple[str, int]] = []


async def test_each_reset_of_one_run_goes_on_with_its_keys_above_all_tokens(ledger: Ledger) -> None:
    ledger.worker_lease = timedelta(minutes=1)  # attempts are counted here: none is to be lost with its lease
    paid.clear()
    async with ledger.connect() as client, ledger.worker(client, pays, pay):
        first = named(client, await client.start_workflow(pays, id="pays"))
        key = await first.result()
        for _ in range(2):
            assert await (await first.reset(1)).result() == key
        assert paid == [(key, 1), (key, 1_001), (key, 2_001)]


async def test_a_child_that_was_started_after_the_point_is_started_again(ledger: Ledger) -> None:
    """Whether it has ended, or is ended by the reset; so are those of resets before, that were not asked for since."""
    async with ledger.connect() as client, ledger.worker(client, Parent, Counted):
        old = named(client, await client.start_workflow(Parent.run, "child", "terminate", 1, id="parent"))
        await until(lambda: _has_begun(client.handle("child")))
        await tell(client.handle("child"), "1", "2", "3")
        assert await old.result() == ["1", "2", "3"]
        for ended in (["completed"], ["completed", "terminated"]):
            new = await client.handle("parent").reset(1)
            await until(lambda ended=ended: _is(client, "child", [*ended, "running"]))
        await tell(client.handle("child"), "4", "5", "6")
        assert await new.result() == ["4", "5", "6"]


async def test_a_request_to_reset_that_has_a_name_makes_one_run(ledger: Ledger) -> None:
    """Whoever asks again, having lost the answer: at once, later, of whichever run of the chain."""
    async with ledger.connect() as client, ledger.worker(client, pays, pay):
        first = named(client, await client.start_workflow(pays, id="pays"))
        await first.result()
        asked = [first.reset(1, request_id="again"), client.handle("pays").reset(1, request_id="again")]
        one, two = await asyncio.gather(*asked)
        await one.result()
        later = await client.handle("pays").reset(1, request_id="again")
        assert {each.run_id for each in (one, two, later)} == {one.run_id}
        other = await client.handle("pays").reset(1, request_id="another")
        await other.result()
        assert await runs_of(client, "pays") == ["completed"] * 3


@workflow.defn
class PaysLater:
    def __init__(self) -> None:
        self.may = False

    @workflow.run
    async def run(self) -> str:
        await workflow.wait_condition(lambda: self.may)
        return await pay()

    @workflow.signal
    def allow(self) -> None:
        self.may = True


async def test_keys_outlast_a_reset_that_did_not_come_to_their_step(ledger: Ledger) -> None:
    ledger.worker_lease = timedelta(minutes=1)  # as above
    paid.clear()
    async with ledger.connect() as client, ledger.worker(client, PaysLater, pay):
        first = await client.start_workflow(PaysLater.run, id="pays")
        await first.signal(PaysLater.allow)
        key = await first.result()
        second = await first.reset(1, reapply=ResetReapplyType.NONE)
        await until(lambda: _has_begun(second, "RunReset"))
        third = await second.reset(await event_of(second, "RunReset"))
        await third.signal(PaysLater.allow)
        assert await third.result() == key
        assert paid == [(key, 1), (key, 2_001)]


async def test_what_the_runs_before_have_taken_is_not_given_again_by_way_of_another_reset(ledger: Ledger) -> None:
    """The first run was reset too, and its messages were given again there; its successor has them in its arguments."""
    async with ledger.connect() as client, ledger.worker(client, Counted):
        first = named(client, await client.start_workflow(Counted.run, 2, id="counted"))
        newest = client.handle("counted")
        await tell(newest, *"123")
        await until(lambda: _is(client, "counted", ["continued_as_new", "running"]))
        second = client.handle("counted", run_id=f"{first.run_id}.2")
        await tell(newest, "4")
        await until(lambda: _has_taken(second, 1))
        again = await first.reset(1)
        await until(lambda: _has_begun(named(client, again), "RunReset"))
        plan = await second.plan_reset(1)
        assert len(plan.reapplied) == 1
        await second.reset(1)
        await tell(newest, "5", "6")
        assert await newest.result() == list("123456")
