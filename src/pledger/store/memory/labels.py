"""Lists of runs, and what they go by: search attributes, and memos."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pledger.engine.port.filters import Attribute, Filter, Labels, Order, PhaseRow, Seen, holds, place, record_of
from pledger.engine.port.operations import Append
from pledger.engine.port.records import GROWTH_EVENT, RunRow
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


def write_terms(state: State, op: Append) -> None:
    if op.terms is not None:
        state.terms[op.run_key] = op.terms
    if op.phases or op.phases_over:
        own = state.phases.setdefault(op.run_key, {})
        own.update({each.event_id: each for each in op.phases})
        for event_id in op.phases_over:
            own.pop(event_id, None)


def hand_on(state: State, run_key: int, successor_key: int, deadline_ms: int | None) -> None:
    if run_key in state.attributes:
        state.attributes[successor_key] = dict(state.attributes[run_key])
    if run_key in state.memos:
        state.memos[successor_key] = state.memos[run_key]
    state.terms[successor_key] = _terms(state, run_key)[0], deadline_ms


def forget(state: State, run_key: int) -> None:
    state.attributes.pop(run_key, None)
    state.memos.pop(run_key, None)
    state.phases.pop(run_key, None)


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
            tuple(sorted(_phases(state, run_key), key=lambda each: (each.deadline_ms, each.event_id))),
            _is_retrying(state, run_key),
            _is_warned(state, run_key),
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
            _parent(state, run),
            [each.deadline_ms for each in _phases(state, run.run_key)],
            _is_warned(state, run.run_key),
        )
        for run in state.runs.values()
        if run.namespace == namespace and not run.is_forgotten
    ]


def _parent(state: State, run: RunRow) -> str | None:
    link = state.links.get(run.chain_key)
    return None if link is None else state.runs[link.parent_key].workflow_id


def _phases(state: State, run_key: int) -> Iterable[PhaseRow]:
    return state.phases.get(run_key, {}).values()


def _is_warned(state: State, run_key: int) -> bool:
    return any(record.event_id == GROWTH_EVENT for record in state.attempts.get(run_key, ()))


def _is_retrying(state: State, run_key: int) -> bool:
    return any(task.attempt > 1 and task.state != "done" for task in state.tasks.get(run_key, {}).values())
