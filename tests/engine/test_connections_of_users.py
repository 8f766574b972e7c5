"""What users hand in as `connection=`: every kind that works, and what is said of those that cannot."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import psycopg
import pytest
from psycopg.types.numeric import IntLoader

from pledger import Client, SyncClient, connect
from pledger.errors import StoreUnavailableError, UsageError, WorkflowAlreadyStartedError
from tests import servers
from tests.engine.shop import Shop
from tests.engine.test_transactional_start import UndoError, fulfil, ship

sqlalchemy = pytest.importorskip("sqlalchemy", reason="a development dependency: make installs it")
orm = pytest.importorskip("sqlalchemy.orm")
sqlalchemy_asyncio = pytest.importorskip("sqlalchemy.ext.asyncio")

Opener = Callable[[str], contextlib.AbstractAsyncContextManager[Any]]


def _sqlalchemy(conninfo: str) -> str:
    return conninfo.replace("postgresql://", "postgresql+psycopg://")


@contextlib.asynccontextmanager
async def psycopg_async(conninfo: str) -> AsyncIterator[Any]:
    async with await psycopg.AsyncConnection.connect(conninfo) as connection:
        yield connection


@contextlib.asynccontextmanager
async def psycopg_blocking(conninfo: str) -> AsyncIterator[Any]:
    with psycopg.connect(conninfo) as connection:
        yield connection


@contextlib.asynccontextmanager
async def psycopg_taught_otherwise(conninfo: str) -> AsyncIterator[Any]:
    """Rows are mappings, numbers texts, and statements are bound by the client."""

    class Texts(IntLoader):
        def load(self, data: Any) -> Any:
            return f"number {bytes(data).decode()}"

    async with await psycopg.AsyncConnection.connect(
        conninfo, row_factory=psycopg.rows.dict_row, cursor_factory=psycopg.AsyncClientCursor
    ) as connection:
        connection.adapters.register_loader("int8", Texts)
        connection.adapters.register_loader("text", Texts)
        yield connection


@contextlib.asynccontextmanager
async def psycopg_pipeline(conninfo: str) -> AsyncIterator[Any]:
    async with await psycopg.AsyncConnection.connect(conninfo) as connection, connection.pipeline():
        yield connection


@contextlib.asynccontextmanager
async def psycopg_block(conninfo: str) -> AsyncIterator[Any]:
    async with await psycopg.AsyncConnection.connect(conninfo, autocommit=True) as connection, connection.transaction():
        yield connection


@contextlib.asynccontextmanager
async def psycopg_serializable(conninfo: str) -> AsyncIterator[Any]:
    async with await psycopg.AsyncConnection.connect(conninfo) as connection:
        await connection.set_isolation_level(psycopg.IsolationLevel.SERIALIZABLE)
        yield connection


@contextlib.asynccontextmanager
async def sqlalchemy_connection(conninfo: str) -> AsyncIterator[Any]:
    engine = sqlalchemy.create_engine(_sqlalchemy(conninfo))
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


@contextlib.asynccontextmanager
async def sqlalchemy_session(conninfo: str) -> AsyncIterator[Any]:
    engine = sqlalchemy.create_engine(_sqlalchemy(conninfo))
    try:
        with orm.Session(engine) as session, session.begin():
            yield session
    finally:
        engine.dispose()


@contextlib.asynccontextmanager
async def sqlalchemy_async_connection(conninfo: str) -> AsyncIterator[Any]:
    engine = sqlalchemy_asyncio.create_async_engine(_sqlalchemy(conninfo))
    try:
        async with engine.begin() as connection:
            yield connection
    finally:
        await engine.dispose()


@contextlib.asynccontextmanager
async def sqlalchemy_async_session(conninfo: str) -> AsyncIterator[Any]:
    engine = sqlalchemy_asyncio.create_async_engine(_sqlalchemy(conninfo))
    try:
        async with sqlalchemy_asyncio.AsyncSession(engine) as session, session.begin():
            yield session
    finally:
        await engine.dispose()


class WrappedConnection:
    """As Django's: the driver's connection is an attribute."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection


@contextlib.asynccontextmanager
async def wrapped(conninfo: str) -> AsyncIterator[Any]:
    with psycopg.connect(conninfo) as connection:
        yield WrappedConnection(connection)


OPENERS = [
    psycopg_async,
    psycopg_blocking,
    psycopg_taught_otherwise,
    psycopg_pipeline,
    psycopg_block,
    psycopg_serializable,
    sqlalchemy_connection,
    sqlalchemy_session,
    sqlalchemy_async_connection,
    sqlalchemy_async_session,
    wrapped,
]


@pytest.mark.parametrize("opener", OPENERS, ids=lambda opener: opener.__name__)
async def test_every_kind_of_connection_commits_and_rolls_back_the_start(postgres_shop: Shop, opener: Opener) -> None:
    shop = postgres_shop
    async with shop.ledger.connect() as client, shop.ledger.worker(client, fulfil, ship):
        async with opener(shop.conninfo) as connection:
            kept = await client.start_workflow(fulfil, "kept", id="kept", connection=connection)
            # A second round on the same connection, and a refusal that harms nothing.
            assert not (await client.start_workflow(fulfil, "kept", id="kept", connection=connection)).is_new
            with pytest.raises(WorkflowAlreadyStartedError):
                await client.start_workflow(fulfil, "other", id="kept", connection=connection)
        with contextlib.suppress(UndoError):
            async with opener(shop.conninfo) as connection:
                await client.start_workflow(fulfil, "undone", id="undone", connection=connection)
                raise UndoError
        assert await kept.result() == "kept is shipped"
        assert await client.count() == 1


def test_a_blocking_client_takes_blocking_connections(postgres_shop: Shop) -> None:
    shop = postgres_shop
    with SyncClient(shop.ledger.url) as client:
        with psycopg.connect(shop.conninfo) as connection:
            connection.execute(f"INSERT INTO {shop.table} VALUES ('o-1')")
            handle = client.start_workflow(fulfil, "o-1", id="o-1", connection=connection)
        engine = sqlalchemy.create_engine(_sqlalchemy(shop.conninfo))
        with orm.Session(engine) as session:
            client.start_workflow(fulfil, "o-2", id="o-2", connection=session)
            session.rollback()
        engine.dispose()
        assert handle.describe().summary.workflow_id == "o-1"
        assert client.count() == 1


async def test_a_blocking_client_refuses_a_connection_of_another_loop(postgres_shop: Shop) -> None:
    client = await asyncio.to_thread(SyncClient, postgres_shop.ledger.url)
    async with await psycopg.AsyncConnection.connect(postgres_shop.conninfo) as connection:
        with pytest.raises(UsageError, match="belongs to an event loop"):
            client.start_workflow(fulfil, "o-1", id="o-1", connection=connection)
    await asyncio.to_thread(client.close)


async def test_a_blocking_start_that_waits_for_a_lock_leaves_the_loop_alone(postgres_shop: Shop) -> None:
    shop = postgres_shop
    async with shop.ledger.connect() as client:
        with psycopg.connect(shop.conninfo) as one, psycopg.connect(shop.conninfo) as two:
            await client.start_workflow(fulfil, "o-1", id="o-1", connection=one)
            waiting = asyncio.create_task(client.start_workflow(fulfil, "o-1", id="o-1", connection=two))
            assert await client.count() == 0  # whoever asks is answered
            assert not waiting.done()
            one.rollback()
            assert (await waiting).is_new


# What cannot be -------------------------------------------------------------------------------------------------------


async def refused(client: Client, connection: object, match: str) -> None:
    with pytest.raises(UsageError, match=match):
        await client.start_workflow(fulfil, "o-1", id="o-1", connection=connection)


async def test_a_connection_that_would_commit_by_itself_is_refused(postgres_shop: Shop) -> None:
    async with postgres_shop.ledger.connect() as client:
        async with await psycopg.AsyncConnection.connect(postgres_shop.conninfo, autocommit=True) as connection:
            await refused(client, connection, "is in autocommit mode and in no transaction")
        await refused(client, connection, "is closed")
        assert await client.count() == 0


async def test_a_transaction_that_has_failed_is_refused(postgres_shop: Shop) -> None:
    conninfo = postgres_shop.conninfo
    async with postgres_shop.ledger.connect() as client, await psycopg.AsyncConnection.connect(conninfo) as connection:
        with pytest.raises(psycopg.errors.DivisionByZero):
            await connection.execute("SELECT 1 / 0")
        await refused(client, connection, "a statement has failed before")
        await connection.rollback()


async def test_what_is_no_connection_is_refused(postgres_shop: Shop, tmp_path: Any) -> None:
    async with postgres_shop.ledger.connect() as client:
        await refused(client, object(), r"is builtins\.object; give a connection of psycopg 3")
        engine = sqlalchemy.create_engine("sqlite://")
        with engine.connect() as connection:
            await refused(client, connection, r"is sqlite3\.Connection; give a connection of psycopg 3")
        engine.dispose()


async def test_a_connection_to_another_database_is_refused_and_goes_on(postgres_shop: Shop) -> None:
    shop = postgres_shop
    servers.needs_superuser()
    other = f"{shop.table}_elsewhere"
    with psycopg.connect(shop.conninfo, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {other}")
        try:
            elsewhere = servers.changed(shop.conninfo, dbname=other)
            # A ledger of the same name lies there too.
            async with connect(servers.changed(elsewhere, schema=shop.schema)):
                pass
            async with shop.ledger.connect() as client:
                async with await psycopg.AsyncConnection.connect(elsewhere) as connection:
                    await refused(client, connection, "leads to another database, or another server, than the ledger")
                    assert await (await connection.execute("SELECT 1")).fetchone() == (1,)
                assert await client.count() == 0
        finally:
            admin.execute(f"DROP DATABASE {other} WITH (FORCE)")


async def test_a_role_that_may_not_write_to_the_ledger_is_told_what_to_ask_for(postgres_shop: Shop) -> None:
    shop = postgres_shop
    schema, role = shop.schema, f"{shop.table}_role"
    with servers.role(role) as as_role:
        conninfo = as_role(shop.conninfo)
        async with shop.ledger.connect() as client:
            async with await psycopg.AsyncConnection.connect(conninfo) as connection:
                await refused(client, connection, "may not write to the ledger .* GRANT it the role that owns")
                assert await (await connection.execute("SELECT 1")).fetchone() == (1,)
            servers.admin(f"GRANT USAGE ON SCHEMA {schema} TO {role}")
            servers.admin(f"GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA {schema} TO {role}")
            async with await psycopg.AsyncConnection.connect(conninfo) as connection:
                await refused(client, connection, "may not write to the ledger")  # the sequences
            servers.admin(f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA {schema} TO {role}")
            async with await psycopg.AsyncConnection.connect(conninfo) as connection:
                assert (await client.start_workflow(fulfil, "o", id="o", connection=connection)).is_new


async def test_a_transaction_that_sees_only_its_beginning_starts_nothing_twice(postgres_shop: Shop) -> None:
    shop = postgres_shop
    async with shop.ledger.connect() as client:
        async with await psycopg.AsyncConnection.connect(shop.conninfo) as connection:
            await connection.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
            await connection.execute("SELECT 1")
            await client.start_workflow(fulfil, "o-1", id="o-1")  # after its beginning
            with pytest.raises(StoreUnavailableError) as raised:
                await client.start_workflow(fulfil, "o-1", id="o-1", connection=connection)
            assert isinstance(raised.value.__cause__, psycopg.errors.UniqueViolation)
            await connection.rollback()
            assert not (await client.start_workflow(fulfil, "o-1", id="o-1", connection=connection)).is_new
        assert await client.count() == 1


async def test_a_lost_connection_is_told(postgres_shop: Shop) -> None:
    shop = postgres_shop
    async with shop.ledger.connect() as client:
        connection = await psycopg.AsyncConnection.connect(shop.conninfo)
        await connection.execute("SELECT 1")
        with psycopg.connect(shop.conninfo, autocommit=True) as admin:
            admin.execute("SELECT pg_terminate_backend(%s, 5000)", [connection.info.backend_pid])
        with pytest.raises(StoreUnavailableError):
            await client.start_workflow(fulfil, "o-1", id="o-1", connection=connection)
        await connection.close()
        assert await client.count() == 0


async def test_a_start_out_of_reach_of_unicode_is_refused_alone(postgres_shop: Shop) -> None:
    shop = postgres_shop
    async with shop.ledger.connect() as client, await psycopg.AsyncConnection.connect(shop.conninfo) as connection:
        with pytest.raises(UsageError, match="NUL"):
            await client.start_workflow("ful\0fil", "o-1", id="o-1", connection=connection)
        await shop.insert(connection, "o-1")
    assert shop.orders() == ["o-1"]
