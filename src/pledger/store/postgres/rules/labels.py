"""Search attributes and memos of runs."""

from __future__ import annotations

from collections.abc import Sequence

from pledger.engine.port.filters import Attribute, PhaseRow
from pledger.engine.port.operations import Append
from pledger.history import memos
from pledger.store.labels import columns_of
from pledger.store.postgres.writes import Writes


def write(
    run_key: int,
    namespace: str,
    attributes: Sequence[Attribute],
    memo: bytes | None,
    writes: Writes,
    *,
    is_new: bool = False,
) -> None:
    """Of a run whose row is locked, or is new."""
    # The last one of a name counts, as where they are written one after the other.
    for each in {each.name: each for each in attributes}.values():
        if not is_new:
            writes.add("drop_attributes", run_key, each.name)
        for position, value in enumerate(each.values):
            row = (run_key, namespace, each.name, each.kind, position, *columns_of(each.kind, value))
            writes.add("insert_attributes", *row)
    if memo is not None:
        if memo == memos.EMPTY:
            writes.add("drop_memos", run_key)
        else:
            writes.add("write_memos", run_key, memo)


def write_terms(op: Append, writes: Writes) -> None:
    """Of a run whose row is locked, or is new."""
    if op.terms is not None:
        writes.add("write_terms", op.run_key, *op.terms)
    begin_phases(op.run_key, op.phases, writes)
    for event_id in op.phases_over:
        writes.add("end_phases", op.run_key, event_id)


def begin_phases(run_key: int, phases: Sequence[PhaseRow], writes: Writes) -> None:
    for each in phases:
        row = (run_key, each.event_id, each.kind, each.name, each.owner, each.deadline_ms)
        writes.add("begin_phases", *row)


def start(
    run_key: int,
    namespace: str,
    started: tuple[Sequence[Attribute], bytes | None],
    first: tuple[Sequence[Attribute], bytes | None],
    writes: Writes,
) -> None:
    """Those that a run starts with, as its first transition has changed them: each row is written once."""
    own = {each.name: each for each in started[0]} | {each.name: each for each in first[0]}
    memo = started[1] if first[1] is None else first[1]
    write(run_key, namespace, list(own.values()), memo, writes, is_new=True)
