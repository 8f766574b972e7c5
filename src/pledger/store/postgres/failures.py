"""What PostgreSQL's errors mean to us: whose fault, what was written, and what to do next."""

from __future__ import annotations

import re
from typing import Final

import psycopg
from psycopg import errors as pg

from pledger.errors import (
    InternalError,
    PayloadTooLargeError,
    PledgerError,
    StoreError,
    StoreUnavailableError,
    UsageError,
)
from pledger.store.postgres.address import Address

#: Nobody's fault: others were in the way, and all of it is to be done again. A unique violation is of a start that lost
#: a race; done again, it finds the other one's run.
PASSING: Final = (pg.DeadlockDetected, pg.SerializationFailure, pg.UniqueViolation)

#: Classes of errors that are of the server, the connection or the place, and of no operation: connection (08), state of
#: the transaction or read-only (25), authorization (28), database and schema (3D, 3F), resources (53), operator (57),
#: system (58).
_OF_THE_PLACE: Final = frozenset({"08", "25", "28", "3D", "3F", "53", "57", "58"})
#: Single ones: a privilege, a table, a column or a function that is missing.
_MISSING: Final = frozenset({"42501", "42P01", "42703", "42883"})

#: What a server says while it starts, stops, or has no room: it may take us in a moment.
_NOT_NOW: Final = re.compile(
    "starting up|shutting down|not yet accepting|in recovery mode|too many (clients|connections)|slots are"
)
#: What libpq says of a parameter of the URL that can never be; a server that must be a replica is one.
_OF_THE_URL: Final = re.compile(
    'invalid (port number|integer value|[a-z_]+ value)|bad value for|certificate file ".*" does'
    "|session is not read-only|is not in hot standby"
)
#: What it says of a server that cannot be trusted, or that is asked for what it has not got.
_OF_TLS: Final = re.compile("does not support SSL|certificate|requires? SSL", re.IGNORECASE)

#: What is said when there is no connection, which libpq gives without a code: the error, and what to do.
_REFUSALS: Final = (
    (_OF_THE_URL, UsageError, "Correct the URL."),
    (re.compile('database ".*" does not exist'), StoreError, "Create the database, or correct the URL."),
    (
        re.compile("password|role .* does not exist|pg_hba.conf|authentication|not permitted to log in"),
        StoreError,
        "The server refused this user or password: correct the URL, or the server's pg_hba.conf.",
    ),
    (
        re.compile("too many (clients|connections)|slots are"),
        StoreUnavailableError,
        (
            "The server has no connection left. A worker process takes 4 at most, and one to listen: raise "
            "max_connections, or the limit of the role or database, or run fewer."
        ),
    ),
    (_OF_TLS, StoreError, "Correct sslmode and sslrootcert in the URL, or the server's certificate."),
    (
        re.compile("failed to resolve host|could not translate host name"),
        StoreUnavailableError,
        "Check the name of the host in the URL, and that this machine can resolve it.",
    ),
    (
        re.compile("session is read-only|server is in hot standby mode"),
        StoreUnavailableError,
        "None of the hosts takes writes: a replica has to be promoted, or the URL lacks the primary.",
    ),
    (re.compile("FATAL:"), StoreError, "The server refused the connection: correct the URL, or the server's settings."),
)


def is_of_the_connection(error: BaseException | None) -> bool:
    """Whether the server was not there, or went away, and may be back soon; nothing that it has refused."""
    if isinstance(error, (pg.IdleInTransactionSessionTimeout, pg.TransactionTimeout)):
        return True
    if not isinstance(error, psycopg.OperationalError):
        return False
    said = str(error)
    if "FATAL:" in said and error.sqlstate is None:
        return _NOT_NOW.search(said) is not None
    if _has_no_connection(said) and (_OF_THE_URL.search(said) or _OF_TLS.search(said)):
        return False
    if isinstance(error, (pg.AdminShutdown, pg.CrashShutdown, pg.CannotConnectNow)):
        return True
    return error.sqlstate is None or error.sqlstate.startswith("08")


def is_of_an_operation(error: Exception) -> bool:
    """Whether one operation of a batch is at fault, and the others can be written without it."""
    if isinstance(error, psycopg.OperationalError):
        return isinstance(error, pg.ProgramLimitExceeded)
    if isinstance(error, psycopg.InterfaceError):
        return False
    if isinstance(error, psycopg.Error):
        return (error.sqlstate or "")[:2] not in _OF_THE_PLACE and error.sqlstate not in _MISSING
    return not isinstance(error, PledgerError)


#: Of what was asked for, and there to stay.
_DAMAGE: Final = (pg.DataCorrupted, pg.IndexCorrupted)

#: What a server says, whether it may pass, and what to do.
_ANSWERS: Final[tuple[tuple[tuple[type[psycopg.Error], ...], type[StoreError], str], ...]] = (
    (
        (pg.InsufficientPrivilege,),
        StoreError,
        (
            "a privilege is missing ({told}). The role must own the schema, or may make it (CREATE on the database): "
            "see docs/postgresql.md."
        ),
    ),
    (
        (pg.ReadOnlySqlTransaction,),
        StoreUnavailableError,
        (
            "this server takes no writes ({told}): a replica, or a primary that is being replaced. Name the primary, "
            "or several hosts with target_session_attrs=read-write."
        ),
    ),
    (
        (pg.DiskFull,),
        StoreUnavailableError,
        "the server's disk is full ({told}); nothing was written. Free some space, and try again.",
    ),
    (
        (pg.DeadlockDetected, pg.SerializationFailure),
        StoreUnavailableError,
        "others were in the way again and again ({told}). Try again.",
    ),
    (
        (pg.LockNotAvailable, pg.QueryCanceled),
        StoreUnavailableError,
        (
            "somebody else held a lock for too long ({told}); nothing was written. Try again. If that goes on, look in "
            "pg_stat_activity for a session that is `idle in transaction`."
        ),
    ),
    (
        (pg.UndefinedTable, pg.UndefinedColumn, pg.UndefinedFunction, pg.InvalidSchemaName),
        StoreError,
        "the ledger is not as this Pledger left it ({told}). Was its schema dropped or changed?",
    ),
    (_DAMAGE, StoreError, "the server has found damage ({told}). Restore the database from a backup."),
    (
        (psycopg.OperationalError,),
        StoreUnavailableError,
        (
            "the connection to the server was lost ({told}). What was on its way may have been written or not: it is "
            "looked up before anything is done again."
        ),
    ),
)


def store_failure(error: psycopg.Error, address: Address, *, opened: bool = False) -> StoreError | UsageError:
    """The failure of a whole transaction or of a read; UsageError for a URL that libpq cannot use.

    opened: whether the ledger was opened by this address. What is refused after that may pass (a pooler whose server
    fails over, a password or a certificate that is being replaced), and is StoreUnavailableError whatever it is.
    But for damage, which is of what was asked for, and stays.
    """
    failure = _failure(error, address)
    if opened and not isinstance(error, _DAMAGE) and not isinstance(failure, StoreUnavailableError):
        return StoreUnavailableError(failure.message)
    return failure


def _failure(error: psycopg.Error, address: Address) -> StoreError | UsageError:
    place = address.shown
    told = _first_line(error)
    if _has_no_connection(told) or "bad value for" in told:
        return _no_connection(error, place)
    for kinds, failure, answer in _ANSWERS:
        if isinstance(error, kinds):
            return failure(f"{place}: {answer.format(told=told)}")
    return StoreUnavailableError(f"{place}: {type(error).__name__}: {told}")


def _has_no_connection(told: str) -> bool:
    """Of the words of psycopg and libpq while they connect; one that was lost later is told otherwise."""
    return told.startswith(("connection failed", "connection is bad", "connection timeout", "failed to resolve"))


def _no_connection(error: psycopg.Error, place: str) -> StoreError | UsageError:
    told = _said_last(error)
    for pattern, kind, advice in _REFUSALS:
        if pattern.search(str(error)):
            return kind(f"{place}: {told}. {advice}")
    return StoreUnavailableError(
        f"{place}: there is no connection to the server ({told}). Check that it runs, and the host and port."
    )


def operation_failure(error: Exception, operation: object) -> PledgerError:
    """The answer to one operation that is itself at fault. Nothing of it was written."""
    name = type(operation).__name__
    told = _first_line(error)
    failure: PledgerError
    match error:
        case pg.UntranslatableCharacter() | pg.CharacterNotInRepertoire() | UnicodeError():
            failure = UsageError(f"{name}: PostgreSQL cannot keep a NUL or an invalid character in a name ({told}).")
        case psycopg.DataError() if "NUL" in told:
            failure = UsageError(f"{name}: PostgreSQL cannot keep a NUL character in a name ({told}).")
        case pg.ProgramLimitExceeded():
            failure = PayloadTooLargeError(
                f"{name}: too long for PostgreSQL, which takes 2,700 bytes for a name and 1 GB for a value ({told})."
            )
        case _:
            failure = InternalError(f"The store refused {name}: {type(error).__name__}: {told}. Please report this.")
    failure.__cause__ = error
    return failure


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _said_last(error: Exception) -> str:
    """Libpq tells of every address that it has tried; the last one's answer says enough."""
    said = str(error).strip()
    if "FATAL:" in said:
        said = said.rpartition("FATAL:")[2]
    return re.sub(r"^connection (failed|is bad): ", "", said.strip().partition("\n")[0])
