"""Lists of runs, and what they go by: search attributes, and memos."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pledger.engine.port.filters import Attribute, Filter, Labels, Order, PhaseRow
from pledger.engine.port.operations import Append
from pledger.engine.port.records import GROWTH_EVENT, RunRow
from pledger.history import memos
from pledger.history.attributes import KINDS
from pledger.store.labels import columns_of, grouped
from pledger.store.sqlfiles import as_json, load_queries
from pledger.store.sqlite.filters import count_sql, list_sql
from pledger.store.sqlite.handle import SqliteHandle
from pledger.store.sqlite.writer import Cursor

_SQL: Final = load_queries(__package__, "labels")


def write(cursor: Cursor, run_key: int, attributes: Sequence[Attribute], memo: bytes | None) -> None:
    for each in attributes:
        cursor.execute(_SQL["drop_attribute"], (run_key, each.name))
        for position, value in enumerate(each.values):
            row = (run_key, each.name, each.kind, position, *columns_of(each.kind, value))
            cursor.execute(_SQL["insert_attribute"], row)
    if memo is not None:
        if memo == memos.EMPTY:
            cursor.execute(_SQL["drop_memo"], (run_key,))
        else:
            cursor.execute(_SQL["write_memo"], (run_key, memo))


def write_terms(cursor: Cursor, op: Append) -> None:
    if op.terms is not None:
        cursor.execute(_SQL["write_terms"], (op.run_key, *op.terms))
    begin_phases(cursor, op.run_key, op.phases)
    for event_id in op.phases_over:
        cursor.execute(_SQL["end_phase"], (op.run_key, event_id))


def begin_phases(cursor: Cursor, run_key: int, phases: Sequence[PhaseRow]) -> None:
    for each in phases:
        row = (run_key, each.event_id, each.kind, each.name, each.owner, each.deadline_ms)
        cursor.execute(_SQL["begin_phase"], row)


def hand_on(cursor: Cursor, run_key: int, successor_key: int) -> None:
    """To the run that goes on for this one."""
    cursor.execute(_SQL["hand_on_attributes"], (run_key, successor_key))
    cursor.execute(_SQL["hand_on_memo"], (run_key, successor_key))


def forget(cursor: Cursor, run_keys: str) -> None:
    """run_keys: as JSON."""
    cursor.execute(_SQL["drop_attributes"], (run_keys,))
    cursor.execute(_SQL["drop_memos"], (run_keys,))
    cursor.execute(_SQL["drop_phases"], (run_keys,))


class SqliteLabels(SqliteHandle):
    async def list_runs(self, namespace: str, where: Filter, limit: int, order: Sequence[Order] = ()) -> list[RunRow]:
        sql, bindings = list_sql(namespace, where, limit, order)
        return [RunRow(*row) for row in self._rows(sql, *bindings)]

    async def count_runs(self, namespace: str, where: Filter) -> int:
        sql, bindings = count_sql(namespace, where)
        [(count,)] = self._rows(sql, *bindings)
        return int(count)

    async def read_labels(self, run_keys: Sequence[int]) -> dict[int, Labels]:
        keys = as_json(run_keys)
        attributes = self._rows(_SQL["read_attributes"], keys)
        phases = self._rows(_SQL["read_phases"], keys)
        return grouped(attributes, phases, self._rows(_SQL["read_terms"], keys, GROWTH_EVENT))

    async def attribute_kinds(self, namespace: str) -> list[tuple[str, str]]:
        return [(name, kind) for name, kind in self._rows(_SQL["attribute_kinds"], namespace, as_json(KINDS))]
