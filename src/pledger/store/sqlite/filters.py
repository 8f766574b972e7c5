"""List filters to SQL. Every piece of text comes from the tables below; values are only ever bound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pledger.engine.port.records import LIST_COLUMNS, Condition
from pledger.store.sqlfiles import as_json

_COLUMNS: Final = {column: column for column in LIST_COLUMNS} | {"blocked": "(blocked IS NOT NULL)"}

#: IS and IS NOT compare with NULL as the port wants it: a column without a value meets only `!=`.
_OPERATORS: Final = {
    "=": "IS ?",
    "!=": "IS NOT ?",
    "<": "< ?",
    "<=": "<= ?",
    ">": "> ?",
    ">=": ">= ?",
    "in": "IN (SELECT value FROM json_each(?))",
}

#: What was forgotten is in no list: RunRow.is_forgotten.
_REMEMBERED: Final = "NOT (last_event = 0 AND status <> 'running')"


def filter_sql(
    what: str, namespace: str, where: Sequence[Condition], before_key: int | None = None
) -> tuple[str, list[Any]]:
    """`SELECT what` of the runs that meet every condition, and what to bind."""
    terms = ["namespace = ?"]
    bindings: list[Any] = [namespace]
    ids = [each.value for each in where if each.column == "workflow_id" and each.operator == "="]
    if ids:
        # By the index of the chains. The plus keeps SQLite from going through the namespace instead.
        terms = [
            "+namespace = ?",
            "chain_key IN (SELECT chain_key FROM pledger_chain WHERE namespace = ? AND workflow_id = ?)",
        ]
        bindings += [namespace, ids[0]]
    for condition in where:
        terms.append(f"{_COLUMNS[condition.column]} {_OPERATORS[condition.operator]}")
        bindings.append(as_json(condition.value) if condition.operator == "in" else condition.value)
    if before_key is not None:
        terms.append("run_key < ?")
        bindings.append(before_key)
    terms.append(_REMEMBERED)
    return f"SELECT {what} FROM pledger_run_row WHERE {' AND '.join(terms)}", bindings  # noqa: S608 - see above
