"""`client.connection()`: a transaction on the user's own tables in the ledger's database."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Any

import apsw
import psycopg
import pytest

from pledger import SyncClient
from pledger.errors import StoreUnavailableError, UsageError
from pledger.store.sqlite import open_sqlite
from tests.engine.shop import Shop
from tests.engine.test_transactional_start import UndoError, fulfil, ship


def mark(shop: Shop) -> str:
    return "%s" if shop.is_postgres else "?"


async def test_what_is_done_in_the_block_is_committed_at_its_end(shop: Shop) -> None:
    async with shop.ledger.connect() as client, shop.ledger.worker(client, fulfil, ship):
        async with client.connection() as connection:
            await shop.insert(connection, "o-1")
            handle = await client.start_workflow(fulfil, "o-1", id="o-1", connection=connection)
            assert shop.orders() == []
        assert shop.orders() == ["o-1"]
        assert await handle.result() == "o-1 is shipped"


async def test_a_block_that_raises_leaves_nothing(shop: Shop) -> None:
    async with shop.ledger.connect() as client:
        with contextlib.suppress(UndoError):
            async with client.connection() as connection:
                await shop.insert(connection, "o-1")
                await client.start_workflow(fulfil, "o-1", id="o-1", connection=connection)
                raise UndoError
        assert await client.count() == 0
        async with client.connection():
            pass  # nothing is asked of it, and nothing comes of it
    assert shop.orders() == []


async def test_rows_come_as_from_a_cursor(shop: Shop) -> None:
    async with shop.ledger.connect() as client, client.connection() as connection:
        for order in ("a", "b", "c"):
            await shop.insert(connection, order)
        cursor = await connection.execute(f"SELECT id FROM {shop.table} ORDER BY id")
        assert await cursor.fetchone() == ("a",)
        assert await cursor.fetchall() == [("b",), ("c",)]
        assert await cursor.fetchone() is None
        cursor = await connection.execute(f"DELETE FROM {shop.table} WHERE id <> {mark(shop)}", ("b",))
        assert cursor.rowcount == 2
        cursor = await connection.execute(f"SELECT id FROM {shop.table}")
        assert [row async for row in cursor] == [("b",)]


def test_a_blocking_client_hands_out_a_blocking_connection(shop: Shop) -> None:
    with SyncClient(shop.ledger.url) as client:
        with client.connection() as connection:
            connection.execute(f"INSERT INTO {shop.table} VALUES ({mark(shop)})", ("o-1",))
            assert list(connection.execute(f"SELECT id FROM {shop.table}")) == [("o-1",)]
            client.start_workflow(fulfil, "o-1", id="o-1", connection=connection)
        with contextlib.suppress(UndoError), client.connection() as connection:
            connection.execute(f"INSERT INTO {shop.table} VALUES ({mark(shop)})", ("o-2",))
            client.start_workflow(fulfil, "o-2", id="o-2", connection=connection)
            raise UndoError
        assert client.count() == 1
    assert shop.orders() == ["o-1"]


TAKEN = (apsw.ConstraintError, psycopg.errors.UniqueViolation)
ENDED = "a statement (of the transaction has failed, and the server keeps nothing|has failed and has rolled the whole)"


async def test_what_a_statement_has_ended_is_not_taken_for_committed(shop: Shop) -> None:
    """Its error is caught. On SQLite, what comes after it would be committed by itself; on PostgreSQL, nothing would be
    kept, and no error would say so."""

    async def end(connection: Any) -> None:
        with pytest.raises(TAKEN):
            await connection.execute(shop.ending("o-1"))

    async def end_at_last() -> None:
        async with client.connection() as connection:
            await client.start_workflow(fulfil, "o-2", id="o-2", connection=connection)
            await end(connection)

    async def end_and_go_on() -> None:
        async with client.connection() as connection:
            await end(connection)
            with pytest.raises(UsageError):
                await client.start_workflow(fulfil, "o-3", id="o-3", connection=connection)
            with pytest.raises((UsageError, psycopg.errors.InFailedSqlTransaction)):
                await shop.insert(connection, "o-3")

    async with shop.ledger.connect() as client:
        async with client.connection() as connection:
            await shop.insert(connection, "o-1")
        for block in (end_at_last, end_and_go_on):
            with pytest.raises(UsageError, match=ENDED):
                await block()
        assert await client.count() == 0
        async with client.connection() as connection:
            await shop.insert(connection, "o-4")
    assert shop.orders() == ["o-1", "o-4"]


def test_a_blocking_connection_notices_too(shop: Shop) -> None:
    def end() -> None:
        with client.connection() as connection:
            client.start_workflow(fulfil, "o-2", id="o-2", connection=connection)
            with pytest.raises(TAKEN):
                connection.execute(shop.ending("o-1"))

    with SyncClient(shop.ledger.url) as client:
        with client.connection() as connection:
            connection.execute(shop.ending("o-1"))
        with pytest.raises(UsageError, match=ENDED):
            end()
        assert client.count() == 0


# SQLite ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("UPDATE pledger_run SET status = 'completed'", "tables whose names begin with pledger_ are the ledger's own"),
        ("DELETE FROM PLEDGER_MESSAGE", "are the ledger's own"),
        ("DROP TABLE pledger_run", "are the ledger's own"),
        ("CREATE INDEX mine ON pledger_run (status)", "are the ledger's own"),
        ("CREATE TABLE pledger_mine (id)", "are the ledger's own"),
        (
            "CREATE TRIGGER mine AFTER INSERT ON pledger_run BEGIN DELETE FROM shop_order; END",
            "are the ledger's own",
        ),
        ("ALTER TABLE pledger_run ADD COLUMN mine", "are the ledger's own"),
        ("COMMIT", "the transaction is ended by the block that gave the connection"),
        ("ROLLBACK", "the transaction is ended by the block"),
        ("ATTACH 'other.db' AS other", "no other file is attached to a ledger"),
        ("PRAGMA user_version = 99", "PRAGMA user_version is not for a connection to a ledger"),
        ("PRAGMA synchronous = OFF", "PRAGMA synchronous is not for"),
    ],
)
async def test_what_would_harm_the_ledger_is_refused_and_the_rest_stands(sqlite_shop: Shop, sql: str, why: str) -> None:
    async with sqlite_shop.ledger.connect() as client:
        async with client.connection() as connection:
            await sqlite_shop.insert(connection, "o-1")
            with pytest.raises(UsageError, match=why):
                await connection.execute(sql)
            await client.start_workflow(fulfil, "o-1", id="o-1", connection=connection)
        assert await client.count() == 1
    assert sqlite_shop.orders() == ["o-1"]


async def test_a_trigger_that_writes_to_the_ledger_is_refused_where_it_would(sqlite_shop: Shop) -> None:
    async with sqlite_shop.ledger.connect() as client, client.connection() as connection:
        await connection.execute(
            "CREATE TRIGGER mine AFTER INSERT ON shop_order BEGIN UPDATE pledger_run SET claims = 0; END"
        )
        with pytest.raises(UsageError, match="are the ledger's own"):
            await sqlite_shop.insert(connection, "o-1")
        await connection.execute("DROP TRIGGER mine")


async def test_tables_can_be_looked_at_and_made(sqlite_shop: Shop) -> None:
    async with sqlite_shop.ledger.connect() as client, client.connection() as connection:
        await connection.execute("CREATE TABLE line (id INTEGER PRIMARY KEY, shop_order TEXT REFERENCES shop_order)")
        await connection.execute("SAVEPOINT mine")
        with pytest.raises(apsw.ConstraintError):  # foreign keys hold
            await connection.execute("INSERT INTO line (shop_order) VALUES (:order)", {"order": "nobody"})
        await connection.execute("ROLLBACK TO mine")
        assert await (await connection.execute("SELECT count(*) FROM pledger_run")).fetchall() == [(0,)]
        columns = await (await connection.execute("PRAGMA table_info (line)")).fetchall()
        assert [name for _, name, *_ in columns] == ["id", "shop_order"]


async def test_a_file_that_cannot_be_opened_is_the_ledgers_failure(
    sqlite_shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of any other call: the connection of a transaction is one more than those that are open."""

    def connect_guest(*_: object, **__: object) -> None:
        raise apsw.CantOpenError("unable to open database file")

    async with sqlite_shop.ledger.connect() as client, client.connection() as connection:
        monkeypatch.setattr("pledger.store.sqlite.guest.connect_guest", connect_guest)
        with pytest.raises(StoreUnavailableError, match=r"ledger.*unable to open database file"):
            await client.start_workflow(fulfil, "o-1", id="o-1", connection=connection)


async def test_a_transaction_that_keeps_others_from_writing_is_ended(
    sqlite_shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pledger.store.sqlite.guest.OPEN_MAX_S", 0.05)
    async with sqlite_shop.ledger.connect() as client:

        async def wait_for_itself() -> None:
            async with client.connection() as connection:
                await sqlite_shop.insert(connection, "o-1")
                await client.start_workflow(fulfil, "o-2", id="o-2")  # which waits for this transaction

        with pytest.raises(UsageError, match=r"was open for 0\.05 s, in which nobody else could write"):
            await wait_for_itself()
        assert await client.count() == 1
    assert sqlite_shop.orders() == []


async def test_an_endless_statement_of_a_thread_is_ended_too(
    sqlite_shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pledger.store.sqlite.guest.OPEN_MAX_S", 0.05)
    async with sqlite_shop.ledger.connect() as client:
        transaction = client.internals.store.blocking_transaction()
        endless = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"

        def run() -> None:
            try:
                transaction.connection.execute(endless)
            finally:
                transaction.close()

        with pytest.raises(apsw.InterruptError):
            await asyncio.to_thread(run)
        async with client.connection() as connection:
            await sqlite_shop.insert(connection, "o-1")
    assert sqlite_shop.orders() == ["o-1"]


async def test_the_connection_is_of_no_use_after_its_block(sqlite_shop: Shop) -> None:
    async with sqlite_shop.ledger.connect() as client:
        async with client.connection() as connection:
            await sqlite_shop.insert(connection, "o-1")
        with pytest.raises(UsageError, match="the transaction is committed; nothing more"):
            await sqlite_shop.insert(connection, "o-2")
        with pytest.raises(UsageError, match="the transaction is committed"):
            await client.start_workflow(fulfil, "o-2", id="o-2", connection=connection)
    assert sqlite_shop.orders() == ["o-1"]


async def test_connections_of_others_are_refused(sqlite_shop: Shop, tmp_path: Any) -> None:
    other = open_sqlite(tmp_path / "other.db")
    async with sqlite_shop.ledger.connect() as client:
        for connection, why in (
            (apsw.Connection(":memory:"), "another library's would lose the ledger's locks"),
            (other.transaction().connection, r"is one to .*other\.db, not to .*ledger\.db"),
        ):
            with pytest.raises(UsageError, match=why):
                await client.start_workflow(fulfil, "o-1", id="o-1", connection=connection)
        assert await client.count() == 0
    await other.close()


async def test_the_loop_goes_on_while_another_process_writes(sqlite_shop: Shop) -> None:
    path = str(sqlite_shop.ledger.path)
    async with sqlite_shop.ledger.connect() as client:
        with contextlib.closing(apsw.Connection(path)) as other:  # as another process would
            other.execute("BEGIN IMMEDIATE")

            async def write() -> None:
                async with client.connection() as connection:
                    await sqlite_shop.insert(connection, "o-1")

            waiting = asyncio.create_task(write())
            assert await client.count() == 0
            assert not waiting.done()
            other.execute("ROLLBACK")
            await waiting
    assert sqlite_shop.orders() == ["o-1"]


async def test_who_waits_too_long_for_others_is_told(sqlite_shop: Shop) -> None:
    path = str(sqlite_shop.ledger.path)
    async with sqlite_shop.ledger.connect() as client:
        client.internals.store._database.lane.busy_timeout_ms = 20
        with contextlib.closing(apsw.Connection(path)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreUnavailableError, match="another process holds the database's write lock"):
                async with client.connection() as connection:
                    await sqlite_shop.insert(connection, "o-1")


async def test_two_transactions_take_turns(sqlite_shop: Shop) -> None:
    async with sqlite_shop.ledger.connect() as client:

        async def add(order: str) -> None:
            async with client.connection() as connection:
                await sqlite_shop.insert(connection, order)
                await asyncio.sleep(0)

        await asyncio.gather(*(add(f"o-{number}") for number in range(5)))
    assert sqlite_shop.orders() == [f"o-{number}" for number in range(5)]


# PostgreSQL -----------------------------------------------------------------------------------------------------------


async def test_a_statement_that_commits_is_told(postgres_shop: Shop) -> None:
    async with postgres_shop.ledger.connect() as client:

        async def end() -> None:
            async with client.connection() as connection:
                await connection.execute("ROLLBACK")

        with pytest.raises(UsageError, match="the transaction was ended by a statement"):
            await end()
        async with client.connection() as connection:
            await postgres_shop.insert(connection, "o-1")
    assert postgres_shop.orders() == ["o-1"]


async def test_the_connection_takes_the_place_of_the_lists(postgres_shop: Shop) -> None:
    async with postgres_shop.ledger.connect() as client:
        await client.count()
        async with client.connection() as connection:
            assert await client.count() == 0
            ledger = await client.ledger()
            assert ledger["connections"] <= ledger["connections_max"] == 4
            with pytest.raises(psycopg.ProgrammingError, match="commit"):
                await connection.commit()
            [(isolation,)] = await (await connection.execute("SHOW transaction_isolation")).fetchall()
            assert isolation == "read committed"


async def test_a_second_one_waits_for_the_first(postgres_shop: Shop) -> None:
    shop = postgres_shop
    async with shop.ledger.connect() as client:

        async def add(order: str) -> None:
            async with client.connection() as connection:
                await shop.insert(connection, order)

        await asyncio.gather(*(add(f"o-{number}") for number in range(5)))
        client.internals.store.patience_s = 0.05
        async with client.connection():
            with pytest.raises(StoreUnavailableError, match="all 1 connections for transactions are in use"):
                await add("never")
    assert len(shop.orders()) == 5


async def test_a_lost_connection_is_replaced(postgres_shop: Shop) -> None:
    shop = postgres_shop
    async with shop.ledger.connect() as client:
        with contextlib.suppress(psycopg.OperationalError):
            async with client.connection() as connection:
                await shop.insert(connection, "lost")
                with psycopg.connect(shop.conninfo, autocommit=True) as admin:
                    admin.execute("SELECT pg_terminate_backend(%s, 5000)", [connection.info.backend_pid])
                await shop.insert(connection, "never")
        async with client.connection() as connection:
            await shop.insert(connection, "o-1")
    assert shop.orders() == ["o-1"]


def test_threads_of_a_blocking_client_take_turns(postgres_shop: Shop) -> None:
    shop = postgres_shop
    with SyncClient(shop.ledger.url) as client:

        def add(order: str) -> None:
            with client.connection() as connection:
                connection.execute(f"INSERT INTO {shop.table} VALUES (%s)", [order])

        threads = [threading.Thread(target=add, args=[f"o-{number}"]) for number in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(shop.orders()) == 5
