"""List filters to SQL: see `store.filters`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pledger.engine.port.filters import Filter, Order
from pledger.store.filters import COLUMNS_OF_ROW, conditions, order_by

_TYPES: Final[dict[type, str]] = {str: "text", int: "bigint", float: "float8"}


class _Postgres:
    due_ms = "(CASE WHEN run.owner IS NULL THEN run.due_ms ELSE run.next_ms END)"

    def __init__(self, schema: str) -> None:
        self.run, self.chain = f'"{schema}".run', f'"{schema}".chain'
        self.phase, self.attempt = f'"{schema}".phase', f'"{schema}".attempt'
        self.child = f'"{schema}".child'
        self.task, self.attribute = f'"{schema}".task', f'"{schema}".attribute'
        self.bindings: list[Any] = []

    def bind(self, value: Any) -> str:
        self.bindings.append(value)
        return f"${len(self.bindings)}::{_TYPES[type(value)]}"

    def member(self, expression: str, values: Sequence[Any]) -> str:
        self.bindings.append(list(values))
        kind = _TYPES[type(values[0])] if values else "text"
        return f"{expression} = ANY(${len(self.bindings)}::{kind}[])"

    def source(self) -> str:
        return f"FROM {self.run} AS run JOIN {self.chain} AS chain USING (chain_key) WHERE"


def list_sql(schema: str, namespace: str, where: Filter, limit: int, order: Sequence[Order]) -> tuple[str, list[Any]]:
    """The rows of the runs that meet the filter, and what to bind."""
    postgres = _Postgres(schema)
    condition = conditions(postgres, namespace, where)
    by = order_by(postgres, namespace, order)
    columns = COLUMNS_OF_ROW.format(due_ms=postgres.due_ms)
    sql = f"SELECT {columns} {postgres.source()} {condition} ORDER BY {by} LIMIT {postgres.bind(limit)}"
    return sql, postgres.bindings


def count_sql(schema: str, namespace: str, where: Filter) -> tuple[str, list[Any]]:
    """How many there are."""
    postgres = _Postgres(schema)
    sql = f"SELECT count(*) {postgres.source()} {conditions(postgres, namespace, where)}"
    return sql, postgres.bindings
