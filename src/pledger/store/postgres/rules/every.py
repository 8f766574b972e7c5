"""The rules of every operation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

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
from pledger.engine.port.pieces import user_of
from pledger.errors import InternalError
from pledger.store.postgres.found import Found, Needs
from pledger.store.postgres.rules import ledger, mailbox, resets, streams, tasks
from pledger.store.postgres.writes import Writes

_NEEDS: Final[Mapping[type, Callable[[Any, Needs], None]]] = {
    StartRun: ledger.needs_of_start,
    Append: ledger.needs_of_append,
    Release: ledger.needs_of_release,
    Block: ledger.needs_of_block,
    ConfirmClaim: ledger.needs_of_confirm,
    Terminate: ledger.needs_of_terminate,
    ResetRun: resets.needs_of_reset,
    Send: mailbox.needs_of_send,
    PutTask: tasks.needs_of_put,
    FinishTask: tasks.needs_of_finish,
    HandOut: tasks.needs_of_hand_out,
    ExpireTask: tasks.needs_of_finish,
    Heartbeat: tasks.needs_of_heartbeat,
    Publish: streams.needs_of_publish,
    LogAttempts: tasks.needs_of_log,
}

_DECIDE: Final[Mapping[type, Callable[[Any, Found, Writes], Answer]]] = {
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


def needs_of(operations: Sequence[Operation]) -> Needs:
    needs = Needs()
    for operation in operations:
        if type(operation) in _NEEDS:
            _NEEDS[type(operation)](operation, needs)
    return needs


def decide(operation: Operation, found: Found, writes: Writes) -> Answer:
    """The answer, with what is to be written for it. Raises PledgerError before anything is."""
    rule = _DECIDE.get(type(operation))
    if rule is None:
        return InternalError(f"The store has no operation {type(operation).__name__}.")
    answer = rule(operation, found, writes)
    if operation.pieces and (run_key := user_of(operation, answer)) is not None:
        for piece in operation.pieces:
            writes.add("keep_pieces", piece.name, piece.body)
            writes.add("use_pieces", run_key, piece.name)
    return answer
