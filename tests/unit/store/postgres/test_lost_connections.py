"""A connection that is lost around a commit: what became of it is looked up, never guessed."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pledger.engine.port.answers import Existing, Reply, Sent, Started
from pledger.errors import StoreUnavailableError
from pledger.store.postgres import PostgresStore, links, open_postgres
from pledger.store.postgres.address import parse_url
from pledger.store.postgres.commit import Committer, Doubt, StillRunningError
from pledger.store.postgres.found import Found
from pledger.store.postgres.patience import write_patiently
from tests import servers
from tests.conformance.harness import append, claim, open_session, owned_run, ownerless_run, signal, start, write
from tests.engine.harness import until


@functools.cache
def is_a_socket(server: str) -> bool:
    return servers.admin("SELECT client_port FROM pg_stat_activity WHERE pid = pg_backend_pid()", server) == [(-1,)]


@pytest.fixture(autouse=True)
def _whose_it_is_can_be_told() -> None:
    if is_a_socket(servers.url()):
        pytest.skip("over a Unix socket nobody can tell whose a session is, and other tests share the server")


def end_sessions(url: str, purpose: str) -> None:
    """What an administrator, a crash or a broken network does to them; to those of this process, since other tests
    share the server."""
    with psycopg.connect(parse_url(url).conninfo, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE application_name = %s AND client_port = ANY(%s)",
            [f"pledger {purpose}", own_ports()],
        )


def own_ports() -> list[int]:
    """Of this process's connections."""
    names = set()
    for file in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # that of this very list is closed by now
            names.add(str(file.readlink()))
    lines = [line.split() for table in ("tcp", "tcp6") for line in Path("/proc/net", table).read_text().splitlines()]
    return [int(line[1].rpartition(":")[2], 16) for line in lines if f"socket:[{line[9]}]" in names]


def once(action: Callable[[], None]) -> Callable[[str], None]:
    """A hook that acts before the first commit."""
    left = [action]

    def hook(phase: str) -> None:
        if phase == "before" and left:
            left.pop()()

    return hook


async def transitions(store: PostgresStore, run_key: int) -> int:
    return len(await store.read_history(run_key))


async def test_a_batch_that_was_lost_before_its_commit_is_written_again(url: str) -> None:
    store = await open_postgres(url, on_commit=once(lambda: end_sessions(url, "writer")))
    answer = await write(store, start())
    assert isinstance(answer, Started)
    assert isinstance(await write(store, start()), Existing)
    await store.close()


async def test_a_plain_step_that_was_lost_is_written_again(url: str) -> None:
    armed: list[Callable[[], None]] = []
    store = await open_postgres(url, on_commit=lambda phase: armed.pop()() if phase == "before" and armed else None)
    run = await owned_run(store, await open_session(store))
    armed.append(lambda: end_sessions(url, "writer"))
    assert await write(store, append(run)) is Reply.WON
    assert not armed
    assert await transitions(store, run.run_key) == 2
    await store.close()


@pytest.mark.parametrize("committed", [True, False])
async def test_an_answer_that_was_lost_is_looked_up(url: str, monkeypatch: pytest.MonkeyPatch, committed: bool) -> None:
    store = await open_postgres(url)
    run = await owned_run(store, await open_session(store))
    rule = Committer._carry_out
    lost = []

    async def carry_out(self: Committer, connection: Any, writes: Any, answers: Any, *, commit: bool) -> Any:
        if lost:
            return await rule(self, connection, writes, answers, commit=commit)
        lost.append(True)
        await rule(self, connection, writes, answers, commit=committed)
        await connection.close()
        raise psycopg.OperationalError("simulated: the answer was lost")

    monkeypatch.setattr(Committer, "_carry_out", carry_out)
    written: list[int] = []
    inserted = Committer._write_round

    async def write_round(self: Committer, *args: Any, **options: Any) -> None:
        written.append(1)
        await inserted(self, *args, **options)

    monkeypatch.setattr(Committer, "_write_round", write_round)
    # Without a memory of its id a signal that is sent twice would be there twice.
    assert await write(store, signal(run, keep_id=False)) == Sent(run.owner)
    assert len(written) == (1 if committed else 2)
    assert len(await store.read_inbox(run.chain_key)) == 1
    await store.close()


async def test_a_read_outlives_its_connection(url: str) -> None:
    store = await open_postgres(url)
    run = await owned_run(store, await open_session(store))
    end_sessions(url, "reader")
    assert (await store.read_run(run.run_key)).run_key == run.run_key
    await store.close()


async def test_a_heartbeat_outlives_its_connection(url: str) -> None:
    store = await open_postgres(url)
    session = await open_session(store)
    assert store.renew_session(session, 1_000) is not None
    end_sessions(url, "heartbeat")
    with pytest.raises(StoreUnavailableError, match="was lost"):
        store.renew_session(session, 1_000)
    assert store.renew_session(session, 1_000) is not None
    await store.close()


async def test_who_waits_hears_again_after_its_listener_was_lost(url: str) -> None:
    store, other = await open_postgres(url), await open_postgres(url)
    await open_session(store)
    assert await store.wait_for_change(10.0)  # it has begun to listen
    end_sessions(url, "listener")
    assert await store.wait_for_change(10.0)  # it does again, and may have missed something
    await write(other, start())
    assert await store.wait_for_change(10.0)
    await store.close()
    await other.close()


async def test_a_server_that_is_not_there_is_told_soon_when_a_ledger_is_opened(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("pledger.store.postgres.store.OPENING_PATIENCE_S", 0.1)
    with pytest.raises(StoreUnavailableError, match="Check that it runs, and the host and port"):
        await open_postgres("postgresql://127.0.0.1:1/nowhere")
    [told] = [each.getMessage() for each in caplog.records]
    assert told.startswith("postgresql://127.0.0.1:1/nowhere?schema=pledger cannot be reached; trying again for 0.1 s")


async def test_a_transaction_that_has_the_id_of_a_lost_one_is_not_taken_for_it(url: str) -> None:
    """After a crash, or on a replica that has taken over, ids are given again: what counts is the mark."""
    store = await open_postgres(url)
    await write(store, start())
    committer = store._committer
    async with store._writer.use() as connection:
        [(transaction,)] = await (await connection.execute("SELECT xmin::text FROM pg_class LIMIT 1")).fetchall()
        answers: list[Any] = [Reply.WON]
        assert await committer.resolve(connection, Doubt(transaction, 1, answers)) is answers
        assert await committer.resolve(connection, Doubt(transaction, 2, answers)) is None
        of_the_future = str(2**40)
        assert await committer.resolve(connection, Doubt(of_the_future, 2, answers)) is None
    await store.close()


async def test_a_transaction_that_is_on_its_way_is_waited_for(url: str) -> None:
    store = await open_postgres(url)
    await write(store, start())
    with psycopg.connect(url.partition("?")[0]) as other:
        [transaction] = other.execute("SELECT pg_current_xact_id()::text").fetchone() or [""]
        async with store._writer.use() as connection:
            with pytest.raises(StillRunningError):
                await store._committer.resolve(connection, Doubt(transaction, 1, []))
    await store.close()


async def test_a_transaction_that_never_ends_is_not_waited_for_without_end(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its id is somebody else's by now: a replica has taken over."""
    store = await open_postgres(url)
    run = await owned_run(store, await open_session(store))
    clock = itertools.count(step=5.0)
    with psycopg.connect(url.partition("?")[0]) as other:
        [transaction] = other.execute("SELECT pg_current_xact_id()::text").fetchone() or [""]

        async def lose(self: Committer, connection: Any, batch: Any) -> Any:
            self.doubt = Doubt(transaction, 99, [])
            await connection.close()
            raise psycopg.OperationalError("simulated: the answer was lost")

        with monkeypatch.context() as patch:
            patch.setattr(Committer, "write", lose)
            with pytest.raises(StillRunningError, match="is still on its way"):
                await write_patiently(
                    store._committer, store._writer, [append(run)], patience_s=20.0, monotonic=lambda: next(clock)
                )
        assert await store.commit([append(run)]) == [Reply.WON]
    await store.close()


async def test_steps_of_which_some_were_lost_leave_no_doubt_of_the_others(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answers of those that are asked again are not those of the batch."""
    store = await open_postgres(url)
    session = await open_session(store)
    runs = [await owned_run(store, session, f"order-{n}") for n in range(3)]
    rule = Committer._carry_out
    lost = []

    async def carry_out(self: Committer, connection: Any, writes: Any, answers: Any, *, commit: bool) -> Any:
        found = await rule(self, connection, writes, answers, commit=commit)
        if not lost:
            lost.append(True)
            await connection.close()
            raise psycopg.OperationalError("simulated: the answer was lost")
        return found

    monkeypatch.setattr(Committer, "_carry_out", carry_out)
    batch = [append(runs[0]), append(runs[1], fence=7), append(runs[2])]
    assert await store.commit(batch) == [Reply.WON, Reply.LOST, Reply.WON]
    assert lost
    await store.close()


async def test_a_server_that_takes_no_writes_is_unavailable_and_blames_no_operation(url: str) -> None:
    store = await open_postgres(url)
    run = await owned_run(store, await open_session(store))
    store.patience_s = 0.0
    async with store._writer.use() as connection:
        await connection.execute("SET default_transaction_read_only = on")
    with pytest.raises(StoreUnavailableError, match="takes no writes"):
        await store.commit([signal(run)])
    with pytest.raises(StoreUnavailableError, match="takes no writes"):
        await store.commit([append(run)])
    await store.close()


async def test_who_stands_still_between_two_round_trips_holds_no_lock_for_long(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server ends its transaction: it counts as idle from the moment on when it has answered."""
    monkeypatch.setitem(links._SETTINGS, "idle_in_transaction_session_timeout", "100 ms")
    still, other = await open_postgres(url), await open_postgres(url)
    run = await owned_run(still, await open_session(still))
    assert still._writer._connection is not None
    pid = still._writer._connection.info.backend_pid
    sessions: list[Any] = []
    found = Found.take

    def take(self: Found, *args: Any) -> None:
        """The process is stopped as soon as the first answer is there: nothing of it runs."""
        monkeypatch.setattr(Found, "take", found)
        time.sleep(0.5)  # real: it is the server's clock that counts
        with psycopg.connect(still.address.conninfo) as connection:
            sessions.extend(connection.execute("SELECT state FROM pg_stat_activity WHERE pid = %s", [pid]))
        found(self, *args)

    monkeypatch.setattr(Found, "take", take)
    assert await write(still, signal(run)) == Sent(run.owner)  # written again, over another connection
    assert sessions == []
    assert len(await other.read_inbox(run.chain_key)) == 1
    await still.close()
    await other.close()


async def test_who_stands_still_within_a_round_trip_holds_no_lock_for_long_either(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped between two statements that go out together: to the server that is no rest, whatever it waits for."""
    monkeypatch.setattr(links, "TRANSACTION_MAX", "200 ms")
    still, other = await open_postgres(url), await open_postgres(url)
    run = await owned_run(still, await open_session(still))
    answers: list[Any] = []

    async def stand_still(watch: psycopg.Connection[Any]) -> None:
        async with still._writer.use() as connection, links.pipelined(connection):
            await connection.execute("BEGIN")
            await connection.execute(still._sql["lock_runs"], [[run.run_key], []])
            # Sent, and no more: the lock is there once its transaction has a number.
            has_lock = "SELECT FROM pg_locks WHERE pid = %s AND locktype = 'transactionid'"
            await until(lambda: watch.execute(has_lock, [connection.info.backend_pid]).fetchall())
            answers.append(await write(other, append(run)))  # it waits, but less than for ever

    with psycopg.connect(still.address.conninfo, autocommit=True) as watch, pytest.raises(StoreUnavailableError):
        await stand_still(watch)
    assert answers == [Reply.WON]
    assert await write(still, signal(run)) == Sent(run.owner)
    await still.close()
    await other.close()


async def test_a_server_goes_on_with_what_a_lost_connection_has_asked(url: str) -> None:
    """So a claim takes effect after it has failed: what `outlives_s` is for. Here it waits for a lock meanwhile."""
    store = await open_postgres(url)
    session = await open_session(store)
    run = await ownerless_run(store)
    assert store._writer._connection is not None
    pgconn = store._writer._connection.pgconn
    place, schema = store.address.conninfo, store.address.schema
    with psycopg.connect(place) as lock, psycopg.connect(place, autocommit=True) as watch:
        lock.execute(f"SELECT FROM {schema}.session FOR UPDATE")  # type: ignore[call-overload]
        claiming = asyncio.create_task(claim(store, session))
        waits = "SELECT FROM pg_stat_activity WHERE pid = %s AND wait_event_type = 'Lock'"
        await until(lambda: watch.execute(waits, [pgconn.backend_pid]).fetchall())
        with socket.socket(fileno=os.dup(pgconn.socket)) as wire:
            wire.shutdown(socket.SHUT_RDWR)
        with pytest.raises(StoreUnavailableError, match="lost"):
            await claiming
        assert (await store.read_run(run.run_key)).owner is None
    await until(lambda: owner_of(store, run.run_key))
    assert await owner_of(store, run.run_key) == session
    await store.close()


async def owner_of(store: PostgresStore, run_key: int) -> int | None:
    return (await store.read_run(run_key)).owner


async def test_a_loss_is_declared_however_long_that_takes(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All open runs are written: the bound of a transaction that takes locks is that of steps."""
    monkeypatch.setattr(links, "TRANSACTION_MAX", "100 ms")
    store = await open_postgres(url)
    await ownerless_run(store)
    store._sql = {**store._sql, "drop_all_wakes": "SELECT pg_sleep(0.3)"}  # real: it is the server's clock that counts
    assert await store.declare_loss() == 1
    await store.close()
