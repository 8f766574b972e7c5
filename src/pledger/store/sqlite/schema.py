"""The schema's version: brought up by single steps, and refused when it is from the future."""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from pledger.errors import SchemaVersionError
from pledger.store.sqlfiles import load_migrations


def schema_version(connection: apsw.Connection) -> int:
    """0 for a database without a ledger."""
    # A table of our own, not PRAGMA user_version: the application may keep its tables, and its version, in this file.
    if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'pledger_meta'").fetchall():
        return 0
    [(version,)] = connection.execute("SELECT value FROM pledger_meta WHERE name = 'schema_version'").fetchall()
    assert isinstance(version, int), version
    return version


def migrate(connection: apsw.Connection, path: str, migrations: Sequence[str] | None = None) -> int:
    """Bring the schema up to date in one transaction: all steps or none. Returns its version.

    migrations: other than those of this package, for tests.
    Raises SchemaVersionError for a database that a newer Pledger wrote.
    """
    steps = load_migrations(__package__) if migrations is None else migrations
    version = _known_version(connection, path, len(steps))
    if version == len(steps):
        return version
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Again, under the lock: another process may have done it meanwhile.
        version = _known_version(connection, path, len(steps))
        for step in steps[version:]:
            connection.execute(step)
        connection.execute(
            "CREATE TABLE IF NOT EXISTS pledger_meta (name TEXT PRIMARY KEY, value ANY) STRICT, WITHOUT ROWID"
        )
        connection.execute("INSERT OR REPLACE INTO pledger_meta VALUES ('schema_version', ?)", (len(steps),))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return len(steps)


def _known_version(connection: apsw.Connection, path: str, newest: int) -> int:
    version = schema_version(connection)
    if version > newest:
        raise SchemaVersionError(
            f"{path} has schema version {version}; this Pledger knows versions up to {newest}. A newer Pledger has "
            "written it: upgrade this installation (pip install --upgrade pledger), or open another file."
        )
    return version
