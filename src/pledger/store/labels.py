"""Search attributes as rows: a row for each value, in one of three columns."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from pledger.engine.port.filters import Labels, PhaseRow, record_of


def columns_of(kind: str, value: float | str) -> tuple[str | None, int | None, float | None]:
    """Where a value stands: words, whole, real."""
    if isinstance(value, str):
        return value, None, None
    if kind == "float":
        return None, None, float(value)
    return None, int(value), None


def grouped(
    rows: Sequence[tuple[Any, ...]], phases: Sequence[tuple[Any, ...]], found: Sequence[tuple[Any, ...]]
) -> dict[int, Labels]:
    """rows: (run_key, name, kind, words, whole, real), by run, name and position. phases: (run_key, and the fields of a
    PhaseRow), by run and deadline. found: (run_key, memo, answers_for, deadline_ms, is_retrying, is_warned) of every
    run."""
    attributes = {
        run_key: tuple(
            record_of(name, kind, [_value(*columns) for _, _, _, *columns in own])
            for (name, kind), own in groupby(of_run, key=lambda row: (row[1], row[2]))
        )
        for run_key, of_run in groupby(rows, key=lambda row: row[0])
    }
    of_run = {
        run_key: tuple(PhaseRow(*columns) for _, *columns in own)
        for run_key, own in groupby(phases, key=lambda row: row[0])
    }
    return {
        run_key: Labels(
            attributes.get(run_key, ()),
            None if memo is None else bytes(memo),
            answers_for,
            deadline_ms,
            of_run.get(run_key, ()),
            bool(is_retrying),
            bool(is_warned),
        )
        for run_key, memo, answers_for, deadline_ms, is_retrying, is_warned in found
    }


def _value(words: str | None, whole: int | None, real: float | None) -> str | int | float:
    found = whole if words is None else words
    if found is None:
        assert real is not None
        return real
    return found
