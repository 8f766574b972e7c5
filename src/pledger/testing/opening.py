"""Histories in plain, as a test looks at them that has all of a ledger in its hands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pledger.engine.sealed_records import Pass
from pledger.engine.vault import Vault
from pledger.history import transition
from pledger.history.sealing import MARK, PayloadCodec, Place, is_sealed

if TYPE_CHECKING:
    from pledger.engine.port.records import RunRow
    from pledger.history.transition import StoredTransition, Transition
    from pledger.store.memory import State


def plain_history(state: State, row: RunRow, codecs: Sequence[PayloadCodec] = ()) -> tuple[Transition, ...]:
    """Of the run, with every payload read through. Raises CorruptHistoryError and CodecError where one cannot be."""
    opener = _opener(state, codecs)
    place = Place(row.namespace, row.workflow_id, row.run_id, "")
    return tuple(_plain(each, place, opener) for each in state.histories[row.run_key])


def _opener(state: State, codecs: Sequence[PayloadCodec]) -> Pass:
    vault = Vault(codecs)

    def opened(data: bytes, place: Place) -> bytes:
        return vault.open_here(data, place, state.pieces) if is_sealed(data) else data

    return Pass(opened, lambda data: MARK in data)


def _plain(stored: StoredTransition, place: Place, opener: Pass) -> Transition:
    return transition.decode(opener.transition(stored, place).body)
