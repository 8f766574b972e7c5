"""Connections of users: what they hand us is one of psycopg's, or stands on one."""

from __future__ import annotations

import inspect
from typing import Any, Final, TypeAlias

import psycopg
from psycopg.pq import TransactionStatus

from pledger.errors import UsageError

Guest: TypeAlias = "psycopg.AsyncConnection[Any] | psycopg.Connection[Any]"

_TAKEN: Final = (
    "a connection of psycopg 3, or a Connection, Session, AsyncConnection or AsyncSession of SQLAlchemy 2 on the "
    "driver psycopg (postgresql+psycopg://)"
)


async def guest_of(given: object) -> Guest:
    """The connection of psycopg behind what a user works with, in a transaction or about to begin one.

    Raises UsageError for what is none, and for one whose work would be committed without the user's.
    """
    guest = await _unwrapped(given)
    if guest.closed:
        raise UsageError(
            f"connection={given!r} is closed: open one, begin your transaction, and start the workflow in it"
        )
    status = guest.info.transaction_status
    if status is TransactionStatus.INERROR:
        raise UsageError(
            f"connection={given!r}: a statement has failed before, and the transaction takes no more. Roll it "
            "back, and begin again"
        )
    if status is TransactionStatus.IDLE and guest.autocommit:
        raise UsageError(
            f"connection={given!r} is in autocommit mode and in no transaction, so that the start would be "
            "committed by itself. Begin one: `async with connection.transaction():`"
        )
    return guest


async def _unwrapped(given: object) -> Guest:
    """Asked by what it can do: SQLAlchemy need not be installed, and others wrap connections in the same way."""
    found: Any = given
    if not isinstance(found, (psycopg.AsyncConnection, psycopg.Connection)):
        if not hasattr(found, "get_raw_connection") and inspect.ismethod(getattr(found, "connection", None)):
            found = found.connection()  # a session: it begins here, if it has not
            if inspect.isawaitable(found):
                found = await found
        if hasattr(found, "get_raw_connection"):  # SQLAlchemy's AsyncConnection
            found = await found.get_raw_connection()
        elif not hasattr(found, "driver_connection"):  # its Connection; Django's, too
            found = getattr(found, "connection", found)
        found = getattr(found, "driver_connection", found)
    if isinstance(found, (psycopg.AsyncConnection, psycopg.Connection)):
        return found
    raise UsageError(f"connection={given!r} is {type(found).__module__}.{type(found).__qualname__}; give {_TAKEN}")
