"""Interceptors on all four sides, and the headers that travel between them."""

# ruff: noqa: A002, SIM117 - the parameters have the names that the library gives them; a worker stands in its client
from __future__ import annotations

import asyncio
import contextvars
from typing import Any, NoReturn

import pytest

from pledger import activity, connect, workflow
from pledger.client import WithStartWorkflowOperation, WorkflowUpdateStage
from pledger.errors import UpdateRejectedError, UsageError, WorkflowFailedError
from pledger.interceptors import (
    ActivityInboundInterceptor,
    ClientOutboundInterceptor,
    ContinueAsNewInput,
    ExecuteActivityInput,
    ExecuteWorkflowInput,
    HandleQueryInput,
    HandleSignalInput,
    HandleUpdateInput,
    Interceptor,
    QueryWorkflowInput,
    ResetWorkflowInput,
    SignalChildWorkflowInput,
    SignalExternalWorkflowInput,
    SignalWorkflowInput,
    StartActivityInput,
    StartChildWorkflowInput,
    StartWorkflowInput,
    StartWorkflowUpdateInput,
    StartWorkflowUpdateWithStartInput,
    TerminateWorkflowInput,
    WorkflowInboundInterceptor,
    WorkflowOutboundInterceptor,
)
from pledger.testing import replay
from tests.engine.harness import Ledger
from tests.engine.steps import ONCE

ACCEPTED = WorkflowUpdateStage.ACCEPTED
tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="nobody")


class Noting(Interceptor):
    """Notes what it sees, under its name, and takes a tenant from the client to the activities."""

    def __init__(self, name: str = "a", notes: list[str] | None = None) -> None:
        self.name = name
        self.notes: list[str] = [] if notes is None else notes

    def note(self, what: str) -> None:
        self.notes.append(f"{self.name}: {what}")

    def intercept_client(self, next: ClientOutboundInterceptor) -> ClientOutboundInterceptor:
        return _Client(next, self)

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _Activity(next, self)

    def workflow_interceptor_class(self) -> type[WorkflowInboundInterceptor]:
        return type("Noted", (_Workflow,), {"by": self})


class _Client(ClientOutboundInterceptor):
    def __init__(self, next: ClientOutboundInterceptor, by: Noting) -> None:
        super().__init__(next)
        self.by = by

    async def start_workflow(self, input: StartWorkflowInput) -> Any:
        self.by.note(f"start {input.options['id']}")
        input.headers["tenant"] = tenant.get()
        return await super().start_workflow(input)

    async def signal_workflow(self, input: SignalWorkflowInput) -> None:
        self.by.note("signal")
        await super().signal_workflow(input)

    async def query_workflow(self, input: QueryWorkflowInput) -> Any:
        self.by.note("query")
        return await super().query_workflow(input)

    async def start_workflow_update(self, input: StartWorkflowUpdateInput) -> Any:
        self.by.note(f"update {input.id}")
        if input.id == "u2":
            input.args = [*input.args, "more"]
        return await super().start_workflow_update(input)

    async def start_update_with_start_workflow(self, input: StartWorkflowUpdateWithStartInput) -> Any:
        self.by.note("update with start")
        input.headers["tenant"] = tenant.get()
        return await super().start_update_with_start_workflow(input)

    async def terminate_workflow(self, input: TerminateWorkflowInput) -> None:
        raise PermissionError("never")


class _Activity(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, by: Noting) -> None:
        super().__init__(next)
        self.by = by

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        name = activity.info().activity_type
        self.by.note(f"attempt of {name}")
        tenant.set(input.headers.get("tenant", "lost"))
        try:
            return await super().execute_activity(input)
        finally:
            self.by.note(f"end of {name}")


class _Workflow(WorkflowInboundInterceptor):
    by: Noting

    def __init__(self, next: WorkflowInboundInterceptor) -> None:
        super().__init__(next)
        self.headers: Any = {}

    def init(self, outbound: WorkflowOutboundInterceptor) -> None:
        super().init(_Outbound(outbound, self))

    def note(self, what: str) -> None:
        if not workflow.unsafe.is_replaying():
            self.by.note(what)

    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:
        self.headers = input.headers
        self.note(f"run {input.workflow_type}{tuple(input.args)}")
        return await super().execute_workflow(input)

    async def handle_signal(self, input: HandleSignalInput) -> None:
        self.note(f"signal {input.signal}")
        await super().handle_signal(input)

    def handle_update_validator(self, input: HandleUpdateInput) -> None:
        self.note(f"may {input.id}")
        if input.args[0] == "nonsense":
            raise ValueError("nonsense is said nowhere")
        super().handle_update_validator(input)

    async def handle_update_handler(self, input: HandleUpdateInput) -> Any:
        self.note(f"update {input.id}: {input.update}")
        found = await super().handle_update_handler(input)
        return f"{self.by.name} {found}" if isinstance(found, str) else -found

    async def handle_query(self, input: HandleQueryInput) -> Any:
        return [*await super().handle_query(input), self.by.name]


class _Outbound(WorkflowOutboundInterceptor):
    def __init__(self, next: WorkflowOutboundInterceptor, inbound: _Workflow) -> None:
        super().__init__(next)
        self.inbound = inbound

    def start_activity(self, input: StartActivityInput) -> Any:
        self.inbound.note(f"activity {input.activity}")
        input.headers["tenant"] = self.inbound.headers.get("tenant", "")
        return super().start_activity(input)


@activity.defn
async def charge(order: str) -> str:
    return f"{order} for {tenant.get()}"


@activity.defn
def charge_in_a_thread(order: str) -> str:
    return f"{order} for {tenant.get()} in a thread"


@workflow.defn
class Order:
    def __init__(self) -> None:
        self.said: list[str] = []

    @workflow.run
    async def run(self, order: str) -> list[str]:
        await workflow.wait_condition(lambda: self.said)
        by_name = await workflow.execute_activity("charge", order, result_type=str)
        return [await charge(order), by_name, await charge_in_a_thread(order)]

    @workflow.signal
    def say(self, what: str) -> None:
        self.said.append(what)

    @workflow.update
    def hear(self, *what: str) -> int:
        self.said += what
        return len(self.said)

    @workflow.update
    async def hear_out(self, what: str) -> str:
        await workflow.sleep(0)
        self.said.append(what)
        return what

    @hear_out.validator
    def _is_short(self, what: str) -> None:
        if len(what) > 5:
            raise ValueError(f"{what} is too long")

    @workflow.query
    def heard(self) -> list[str]:
        return list(self.said)


async def test_all_sides_are_passed_and_headers_travel(ledger: Ledger) -> None:
    both = Noting()
    token = tenant.set("acme")
    try:
        async with connect(ledger.url, interceptors=[both]) as client:
            async with ledger.worker(client, Order, charge, charge_in_a_thread):
                handle = await client.start_workflow(Order, "o1", id="order-1")
                assert await handle.query(Order.heard) == ["a"]
                await handle.signal(Order.say, "hello")
                assert await handle.result() == ["o1 for acme"] * 2 + ["o1 for acme in a thread"]
                history = await handle.history()
    finally:
        tenant.reset(token)
    assert both.notes == [
        *("a: start order-1", "a: run Order('o1',)", "a: query", "a: signal", "a: signal say"),
        *("a: activity charge", "a: attempt of charge", "a: end of charge") * 2,
        *("a: activity charge_in_a_thread", "a: attempt of charge_in_a_thread", "a: end of charge_in_a_thread"),
    ]
    [started, *_] = history.transitions[0].inputs
    assert started.headers == {"tenant": "acme"}  # type: ignore[union-attr] # it is a start
    # Its code is the same without them, and with others: they ask for nothing of their own.
    assert replay(history, Order) == replay(history, Order, interceptors=[Noting("b")]) == len(history.events)


async def test_the_first_one_stands_outermost(file_ledger: Ledger) -> None:
    notes: list[str] = []
    outer, inner = Noting("outer", notes), Noting("inner", notes)
    async with connect(file_ledger.url, interceptors=[outer]) as client:
        async with file_ledger.worker(client, Order, charge, charge_in_a_thread, interceptors=[inner]):
            handle = await client.start_workflow(Order, "o1", id="order-1")
            await handle.signal(Order.say, "hello")
            assert await handle.query(Order.heard) == ["hello", "inner", "outer"]
            await handle.result()
            with pytest.raises(PermissionError, match="never"):
                await handle.terminate()
    assert [each for each in notes if each.endswith("of charge")][:4] == [
        *("outer: attempt of charge", "inner: attempt of charge"),
        *("inner: end of charge", "outer: end of charge"),
    ]


async def test_updates_pass_all_sides_and_are_refused_on_the_way(ledger: Ledger) -> None:
    both = Noting()
    token = tenant.set("acme")
    try:
        async with connect(ledger.url, interceptors=[both]) as client:
            async with ledger.worker(client, Order, charge, charge_in_a_thread):
                operation = WithStartWorkflowOperation[Any](Order, "o1", id="order-1")
                first = await client.start_update_with_start_workflow(
                    Order.hear_out, "one", id="u1", wait_for_stage=ACCEPTED, start_workflow_operation=operation
                )
                assert await first.result() == "a one"
                handle = await operation.workflow_handle()
                assert await handle.result() == ["o1 for acme"] * 2 + ["o1 for acme in a thread"]
                assert replay(await handle.history(), Order, interceptors=[Noting("a")])
                handle = await client.start_workflow(Order, "o2", id="order-2")
                both.notes.clear()
                for update in (Order.hear, "hear_out"):  # one without a validator, and one with
                    with pytest.raises(UpdateRejectedError, match="said nowhere"):
                        await handle.execute_update(update, "nonsense", id="no")
                with pytest.raises(UpdateRejectedError, match="two long ones is too long"):
                    await handle.execute_update(Order.hear_out, "two long ones", id="no")
                assert both.notes == ["a: update no", "a: may no"] * 3
                assert await handle.execute_update(Order.hear, "two", id="u2") == -2
                assert both.notes[6:9] == ["a: update u2", "a: may u2", "a: update u2: hear"]
    finally:
        tenant.reset(token)


async def test_what_they_raise_the_attempt_has_failed_with(file_ledger: Ledger) -> None:
    class Refuse(ActivityInboundInterceptor):
        async def execute_activity(self, input: ExecuteActivityInput) -> Any:
            raise PermissionError(f"not {input.args[0]}")

    class Refusing(Interceptor):
        def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
            return Refuse(next)

    @activity.defn(retry_policy=ONCE)
    def pay(order: str) -> str:
        return order

    @workflow.defn
    async def paying() -> str:
        return await pay("o1")

    async with connect(file_ledger.url, interceptors=[Refusing()]) as client:
        async with file_ledger.worker(client, paying, pay):
            with pytest.raises(WorkflowFailedError) as failed:
                await client.execute_workflow(paying, id="order-1")
    assert "not o1" in str(failed.value.__cause__.__cause__)  # type: ignore[union-attr]


async def test_a_thread_is_told_to_stop_through_them(file_ledger: Ledger) -> None:
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()

    @activity.defn(cancellation_type="wait")
    def watch() -> str:
        loop.call_soon_threadsafe(begun.set)
        while not activity.is_cancelled():
            pass
        return "stopped in time"

    @workflow.defn
    async def watching() -> str:
        watched = watch()
        try:
            return await asyncio.shield(watched)
        except asyncio.CancelledError:
            watched.cancel()
            return await watched

    async with connect(file_ledger.url, interceptors=[Noting()]) as client:
        async with file_ledger.worker(client, watching, watch):
            handle = await client.start_workflow(watching, id="order-1")
            await begun.wait()
            await handle.cancel()
            assert await handle.result() == "stopped in time"


async def test_what_is_no_interceptor_is_refused() -> None:
    with pytest.raises(UsageError, match="give an instance of it"):
        async with connect("memory://none", interceptors=[Noting]):  # type: ignore[list-item]
            pass


# Other runs -----------------------------------------------------------------------------------------------------------


@workflow.defn
class Listener:
    def __init__(self) -> None:
        self.heard: list[str] = []

    @workflow.run
    async def run(self, count: int, before: list[str] | None = None) -> list[str]:
        await workflow.wait_condition(lambda: len(self.heard) >= count)
        return [*(before or []), *self.heard]

    @workflow.signal
    def hear(self, what: str) -> None:
        self.heard.append(what)


@workflow.defn
async def speaks(rounds: int) -> list[str]:
    child = await workflow.start_child_workflow(Listener.run, 1, id=f"listener-{rounds}")
    await child.signal(Listener.hear, "child")
    told = await child
    await workflow.get_external_workflow_handle("outsider").signal(Listener.hear, "outsider")
    if rounds > 1:
        workflow.continue_as_new(rounds - 1)
    return told


class _Others(WorkflowOutboundInterceptor):
    def __init__(self, next: WorkflowOutboundInterceptor, notes: list[str]) -> None:
        super().__init__(next)
        self.notes = notes

    def note(self, what: str) -> None:
        if not workflow.unsafe.is_replaying():
            self.notes.append(what)

    def start_child_workflow(self, input: StartChildWorkflowInput) -> Any:
        self.note(f"child {input.options['id']}")
        input.headers["from"] = workflow.info().run_id
        return super().start_child_workflow(input)

    async def signal_child_workflow(self, input: SignalChildWorkflowInput) -> None:
        self.note(f"to child {input.child_workflow_id}")
        input.args = [f"{input.args[0]}, intercepted"]
        await super().signal_child_workflow(input)

    async def signal_external_workflow(self, input: SignalExternalWorkflowInput) -> None:
        self.note(f"to {input.workflow_id}")
        await super().signal_external_workflow(input)

    def continue_as_new(self, input: ContinueAsNewInput) -> NoReturn:
        self.note(f"again {input.args[0]}")
        super().continue_as_new(input)


class _Headers(WorkflowInboundInterceptor):
    notes: list[str]

    def init(self, outbound: WorkflowOutboundInterceptor) -> None:
        super().init(_Others(outbound, self.notes))

    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:
        if input.workflow_type == "Listener" and not workflow.unsafe.is_replaying():
            self.notes.append(f"listener of {input.headers.get('from')}")
        return await super().execute_workflow(input)


class _Resets(ClientOutboundInterceptor):
    async def reset_workflow(self, input: ResetWorkflowInput) -> Any:
        input.options["reason"] = f"event {input.event_id}, intercepted"
        return await super().reset_workflow(input)


class OtherRuns(Interceptor):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def intercept_client(self, next: ClientOutboundInterceptor) -> ClientOutboundInterceptor:
        return _Resets(next)

    def workflow_interceptor_class(self) -> type[WorkflowInboundInterceptor]:
        return type("Headers", (_Headers,), {"notes": self.notes})


async def test_what_concerns_other_runs_goes_through_interceptors(ledger: Ledger) -> None:
    others = OtherRuns()
    ledger.replay_at_end = False  # these interceptors change what is sent: their replays have them too, below
    async with connect(ledger.url, interceptors=[others]) as client:
        async with ledger.worker(client, Listener, speaks):
            outsider = await client.start_workflow(Listener.run, 2, id="outsider")
            first = await client.start_workflow(speaks, 2, id="speaker")
            run_id = first.run_id
            assert await first.result() == ["child, intercepted"]
            assert await outsider.result() == ["outsider", "outsider"]
            again = await outsider.reset(1)
            assert await again.result() == ["outsider", "outsider"]
            [link] = (await again.describe()).resets
            assert link.reason == "event 1, intercepted"
            for run in (run_id, f"{run_id}.2"):
                history = await client.handle("speaker", run_id=run).history()
                assert replay(history, speaks, interceptors=[others]) == len(history.events)
    heard = {each for each in others.notes if each.startswith("listener")}
    assert heard == {"listener of None", f"listener of {run_id}", f"listener of {run_id}.2"}
    assert [each for each in others.notes if each not in heard] == [
        "child listener-2",
        "to child listener-2",
        "to outsider",
        "again 1",
        "child listener-1",
        "to child listener-1",
        "to outsider",
    ]
