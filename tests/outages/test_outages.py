"""Workers under load on real servers that run out of connections, restart, crash, or are replaced by their replica.

Nobody is asked for anything: every run completes, every step has one result, and no process ever takes more connections
than it may.
"""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from pathlib import Path

import psycopg
import pytest

from pledger import connect
from pledger.errors import WorkflowNotFoundError
from pledger.store.losses import JUMP
from pledger.store.postgres import PostgresStore
from pledger.store.postgres.quota import CONNECTIONS_MAX, LISTENERS_MAX
from pledger.testing.postgres import PostgresServer, postgres_server
from tests import servers
from tests.engine.harness import until
from tests.outages.load import (
    RUNS,
    STEPS,
    charges,
    count_connections,
    effects,
    end_connections,
    fleet,
    half_way,
    load,
)


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
    async with fleet(servers.changed(server.url, user="shop", schema="ledger"), workers=1) as [client]:
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
        store = client.internals.store._inner
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
    """It had everything: what was acknowledged was on both (synchronous replication), and the URL says so."""
    with postgres_server(place / "primary", synchronous_standby_names="*") as server:
        replica = replica_of(server, place / "replica")
        try:
            async with fleet(both(server, replica) + "&failover=lossless") as clients:
                working = asyncio.gather(*(load(client, first=100 * number) for number, client in enumerate(clients)))
                await half_way()
                await asyncio.to_thread(server.stop, at_once=True)
                await asyncio.to_thread(replica.promote)
                await working
            with psycopg.connect(replica.url) as connection:
                kept = dict(connection.execute("SELECT name, value FROM ledger.meta").fetchall())
        finally:
            replica.stop()
    assert len(effects) == 2 * RUNS * STEPS
    assert set(effects.values()) <= {1, 2}
    assert kept["timeline"] == "2"
    assert "declared_ms" not in kept


async def test_a_replica_that_lacks_the_tail_repeats_nothing_that_may_run_once(place: Path) -> None:
    """What was acknowledged after it stopped to follow is gone. Every run goes on from what is there; what may run once
    only is not begun again, and comes out as unknown."""
    names = [f"order-{number}" for number in range(RUNS)]
    with postgres_server(place / "primary", fsync="off") as server:
        replica = replica_of(server, place / "replica")
        try:
            async with fleet(both(server, replica)) as [client, other]:
                handles = await asyncio.gather(*(client.start_workflow(charges, each, id=each) for each in names))
                await until(lambda: sum(effects.values()) >= RUNS * STEPS / 4)
                await asyncio.to_thread(replica.stop, at_once=True)
                seen = sum(effects.values())
                await until(lambda: sum(effects.values()) >= seen + RUNS)
                late = await other.start_workflow(charges, "late", id="late")
                await asyncio.to_thread(server.stop, at_once=True)
                await asyncio.to_thread(replica.start)
                await asyncio.to_thread(replica.promote)
                outcomes = [await handle.result() for handle in handles]
                with pytest.raises(WorkflowNotFoundError):
                    await late.result()  # its start was in the part that is gone, and nobody waits for it for ever
                told = await client.ledger()
        finally:
            replica.stop()
    assert set(effects.values()) == {1}, "something was done twice"
    for name, found in zip(names, outcomes, strict=True):
        assert [each for each in found if each != "unknown"] == [
            f"{name}/{number}" for number, each in enumerate(found) if each != "unknown"
        ]
    assert any("unknown" in each for each in outcomes), "nothing was lost: the test did not see what it is about"
    assert told["loss_declared_ms"] is not None or told["runs_in_doubt"] == 0


async def test_a_copy_of_an_earlier_moment_in_the_place_of_the_server_is_found_out(place: Path) -> None:
    """Its timeline is the same; what it lacks is the newest mark of those who work on it."""
    with postgres_server(place / "primary", fsync="off") as server:
        async with fleet(server.url + "?schema=ledger", workers=1) as [client]:
            handle = await client.start_workflow(charges, "order-1", id="order-1")
            await handle.result()
            await asyncio.to_thread(server.stop)
            await asyncio.to_thread(shutil.copytree, server.data, place / "copy", symlinks=True)
            await asyncio.to_thread(server.start)
            lost = await client.start_workflow(charges, "order-2", id="order-2")
            await until(lambda: effects["order-2/0"] == 1)
            await asyncio.to_thread(server.stop, at_once=True)
            await asyncio.to_thread(server.restore, place / "copy")
            await asyncio.to_thread(server.start)
            with pytest.raises(WorkflowNotFoundError):
                await lost.result()
            assert await handle.result() == [f"order-1/{number}" for number in range(STEPS)]
            # The key of the run that is gone is not given again.
            again = await client.start_workflow(charges, "order-3", id="order-3")
            assert await again.result() == [f"order-3/{number}" for number in range(STEPS)]
            with psycopg.connect(server.url) as connection:
                keys = connection.execute("SELECT run_key FROM ledger.run ORDER BY run_key").fetchall()
                declared = connection.execute("SELECT value FROM ledger.meta WHERE name = 'declared_ms'").fetchall()
            assert len(declared) == 1
            assert keys[1][0] > keys[0][0] + JUMP
