"""What runs publish."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

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
from pledger.store.memory.state import State, Stream

# Operations -----------------------------------------------------------------------------------------------------------


def publish(state: State, op: Publish) -> Answer:
    if not _may_publish(state, op):
        return Reply.LOST
    run = state.run(op.run_key)
    place = (op.run_key, op.event_id, op.attempt)
    known = state.published.get(place, 0)
    there = max(0, known - op.number)
    if op.values:
        state.published[place] = max(known, op.number + len(op.values))
    _extend(state, run.chain_key, op.values[there:], (run.run_id, op.event_id, op.attempt, op.time_ms))
    return Published(run.chain_key)


def _may_publish(state: State, op: Publish) -> bool:
    if op.owner is None:
        return state.owned_run(op.run_key, op.fence) is not None
    task = state.tasks.get(op.run_key, {}).get(op.event_id)
    return task is not None and (task.state, task.attempt, task.owner) == ("started", op.attempt, op.owner)


def extend(state: State, op: Append) -> None:
    """With what the code of a run has published in a transition."""
    run = state.run(op.run_key)
    source = (run.run_id, op.transition.first_event_id, 0, op.time_ms)
    _extend(state, run.chain_key, op.published, source)


def _extend(state: State, chain_key: int, values: Iterable[Publication], source: tuple[str, int, int, int]) -> None:
    """source: run_id, event_id and attempt of who publishes, and when."""
    for each in values:
        stream = state.streams.setdefault(chain_key, {}).setdefault(each.topic, Stream())
        stream.values.append((stream.weight, StreamValue(stream.next, *source, each.body)))
        stream.next += 1
        stream.weight += each.weight
        stream.published_ms = source[-1]
        state.news = True
        while len(stream.values) > 1 and stream.weight - stream.values[0][0] > WEIGHT_MAX:
            del stream.values[0]


# Retention ------------------------------------------------------------------------------------------------------------


def forget(state: State, chain_key: int, run_keys: Collection[int]) -> None:
    """run_keys: of all runs of the chain."""
    for place in [place for place in state.published if place[0] in run_keys]:
        del state.published[place]
    for stream in state.streams.get(chain_key, {}).values():
        stream.is_forgotten = True


def drop_some(state: State, limit: int) -> int:
    """At most about `limit` rows of a stream that is forgotten."""
    for chain_key, streams in sorted(state.streams.items(), key=lambda each: each[0]):
        for topic, stream in sorted(streams.items(), key=lambda each: each[0]):
            if stream.is_forgotten:
                dropped = min(limit, len(stream.values))
                del stream.values[:dropped]
                if dropped < limit:
                    del streams[topic]
                    if not streams:
                        del state.streams[chain_key]
                return max(1, dropped)
    return 0


# Verbs ----------------------------------------------------------------------------------------------------------------


def read_stream(state: State, chain_key: int, topic: str, position: int) -> StreamPage:
    stream = state.streams.get(chain_key, {}).get(topic)
    if stream is None or stream.is_forgotten:
        return StreamPage(0, 0, ())
    return StreamPage(_first(stream), stream.next, tuple(_page(stream, position)))


def _page(stream: Stream, position: int) -> Iterator[StreamValue]:
    start = next((n for n, (_, each) in enumerate(stream.values) if each.position >= position), len(stream.values))
    page = stream.values[start : start + PAGE_VALUES]
    return (each for before, each in page if before < page[0][0] + PAGE_WEIGHT)


def _first(stream: Stream) -> int:
    return stream.values[0][1].position if stream.values else stream.next


def read_streams(state: State, chain_key: int) -> list[StreamRow]:
    return [
        StreamRow(topic, _first(each), each.next, each.weight - each.values[0][0], each.published_ms)
        for topic, each in sorted(state.streams.get(chain_key, {}).items())
        if not each.is_forgotten
    ]


def read_stream_ends(state: State, streams: Sequence[StreamKey]) -> Mapping[StreamKey, int]:
    found = {(chain_key, topic): state.streams.get(chain_key, {}).get(topic) for chain_key, topic in streams}
    return {key: each.next for key, each in found.items() if each is not None and not each.is_forgotten}
