"""Lists of runs, and what they go by: search attributes, and memos."""

from __future__ import annotations

from collections.abc import Sequence

from pledger.engine.port.filters import Filter, Labels, Order
from pledger.engine.port.records import GROWTH_EVENT, RunRow
from pledger.history.attributes import KINDS
from pledger.store.labels import grouped
from pledger.store.postgres.filters import count_sql, list_sql
from pledger.store.postgres.handle import PostgresHandle


class PostgresLabels(PostgresHandle):
    """By the connection of long lists: no commit waits for them."""

    async def list_runs(self, namespace: str, where: Filter, limit: int, order: Sequence[Order] = ()) -> list[RunRow]:
        sql, bindings = list_sql(self.address.schema, namespace, where, limit, order)
        return [RunRow(*row) for row in await self._read_sql(self._lists, sql, bindings)]

    async def count_runs(self, namespace: str, where: Filter) -> int:
        sql, bindings = count_sql(self.address.schema, namespace, where)
        [(count,)] = await self._read_sql(self._lists, sql, bindings)
        return int(count)

    async def read_labels(self, run_keys: Sequence[int]) -> dict[int, Labels]:
        keys = list(run_keys)
        attributes = await self._read_sql(self._lists, self._sql["read_attributes"], [keys])
        phases = await self._read_sql(self._lists, self._sql["read_phases"], [keys])
        return grouped(
            attributes, phases, await self._read_sql(self._lists, self._sql["read_terms"], [keys, GROWTH_EVENT])
        )

    async def attribute_kinds(self, namespace: str) -> list[tuple[str, str]]:
        rows = await self._read_sql(self._lists, self._sql["attribute_kinds"], [namespace, list(KINDS)])
        return [(name, kind) for name, kind in rows]
