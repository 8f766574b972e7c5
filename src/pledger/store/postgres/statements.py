"""The SQL of a ledger in its schema, by name."""

from __future__ import annotations

import functools
from typing import Final

from pledger.store.sqlfiles import load_migrations, load_queries

_SUBJECTS: Final = (
    "commit",
    "families",
    "ledger",
    "labels",
    "loads",
    "mail",
    "mailbox",
    "tasks",
    "sessions",
    "requests",
    "transactions",
    "pauses",
    "retention",
    "resets",
    "losses",
    "queues",
    "dependencies",
    "pieces",
    "tokens",
    "streams",
)
#: What stands for the schema in the files.
_PLACEHOLDER: Final = "pledger."


@functools.cache
def load_statements(schema: str) -> dict[str, str]:
    statements: dict[str, str] = {}
    for subject in _SUBJECTS:
        queries = load_queries(__package__, subject)
        assert not statements.keys() & queries, f"{subject}: {statements.keys() & queries}"
        statements |= {name: _placed(sql, schema) for name, sql in queries.items()}
    return statements


def load_steps(schema: str) -> list[str]:
    """The migrations, in order; the first makes version 1."""
    return [_placed(sql, schema) for sql in load_migrations(__package__)]


def _placed(sql: str, schema: str) -> str:
    return sql.replace(_PLACEHOLDER, f'"{schema}".')
