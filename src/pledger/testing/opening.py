"""Histories in plain, as a test looks at them that has all of a ledger in its hands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    spans = list(_spans(state, row))
    place = _place(row)

    def origin(first_event_id: int) -> Place:
        """What a reset has taken over was written by another run."""
        return next((at for kept, at in reversed(spans) if first_event_id <= kept), place)

    return tuple(_plain(each, origin(each.first_event_id), opener) for each in state.histories[row.run_key])


def _spans(state: State, row: RunRow) -> Iterator[tuple[int, Place]]:
    """Up to which event each of the runs that it goes on from has written, the newest of them first."""
    kept: int | None = None
    run_key = row.run_key
    while (link := state.resets.get(run_key)) is not None:
        kept = link.kept if kept is None else min(kept, link.kept)
        run_key = link.base_key
        yield kept, _place(state.runs[run_key])


def _place(row: RunRow) -> Place:
    return Place(row.namespace, row.workflow_id, row.run_id, "")


def _opener(state: State, codecs: Sequence[PayloadCodec]) -> Pass:
    vault = Vault(codecs)

    def opened(data: bytes, place: Place) -> bytes:
        return vault.open_here(data, place, state.pieces) if is_sealed(data) else data

    return Pass(opened, lambda data: MARK in data)


def _plain(stored: StoredTransition, place: Place, opener: Pass) -> Transition:
    return transition.decode(opener.transition(stored, place).body)
