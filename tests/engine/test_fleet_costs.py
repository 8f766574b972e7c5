"""What clients and workers on PostgreSQL cost the server: connections, and questions while they wait."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pledger import Client, activity, workflow
from pledger.engine import connection as connection_module
from pledger.store.postgres.links import Link
from tests.engine.conftest import lasting, place
from tests.engine.harness import Ledger, until

WAITERS = 1_000


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Ledger]:
    with place("postgres", tmp_path) as url:
        yield from lasting(url)


@workflow.defn
class Waits:
    def __init__(self) -> None:
        self.told = ""

    @workflow.run
    async def run(self) -> str:
        await workflow.wait_condition(lambda: self.told)
        return self.told

    @workflow.signal
    def tell(self, what: str) -> None:
        self.told = what


@activity.defn
async def done() -> None: ...


async def test_a_client_takes_five_connections_however_many_workers_and_waiters_it_has(server: Ledger) -> None:
    async with (
        server.connect() as client,
        server.worker(client, Waits),
        server.worker(client, done, task_queue="second"),
        server.worker(client, done, task_queue="third"),
    ):
        handle = await client.start_workflow(Waits, id="order-1")
        waiters = [asyncio.ensure_future(handle.result()) for _ in range(50)]
        await client.count()
        await until(lambda: opened(client, 4, 1))  # the last of them with the first heartbeat
        await handle.signal(Waits.tell, "done")
        assert set(await asyncio.gather(*waiters)) == {"done"}


async def opened(client: Client, connections: int, listeners: int) -> bool:
    told = await client.ledger()
    assert told["connections"] <= told["connections_max"] == 4
    assert told["listeners"] <= told["listeners_max"] == 1
    return (told["connections"], told["listeners"]) == (connections, listeners)


async def test_a_second_client_is_seen(server: Ledger) -> None:
    async with server.connect() as client:
        alone = (await client.ledger())["process_connections"]
        async with server.connect() as second:
            await second.count()
            told = await client.ledger()
            assert told["process_connections"] > alone
            assert told["connections"] <= told["connections_max"] == 4


async def test_a_thousand_waiters_ask_one_question_a_look(server: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """And have one listener; a look is made sooner here, so that nobody has to wait for it."""
    monkeypatch.setattr(connection_module, "CHECK_S", 0.02)
    runs = 4
    async with server.connect() as client, server.connect() as other, server.worker(other, Waits):
        handles = [await client.start_workflow(Waits, id=f"order-{n}") for n in range(runs)]
        waiters = [asyncio.ensure_future(handles[n % runs].result()) for n in range(WAITERS)]
        watchers = client.internals._watchers
        await until(lambda: sum(map(len, watchers.values())) == WAITERS)
        asked: Counter[str] = Counter()
        store: Any = client.internals.store
        counted(store, asked, monkeypatch)
        await until(lambda: asked["read_statuses"] >= 5)
        # All that this client says to the server while they wait is that one question, again and again.
        assert asked["statements"] - asked["read_statuses"] in {0, 1}
        assert (await client.ledger())["listeners"] == 1
        for handle in handles:
            await handle.signal(Waits.tell, "done")
        assert set(await asyncio.gather(*waiters)) == {"done"}


async def test_the_result_of_a_run_that_has_ended_is_two_questions(
    server: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its row, and what it has ended with."""
    async with server.connect() as client, server.connect() as other, server.worker(other, Waits):
        handle = await other.start_workflow(Waits, id="order-1")
        await handle.signal(Waits.tell, "done")
        assert await handle.result() == "done"
        asked: Counter[str] = Counter()
        counted(client.internals.store, asked, monkeypatch)
        assert await client.handle("order-1").result() == "done"
        assert asked["statements"] == 2


def counted(store: Any, asked: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Count the looks of the store, and all uses of its connections."""
    read, use = store.read_statuses, Link.use
    links = {store._reader, store._writer, store._lists}

    async def read_statuses(run_keys: Any) -> Any:
        asked["read_statuses"] += 1
        return await read(run_keys)

    def uses(self: Link) -> Any:
        asked["statements"] += self in links
        return use(self)

    monkeypatch.setattr(store, "read_statuses", read_statuses)
    monkeypatch.setattr(Link, "use", uses)
