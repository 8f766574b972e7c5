"""Lists of runs, and what they go by: search attributes, and memos."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pledger.engine.port.filters import Attribute, Filter, Labels, Order, Seen, holds, place, record_of
from pledger.engine.port.records import RunRow
from pledger.history import memos
from pledger.store.memory.state import State


def write(state: State, run_key: int, attributes: Sequence[Attribute], memo: bytes | None) -> None:
    if attributes:
        own = state.attributes.setdefault(run_key, {})
        for each in attributes:
            if each.values:
                own[each.name] = each
            else:
                own.pop(each.name, None)
        if not own:
            del state.attributes[run_key]
    if memo is not None:
        if memo == memos.EMPTY:
            state.memos.pop(run_key, None)
        else:
            state.memos[run_key] = memo


def hand_on(state: State, run_key: int, successor_key: int) -> None:
    if run_key in state.attributes:
        state.attributes[successor_key] = dict(state.attributes[run_key])
    if run_key in state.memos:
        state.memos[successor_key] = state.memos[run_key]
    state.terms[successor_key] = _terms(state, run_key)[0], None


def forget(state: State, run_key: int) -> None:
    state.attributes.pop(run_key, None)
    state.memos.pop(run_key, None)


# Reads ----------------------------------------------------------------------------------------------------------------


def list_runs(state: State, namespace: str, where: Filter, limit: int, order: Sequence[Order]) -> list[RunRow]:
    found = [seen for seen in _seen(state, namespace) if holds(where, seen)]
    return [seen.row for seen in sorted(found, key=lambda seen: place(order, seen))][:limit]


def count_runs(state: State, namespace: str, where: Filter) -> int:
    return sum(holds(where, seen) for seen in _seen(state, namespace))


def read_labels(state: State, run_keys: Sequence[int]) -> dict[int, Labels]:
    return {
        run_key: Labels(
            tuple(record_of(each.name, each.kind, each.values) for _, each in sorted(_attributes(state, run_key))),
            state.memos.get(run_key),
            *_terms(state, run_key),
        )
        for run_key in run_keys
        if run_key in state.runs
    }


def _attributes(state: State, run_key: int) -> Iterable[tuple[str, Attribute]]:
    return state.attributes.get(run_key, {}).items()


def _terms(state: State, run_key: int) -> tuple[str | None, int | None]:
    return state.terms.get(run_key, (None, None))


def attribute_kinds(state: State, namespace: str) -> list[tuple[str, str]]:
    found = {
        (each.name, each.kind)
        for run_key, own in state.attributes.items()
        if state.runs[run_key].namespace == namespace
        for each in own.values()
    }
    return sorted(found)


def _seen(state: State, namespace: str) -> list[Seen]:
    return [
        Seen(
            run,
            state.attributes.get(run.run_key, {}),
            _is_retrying(state, run.run_key),
            *_terms(state, run.run_key),
        )
        for run in state.runs.values()
        if run.namespace == namespace and not run.is_forgotten
    ]


def _is_retrying(state: State, run_key: int) -> bool:
    return any(task.attempt > 1 and task.state != "done" for task in state.tasks.get(run_key, {}).values())
