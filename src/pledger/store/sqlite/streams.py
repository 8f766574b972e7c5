"""What runs publish, by topic."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from pledger.engine.port.answers import Answer, Published, Reply
from pledger.engine.port.operations import Append, Publish
from pledger.engine.port.streams import (
    PAGE_VALUES,
    PAGE_WEIGHT,
    WEIGHT_MAX,
    Publication,
    StreamKey,
    StreamPage,
    StreamRow,
    StreamValue,
)
from pledger.store.sqlfiles import as_json, load_queries
from pledger.store.sqlite.handle import SqliteHandle
from pledger.store.sqlite.writer import Cursor

_SQL: Final = load_queries(__package__, "streams")

# Operations -----------------------------------------------------------------------------------------------------------


def publish(cursor: Cursor, op: Publish) -> Answer:
    place = (op.run_key, op.event_id, op.attempt)
    if op.owner is None:
        held = cursor.row(_SQL["holds_chain"], (op.run_key, op.fence))
    else:
        held = cursor.row(_SQL["runs_attempt"], (*place, op.owner))
    if held is None:
        return Reply.LOST
    [(known,)] = cursor.rows(_SQL["published_number"], place)
    there = max(0, known - op.number)
    _extend(cursor, op.values[there:], place, op.number + there, op.time_ms)
    return Published(*held)


def extend(cursor: Cursor, op: Append) -> None:
    """With what the code of a run has published in a transition."""
    _extend(cursor, op.published, (op.run_key, op.transition.first_event_id, 0), 0, op.time_ms)


def _extend(
    cursor: Cursor, values: Sequence[Publication], source: tuple[int, int, int], number: int, now_ms: int
) -> None:
    """source: run_key, event_id and attempt of who publishes; number: how many values it has published before."""
    by_topic: dict[str, list[tuple[int, Publication]]] = {}
    for nth, each in enumerate(values, number + 1):
        by_topic.setdefault(each.topic, []).append((nth, each))
    for topic, numbered in by_topic.items():
        weight = sum(each.weight for _, each in numbered)
        bindings = (source[0], topic, len(numbered), weight, now_ms)
        [(stream_key, first, before)] = cursor.rows(_SQL["extend_stream"], bindings)
        for position, (nth, each) in enumerate(numbered, first):
            place = (stream_key, position, before, *source, nth, now_ms)
            cursor.execute(_SQL["insert_published"], (*place, each.body))
            before += each.weight
        if before > WEIGHT_MAX:
            newest = first + len(numbered) - 1
            cursor.execute(_SQL["trim_stream"], (stream_key, before - WEIGHT_MAX, newest))


def drop_some(cursor: Cursor, limit: int) -> int:
    """At most about `limit` rows of a stream that retention has taken."""
    found = cursor.row(_SQL["next_forgotten"], ())
    if found is None:
        return 0
    cursor.execute(_SQL["drop_some_published"], (*found, limit))
    dropped = cursor.changes()
    if dropped < limit:
        cursor.execute(_SQL["stream_is_gone"], found)
    return max(1, dropped)


# Verbs ----------------------------------------------------------------------------------------------------------------


class SqliteStreams(SqliteHandle):
    async def read_stream(self, chain_key: int, topic: str, position: int) -> StreamPage:
        found = self._row(_SQL["find_stream"], chain_key, topic)
        if found is None:
            return StreamPage(0, 0, ())
        stream_key, first, following = found
        rows = self._rows(_SQL["read_page"], stream_key, position, PAGE_WEIGHT, PAGE_VALUES)
        return StreamPage(first, following, tuple(StreamValue(*row) for row in rows))

    async def read_streams(self, chain_key: int) -> list[StreamRow]:
        return [StreamRow(*row) for row in self._rows(_SQL["read_streams"], chain_key)]

    async def read_stream_ends(self, streams: Sequence[StreamKey]) -> Mapping[StreamKey, int]:
        rows = self._rows(_SQL["read_stream_ends"], as_json(streams))
        return {(chain_key, topic): following for chain_key, topic, following in rows}

    def heed_streams(self, chain_keys: Collection[int]) -> None:
        """Every process sees that the file has changed."""
