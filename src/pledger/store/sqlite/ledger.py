"""Runs and their histories."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pledger.engine.port.answers import Answer, Existing, Reply, Started, began, decide_start
from pledger.engine.port.operations import (
    TRIED_MAX,
    Append,
    Block,
    ConfirmClaim,
    Release,
    StartRun,
    Successor,
    Terminate,
)
from pledger.engine.port.records import START_ID, OpenRow, RunRow, RunStatus
from pledger.history.transition import StoredTransition
from pledger.store.open_rows import open_rows
from pledger.store.sqlfiles import as_json, load_queries
from pledger.store.sqlite import families, labels, mailbox, sessions, streams, tasks
from pledger.store.sqlite.handle import SqliteHandle
from pledger.store.sqlite.writer import Cursor

_SQL: Final = load_queries(__package__, "ledger")
_INSERT_BORN_RUN: Final = _SQL["insert_born_run"]
_APPEND: Final = _SQL["append"]
_APPEND_AND_CLOSE: Final = _SQL["append_and_close"]
_INSERT_TRANSITION: Final = _SQL["insert_transition"]

# Operations -----------------------------------------------------------------------------------------------------------


def start_run(cursor: Cursor, op: StartRun) -> Answer:
    earlier = cursor.row(_SQL["find_newest_run"], (op.namespace, op.workflow_id))
    if earlier is not None:
        existing = RunRow(*earlier)
        if (own := began(existing, op)) is not None:
            return own
        started_as = None if existing.segment == 1 else cursor.row(_SQL["first_type"], (existing.chain_key,))
        decision = decide_start(existing, op, None if started_as is None else started_as[0])
        if decision != "start":
            return Existing(existing, decision)
    if op.owner is not None and not sessions.is_alive(cursor, op.owner):
        return Reply.LOST
    cursor.execute(_SQL["insert_chain"], (op.namespace, op.workflow_id))
    chain_key = cursor.last_key()
    first = op.first
    if first is not None and op.owner is not None and first.closed is None:
        return _bear(cursor, op, first, chain_key)
    fence = 0 if op.owner is None else 1
    cursor.execute(
        _SQL["insert_run"],
        (
            chain_key,
            op.namespace,
            op.run_id,
            op.workflow_type,
            op.task_queue,
            op.input_digest,
            op.started_ms,
            op.answers_for,
            op.deadline_ms,
            fence,
            op.owner,
        ),
    )
    run_key = cursor.last_key()
    if op.attributes or op.memo is not None:
        labels.write(cursor, run_key, op.attributes, op.memo)
    if op.owner is None:
        mailbox.insert_message(cursor, (chain_key, "start", START_ID, "", op.started, op.started_ms, 0))
        if (sent := op.beside) is not None:
            message = (chain_key, "signal", sent.message_id, sent.name, sent.body, op.started_ms, int(sent.keep_id))
            mailbox.insert_message(cursor, message)
    elif first is not None:
        first.run_key, first.fence, first.expected_event = run_key, fence, 0
        append(cursor, first)
    return Started(run_key, chain_key)


def _bear(cursor: Cursor, op: StartRun, first: Append, chain_key: int) -> Answer:
    """A start with its first transition, in one row: the commonest start writes it once."""
    transition = first.transition
    cursor.execute(
        _INSERT_BORN_RUN,
        (
            chain_key,
            op.namespace,
            op.run_id,
            op.workflow_type,
            op.task_queue,
            op.input_digest,
            op.started_ms,
            op.answers_for,
            op.deadline_ms,
            op.owner,
            first.last_event,
            transition.checksum,
            first.due_ms,
        ),
    )
    first.run_key, first.fence, first.expected_event = cursor.last_key(), 1, 0
    if op.attributes or op.memo is not None:
        labels.write(cursor, first.run_key, op.attributes, op.memo)
    _record(cursor, first)
    return Started(first.run_key, chain_key)


def _record(cursor: Cursor, op: Append) -> None:
    """The transition, and what changes beside the run's own row."""
    transition = op.transition
    run_key = op.run_key
    cursor.execute(_INSERT_TRANSITION, (run_key, transition.first_event_id, transition.body, transition.checksum))
    if op.consumed:
        mailbox.consume(cursor, op.consumed)
    if op.unwritten:
        tasks.put_unwritten(cursor, run_key, op.unwritten)
    if op.tasks or op.dropped or op.cancelled:
        tasks.change_tasks(cursor, run_key, op.tasks, op.dropped, op.cancelled)
    if op.attempts:
        tasks.log_attempts(cursor, op.attempts, run_key)
    if op.posts:
        families.send_all(cursor, op, start_run)
    if op.attributes or op.memo is not None:
        labels.write(cursor, run_key, op.attributes, op.memo)
    if op.terms is not None or op.phases or op.phases_over:
        labels.write_terms(cursor, op)
    if op.published:
        streams.extend(cursor, op)


def append(cursor: Cursor, op: Append) -> Answer:
    """Two statements for a step that is only a step: this is what the engine does all day."""
    execute = cursor.execute
    run_key = op.run_key
    transition = op.transition
    place = (run_key, op.fence, op.expected_event)
    if op.closed is not None:
        execute(_APPEND_AND_CLOSE, (op.last_event, transition.checksum, op.closed, op.time_ms, *place))
    else:
        execute(_APPEND, (op.last_event, transition.checksum, op.due_ms, *place))
    if not cursor.changes():
        there = cursor.row(_SQL["is_newest"], (run_key, op.fence, transition.checksum, int(op.closed is not None)))
        return Reply.LOST if there is None else Reply.WON
    _record(cursor, op)
    if op.closed is not None:
        if op.report is not None:
            families.report(cursor, run_key, op.report, op.time_ms)
        if op.has_dependants:
            families.part(cursor, run_key)
        _settle(cursor, run_key, op.closed)
        if op.successor is not None:
            _succeed(cursor, run_key, op.successor, op.time_ms)
    return Reply.WON


def _succeed(cursor: Cursor, run_key: int, successor: Successor, now_ms: int) -> None:
    """The next segment of the chain, ownerless and due."""
    named = (successor.run_id, successor.workflow_type, successor.task_queue)
    cursor.execute(_SQL["insert_successor"], (run_key, *named, now_ms, successor.deadline_ms))
    successor_key = cursor.last_key()
    cursor.execute(_SQL["insert_its_start"], (successor_key, START_ID, successor.started, now_ms, successor.name))
    hand_on(cursor, run_key, run_key, successor_key, successor.run_id)
    labels.hand_on(cursor, run_key, successor_key)


def hand_on(cursor: Cursor, paused_key: int, in_doubt_key: int, run_key: int, run_id: str) -> None:
    """To the run that goes on: the pause of one run of its chain, and the doubts about one."""
    cursor.execute(_SQL["hand_on_pause"], (paused_key, run_key, run_id))
    cursor.execute(_SQL["hand_on_loss"], (in_doubt_key, run_key))


def release(cursor: Cursor, op: Release) -> Answer:
    cursor.execute(_SQL["release"], (op.due_ms, op.run_key, op.fence))
    if not cursor.changes():
        return Reply.LOST
    if op.tasks:
        tasks.change_tasks(cursor, op.run_key, op.tasks)
    cursor.execute(_SQL["due_if_mail"], (op.run_key,))
    cursor.execute(_SQL["drop_wake"], (op.run_key,))
    return Reply.WON


def block(cursor: Cursor, op: Block) -> Answer:
    cursor.execute(_SQL["block"], (op.run_key, op.fence, op.reason, op.code, TRIED_MAX))
    if not cursor.changes():
        return Reply.LOST
    tasks.change_tasks(cursor, op.run_key, op.tasks)
    cursor.execute(_SQL["drop_wake"], (op.run_key,))
    return Reply.WON


def confirm_claim(cursor: Cursor, op: ConfirmClaim) -> Answer:
    cursor.execute(_SQL["confirm_claim"], (op.run_key, op.fence))
    return Reply.WON if cursor.changes() else Reply.LOST


def terminate(cursor: Cursor, op: Terminate) -> Answer:
    transition = op.transition
    cursor.execute(
        _SQL["terminate"],
        (
            op.last_event,
            transition.checksum,
            op.status,
            op.time_ms,
            op.run_key,
            op.expected_event,
            op.expected_head,
        ),
    )
    if not cursor.changes():
        return Reply.LOST
    cursor.execute(_INSERT_TRANSITION, (op.run_key, transition.first_event_id, transition.body, transition.checksum))
    if op.report is not None:
        families.report(cursor, op.run_key, op.report, op.time_ms)
    families.part(cursor, op.run_key)
    _settle(cursor, op.run_key, op.status)
    return Reply.WON


def end_run(cursor: Cursor, run: RunRow, closing: StoredTransition, time_ms: int) -> None:
    """The last step of an open run whose chain goes on, and its messages with it."""
    place = (run.run_key, run.last_event, run.head)
    cursor.execute(_SQL["terminate"], (run.last_event + 1, closing.checksum, "terminated", time_ms, *place))
    cursor.execute(_INSERT_TRANSITION, (run.run_key, closing.first_event_id, closing.body, closing.checksum))
    families.part(cursor, run.run_key)
    _leave_nothing(cursor, run.run_key)


def _settle(cursor: Cursor, run_key: int, status: RunStatus) -> None:
    """The effects of a close beside the history: verdicts for all messages, nothing left to do."""
    if status != "continued_as_new":  # they are the chain's
        cursor.execute(_SQL["settle_messages"], (run_key, status))
    _leave_nothing(cursor, run_key)


def _leave_nothing(cursor: Cursor, run_key: int) -> None:
    cursor.execute(_SQL["drop_tasks_of_run"], (run_key,))
    cursor.execute(_SQL["drop_wake"], (run_key,))


# Verbs ----------------------------------------------------------------------------------------------------------------


class SqliteLedger(SqliteHandle):
    async def find_run(self, namespace: str, workflow_id: str, run_id: str | None = None) -> RunRow | None:
        if run_id is None:
            row = self._row(_SQL["find_newest_run"], namespace, workflow_id)
        else:
            row = self._row(_SQL["find_run"], namespace, workflow_id, run_id)
        return None if row is None else RunRow(*row)

    async def read_run(self, run_key: int) -> RunRow:
        row = self._row(_SQL["read_run"], run_key)
        if row is None:
            raise mailbox.unknown_run(run_key)
        return RunRow(*row)

    async def read_current(self, run_key: int) -> RunRow:
        row = self._row(_SQL["read_current"], run_key)
        if row is None:
            raise mailbox.unknown_run(run_key)
        return RunRow(*row)

    async def read_statuses(self, run_keys: Sequence[int]) -> dict[int, tuple[RunStatus, bool]]:
        rows = self._rows(_SQL["read_statuses"], as_json(run_keys))
        return {run_key: (status, bool(blocked)) for run_key, status, blocked in rows}

    async def read_history(self, run_key: int, after_event: int = 0, limit: int = 1000) -> list[StoredTransition]:
        return [StoredTransition(*row) for row in self._rows(_SQL["read_history"], run_key, after_event, limit)]

    async def read_last_transitions(self, run_key: int) -> list[StoredTransition]:
        return [StoredTransition(*row) for row in reversed(self._rows(_SQL["read_last_transitions"], run_key))]

    async def count_open(self, namespace: str, now_ms: int) -> list[OpenRow]:
        return open_rows(self._rows(_SQL["count_open"], namespace, now_ms))
