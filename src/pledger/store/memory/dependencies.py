"""Systems that activities depend on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pledger.engine.port import circuit
from pledger.engine.port.circuit import Dependency, Tally
from pledger.engine.port.dependencies import Ask, DependencyRows, Stated, asked, lets_more_through
from pledger.store.memory.state import State


def state_dependencies(state: State, namespace: str, stated: Mapping[str, Stated]) -> DependencyRows:
    rows, now_ms = state.dependencies.setdefault(namespace, {}), state.clock()
    for name, each in stated.items():
        rows[name] = circuit.stated(rows.get(name), each.rule, each.activity_types, now_ms)
    return {name: rows[name] for name in stated}


def report_calls(state: State, namespace: str, tallies: Mapping[str, Sequence[Tally]]) -> DependencyRows:
    rows, now_ms = state.dependencies.get(namespace, {}), state.clock()
    found = {name: circuit.noted(rows[name], each, now_ms) for name, each in tallies.items() if name in rows}
    state.news = any(lets_more_through(rows[name], found[name]) for name in found)
    rows.update(found)
    return found


def read_dependencies(state: State, namespace: str) -> DependencyRows:
    now_ms = state.clock()
    return {name: circuit.seen(row, now_ms) for name, row in sorted(state.dependencies.get(namespace, {}).items())}


def ask_dependency(state: State, namespace: str, name: str, ask: Ask) -> tuple[Dependency, Dependency] | None:
    rows, now_ms = state.dependencies.get(namespace, {}), state.clock()
    if name not in rows:
        return None
    before, after = circuit.seen(rows[name], now_ms), asked(rows[name], ask, now_ms)
    state.news = lets_more_through(rows[name], after)
    rows[name] = after
    return before, after
