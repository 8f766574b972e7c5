"""Reverts of what keeps the pieces of large values there as long as a run refers to them, and no longer."""

from __future__ import annotations

from datetime import timedelta

import pytest

from pledger.store.memory import State
from pledger.store.memory import pieces as memory_pieces
from pledger.store.sqlite import pieces as sqlite_pieces
from pledger.testing import Faults
from tests.simulation.reverts.revert import Revert, several

SOON = {"retention": timedelta(seconds=2)}


def pieces_go_with_the_first_run_that_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    def forget(state: State, run_key: int) -> None:
        for name in state.piece_uses.pop(run_key, set()):
            state.pieces.pop(name, None)

    patch.setattr(memory_pieces, "forget", forget)


def pieces_outlive_their_runs(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(
        sqlite_pieces._SQL,  # type: ignore[arg-type] # a plain dict, which nobody else changes
        "use_piece",
        "SELECT ?1, ?2",
    )


def only_the_first_run_uses_a_piece(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(
        sqlite_pieces._SQL,  # type: ignore[arg-type] # as above
        "use_piece",
        "INSERT INTO pledger_piece_use (run_key, piece_key) SELECT ?1, piece_key FROM pledger_piece AS piece "
        "WHERE name = ?2 AND NOT EXISTS (SELECT 1 FROM pledger_piece_use AS other "
        "WHERE other.piece_key = piece.piece_key)",
    )


REVERTS = [
    Revert(
        pieces_go_with_the_first_run_that_is_forgotten,
        ("replay equals the record", "pieces are kept", "no run blocks", "told is true"),
        cases=several("conversing", 3),
        options=SOON,
    ),
    Revert(
        pieces_outlive_their_runs,
        ("pieces are kept as long as they are used",),
        store="sqlite",
        faults=Faults(),
        cases=several("conversing", 1),
    ),
    Revert(
        only_the_first_run_uses_a_piece,
        ("replay equals the record", "pieces are kept", "no run blocks", "told is true"),
        store="sqlite",
        cases=several("conversing", 3),
        options=SOON,
    ),
]
