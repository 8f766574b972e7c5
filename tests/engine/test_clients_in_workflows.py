"""A client is outside of workflow code: no verb of it, nor of a handle, works there, or leaves a trace."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from pledger import Client, SyncClient, connect, workflow
from pledger.client import WithStartWorkflowOperation, WorkflowHandle, WorkflowUpdateStage
from pledger.errors import RunBlockedError
from tests.engine.harness import Ledger

Call = Callable[[Client, WorkflowHandle[Any]], Awaitable[object]]


async def _iterated(client: Client) -> object:
    return [each async for each in client.list()]


async def _opened(url: str) -> object:
    async with connect(url) as client:
        return client


async def _transaction(client: Client) -> object:
    async with client.connection() as connection:
        return connection


#: What can be called, by the name that the error gives it.
VERBS: dict[str, Call] = {
    "Client.start_workflow": lambda client, _: client.start_workflow(child, id="child"),
    "Client.execute_workflow": lambda client, _: client.execute_workflow(child, id="child"),
    "Client.start_update_with_start_workflow": lambda client, _: client.start_update_with_start_workflow(
        "set", wait_for_stage=WorkflowUpdateStage.ACCEPTED, start_workflow_operation=with_start()
    ),
    "Client.execute_update_with_start_workflow": lambda client, _: client.execute_update_with_start_workflow(
        "set", start_workflow_operation=with_start()
    ),
    "Client.connection": lambda client, _: _transaction(client),
    "Client.list_workflows": lambda client, _: _iterated(client),
    "Client.count_workflows": lambda client, _: client.count_workflows(),
    "Client.search_attribute_keys": lambda client, _: client.search_attribute_keys(),
    "Client.pause": lambda client, _: client.pause("type", "child"),
    "Client.resume": lambda client, _: client.resume("type", "child"),
    "Client.pauses": lambda client, _: client.pauses(),
    "Client.queues": lambda client, _: client.queues(),
    "Client.limits": lambda client, _: client.limits(),
    "Client.set_limit": lambda client, _: client.set_limit("calls", concurrency=1),
    "Client.reset_limit": lambda client, _: client.reset_limit("calls"),
    "Client.dependencies": lambda client, _: client.dependencies(),
    "Client.pause_dependency": lambda client, _: client.pause_dependency("courier"),
    "Client.resume_dependency": lambda client, _: client.resume_dependency("courier"),
    "Client.complete_activity": lambda client, _: client.complete_activity("pldg1.a.b", "done"),
    "Client.fail_activity": lambda client, _: client.fail_activity("pldg1.a.b", "lost"),
    "Client.heartbeat_activity": lambda client, _: client.heartbeat_activity("pldg1.a.b"),
    "Client.report_cancellation": lambda client, _: client.report_cancellation("pldg1.a.b"),
    "Client.rotate_token_keys": lambda client, _: client.rotate_token_keys(),
    "Client.workers": lambda client, _: client.workers(),
    "Client.ledger": lambda client, _: client.ledger(),
    "Client.back_up": lambda client, _: client.back_up("/nowhere/ledger.db"),
    "Client.now": lambda client, _: client.now(),
    "WorkflowHandle.result": lambda _, handle: handle.result(),
    "WorkflowHandle.signal": lambda _, handle: handle.signal("note", "from a workflow"),
    "WorkflowHandle.query": lambda _, handle: handle.query("noted", timeout=timedelta(milliseconds=1)),
    "WorkflowHandle.start_update": lambda _, handle: handle.start_update(
        "set", wait_for_stage=WorkflowUpdateStage.ACCEPTED
    ),
    "WorkflowHandle.execute_update": lambda _, handle: handle.execute_update("set"),
    "WorkflowHandle.cancel": lambda _, handle: handle.cancel(),
    "WorkflowHandle.cancel_verdict": lambda _, handle: handle.cancel_verdict("cancel-1"),
    "WorkflowHandle.terminate": lambda _, handle: handle.terminate(),
    "WorkflowHandle.reset": lambda _, handle: handle.reset(1),
    "WorkflowHandle.redrive": lambda _, handle: handle.redrive(),
    "WorkflowHandle.plan_reset": lambda _, handle: handle.plan_reset(1),
    "WorkflowHandle.plan_redrive": lambda _, handle: handle.plan_redrive(),
    "WorkflowHandle.pause": lambda _, handle: handle.pause(),
    "WorkflowHandle.resume": lambda _, handle: handle.resume(),
    "WorkflowHandle.stream": lambda _, handle: anext(handle.stream("notes")),
    "WorkflowHandle.describe": lambda _, handle: handle.describe(),
    "WorkflowHandle.history": lambda _, handle: handle.history(),
}


def with_start() -> WithStartWorkflowOperation[None]:
    return WithStartWorkflowOperation(Target, id="child")


@workflow.defn
async def child() -> None: ...


@workflow.defn
class Target:
    def __init__(self) -> None:
        self.notes: list[str] = []

    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: bool(self.notes))

    @workflow.signal
    def note(self, text: str) -> None:
        self.notes.append(text)

    @workflow.update
    def set(self) -> None:
        self.notes.append("set")

    @workflow.query
    def noted(self) -> list[str]:
        return self.notes


def test_every_verb_is_called_here() -> None:
    found = {
        member.__qualname__  # `list` is a short name of `list_workflows`
        for owner in (Client, WorkflowHandle)
        for name, member in vars(owner).items()
        if not name.startswith("_") and inspect.isfunction(member)
    }
    asks_nothing = {"Client.handle", "WorkflowHandle.get_update_handle"}
    assert found - set(VERBS) == asks_nothing, "which ask the store for nothing"


async def test_no_verb_works_in_workflow_code_nor_leaves_a_trace(ledger: Ledger) -> None:
    async with ledger.connect() as client:
        outside: dict[str, Any] = {}

        @workflow.defn
        async def asks(verb: str) -> str:
            try:
                await outside[verb]()
            except Exception as error:  # noqa: BLE001 - what users do: the run must block all the same
                return f"caught {type(error).__name__}"
            return "not refused"

        async with ledger.worker(client, asks, Target, child):
            target = await client.start_workflow(Target, id="target")
            outside.update({verb: lambda call=call: call(client, target) for verb, call in VERBS.items()})
            outside["connect"] = lambda: _opened(ledger.url)
            for verb in outside:
                handle = await client.start_workflow(asks, verb, id=verb)
                with pytest.raises(
                    RunBlockedError, match=rf"{verb}\(\) was called in workflow code.*do it in an activity"
                ):
                    await handle.result()
            assert {run.workflow_id async for run in client.list()} == {"target", *outside}
            assert len((await target.history()).events) == 1, "the start: nobody has sent anything to it"
            assert (await target.describe()).inbox == []
            assert await client.pauses() == await client.limits() == ()


async def test_the_blocking_client_is_refused_too(ledger: Ledger) -> None:
    opened: list[SyncClient] = []

    @workflow.defn
    async def asks() -> str:
        try:
            opened[0].start_workflow(child, id="child")
        except Exception as error:  # noqa: BLE001 - what users do
            return f"caught {type(error).__name__}"
        return "not refused"

    async with ledger.connect() as client, ledger.worker(client, asks, child):
        opened.append(await asyncio.to_thread(SyncClient, ledger.url))
        try:
            handle = await client.start_workflow(asks, id="order-1")
            with pytest.raises(RunBlockedError, match=r"SyncClient.start_workflow\(\) was called in workflow code"):
                await handle.result()
            assert await client.count() == 1
        finally:
            await asyncio.to_thread(opened[0].close)
