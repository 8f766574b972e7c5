"""A batch of operations in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import apsw

from pledger.engine.port.answers import Answer
from pledger.engine.port.operations import (
    Append,
    Block,
    ConfirmClaim,
    ExpireTask,
    FinishTask,
    HandOut,
    Heartbeat,
    LogAttempts,
    Operation,
    Publish,
    PutTask,
    Release,
    ResetRun,
    Send,
    StartRun,
    Terminate,
)
from pledger.errors import PledgerError
from pledger.store.sqlite import ledger, mailbox, pieces, resets, streams, tasks
from pledger.store.sqlite.failures import is_of_the_place, operation_failure
from pledger.store.sqlite.writer import Cursor

Writers: TypeAlias = Mapping[type, Callable[[Cursor, Any], Answer]]

WRITERS: Final[Writers] = {
    StartRun: ledger.start_run,
    Append: ledger.append,
    Release: ledger.release,
    Block: ledger.block,
    ConfirmClaim: ledger.confirm_claim,
    Terminate: ledger.terminate,
    ResetRun: resets.reset_run,
    Send: mailbox.send,
    PutTask: tasks.put_task,
    FinishTask: tasks.finish_task,
    HandOut: tasks.hand_out,
    ExpireTask: tasks.expire_task,
    Heartbeat: tasks.heartbeat,
    Publish: streams.publish,
    LogAttempts: tasks.log_late,
}


def write_batch(cursor: Cursor, batch: Sequence[Operation], path: str, writers: Writers | None = None) -> list[Answer]:
    """The answers, in order. An operation that cannot be written gets its exception as its answer.

    writers: other rules than WRITERS; one may be asked for the same operation again, after a roll-back.
    """
    writers = writers or WRITERS
    written: list[Answer] = []
    try:
        for operation in batch:
            try:
                answer = writers[type(operation)](cursor, operation)
                written.append(pieces.kept(cursor, operation, answer) if operation.pieces else answer)
            except PledgerError as error:  # raised before anything was written
                written.append(error)
    except Exception as error:
        if is_of_the_place(error):
            raise
    else:
        return written
    # Once more from the start, each operation with a savepoint to fall back to: what they cost is paid only now.
    damaged: dict[int, Answer] = {}
    while True:
        cursor.roll_back()
        cursor.execute("BEGIN IMMEDIATE", ())
        answers = dict(damaged)
        for number, operation in enumerate(batch):
            if number in damaged:
                continue
            try:
                answers[number] = _write_guarded(cursor, operation, path, writers)
            except apsw.CorruptError as error:
                # A transaction that has met a damaged page can write nothing more: start again without this one.
                damaged[number] = operation_failure(error, operation, path)
                break
        else:
            return [answers[number] for number in range(len(batch))]


def _write_guarded(cursor: Cursor, operation: Operation, path: str, writers: Writers) -> Answer:
    cursor.execute("SAVEPOINT operation", ())
    try:
        answer = writers[type(operation)](cursor, operation)
        if operation.pieces:
            pieces.kept(cursor, operation, answer)
    except PledgerError as error:
        answer = error
    except Exception as error:
        if is_of_the_place(error) or isinstance(error, apsw.CorruptError):
            raise
        cursor.execute("ROLLBACK TO operation", ())
        answer = operation_failure(error, operation, path)
    cursor.execute("RELEASE operation", ())
    return answer
