"""Reverts of what keeps the pieces of large values there as long as a run refers to them, and no longer."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest

from pledger.engine.port.answers import Answer
from pledger.engine.port.operations import Operation
from pledger.engine.vault import Vault
from pledger.store.memory import State
from pledger.store.memory import pieces as memory_pieces
from pledger.store.sqlite import pieces as sqlite_pieces
from pledger.testing import Faults
from tests.simulation.reverts.revert import DEATHS, Revert, several

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


def what_was_not_written_counts_as_written(patch: pytest.MonkeyPatch) -> None:
    """A transition that was refused, or of which nobody knows, has brought its pieces."""

    def settled(self: Vault, batch: Sequence[Operation], _: Sequence[Answer]) -> None:
        for operation in batch:
            self._written.setdefault(getattr(operation, "run_key", 0), set()).update(
                piece.name for piece in operation.pieces
            )

    sealed = Vault.seal_transition

    def seal_transition(self: Vault, body: bytes, *place: object, **parts: object) -> object:
        found = sealed(self, body, *place, **parts)  # type: ignore[arg-type]
        run_key = place[1]
        assert isinstance(run_key, int)
        self._written.setdefault(run_key, set()).update(piece.name for piece in found[1])
        return found

    patch.setattr(Vault, "settled", settled)
    patch.setattr(Vault, "seal_transition", seal_transition)
    patch.setattr(Vault, "forget_written", lambda _: None)


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
        what_was_not_written_counts_as_written,
        ("replay equals the record", "no run blocks", "told is true"),
        faults=DEATHS,
        cases=several("conversing", 3),
    ),
]
