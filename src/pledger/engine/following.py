"""Those who follow streams in this process.

One table for all of them, and one question for all that wait: `Connection` asks it when the store says that another
process may have written, and every second in case a hint was missed. What is published in this process they are told at
once.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pledger.engine.port.streams import StreamKey
    from pledger.engine.port.verbs import Store


class Followers:
    """Of a connection: who waits for a value of a stream, and at which position it would stand."""

    def __init__(self, store: Store, loop: asyncio.AbstractEventLoop) -> None:
        self._store = store
        self._loop = loop
        self._waiting: dict[int, list[tuple[str, int, asyncio.Future[None]]]] = defaultdict(list)
        self._open: dict[int, int] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def begin(self, chain_key: int) -> None:
        """Somebody follows a stream of the chain, from now on: before the first look, so that no hint is missed."""
        self._open[chain_key] = self._open.get(chain_key, 0) + 1
        self._store.heed_streams(self._open)

    def end(self, chain_key: int) -> None:
        self._open[chain_key] -= 1
        if not self._open[chain_key]:
            del self._open[chain_key]
            self._store.heed_streams(self._open)

    def wait(self, stream: StreamKey, position: int) -> asyncio.Future[None]:
        """Done once there may be a value at this position, or beyond."""
        chain_key, topic = stream
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiting[chain_key].append((topic, position, future))
        return future

    def leave(self, chain_key: int, future: asyncio.Future[None]) -> None:
        """Nobody waits for that any more."""
        left = [each for each in self._waiting.get(chain_key, ()) if each[2] is not future]
        if left:
            self._waiting[chain_key] = left
        else:
            self._waiting.pop(chain_key, None)

    def published(self, chain_key: int) -> None:
        """Something was published in this process."""
        for _, _, future in self._waiting.pop(chain_key, ()):
            if not future.done():
                future.set_result(None)

    async def look(self) -> None:
        """Tell those whose value has come."""
        if not self._waiting:
            return
        asked = sorted({(chain, topic) for chain, waiting in self._waiting.items() for topic, *_ in waiting})
        ends = await self._store.read_stream_ends(asked)
        for chain_key, waiting in self._waiting.items():
            for topic, position, future in waiting:
                if ends.get((chain_key, topic), 0) > position and not future.done():
                    future.set_result(None)
