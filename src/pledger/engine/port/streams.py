"""Streams: what the runs of a chain publish for those who follow them, by topic.

A stream belongs to its chain, as the mailbox does: a run that continues as new, and one that a reset goes on in,
publish on where the run before has ended. Its values are rows beside the histories, and no events: they are written in
the transaction of the transition, or of the attempt, that publishes them, and so once, or not at all.

Positions are given as values are written: from 0, each one more than the last, and never one a second time. Only a
declared loss (see `Losses`) leaves positions out: what stood there may have been read, and is not there any more.

A stream is bounded by the weight of its values. Beyond it the oldest ones go; nobody is refused, and nobody waits.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, Protocol, TypeAlias

from pledger.engine.port.records import Record

#: Of one stream: what a transcript of tens of thousands of tokens, or hours of progress, take.
WEIGHT_MAX: Final = 16 * 1024 * 1024
#: What a value weighs at least: so a stream has at most 65,536 of them.
WEIGHT_MIN: Final = 256
#: What is read at once, at most: values, and about how many bytes.
PAGE_VALUES: Final = 1_000
PAGE_WEIGHT: Final = 4 * 1024 * 1024

#: A stream: (chain_key, topic).
StreamKey: TypeAlias = tuple[int, str]


class Publication(Record, frozen=True):
    """A value on its way into the stream of a topic. body: JSON."""

    topic: str
    body: bytes

    @property
    def weight(self) -> int:
        return max(len(self.body), WEIGHT_MIN)


class StreamValue(Record, frozen=True):
    """A value of a stream. run_id, event_id, attempt: what published it: an attempt of the activity that was scheduled
    at that event of the run; or the code of the run itself (attempt 0), in the transition that begins at that event."""

    position: int
    run_id: str
    event_id: int
    attempt: int
    published_ms: int
    body: bytes


class StreamPage(Record, frozen=True):
    """first: the position of the oldest value that is kept. next: that of the one to come. values: from the position
    that was asked for on. A stream that is not there is empty, and both are 0."""

    first: int
    next: int
    values: tuple[StreamValue, ...]


class StreamRow(Record, frozen=True):
    """A stream as lists show it. first, next: as in `StreamPage`. weight: of the values that are kept, about their
    bytes. published_ms: when the newest one came."""

    topic: str
    first: int
    next: int
    weight: int
    published_ms: int


class Streams(Protocol):
    async def read_stream(self, chain_key: int, topic: str, position: int) -> StreamPage:
        """The values from this position on, as many as PAGE_VALUES and PAGE_WEIGHT allow, and one at least."""
        ...

    async def read_streams(self, chain_key: int) -> list[StreamRow]:
        """Those of a chain, by topic. None once retention has removed them."""
        ...

    async def read_stream_ends(self, streams: Sequence[StreamKey]) -> Mapping[StreamKey, int]:
        """The next position of each of these that is there, in one query: all that followers who wait ever ask."""
        ...

    def heed_streams(self, chain_keys: Collection[int]) -> None:
        """Whose streams are followed in this process, from now on: `wait_for_change` returns for what others publish
        there. A hint, as that is."""
        ...
