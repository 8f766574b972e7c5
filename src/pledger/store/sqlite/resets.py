"""Runs that go on from a part of another one's history."""

from __future__ import annotations

from typing import Final

from pledger.engine.port.answers import Answer, Reply, Started
from pledger.engine.port.operations import ResetRun
from pledger.engine.port.records import RESET_NAME, START_ID, ResetRow, RunRow
from pledger.store.sqlfiles import load_queries
from pledger.store.sqlite import labels, ledger, mailbox, tasks
from pledger.store.sqlite.handle import SqliteHandle
from pledger.store.sqlite.writer import Cursor

_SQL: Final = load_queries(__package__, "resets")
_FIND_NEWEST_RUN: Final = load_queries(__package__, "ledger")["find_newest_run"]
_READ_RUN: Final = load_queries(__package__, "ledger")["read_run"]


def reset_run(cursor: Cursor, op: ResetRun) -> Answer:
    found = cursor.row(_FIND_NEWEST_RUN, (op.namespace, op.workflow_id))
    newest = None if found is None else RunRow(*found)
    if newest is not None and newest.run_id == op.run_id:
        return Started(newest.run_key, newest.chain_key)  # repeated, since its answer was lost
    found = cursor.row(_READ_RUN, (op.base_key,))
    if newest is None or found is None:
        return Reply.LOST
    base = RunRow(*found)
    if (newest.run_key, newest.chain_key) != (op.newest_key, base.chain_key) or newest.head != op.newest_head:
        return Reply.LOST
    if newest.last_event != op.newest_event or (base.last_event, base.head) != (op.base_event, op.base_head):
        return Reply.LOST
    if (newest.status == "running") != (op.closing is not None):
        return Reply.LOST
    if op.closing is not None:
        ledger.end_run(cursor, newest, op.closing, op.time_ms)
    segment = (op.run_id, op.time_ms, op.kept, op.head, op.base_key, op.answers_for, op.deadline_ms)
    cursor.execute(_SQL["insert_segment"], segment)
    run_key = cursor.last_key()
    labels.write(cursor, run_key, op.attributes, op.memo)
    labels.begin_phases(cursor, run_key, op.phases)
    cursor.execute(_SQL["copy_history"], (run_key, op.base_key, op.kept))
    cursor.execute(_SQL["copy_uses"], (run_key, op.base_key))
    cursor.execute(_SQL["drop_start"], (base.chain_key, START_ID))
    if op.revive:
        cursor.execute(_SQL["revive_signals"], (base.chain_key,))
    mailbox.insert_message(cursor, (base.chain_key, "start", START_ID, RESET_NAME, op.inputs, op.time_ms, 0))
    tasks.change_tasks(cursor, run_key, op.tasks)
    ledger.hand_on(cursor, op.newest_key, op.base_key, run_key, op.run_id)
    place = (run_key, op.run_id, op.base_key, op.base_run_id, op.event_id, op.kept)
    cursor.execute(_SQL["insert_reset"], (*place, op.how, op.reason, op.by, op.time_ms))
    return Started(run_key, base.chain_key)


class SqliteResets(SqliteHandle):
    async def read_resets(self, run_key: int) -> list[ResetRow]:
        return [ResetRow(*row) for row in self._rows(_SQL["read_resets"], run_key)]
