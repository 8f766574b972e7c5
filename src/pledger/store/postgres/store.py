"""The verbs of the port on a PostgreSQL server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

from pledger.engine.port.answers import Answer
from pledger.engine.port.operations import Operation
from pledger.errors import UsageError
from pledger.store.postgres import quota
from pledger.store.postgres.address import Address, parse_url
from pledger.store.postgres.commit import CommitHook
from pledger.store.postgres.dependencies import PostgresDependencies
from pledger.store.postgres.families import PostgresFamilies
from pledger.store.postgres.handle import OPENING_PATIENCE_S
from pledger.store.postgres.labels import PostgresLabels
from pledger.store.postgres.ledger import PostgresLedger
from pledger.store.postgres.links import timeline
from pledger.store.postgres.loads import PostgresLoads
from pledger.store.postgres.losses import PostgresLosses
from pledger.store.postgres.mail import PostgresMail
from pledger.store.postgres.mailbox import PostgresMailbox
from pledger.store.postgres.patience import write_patiently
from pledger.store.postgres.pieces import PostgresPieces
from pledger.store.postgres.queues import PostgresQueues
from pledger.store.postgres.requests import PostgresRequests
from pledger.store.postgres.resets import PostgresResets
from pledger.store.postgres.retention import PostgresRetention
from pledger.store.postgres.schema import migrate, schema_version
from pledger.store.postgres.sessions import PostgresSessions
from pledger.store.postgres.statements import load_steps
from pledger.store.postgres.streams import PostgresStreams
from pledger.store.postgres.tasks import PostgresTasks
from pledger.store.postgres.tokens import PostgresTokens
from pledger.store.postgres.transactions import PostgresTransactions

#: What a role may not see of others' sessions is in the statistics all the same: how many there are.
_DESCRIBE: Final = """
    SELECT
        current_setting('server_version'), current_setting('synchronous_commit'), pg_database_size(current_database()),
        (SELECT sum(numbackends)::int FROM pg_stat_database),
        current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
"""


class PostgresStore(
    PostgresLedger,
    PostgresResets,
    PostgresLabels,
    PostgresMailbox,
    PostgresMail,
    PostgresFamilies,
    PostgresLoads,
    PostgresTasks,
    PostgresQueues,
    PostgresDependencies,
    PostgresSessions,
    PostgresRequests,
    PostgresRetention,
    PostgresTransactions,
    PostgresLosses,
    PostgresPieces,
    PostgresTokens,
    PostgresStreams,
):
    """A ledger in a schema of a database, shared by any number of processes on any number of machines."""

    def __init__(self, address: Address, **options: Any) -> None:
        super().__init__(address, **options)
        for link in (self._writer, self._reader, self._lists):
            link.greeting = self._greet

    def commit(self, batch: Sequence[Operation]) -> asyncio.Future[list[Answer]]:
        loop = asyncio.get_running_loop()
        if self._closed:
            refused: asyncio.Future[list[Answer]] = loop.create_future()
            refused.set_exception(self._closed_error())
            return refused
        return loop.create_task(write_patiently(self._committer, self._writer, batch, patience_s=self.patience_s))

    async def migrate(self) -> None:
        """Bring the schema up to date. Raises StoreError."""
        async with self._writer.use() as connection:
            self._schema_version = await migrate(connection, self.address)
            await self._greet(connection, await timeline(connection))

    async def describe(self) -> dict[str, Any]:
        [(version, synchronous_commit, size, *crowd)] = await self._read_sql(self._lists, _DESCRIBE, [])
        [(in_doubt, declared_ms)] = await self._read_sql(self._lists, self._sql["count_losses"], [])
        return {
            "kind": "postgresql",
            "url": self.address.shown,
            "durability": "power" if self._durable else "process",
            "synchronous_commit": synchronous_commit,
            "runs_in_doubt": in_doubt,
            "loss_declared_ms": declared_ms,
            "schema": self.address.schema,
            "schema_version": self._schema_version,
            "schema_version_known": len(load_steps(self.address.schema)),
            "server_version": version,
            "database_bytes": size,
            "connections": len(self._quota.open),
            "connections_max": self._quota.seats,
            "listeners": len(self._ears.open),
            "listeners_max": self._ears.seats,
            "process_connections": quota.of_process(),
            "server_connections": crowd[0],
            "server_connections_max": crowd[1],
        }

    async def back_up(self, path: str) -> int:
        raise UsageError(
            f"a ledger on PostgreSQL is not copied to {path} by Pledger: use the server's own backups, or "
            f"pg_dump --schema={self.address.schema}."
        )


async def open_postgres(
    url: str,
    *,
    durability: str = "power",
    clock: Callable[[], int] | None = None,
    on_commit: CommitHook | None = None,
) -> PostgresStore:
    """A handle on the ledger at `url`, made if there is none. The first two are as in `open_store`.

    clock: milliseconds, in place of the server's own clock. on_commit: called just before and just after each COMMIT of
    a batch. Raises UsageError for a URL that cannot be, StoreError for a server that cannot be used.
    """
    store = PostgresStore(parse_url(url), durable=durability == "power", clock=clock, on_commit=on_commit)
    store.patience_s = OPENING_PATIENCE_S
    try:
        await store.migrate()
    except BaseException:
        await store.close()
        raise
    store.opened()
    return store


async def has_ledger(url: str) -> bool:
    """Whether the schema holds a ledger. Raises as `open_postgres`; nothing is changed."""
    store = PostgresStore(parse_url(url))
    try:
        async with store._writer.use() as connection:  # noqa: SLF001 - a look of the store's own
            return await schema_version(connection, store.address) > 0
    finally:
        await store.close()
