"""Parents and children, and what one run sends to another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from pledger.engine.port.answers import Existing, Started
from pledger.engine.port.operations import Append
from pledger.engine.port.posts import NOTICE, Child, Parting, Post, StartChild, Verdict, notice_id
from pledger.engine.port.records import RunRow
from pledger.store.sqlfiles import as_json, load_queries
from pledger.store.sqlite import mailbox
from pledger.store.sqlite.handle import SqliteHandle
from pledger.store.sqlite.writer import Cursor

_SQL: Final = load_queries(__package__, "families")

# With a transition ----------------------------------------------------------------------------------------------------


def send_all(cursor: Cursor, op: Append, start_run: Callable[[Cursor, Any], Any]) -> None:
    """What the transition does to other runs. start_run: the rule for starts."""
    row = cursor.row(_SQL["who_sends"], (op.run_key,))
    assert row is not None
    for post in op.posts:
        if isinstance(post, StartChild):
            verdict, body = _start(cursor, op.run_key, post, start_run)
        else:
            verdict, body = _post(cursor, post, op.time_ms), b""
        if post.notice_id:
            _notify(cursor, row[0], post.notice_id, verdict, body, op.time_ms)


def _start(
    cursor: Cursor, parent_key: int, post: StartChild, start_run: Callable[[Cursor, Any], Any]
) -> tuple[Verdict, bytes]:
    answer = start_run(cursor, post.start)
    if isinstance(answer, Existing):
        return "taken", answer.run.run_id.encode()
    assert isinstance(answer, Started)
    cursor.execute(_SQL["insert_child"], (answer.chain_key, parent_key, post.event_id, post.policy))
    return "started", post.start.run_id.encode()


def _post(cursor: Cursor, post: Post, now_ms: int) -> Verdict:
    addressee = cursor.row(_SQL["find_addressee"], (post.namespace, post.workflow_id, post.run_id))
    if addressee is None:
        return "not_found"
    run_key, chain_key, status = addressee
    if status != "running":
        return "closed"
    if mailbox.is_full(cursor, chain_key, post.room):
        return "inbox_full"
    message = (chain_key, post.kind, post.message_id, post.name, post.body, now_ms, int(post.kind == "cancel"))
    mailbox.insert_message(cursor, message)
    mailbox.wake(cursor, run_key)
    return "sent"


def _notify(cursor: Cursor, chain_key: int, message_id: str, verdict: Verdict, body: bytes, now_ms: int) -> None:
    mailbox.insert_message(cursor, (chain_key, NOTICE, message_id, verdict, body, now_ms, 0))


def report(cursor: Cursor, run_key: int, body: bytes, now_ms: int) -> None:
    """The run ends: its parent is told, if it has one that is open."""
    parent = cursor.row(_SQL["find_parent"], (run_key,))
    if parent is not None:
        parent_key, chain_key, run_id, event_id = parent
        _notify(cursor, chain_key, notice_id(run_id, event_id, "end"), "ended", body, now_ms)
        mailbox.wake(cursor, parent_key)


def part(cursor: Cursor, run_key: int) -> None:
    """The run ends: that its children are to be seen to is noted, if it has any."""
    cursor.execute(_SQL["insert_parting"], (run_key,))


# Verbs ----------------------------------------------------------------------------------------------------------------


class SqliteFamilies(SqliteHandle):
    async def read_parent(self, chain_key: int) -> RunRow | None:
        row = self._row(_SQL["read_parent"], chain_key)
        return None if row is None else RunRow(*row)

    async def read_children(self, run_key: int, limit: int, after_event: int = 0) -> list[Child]:
        return _children(self._rows(_SQL["read_children"], run_key, limit, after_event))

    async def read_parting(self, namespace: str, limit: int) -> Parting | None:
        found = self._row(_SQL["next_parting"], namespace)
        if found is None:
            return None
        row = self._row(_RUN, found[0])
        assert row is not None
        run = RunRow(*row)
        children = _children(self._rows(_SQL["dependants"], run.run_key, limit))
        return Parting(run.run_key, run.workflow_id, run.run_id, run.status, tuple(children))

    async def settle_parting(self, run_key: int, chain_keys: Sequence[int]) -> None:
        def settle(cursor: Cursor) -> None:
            cursor.execute(_SQL["seen_to"], (as_json(chain_keys),))
            cursor.execute(_SQL["drop_parting"], (run_key,))

        await self._submit(settle)


_RUN: Final = load_queries(__package__, "ledger")["read_run"]


def _children(rows: Sequence[tuple[Any, ...]]) -> list[Child]:
    return [Child(event_id, policy, RunRow(*row)) for event_id, policy, *row in rows]
