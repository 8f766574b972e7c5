"""Code as users write it, with no annotation that they would not need: the test beside it has mypy --strict check it.

Never run. An ignore that is not needed is an error too: so it also says what must be refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, assert_type

import pledger
from pledger import SyncClient, Worker, activity, connect, workflow
from pledger.client import ResetReapplyType, StreamItem, WithStartWorkflowOperation, WorkflowHandle
from pledger.codecs import AesGcm, KeyRing, Offload, PayloadCodec, Place, Zstd
from pledger.testing import environment

SOON = timedelta(seconds=30)


@activity.defn
async def charge(order: int) -> str:
    return f"receipt for {order}"


@activity.defn(start_to_close_timeout=SOON)
def ship(address: str, boxes: int = 1) -> None: ...


@activity.defn
def weigh(boxes: list[str]) -> dict[str, int]:
    return dict.fromkeys(boxes, 1)


@workflow.defn
async def fulfil(order: int) -> int:
    # The plain call is typed whole, arguments and result.
    assert_type(await charge(order), str)
    assert_type(await weigh(["a"]), dict[str, int])
    await ship("here", boxes=2)
    await charge("one")  # type: ignore[arg-type]
    await ship()  # type: ignore[call-arg]
    # With options of the call, the result and the options are.
    assert_type(await workflow.execute_activity(charge, order), str)
    assert_type(await workflow.execute_activity(weigh, ["a"], start_to_close_timeout=SOON), dict[str, int])
    handle = workflow.start_activity(charge, order, task_queue="cards")
    assert_type(handle, workflow.ActivityHandle[str])
    assert_type(await handle, str)
    await workflow.execute_activity(charge, order, start_to_close=SOON)  # type: ignore[call-overload]
    await workflow.execute_activity(charge, order, start_to_close_timeout=30)  # type: ignore[call-overload]
    # By name, the result is what the caller says.
    assert_type(await workflow.execute_activity("price", order, result_type=int), int)

    assert_type(await workflow.execute_child_workflow(fulfil, 7), int)
    assert_type(await workflow.start_child_workflow(Order.run, "here"), workflow.ChildWorkflowHandle[list[str]])
    assert_type(await (await workflow.start_child_workflow(Order.run, "here", id="order-8")), list[str])
    assert_type(await workflow.execute_child_workflow("price", order, result_type=int), int)
    await workflow.execute_child_workflow(fulfil, 7, parent_close_policy="abandon")  # type: ignore[call-overload]
    await workflow.get_external_workflow_handle("order-9").signal("note", "x")

    assert_type(await workflow.execute_activity("prices", order, result_type=list[int]), list[int])
    named = workflow.start_activity("price", order)
    assert_type(named, workflow.ActivityHandle[Any])
    return order


@workflow.defn
async def in_blocks(order: int) -> str:
    async with workflow.deadline(SOON) as block, workflow.scope() as scope:
        assert_type(block, workflow.Deadline)
        scope.cancel()
    async with workflow.phase("packing", owner="ada", deadline=SOON, overdue="raise"):
        assert_type(await workflow.shield(charge(order)), str)
    workflow.phase("packing", overdue="shout")  # type: ignore[arg-type]
    workflow.deadline(30)  # type: ignore[arg-type]
    race = await workflow.first_of(charge(order), other=charge(order))
    assert_type(race, workflow.Race[str])
    assert_type(race["other"].result, str | None)
    return race.result


@workflow.defn(name="Order", deadline=timedelta(days=2))
class Order:
    @workflow.init
    def __init__(self, address: str) -> None:
        self.sent = False

    @workflow.run
    async def run(self, address: str) -> list[str]:
        await workflow.wait_condition(lambda: self.sent)
        await workflow.wait_condition(workflow.all_handlers_finished)
        return [address]

    @workflow.signal
    async def send(self, boxes: int) -> None:
        self.sent = boxes > 0

    @workflow.update
    async def weigh(self, boxes: int) -> float:
        return boxes * 0.5

    @weigh.validator
    def _check_weigh(self, boxes: int) -> None:
        if boxes < 1:
            raise ValueError(boxes)

    @workflow.update(name="ship-to", description="where it goes")
    def ship_to(self, address: str) -> str:
        return address

    @workflow.signal(dynamic=True)
    def other(self, name: str, args: Sequence[Any]) -> None: ...

    @workflow.query
    def is_sent(self) -> bool:
        return self.sent


@workflow.defn
class Rolling:
    @workflow.run
    async def run(self, before: int) -> int:
        # It does not return: what comes after it need not be there.
        if before < 3:
            workflow.continue_as_new(before + 1, deadline=timedelta(days=1))
        if before < 4:
            workflow.continue_as_new("here", workflow=Order, task_queue="here")
        assert_type(workflow.info().continued_run_id, str | None)
        return before


#: Definitions that differ in their types, by name and in place.
WORKFLOWS = [fulfil, Order]
ACTIVITIES = [charge, ship, weigh]


async def main() -> None:
    async with (
        connect("sqlite:///orders.db") as client,
        Worker(client, workflows=WORKFLOWS, activities=ACTIVITIES),
        Worker(client, workflows=[Order, fulfil], activities=[charge, ship, weigh], task_queue="here"),
        Worker(client, activities=(charge, ship), task_queue="cards"),
    ):
        handle = await client.start_workflow(fulfil, 7, id="order-7", execution_timeout=timedelta(days=1))
        assert_type(handle, WorkflowHandle[int])
        assert_type(await handle.result(), int)
        assert_type(await client.execute_workflow(fulfil, 7, id="order-7"), int)
        assert_type(await client.start_workflow(Order, "here", id="order-8"), WorkflowHandle[Any])
        assert_type(await client.start_workflow("Order", "here", id="order-8"), WorkflowHandle[Any])
        assert_type(await client.start_workflow(Order.run, "here", id="order-8"), WorkflowHandle[list[str]])
        assert_type(await handle.reset(3, reason="a bug", reapply=ResetReapplyType.NONE), WorkflowHandle[int])
        assert_type(await handle.redrive(reason="once more"), WorkflowHandle[int])
        order = await client.start_workflow(Order, "here", id="order-8", start_signal=Order.send, start_signal_args=[2])
        assert_type(await order.execute_update(Order.weigh, 2, id="weigh"), float)
        assert_type(await order.execute_update("weigh", 2), Any)
        operation = WithStartWorkflowOperation[list[str]](Order, "here", id="order-9")
        sent = client.execute_update_with_start_workflow(Order.weigh, 2, start_workflow_operation=operation)
        assert_type(await sent, float)
        assert_type(await operation.workflow_handle(), WorkflowHandle[list[str]])
        async for item in handle.stream("progress", 3, type=Progress):
            assert_type(item, StreamItem[Progress])
            assert_type(item.value, Progress)
        async for some in handle.stream("progress", from_offset=3, follow=False):
            assert_type(some.value, Any)
        handle.stream("progress", "3")  # type: ignore[call-overload]
        await client.start_workflow(fulfil, 7)  # type: ignore[call-overload]
        await client.start_workflow(fulfil, 7, id="order-7", timeout=SOON)  # type: ignore[call-overload]


@dataclass
class Progress:
    done: int


@workflow.defn
async def tells() -> None:
    workflow.publish("progress", Progress(1))
    workflow.publish(1, 1)  # type: ignore[arg-type]


@activity.defn
def tells_too() -> None:
    activity.publish("progress", Progress(1))


@activity.defn
async def sign(order: int) -> str:
    assert_type(activity.completion_token(expires_in=SOON), str)
    assert_type(activity.info().task_token, bytes)
    activity.raise_complete_async()


class Upside:
    name = "upside-down"

    def encode(self, data: bytes, place: Place) -> bytes | None:
        return data[::-1] if place.workflow_id else None

    def decode(self, data: bytes, place: Place) -> bytes:
        return data[::-1]


def of_tenant(place: Place) -> str:
    return place.namespace


KEYS = KeyRing({"a": b"k" * 32}, current=of_tenant)
CHAIN: list[PayloadCodec] = [Upside(), Zstd(level=9), AesGcm(KEYS, digest_key=b"d" * 32), Offload("s3://bucket")]
Zstd("fast")  # type: ignore[arg-type]


async def call_back(token: str) -> None:
    async with connect("sqlite:///orders.db", token_keys=[b"k" * 32], codecs=CHAIN) as client:
        await client.complete_activity(token, "signed", activity=sign)
        await client.fail_activity(token.encode(), ValueError("not there"))
        assert_type(await client.heartbeat_activity(token, "at the door", 3), bool)
        await client.report_cancellation(token, "turned back")
        assert_type(await client.rotate_token_keys(keep=SOON), str)
        await client.complete_activity(7)  # type: ignore[arg-type]


def script() -> None:
    assert_type(pledger.run(fulfil, 7, id="order-7"), int)
    assert_type(pledger.run(Order, "here", id="order-8", activities=ACTIVITIES), Any)
    with SyncClient("sqlite:///orders.db") as client:
        client.start_workflow(fulfil, 7, id="order-7").signal(Order.send, 2)
    with environment(workflows=WORKFLOWS, activities=ACTIVITIES) as env:
        env.run(fulfil, 7)
