"""Search attributes and memos of runs."""

from __future__ import annotations

from collections.abc import Sequence

from pledger.engine.port.filters import Attribute
from pledger.history import memos
from pledger.store.labels import columns_of
from pledger.store.postgres.writes import Writes


def write(
    run_key: int, attributes: Sequence[Attribute], memo: bytes | None, writes: Writes, *, is_new: bool = False
) -> None:
    """Of a run whose row is locked, or is new."""
    for each in attributes:
        if not is_new:
            writes.add("drop_attributes", run_key, each.name)
        for position, value in enumerate(each.values):
            row = (run_key, each.name, each.kind, position, *columns_of(each.kind, value))
            writes.add("insert_attributes", *row)
    if memo is not None:
        if memo == memos.EMPTY:
            writes.add("drop_memos", run_key)
        else:
            writes.add("write_memos", run_key, memo)


def start(
    run_key: int,
    started: tuple[Sequence[Attribute], bytes | None],
    first: tuple[Sequence[Attribute], bytes | None],
    writes: Writes,
) -> None:
    """Those that a run starts with, as its first transition has changed them: each row is written once."""
    own = {each.name: each for each in started[0]} | {each.name: each for each in first[0]}
    memo = started[1] if first[1] is None else first[1]
    write(run_key, list(own.values()), memo, writes, is_new=True)
