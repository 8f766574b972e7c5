"""Workers under load on real servers that run out of connections, restart, crash, or are replaced by their replica.

Nobody is asked for anything: every run completes, every step has one result, and no process ever takes more connections
than it may.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import psycopg
import pytest

from pledger import connect
from pledger.store.postgres import PostgresStore
from pledger.store.postgres.budget import CONNECTIONS_MAX, LISTENERS_MAX
from pledger.testing.postgres import PostgresServer, postgres_server
from tests.outages.load import RUNS, STEPS, count_connections, effects, end_connections, fleet, half_way, load


def admin(server: PostgresServer, sql: str) -> None:
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(sql)  # type: ignore[call-overload] # the tests' own text


# Connections ----------------------------------------------------------------------------------------------------------


async def test_a_process_never_takes_more_connections_than_it_may(server: PostgresServer) -> None:
    most: Counter[str] = Counter()
    async with fleet(server.url + "?schema=ledger") as clients:
        working = asyncio.gather(*(load(client, first=100 * number) for number, client in enumerate(clients)))
        rounds = 0
        while not working.done():
            await asyncio.gather(*(client.count("status = 'running'") for client in clients))  # the reader of lists too
            most |= await asyncio.to_thread(count_connections, server.url)
            rounds += 1
            if rounds % 5 == 0:  # whoever was lost is replaced, not joined
                await asyncio.to_thread(end_connections, server.url)
        await working
        told = await clients[0].ledger()
    assert set(most) == {"process-0", "process-1"}
    assert max(most.values()) <= CONNECTIONS_MAX + LISTENERS_MAX
    assert max(most.values()) >= CONNECTIONS_MAX, "the test did not see what it is about"
    assert (told["connections_max"], told["listeners_max"]) == (CONNECTIONS_MAX, LISTENERS_MAX)
    assert told["connections"] <= CONNECTIONS_MAX
    assert told["server_connections"] <= told["server_connections_max"]
    assert count_connections(server.url) == Counter()


async def test_a_server_without_room_for_them_is_waited_for(server: PostgresServer) -> None:
    """All of them are lost, and none is to be had for a while: longer than one attempt, shorter than the lease."""
    admin(server, "CREATE ROLE shop LOGIN; GRANT CREATE ON DATABASE postgres TO shop")
    async with fleet(server.url.replace("postgres@", "shop@") + "?schema=ledger", workers=1) as [client]:
        working = asyncio.create_task(load(client))
        await half_way()
        admin(server, "ALTER ROLE shop CONNECTION LIMIT 0")
        end_connections(server.url)
        before = sum(effects.values())
        await asyncio.sleep(0.5)
        assert not working.done()
        assert sum(effects.values()) <= before + RUNS, "it worked on although it had no connection"
        admin(server, "ALTER ROLE shop CONNECTION LIMIT -1")
        await working
    assert set(effects.values()) == {1}, "no worker was lost: nothing is done twice"


async def test_who_no_longer_hears_finds_what_is_to_be_done(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every notification is lost, and the listeners with them: the safety poll is what is left."""
    monkeypatch.setattr(PostgresStore, "look_every_s", 0.2)
    async with fleet(server.url + "?schema=ledger") as _, connect(server.url + "?schema=ledger") as client:
        store = client.internals.store
        assert isinstance(store, PostgresStore)
        deaf = {**store._sql, "notify": "SELECT $1::text, $2::text[]"}
        store._sql = store._committer._sql = deaf
        await asyncio.to_thread(end_connections, server.url, listening=True)
        await load(client)
    assert set(effects.values()) == {1}


# Servers --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at_once", [False, True], ids=["restart", "crash"])
async def test_a_server_that_is_restarted_in_mid_run(place: Path, at_once: bool) -> None:
    with postgres_server(place / "server") as server:
        async with fleet(server.url + "?schema=ledger") as clients:
            working = asyncio.gather(*(load(client, first=100 * number) for number, client in enumerate(clients)))
            await half_way()
            await asyncio.to_thread(server.restart, at_once=at_once)
            await working
    assert len(effects) == 2 * RUNS * STEPS
    # At least once: a lease may have been lost meanwhile.
    assert set(effects.values()) <= {1, 2}


def replica_of(server: PostgresServer, directory: Path) -> PostgresServer:
    replica = PostgresServer(directory, of=server)
    replica.start()
    return replica


def both(server: PostgresServer, replica: PostgresServer) -> str:
    """The URL of whichever of them takes writes."""
    hosts = ",".join(each.url.partition("@")[2].partition("/")[0] for each in (server, replica))
    return f"postgresql://postgres@{hosts}/postgres?schema=ledger&target_session_attrs=read-write"


async def test_a_replica_that_takes_over_goes_on(place: Path) -> None:
    """It had everything: what was acknowledged was on both (synchronous replication)."""
    with postgres_server(place / "primary", synchronous_standby_names="*") as server:
        replica = replica_of(server, place / "replica")
        try:
            async with fleet(both(server, replica)) as clients:
                working = asyncio.gather(*(load(client, first=100 * number) for number, client in enumerate(clients)))
                await half_way()
                await asyncio.to_thread(server.stop, at_once=True)
                await asyncio.to_thread(replica.promote)
                await working
        finally:
            replica.stop()
    assert len(effects) == 2 * RUNS * STEPS
    assert set(effects.values()) <= {1, 2}
