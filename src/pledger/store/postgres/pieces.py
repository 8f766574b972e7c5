"""Pieces of large values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pledger.store.postgres.handle import PostgresHandle


class PostgresPieces(PostgresHandle):
    async def read_pieces(self, names: Sequence[bytes]) -> Mapping[bytes, bytes]:
        return {bytes(name): bytes(body) for name, body in await self._rows("read_pieces", list(names))}
