"""Systems that activities depend on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from pledger.engine.port import circuit
from pledger.engine.port.circuit import Dependency, Tally
from pledger.engine.port.dependencies import Ask, DependencyRows, Stated, asked
from pledger.store.sqlfiles import as_json, load_queries
from pledger.store.sqlite.handle import SqliteHandle
from pledger.store.sqlite.writer import Cursor, Reader

_SQL: Final = load_queries(__package__, "dependencies")


def read_some(reader: Reader, namespace: str, names: Iterable[str]) -> dict[str, Dependency]:
    """Those that there are, as they were when somebody last wrote them."""
    found = reader.rows(_SQL["some_dependencies"], (namespace, as_json(list(names))))
    return {name: circuit.decode(state) for name, state in found}


def write(cursor: Cursor, namespace: str, rows: DependencyRows) -> None:
    for name, row in rows.items():
        cursor.execute(_SQL["write_dependency"], (namespace, name, circuit.encode(row).decode()))


def set_aside(cursor: Cursor, lane: str, run_key: int, event_id: int, attempt: int) -> None:
    cursor.execute(_SQL["set_aside"], (lane, run_key, event_id, attempt))


class SqliteDependencies(SqliteHandle):
    async def state_dependencies(self, namespace: str, stated: Mapping[str, Stated]) -> DependencyRows:
        def change(cursor: Cursor) -> DependencyRows:
            there, now_ms = read_some(cursor, namespace, stated), self._time(cursor)
            found = {
                name: circuit.stated(there.get(name), each.rule, each.activity_types, now_ms)
                for name, each in stated.items()
            }
            write(cursor, namespace, found)
            return found

        return await self._submit(change)

    async def report_calls(self, namespace: str, tallies: Mapping[str, Sequence[Tally]]) -> DependencyRows:
        def change(cursor: Cursor) -> DependencyRows:
            there, now_ms = read_some(cursor, namespace, tallies), self._time(cursor)
            found = {name: circuit.noted(row, tallies[name], now_ms) for name, row in there.items()}
            write(cursor, namespace, found)
            return found

        return await self._submit(change)

    async def read_dependencies(self, namespace: str) -> DependencyRows:
        rows = self._rows(_SQL["read_dependencies"], namespace)
        now_ms = self._time(self._database)
        return {name: circuit.seen(circuit.decode(state), now_ms) for name, state in rows}

    async def ask_dependency(self, namespace: str, name: str, ask: Ask) -> tuple[Dependency, Dependency] | None:
        def change(cursor: Cursor) -> tuple[Dependency, Dependency] | None:
            there = read_some(cursor, namespace, [name]).get(name)
            if there is None:
                return None
            now_ms = self._time(cursor)
            after = asked(there, ask, now_ms)
            write(cursor, namespace, {name: after})
            return circuit.seen(there, now_ms), after

        return await self._submit(change, durable=True)
