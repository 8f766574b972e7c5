"""Pieces of large values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pledger.engine.port.answers import Answer
from pledger.engine.port.operations import Operation
from pledger.engine.port.pieces import user_of
from pledger.store.sqlfiles import as_json, load_queries
from pledger.store.sqlite.handle import SqliteHandle
from pledger.store.sqlite.writer import Cursor

_SQL: Final = load_queries(__package__, "pieces")


def kept(cursor: Cursor, operation: Operation, answer: Answer) -> Answer:
    """The answer to an operation, whose pieces are there now too if it has written anything."""
    run_key = user_of(operation, answer)
    if run_key is not None:
        for piece in operation.pieces:
            cursor.execute(_SQL["keep_piece"], (piece.name, piece.body))
            cursor.execute(_SQL["use_piece"], (run_key, piece.name))
    return answer


class SqlitePieces(SqliteHandle):
    async def read_pieces(self, names: Sequence[bytes]) -> Mapping[bytes, bytes]:
        return dict(self._rows(_SQL["read_pieces"], as_json([name.hex() for name in names])))
