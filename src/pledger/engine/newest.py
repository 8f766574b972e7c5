"""The newest transition of a run, verified without reading what came before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pledger.engine.loading import HistoryReader

if TYPE_CHECKING:
    from pledger.engine.port.records import RunRow
    from pledger.engine.port.verbs import Store
    from pledger.history.transition import Transition


async def newest_transition(store: Store, row: RunRow) -> Transition | None:
    """None of a run without any. Its checksum covers that of the one before it, which is read for that.

    Raises CorruptHistoryError.
    """
    stored = await store.read_last_transitions(row.run_key)
    reader = HistoryReader(store, row.run_key, row.run_id)
    if len(stored) > 1:
        reader.head, reader.last_event = stored[0].checksum, stored[1].first_event_id - 1
    return reader.take(stored[-1]) if stored else None
