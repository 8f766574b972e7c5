"""Following the stream of a topic: what runs and their activities publish, live and from any offset."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from pledger import errors
from pledger.engine.kept import check_kept, in_words
from pledger.history import payloads
from pledger.history.times import utc

if TYPE_CHECKING:
    from pledger.engine.connection import Connection
    from pledger.engine.port.records import RunRow
    from pledger.engine.port.streams import StreamPage, StreamValue

V = TypeVar("V")

#: As far as every database counts.
OFFSET_MAX: Final = 2**62


@dataclass(frozen=True, slots=True)
class StreamItem(Generic[V]):
    """One value of a stream. offset: its place; who follows from `offset + 1` on goes on after it.

    run_id: the run of the chain that published it. activity_event_id, attempt: the activity, by the event that
    scheduled it, and which attempt of it; None and 0 for the code of the workflow. published: when, with zone (UTC).
    """

    offset: int
    value: V
    run_id: str
    published: datetime
    activity_event_id: int | None = None
    attempt: int = 0


def check_offset(given: object) -> int:
    """Raises UsageError for what is no place in a stream."""
    if type(given) is not int or not 0 <= given <= OFFSET_MAX:
        raise errors.UsageError(
            f"from_offset is {given!r}; it is the place of a value in its stream, a number from 0 on"
        )
    return given


class Stream(Generic[V]):
    """The values of a chain's stream, one after another: see `WorkflowHandle.stream`.

    next_offset: where it goes on, after all that it has given. An error leaves it there: it may be asked again.
    """

    def __init__(
        self,
        connection: Connection,
        find: Callable[[], Awaitable[RunRow]],
        topic: str,
        offset: int,
        hint: Any,
        *,
        to_the_end: bool,
    ) -> None:
        """find: gives some run of the chain. to_the_end: until the chain closes, and not only what is there."""
        self.next_offset = offset
        self._connection = connection
        self._find = find
        self._topic = topic
        self._hint = hint
        self._to_the_end = to_the_end
        self._row: RunRow | None = None
        self._page: deque[StreamValue] = deque()
        self._has_begun = offset > 0
        self._is_closed = False
        self._is_over = False

    def __aiter__(self) -> Stream[V]:
        return self

    async def __anext__(self) -> StreamItem[V]:
        while not self._page:
            if self._is_over:
                raise StopAsyncIteration
            await self._turn()
        assert self._row is not None
        item: StreamItem[V] = _item(self._page[0], self._hint, self._row, self._topic)
        self._page.popleft()
        self.next_offset, self._has_begun = item.offset + 1, True
        return item

    async def aclose(self) -> None:
        """The ledger is not asked any longer."""
        self._leave()

    def __del__(self) -> None:
        if self._row is not None and not self._is_over:
            self._leave()

    def _leave(self) -> None:
        if self._row is not None and not self._is_over:
            self._connection.followers.end(self._row.chain_key)
        self._is_over = True

    async def _turn(self) -> None:
        """The next page; or wait for what may bring one."""
        followers, row = self._connection.followers, self._row
        if row is None:
            row = await self._find()
            check_kept(row)
            followers.begin(row.chain_key)
            self._row = row
        # Before the looks: what happens meanwhile is not missed.
        watch = self._connection.watch(row.run_key)
        news = followers.wait((row.chain_key, self._topic), self.next_offset)
        try:
            await self._look(row, watch, news)
        finally:
            self._connection.unwatch(row.run_key, watch)
            followers.leave(row.chain_key, news)

    async def _look(self, row: RunRow, *changes: asyncio.Future[Any]) -> None:
        store = self._connection.store
        page = await store.read_stream(row.chain_key, self._topic, self.next_offset)
        if self._has_begun and self.next_offset < page.first:
            raise _overtaken(row, self._topic, self.next_offset, page)
        self._page.extend(page.values)
        if page.values:
            return
        if self._is_closed or not self._to_the_end:
            self._leave()
            return
        self._row = row = await store.read_current(row.run_key)
        check_kept(row)
        # Only one more look can tell that nothing came before the end.
        self._is_closed = row.status != "running"
        if not self._is_closed:
            await asyncio.wait(changes, return_when=asyncio.FIRST_COMPLETED)


def _item(value: StreamValue, hint: Any, row: RunRow, topic: str) -> StreamItem[Any]:
    try:
        decoded = payloads.decode(value.body, hint)
    except errors.PayloadError as error:
        raise errors.PayloadError(
            f"{in_words(row)} has published at offset {value.position} of topic {topic!r} what is not of the type "
            f"asked for: {error}",
            path=error.path,
        ) from error
    event_id = value.event_id if value.attempt else None
    return StreamItem(value.position, decoded, value.run_id, utc(value.published_ms), event_id, value.attempt)


def _overtaken(row: RunRow, topic: str, offset: int, page: StreamPage) -> errors.StreamOvertakenError:
    return errors.StreamOvertakenError(
        f"offset {offset} of topic {topic!r} of {in_words(row)} is not kept any more: the stream has reached its bound "
        f"and its oldest value is at offset {page.first}. Follow from there, or from 0 for whatever is kept",
        first_offset=page.first,
    )
