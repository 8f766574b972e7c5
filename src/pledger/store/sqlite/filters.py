"""List filters to SQL: see `store.filters`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pledger.engine.port.filters import Filter, Order
from pledger.store.filters import COLUMNS_OF_ROW, conditions, order_by
from pledger.store.sqlfiles import as_json

_FROM = "FROM pledger_run AS run JOIN pledger_chain AS chain USING (chain_key) WHERE"


class _Sqlite:
    run, chain, child = "pledger_run", "pledger_chain", "pledger_child"
    task, attribute = "pledger_task", "pledger_attribute"
    phase, attempt = "pledger_phase", "pledger_attempt"
    due_ms = "run.due_ms"

    def __init__(self) -> None:
        self.bindings: list[Any] = []

    def bind(self, value: Any) -> str:
        self.bindings.append(value)
        return f"?{len(self.bindings)}"

    def member(self, expression: str, values: Sequence[Any]) -> str:
        return f"{expression} IN (SELECT value FROM json_each({self.bind(as_json(values))}))"  # noqa: S608 - bound


def list_sql(namespace: str, where: Filter, limit: int, order: Sequence[Order]) -> tuple[str, list[Any]]:
    """The rows of the runs that meet the filter, and what to bind."""
    sqlite = _Sqlite()
    condition = conditions(sqlite, namespace, where)
    by = order_by(sqlite, namespace, order)
    columns = COLUMNS_OF_ROW.format(due_ms=sqlite.due_ms)
    sql = f"SELECT {columns} {_FROM} {condition} ORDER BY {by} LIMIT {sqlite.bind(limit)}"
    return sql, sqlite.bindings


def count_sql(namespace: str, where: Filter) -> tuple[str, list[Any]]:
    """How many there are."""
    sqlite = _Sqlite()
    sql = f"SELECT count(*) {_FROM} {conditions(sqlite, namespace, where)}"
    return sql, sqlite.bindings
