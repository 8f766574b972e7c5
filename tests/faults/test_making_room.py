"""F23: retention removes what is finished, and an operator makes the database smaller, while it is written and read."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from datetime import timedelta

import apsw
import psycopg
import pytest

from pledger import Client, activity, workflow
from pledger.engine import sweeper
from pledger.errors import NoLongerKeptError
from pledger.store.postgres.address import parse_url
from tests.engine.harness import Ledger, until


@activity.defn
async def pack(number: int) -> int:
    await asyncio.sleep(0)
    return number


@workflow.defn
async def ship(count: int) -> int:
    return sum([await pack(number) for number in range(count)])


@workflow.defn
async def waits_for_its_end() -> str:
    await workflow.wait_condition(lambda: False)
    return "never"


def vacuum(ledger: Ledger) -> Callable[[], None]:
    """As docs/retention.md has it."""

    def of_a_file() -> None:
        with contextlib.closing(apsw.Connection(str(ledger.path))) as connection:
            connection.set_busy_timeout(10_000)
            connection.execute("VACUUM")

    def on_a_server() -> None:
        address = parse_url(ledger.url)
        with psycopg.connect(address.conninfo, autocommit=True) as connection:
            for table in ("history", "run", "task"):
                connection.execute(f"VACUUM FULL {address.quoted}.{table}")  # type: ignore[call-overload]

    return on_a_server if ledger.url.startswith("postgresql:") else of_a_file


async def test_a_ledger_is_made_smaller_while_it_is_in_use(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    if ledger.url.startswith("memory:"):
        pytest.skip("about databases")
    monkeypatch.setattr(sweeper, "PAUSE_S", 0.0)
    monkeypatch.setattr(sweeper, "REST_S", (0.01, 0.05))
    make_smaller = vacuum(ledger)

    async def work(client: Client, number: int) -> None:
        handles = [await client.start_workflow(ship, 4, id=f"order-{number}-{n}") for n in range(5)]
        for each in handles:
            with contextlib.suppress(NoLongerKeptError):  # it is kept for no time at all
                assert await each.result() == 6

    async def read(client: Client) -> None:
        while True:
            assert "kept" in [each.workflow_id async for each in client.list()]
            await asyncio.sleep(0.001)

    retention = {"retention": timedelta(0), "lease": timedelta(minutes=1)}
    async with ledger.connect() as client, ledger.worker(client, ship, waits_for_its_end, pack, **retention):
        kept = await client.start_workflow(waits_for_its_end, id="kept")
        reading = asyncio.create_task(read(client))
        for number in range(3):
            shrinking = asyncio.create_task(asyncio.to_thread(make_smaller))
            await work(client, number)
            await shrinking

        async def only_it_is_left() -> bool:
            return await client.count() == 1

        await until(only_it_is_left)
        reading.cancel()
        await asyncio.wait([reading])
        assert reading.cancelled(), reading.exception()
        # Its id is remembered, and what is open goes on.
        assert not (await client.start_workflow(ship, 4, id="order-0-0")).is_new
        await kept.terminate()
