"""Messages accepted for a chain and not yet in its history, and the wake-ups that they cause."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pledger.engine.port.answers import Answer, Reply, Sent
from pledger.engine.port.operations import Send
from pledger.engine.port.records import Message
from pledger.errors import WorkflowNotFoundError
from pledger.store.sqlfiles import load_queries
from pledger.store.sqlite.handle import SqliteHandle
from pledger.store.sqlite.writer import Cursor

_SQL: Final = load_queries(__package__, "mailbox")


def send(cursor: Cursor, op: Send) -> Answer:
    addressee = cursor.row(_SQL["find_addressee"], (op.run_key,))
    if addressee is None:
        raise unknown_run(op.run_key)
    chain_key, status, owner = addressee
    successor = None
    if status != "running":
        newest = cursor.row(_SQL["find_successor"], (chain_key,))
        assert newest is not None
        successor, status, owner = newest
    if status != "running":
        # A sender that repeats a message whose reply it lost must learn that it had been accepted.
        known = cursor.row(_SQL["knows_message"], (chain_key, op.message_id))
        return Reply.CLOSED if known is None else Reply.DUPLICATE
    if is_full(cursor, chain_key, op.room):
        known = cursor.row(_SQL["knows_message"], (chain_key, op.message_id))
        return Reply.FULL if known is None else Reply.DUPLICATE
    # The sender of a cancel asks for its verdict by id, whatever the id is.
    keep_id = op.keep_id or op.kind == "cancel"
    if not insert_message(cursor, (chain_key, op.kind, op.message_id, op.name, op.body, op.sent_ms, int(keep_id))):
        return Reply.DUPLICATE
    if owner is None or successor is not None or owner not in op.local:
        wake(cursor, successor or op.run_key)
    return Sent(owner, successor)


def is_full(cursor: Cursor, chain_key: int, room: int) -> bool:
    """Whether so many messages of the chain have no verdict."""
    return cursor.row(_SQL["is_full"], (chain_key, room)) is not None


def insert_message(cursor: Cursor, message: tuple[int, str, str, str, bytes, int, int]) -> bool:
    """Whether the message is new to the chain: (chain_key, kind, message_id, name, body, sent_ms, keep_id)."""
    cursor.execute(_SQL["insert_message"], message)
    return cursor.changes() > 0


def wake(cursor: Cursor, run_key: int) -> None:
    """Something arrived for a run: a worker claims it, or its owner is told by `woken_runs`."""
    cursor.execute(_SQL["wake_ownerless"], (run_key,))
    if not cursor.changes():
        cursor.execute(_SQL["wake_owner"], (run_key,))


def consume(cursor: Cursor, consumed: Sequence[tuple[int, int]]) -> None:
    """Messages that became inputs: (message_key, event_id)."""
    for message_key, event_id in consumed:
        cursor.execute(_SQL["forget_message"], (message_key,))
        if not cursor.changes():
            cursor.execute(_SQL["deliver_message"], (event_id, message_key))


def has_run(cursor: Cursor, run_key: int) -> bool:
    return cursor.row(_SQL["find_addressee"], (run_key,)) is not None


def unknown_run(run_key: int) -> WorkflowNotFoundError:
    return WorkflowNotFoundError(f"No run has the key {run_key}. Was it deleted by retention?")


class SqliteMailbox(SqliteHandle):
    async def read_inbox(self, chain_key: int) -> list[Message]:
        return [Message(*row) for row in self._rows(_SQL["read_inbox"], chain_key)]

    async def read_message(self, chain_key: int, message_id: str) -> Message | None:
        row = self._row(_SQL["read_message"], chain_key, message_id)
        return None if row is None else Message(*row)

    async def read_undelivered(self, chain_key: int) -> list[Message]:
        return [Message(*row) for row in self._rows(_SQL["read_undelivered"], chain_key)]
