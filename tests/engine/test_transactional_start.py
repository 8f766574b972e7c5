"""A run that is started in a transaction of the user's: there with it, gone with it, and nobody harmed meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import functools

import psycopg
import pytest

from pledger import Client, activity, workflow
from pledger.client import IdConflictPolicy, IdReusePolicy
from pledger.errors import UsageError, WorkflowAlreadyStartedError, WorkflowNotFoundError
from tests.engine.harness import Ledger, until
from tests.engine.shop import Shop


class UndoError(Exception):
    """Why a transaction of a test is rolled back."""


@activity.defn
async def ship(order: str) -> str:
    return f"{order} is shipped"


@workflow.defn
async def fulfil(order: str) -> str:
    return await ship(order)


async def test_a_committed_start_runs(shop: Shop) -> None:
    async with shop.ledger.connect() as client, shop.ledger.worker(client, fulfil, ship):
        async with shop.transaction(client) as connection:
            await shop.insert(connection, "o-1")
            handle = await client.start_workflow(fulfil, "o-1", id="o-1", connection=connection)
            assert handle.is_new
            assert handle.run_id
        assert await handle.result() == "o-1 is shipped"
    assert shop.orders() == ["o-1"]


async def test_a_start_that_is_rolled_back_never_was(shop: Shop) -> None:
    async with shop.ledger.connect() as client, shop.ledger.worker(client, fulfil, ship):
        with contextlib.suppress(UndoError):
            async with shop.transaction(client) as connection:
                await shop.insert(connection, "o-1")
                handle = await client.start_workflow(fulfil, "o-1", id="o-1", connection=connection)
                raise UndoError
        with pytest.raises(WorkflowNotFoundError, match="not committed yet, or was rolled back"):
            await handle.result()
        assert await client.count() == 0
        # Its id is free, for whatever input.
        again = await client.start_workflow(fulfil, "o-2", id="o-1")
        assert again.is_new
        assert await again.result() == "o-2 is shipped"
    assert shop.orders() == []


async def test_nobody_sees_a_start_before_it_is_committed(shop: Shop) -> None:
    async with shop.ledger.connect() as client, shop.ledger.worker(client, fulfil, ship):
        async with shop.transaction(client) as connection:
            handle = await client.start_workflow(fulfil, "o-1", id="o-1", connection=connection)
            assert await client.count() == 0
            for ask in (handle.result, handle.describe, handle.history, handle.terminate, handle.cancel):
                with pytest.raises(WorkflowNotFoundError, match="not committed yet"):
                    await ask()
        assert await handle.result() == "o-1 is shipped"
        assert (await handle.describe()).summary.run_id == handle.run_id


async def test_what_is_started_again_is_one_run(shop: Shop) -> None:
    async with shop.ledger.connect() as client:
        async with shop.transaction(client) as connection:
            first = await client.start_workflow(fulfil, "o-1", id="o-1", connection=connection)
            second = await client.start_workflow(fulfil, "o-1", id="o-1", connection=connection)
        async with shop.transaction(client) as connection:
            third = await client.start_workflow(fulfil, "o-1", id="o-1", connection=connection)
        assert (first.is_new, second.is_new, third.is_new) == (True, False, False)
        assert first.run_id == second.run_id == third.run_id
        assert await client.count() == 1


async def test_a_refused_start_leaves_the_transaction_as_it_was(shop: Shop) -> None:
    async with shop.ledger.connect() as client:
        await client.start_workflow(fulfil, "o-1", id="o-1")
        async with shop.transaction(client) as connection:
            await shop.insert(connection, "before")
            with pytest.raises(WorkflowAlreadyStartedError, match="with another input"):
                await client.start_workflow(fulfil, "o-2", id="o-1", connection=connection)
            await shop.insert(connection, "after")
            await client.start_workflow(fulfil, "o-3", id="o-3", connection=connection)
        assert await client.count() == 2
    assert shop.orders() == ["after", "before"]


async def test_the_id_policies_hold_as_in_every_start(shop: Shop) -> None:
    async with shop.ledger.connect() as client, shop.ledger.worker(client, fulfil, ship):
        closed = await client.start_workflow(fulfil, "o-1", id="o-1")
        await closed.result()
        async with shop.transaction(client) as connection:
            start = functools.partial(client.start_workflow, fulfil, id="o-1", connection=connection)
            with pytest.raises(WorkflowAlreadyStartedError):
                await start("o-1", id_reuse_policy=IdReusePolicy.REJECT_DUPLICATE)
            again = await start("o-2", id_reuse_policy=IdReusePolicy.ALLOW_DUPLICATE)
            same = await start("o-3", id_conflict_policy=IdConflictPolicy.USE_EXISTING)
            assert (again.is_new, same.is_new, same.run_id) == (True, False, again.run_id)
            with pytest.raises(UsageError, match=r"'o-1' \(fulfil\): a run is not ended in a transaction of yours"):
                await start("o-4", id_conflict_policy=IdConflictPolicy.TERMINATE_EXISTING)
        assert await again.result() == "o-2 is shipped"


async def test_a_start_that_waited_for_another_transaction_finds_what_came_of_it(shop: Shop) -> None:
    if not shop.is_postgres:
        pytest.skip("on SQLite transactions come one after the other")
    for number, commits in enumerate((True, False)):
        async with shop.ledger.connect() as client:
            name = f"o-{number}"
            began, others = asyncio.Event(), asyncio.Event()

            async def first(client: Client, name: str, commits: bool, began: asyncio.Event, go: asyncio.Event) -> None:
                async with shop.transaction(client) as connection:
                    await client.start_workflow(fulfil, "one", id=name, connection=connection)
                    began.set()
                    await go.wait()
                    if not commits:
                        raise UndoError

            async def second(client: Client, name: str) -> bool | None:
                async with shop.transaction(client) as connection:
                    return (await client.start_workflow(fulfil, "one", id=name, connection=connection)).is_new

            one = asyncio.create_task(first(client, name, commits, began, others))
            await began.wait()
            two = asyncio.create_task(second(client, name))
            await until(lambda: waits_for_another(shop))
            others.set()
            await asyncio.wait([one])
            assert await two is not commits
            assert isinstance(one.exception(), UndoError) is not commits
            assert await client.count() == number + 1


def waits_for_another(shop: Shop) -> bool:
    with psycopg.connect(shop.conninfo) as connection:
        sql = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND position(%s IN query) > 0"
        return bool(connection.execute(sql, [f'INSERT INTO "{shop.schema}".chain']).fetchall())


async def test_a_ledger_in_memory_says_what_it_cannot(ledger: Ledger) -> None:
    if not ledger.url.startswith("memory:"):
        pytest.skip("about memory")
    async with ledger.connect() as client:
        with pytest.raises(UsageError, match=r"'o-1' cannot be started in the transaction .* this ledger is in memory"):
            await client.start_workflow(fulfil, "o-1", id="o-1", connection=object())
        with pytest.raises(UsageError, match="this ledger is in memory"):
            async with client.connection():
                pass
