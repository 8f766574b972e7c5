"""Pieces of large values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pledger.engine.port.answers import Answer
from pledger.engine.port.operations import Operation
from pledger.engine.port.pieces import user_of
from pledger.store.memory.state import State


def keep(state: State, operation: Operation, answer: Answer) -> None:
    """The pieces of an operation, once it is written."""
    run_key = user_of(operation, answer)
    if run_key is None:
        return
    used = state.piece_uses.setdefault(run_key, set())
    for piece in operation.pieces:
        state.pieces.setdefault(piece.name, piece.body)
        used.add(piece.name)


def forget(state: State, run_key: int) -> None:
    """What the run alone uses."""
    unused = state.piece_uses.pop(run_key, set()).difference(*state.piece_uses.values())
    for name in unused:
        state.pieces.pop(name, None)


def read_pieces(state: State, names: Sequence[bytes]) -> Mapping[bytes, bytes]:
    return {name: state.pieces[name] for name in names if name in state.pieces}
