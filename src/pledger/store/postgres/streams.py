"""What runs publish, for those who follow. `rules.streams` writes it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from pledger.engine.port.streams import (
    PAGE_VALUES,
    PAGE_WEIGHT,
    StreamKey,
    StreamPage,
    StreamRow,
    StreamValue,
)
from pledger.store.postgres.handle import PostgresHandle


class PostgresStreams(PostgresHandle):
    async def read_stream(self, chain_key: int, topic: str, position: int) -> StreamPage:
        rows = await self._rows("read_page", chain_key, topic, position, PAGE_WEIGHT, PAGE_VALUES)
        if not rows:
            return StreamPage(0, 0, ())
        first, following, *_ = rows[0]
        return StreamPage(first, following, tuple(StreamValue(*row[2:]) for row in rows if row[2] is not None))

    async def read_streams(self, chain_key: int) -> list[StreamRow]:
        return [StreamRow(*row) for row in await self._rows("read_streams", chain_key)]

    async def read_stream_ends(self, streams: Sequence[StreamKey]) -> Mapping[StreamKey, int]:
        asked = [chain_key for chain_key, _ in streams], [topic for _, topic in streams]
        rows = await self._rows("read_stream_ends", *asked)
        return {(chain_key, topic): following for chain_key, topic, following in rows}

    def heed_streams(self, chain_keys: Collection[int]) -> None:
        self._interest.streams = frozenset(chain_keys)
