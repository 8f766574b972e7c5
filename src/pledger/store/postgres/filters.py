"""List filters to SQL. Every piece of text comes from the tables below; values are only ever bound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pledger.engine.port.records import Condition

#: Column: its expression and its type.
_COLUMNS: Final = {
    "workflow_id": ("workflow_id", "text"),
    "run_id": ("run_id", "text"),
    "workflow_type": ("workflow_type", "text"),
    "task_queue": ("task_queue", "text"),
    "status": ("status", "text"),
    "started_ms": ("started_ms", "bigint"),
    "closed_ms": ("closed_ms", "bigint"),
    "blocked": ("(blocked IS NOT NULL)", "boolean"),
}

#: They compare with NULL as the port wants it: a column without a value meets only `!=`.
_OPERATORS: Final = {
    "=": "IS NOT DISTINCT FROM",
    "!=": "IS DISTINCT FROM",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
}

#: What was forgotten is in no list: RunRow.is_forgotten.
_REMEMBERED: Final = "NOT (last_event = 0 AND status <> 'running')"


def filter_sql(
    what: str, schema: str, namespace: str, where: Sequence[Condition], before_key: int | None = None
) -> tuple[str, list[Any]]:
    """`SELECT what` of the runs that meet every condition, and what to bind."""
    terms = ["namespace = $1"]
    bindings: list[Any] = [namespace]
    for condition in where:
        column, kind = _COLUMNS[condition.column]
        value = condition.value
        bindings.append(list(value) if condition.operator == "in" else value)
        bound = f"${len(bindings)}::{kind}"
        if condition.operator == "in":
            terms.append(f"{column} = ANY({bound}[])")
        elif condition.operator == "=" and value is not None:
            terms.append(f"{column} = {bound}")  # an index knows it
        else:
            terms.append(f"{column} {_OPERATORS[condition.operator]} {bound}")
    if before_key is not None:
        bindings.append(before_key)
        terms.append(f"run_key < ${len(bindings)}")
    terms.append(_REMEMBERED)
    return f'SELECT {what} FROM "{schema}".run_row WHERE {" AND ".join(terms)}', bindings  # noqa: S608 - see above
