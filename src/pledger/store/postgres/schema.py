"""The schema's version: brought up by single steps under a lock that all processes know, while others work.

Which schema is from a future that this code cannot live with is said in `pledger.store.versions`.
"""

from __future__ import annotations

import asyncio
import random
import time
import zlib
from collections.abc import Sequence
from typing import Any, Final

import psycopg
from psycopg import errors as pg

from pledger.errors import StoreUnavailableError
from pledger.store.postgres.address import Address
from pledger.store.postgres.links import HAS_TRANSACTION_TIMEOUT
from pledger.store.postgres.statements import load_steps
from pledger.store.versions import check_version, compatible_from

_HAS_META: Final = """
    SELECT FROM pg_class AS found JOIN pg_namespace AS place ON place.oid = found.relnamespace
    WHERE place.nspname = $1 AND found.relname = 'meta'
"""

#: What a role may not see of others is NULL.
_HOLDERS: Final = """
    SELECT
        held.pid, session.application_name, coalesce(host(session.client_addr), 'local'), coalesce(session.state, '?')
    FROM pg_locks AS held LEFT JOIN pg_stat_activity AS session USING (pid)
    WHERE held.locktype = 'advisory' AND held.granted AND held.objsubid = 1
        AND held.database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND (held.classid, held.objid) = ($1::bigint::oid, $2::bigint::oid)
"""

#: How long to wait for another process that is at it, in seconds.
_WAIT_S = 20.0
#: How long a step waits for a table, in milliseconds. Whoever comes later waits behind it, so it must be short against
#: a lease; the migration gives way, and tries again.
_STEP_LOCK_MS: Final = 500


async def migrate(
    connection: psycopg.AsyncConnection[Any], address: Address, steps: Sequence[str] | None = None
) -> int:
    """Bring the schema up to date in one transaction: all steps or none. Returns its version.

    steps: other than those of this package, for tests.
    Raises SchemaVersionError for a schema that a newer Pledger wrote and this one cannot live with,
    StoreUnavailableError when others hold a lock for too long.
    """
    steps = load_steps(address.schema) if steps is None else steps
    version = await _known_version(connection, address, len(steps))
    if version >= len(steps):
        return version
    deadline_s = time.monotonic() + _WAIT_S
    while True:
        try:
            async with connection.transaction():
                await _lock_migrations(connection, address)
                return await _carry_out(connection, address, steps)
        except pg.LockNotAvailable as error:
            if time.monotonic() >= deadline_s:
                raise StoreUnavailableError(
                    f"{address.shown}: {await _who_holds(connection, address)} for more than {_WAIT_S:g} s, so "
                    "nothing was changed. If no migration is at work there, end it: SELECT pg_terminate_backend(pid)."
                ) from error
        await asyncio.sleep(_STEP_LOCK_MS / 1000 * (0.5 + random.random()))  # noqa: S311 - no secret


async def _lock_migrations(connection: psycopg.AsyncConnection[Any], address: Address) -> None:
    """For the rest of the transaction. Whoever dies in it gives the lock back, with all that it did."""
    limits = f"SET LOCAL lock_timeout = {int(_WAIT_S * 1000)}; SET LOCAL statement_timeout = 0"
    if connection.info.server_version >= HAS_TRANSACTION_TIMEOUT:
        limits += "; SET LOCAL transaction_timeout = 0"
    await connection.execute(limits, prepare=False)
    await connection.execute("SELECT pg_advisory_xact_lock($1::bigint)", [_lock_key(address.schema)])
    await connection.execute(f"SET LOCAL lock_timeout = {_STEP_LOCK_MS}", prepare=False)


async def _carry_out(connection: psycopg.AsyncConnection[Any], address: Address, steps: Sequence[str]) -> int:
    """The steps that are missing; the version then."""
    # Again, under the lock: another process may have done it meanwhile.
    version = await _known_version(connection, address, len(steps))
    if version >= len(steps):
        return version
    # A role that owns the schema need not be allowed to make one: asked for only where there is none.
    there = await connection.execute("SELECT FROM pg_namespace WHERE nspname = $1", [address.schema])
    if not there.rowcount:
        await connection.execute(f"CREATE SCHEMA {address.quoted}")
    for step in steps[version:]:
        await connection.execute(step, prepare=False)
    keep = f"INSERT INTO {address.quoted}.meta VALUES ('schema_version', $1), ('compatible_from', $2) "  # noqa: S608 - a checked name
    keep += "ON CONFLICT (name) DO UPDATE SET value = excluded.value"
    await connection.execute(keep, [str(len(steps)), str(compatible_from(steps))])
    return len(steps)


async def _who_holds(connection: psycopg.AsyncConnection[Any], address: Address) -> str:
    """Who has the lock of migrations, in words: its client may be long dead without the server knowing."""
    found = await (await connection.execute(_HOLDERS, [*divmod(_lock_key(address.schema), 2**32)])).fetchall()
    if not found:
        return "somebody held a lock that the migration needs"
    sessions = ", ".join(
        f"pid {pid} ({name or 'without a name'}, {place}, {state})" for pid, name, place, state in found
    )
    return f"another session holds the lock of migrations: {sessions}"


async def schema_version(connection: psycopg.AsyncConnection[Any], address: Address) -> int:
    """0 for a schema without a ledger, and for one that is not there."""
    return (await _versions(connection, address))[0]


async def _versions(connection: psycopg.AsyncConnection[Any], address: Address) -> tuple[int, int | None]:
    """Of the schema, and the oldest whose code can live with it, if it says so."""
    # Not to_regclass: within a transaction it may answer from a cache of before the lock.
    there = await connection.execute(_HAS_META, [address.schema])
    if not there.rowcount:
        return 0, None
    found = await connection.execute(
        f"SELECT name, value FROM {address.quoted}.meta WHERE name IN ('schema_version', 'compatible_from')"  # noqa: S608 - a checked name
    )
    said = {name: int(value) for name, value in await found.fetchall()}
    return said.get("schema_version", 0), said.get("compatible_from")


async def _known_version(connection: psycopg.AsyncConnection[Any], address: Address, newest: int) -> int:
    version, oldest = await _versions(connection, address)
    check_version(version, oldest, newest, place=address.shown, elsewhere="name another schema")
    return version


def _lock_key(schema: str) -> int:
    """Of PostgreSQL's advisory locks, which all applications of a database share."""
    return 0x706C_6564_0000_0000 | zlib.crc32(schema.encode())
