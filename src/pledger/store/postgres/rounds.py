"""A batch cut into rounds: what is decided in one round is decided on the same rows, so no two operations of it may
change what the other one looks at. Almost always there is one round."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final, TypeAlias

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
from pledger.store.postgres.rules.families import starts_of, touched_by

#: Operations with their places in the batch.
Round: TypeAlias = list[tuple[int, Operation]]

#: Those that change the row of a run: no other operation on that run is in their round.
_CHANGES_RUN: Final = (Append, Release, Block, ConfirmClaim, Terminate, ResetRun)


def cut_into_rounds(batch: Sequence[Operation]) -> list[Round]:
    rounds: list[Round] = []
    changed: set[int] = set()
    touched: set[int] = set()
    seen: set[Hashable] = set()
    for number, operation in enumerate(batch):
        run_key, place = _subject(operation)
        changes = isinstance(operation, _CHANGES_RUN)
        # Behind a reset its chain has another run, which senders who know an earlier one reach.
        after_reset = bool(rounds) and isinstance(rounds[-1][-1][1], ResetRun)
        begins = not rounds or after_reset or run_key in changed or (changes and run_key in touched) or place in seen
        told, started = _others(operation)
        if begins or not (changed.isdisjoint(told) and seen.isdisjoint(started)):
            rounds.append([])
            changed, touched, seen = set(), set(), set()
        rounds[-1].append((number, operation))
        touched.update(told)
        seen.update(started)
        if run_key is not None:
            (changed if changes else touched).add(run_key)
        if place is not None:
            seen.add(place)
    return rounds


def _others(operation: Operation) -> tuple[Sequence[int], Sequence[Hashable]]:
    """The other runs that it tells something, and the workflow ids of its children."""
    if not isinstance(operation, (Append, StartRun, Terminate)):
        return (), ()
    return [*touched_by(operation)], [*starts_of(operation)]


def _subject(operation: Operation) -> tuple[int | None, Hashable]:
    """The run that it is about, and what of it nobody else may be about; None for nothing."""
    match operation:
        case ResetRun():
            return operation.newest_key, (operation.namespace, operation.workflow_id)
        case StartRun():
            return None, (operation.namespace, operation.workflow_id)
        case LogAttempts():
            return None, None
        case PutTask():
            return operation.task.run_key, (operation.task.run_key, operation.task.event_id)
        case FinishTask() | HandOut() | ExpireTask() | Heartbeat() | Publish():
            return operation.run_key, (operation.run_key, operation.event_id)
        case Send():
            return operation.run_key, (operation.run_key, operation.message_id)
        case Append() | Release() | Block() | ConfirmClaim() | Terminate():
            return operation.run_key, None
        case _:
            return None, None  # no operation at all; who decides says so
