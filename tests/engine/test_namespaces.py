"""Two namespaces on one ledger: the same names in both, and nobody does the other's work."""

from __future__ import annotations

from collections import defaultdict
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import pytest

from pledger import Client, RetryPolicy, activity, workflow
from pledger.errors import WorkflowNotFoundError
from tests.engine.harness import Ledger


def step_of(worker: str, done: dict[str, list[str]]) -> Any:
    """The same activity in the hands of one worker, which notes what it did. Its second attempt is a task row's."""

    @activity.defn(name="step", retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=1)))
    async def step(what: str) -> str:
        if activity.info().attempt == 1:
            raise ConnectionError("not yet")
        done[worker].append(f"{activity.info().namespace}: {what}")
        return what

    return step


step = step_of("nobody", defaultdict(list))


@workflow.defn
async def here_and_there(order: str) -> list[str]:
    return [await step(order), await workflow.execute_activity(step, order, task_queue="gpu")]


async def start_all(client: Client) -> list[Any]:
    return [await client.start_workflow(here_and_there, f"order-{n}", id=f"order-{n}") for n in range(5)]


async def test_workers_serve_the_queues_of_their_namespace_only(ledger: Ledger) -> None:
    done: dict[str, list[str]] = defaultdict(list)
    async with AsyncExitStack() as stack:
        clients = {each: await stack.enter_async_context(ledger.connect(each)) for each in ("a", "b")}
        handles = {each: await start_all(client) for each, client in clients.items()}

        async def serve(namespace: str) -> None:
            for queue in ("default", "gpu"):
                code = (here_and_there, step_of(namespace, done))
                await stack.enter_async_context(ledger.worker(clients[namespace], *code, task_queue=queue))

        # The runs of a were there first, and are due; workers of b pass them by.
        await serve("b")
        for n, handle in enumerate(handles["b"]):
            assert await handle.result() == [f"order-{n}"] * 2
        assert {run.status async for run in clients["a"].list()} == {"running"}
        assert [await handle.history() for handle in handles["a"] if (await handle.history()).events] == []
        await serve("a")
        for n, handle in enumerate(handles["a"]):
            assert await handle.result() == [f"order-{n}"] * 2
    for namespace in ("a", "b"):
        assert sorted(done[namespace]) == sorted(f"{namespace}: order-{n}" for n in range(5) for _ in range(2))


async def test_a_client_sees_its_namespace_only(ledger: Ledger) -> None:
    async with ledger.connect("a") as one, ledger.connect("b") as two:
        handle = await one.start_workflow(here_and_there, "order", id="order-1")
        async with ledger.worker(one, here_and_there, step_of("a", defaultdict(list))):
            assert [each.task_queue for each in await one.workers()] == ["default"]
            assert await two.workers() == ()
            assert await two.count() == 0
            assert [run.run_id async for run in two.list()] == []
            with pytest.raises(WorkflowNotFoundError, match="in namespace 'b'"):
                await two.handle("order-1").signal("decide")
            again = await two.start_workflow(here_and_there, "another order", id="order-1")
            assert again.run_id != handle.run_id
            assert (await one.count(), await two.count()) == (1, 1)
