"""The schema's version: brought up by single steps.

Which schema is from a future that this code cannot live with is said in `pledger.store.versions`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apsw

from pledger.store.sqlfiles import load_migrations
from pledger.store.versions import check_version, compatible_from


def schema_version(connection: apsw.Connection) -> int:
    """0 for a database without a ledger."""
    return _versions(connection)[0]


def _versions(connection: apsw.Connection) -> tuple[int, int | None]:
    """Of the schema, and the oldest whose code can live with it, if it says so."""
    # A table of our own, not PRAGMA user_version: the application may keep its tables, and its version, in this file.
    if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'pledger_meta'").fetchall():
        return 0, None
    found = "SELECT name, value FROM pledger_meta WHERE name IN ('schema_version', 'compatible_from')"
    said: dict[str, Any] = {str(name): value for name, value in connection.execute(found)}
    version, oldest = said["schema_version"], said.get("compatible_from")
    assert isinstance(version, int), version
    assert oldest is None or isinstance(oldest, int), oldest
    return version, oldest


def migrate(connection: apsw.Connection, path: str, migrations: Sequence[str] | None = None) -> int:
    """Bring the schema up to date in one transaction: all steps or none. Returns its version.

    migrations: other than those of this package, for tests.
    Raises SchemaVersionError for a database that a newer Pledger wrote and this one cannot live with.
    """
    steps = load_migrations(__package__) if migrations is None else migrations
    version = _known_version(connection, path, len(steps))
    if version >= len(steps):
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
        if version < len(steps):
            keep = (
                "INSERT OR REPLACE INTO pledger_meta (name, value) VALUES ('schema_version', ?), ('compatible_from', ?)"
            )
            connection.execute(keep, (len(steps), compatible_from(steps)))
            version = len(steps)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return version


def _known_version(connection: apsw.Connection, path: str, newest: int) -> int:
    version, oldest = _versions(connection)
    check_version(version, oldest, newest, place=path, elsewhere="open another file")
    return version
