"""Systems that activities depend on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import psycopg

from pledger.engine.port import circuit
from pledger.engine.port.circuit import Dependency, Tally
from pledger.engine.port.dependencies import Ask, DependencyRows, Stated, asked, lets_more_through
from pledger.store.postgres import news
from pledger.store.postgres.pauses import PostgresPauses

Connection = psycopg.AsyncConnection[Any]


def rows_of(found: Sequence[tuple[str, str]]) -> dict[str, Dependency]:
    return {name: circuit.decode(state) for name, state in found}


def columns_of(rows: DependencyRows) -> list[list[str]]:
    names = sorted(rows)
    return [names, [circuit.encode(rows[name]).decode() for name in names]]


class PostgresDependencies(PostgresPauses):
    async def state_dependencies(self, namespace: str, stated: Mapping[str, Stated]) -> DependencyRows:
        async def change(connection: Connection) -> DependencyRows:
            now_ms = await self._time(connection)
            plain = {name: circuit.new(each.rule, now_ms) for name, each in stated.items()}
            await self._execute(connection, "make_dependencies", namespace, *columns_of(plain))

            def state(name: str, row: Dependency) -> Dependency:
                return circuit.stated(row, stated[name].rule, stated[name].activity_types, now_ms)

            return await self._rewrite(connection, namespace, sorted(stated), state)

        return await self._transact(change)

    async def report_calls(self, namespace: str, tallies: Mapping[str, Sequence[Tally]]) -> DependencyRows:
        async def change(connection: Connection) -> DependencyRows:
            await self._execute(connection, "need_not_wait_for_the_disk")
            now_ms = await self._time(connection)
            return await self._rewrite(
                connection, namespace, sorted(tallies), lambda name, row: circuit.noted(row, tallies[name], now_ms)
            )

        return await self._transact(change)

    async def read_dependencies(self, namespace: str) -> DependencyRows:
        rows, [(now_ms,)] = await self._read_together(("read_dependencies", [namespace]), ("now", [self._now()]))
        return {name: circuit.seen(circuit.decode(state), now_ms) for name, state in rows}

    async def ask_dependency(self, namespace: str, name: str, ask: Ask) -> tuple[Dependency, Dependency] | None:
        async def change(connection: Connection) -> tuple[Dependency, Dependency] | None:
            now_ms = await self._time(connection)
            before: dict[str, Dependency] = {}

            def do(name: str, row: Dependency) -> Dependency:
                before[name] = circuit.seen(row, now_ms)
                return asked(row, ask, now_ms)

            after = await self._rewrite(connection, namespace, [name], do)
            return (before[name], after[name]) if after else None

        return await self._transact(change)

    async def _rewrite(
        self,
        connection: Connection,
        namespace: str,
        names: Sequence[str],
        rule: Callable[[str, Dependency], Dependency],
    ) -> dict[str, Dependency]:
        """What the rule makes of those that there are; whoever waits for one of them is told."""
        there = rows_of(await self._execute(connection, "lock_dependencies", namespace, list(names)))
        found = {name: rule(name, row) for name, row in there.items()}
        await self._execute(connection, "write_dependencies", namespace, *columns_of(found))
        if any(lets_more_through(there[name], found[name]) for name in found):
            await self._say(connection, [news.for_limits(namespace)])
        return found
