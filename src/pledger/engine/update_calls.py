"""A client sends an update, and waits for what comes of it.

It is sent to the worker of its own process that holds the run or, through the store, to another one. Once it is
accepted it is in the history, and what comes of it will be: whoever waits for that follows the history, and needs no
worker.
"""

from __future__ import annotations

import asyncio
import builtins
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from pledger import errors
from pledger.engine import asking, blocks, update_rows
from pledger.engine.kept import check_kept, in_words
from pledger.engine.port.records import RunRow
from pledger.engine.updating import Told
from pledger.history import chains, failures, transition
from pledger.history.events import CompleteUpdate, UpdateAccepted
from pledger.machine import updates

if TYPE_CHECKING:
    from pledger.engine.connection import Connection
    from pledger.engine.port.verbs import Store

#: Between two looks at a history that somebody waits for: at first, and at most.
LOOK_S: Final = 0.002
LOOK_MAX_S: Final = 1.0
#: Rows of a history that are read at a time.
PAGE: Final = 500


async def send(
    connection: Connection,
    row: RunRow,
    update: UpdateAccepted,
    until: Literal["accepted", "completed"],
    timeout: timedelta,
) -> Told | None:
    """What is known once it is accepted, with until="completed" perhaps more. None where the run has closed, or has
    changed its place meanwhile: then it is to be sent once more. timeout: until it is accepted.

    Raises UpdateRejectedError, UnknownUpdateError, UpdateConflictError, RunBlockedError, and NoWorkerError.
    """
    what = f"the update {update.name!r}"
    if row.owner is None:
        await asking.refuse_paused(connection, row, f"takes no update: {update.name!r} was not sent")
    engine = connection.owner_of(row.run_key)
    if engine is not None:
        sent = asyncio.ensure_future(engine.update(row.run_key, update, "accepted"))
        try:
            async with asyncio.timeout(timeout.total_seconds()):
                told = await sent
        except builtins.TimeoutError:
            raise errors.NoWorkerError(
                f"{in_words(row)} is held by a worker of this process, and {what} was not durable within "
                f"{timeout.total_seconds():g} s. The store is slow or cannot be reached, which the log of "
                f"pledger.engine says, or the run is paused. It may still be accepted: send it again under the same id "
                f"({update.update_id})"
            ) from None
        if told is None or told.completed is not None or until == "accepted":
            return told
        return await engine.update(row.run_key, update, "completed") or told
    name, body = update_rows.question(update)
    asked = asking.Question(
        update_rows.UPDATE,
        name,
        body,
        what,
        f" It may still be accepted: send it again under the same id ({update.update_id}).",
    )
    answered = await asking.through_store(connection, row, asked, timeout)
    if answered is None:
        return None
    if answered.failure is not None:
        raise _refusal(failures.decode(answered.failure), row, update)
    return update_rows.read_answer(answered.answer or b"")


async def outcome(
    connection: Connection, run_key: int, update_id: str, told: Told | None, *, wait_while_blocked: bool = False
) -> tuple[RunRow, CompleteUpdate]:
    """What came of an update, once it is recorded. told: what is known of it, None: nothing.

    Raises UnknownUpdateError where the run knows none of this id, UpdateUnfinishedError where it has ended before,
    RunBlockedError and NoLongerKeptError.
    """
    store, delay, accepted = connection.store, LOOK_S, told is not None
    after_event = 0 if told is None else told.first_event_id - 1
    while True:
        # The row first: of a run that has closed by then there is all of the history behind it.
        row = await store.read_run(run_key)
        check_kept(row)
        seen = await _look_for(store, run_key, update_id, after_event)
        after_event, accepted = seen.after_event, accepted or seen.accepted_at > 0
        if seen.completed is not None:
            return row, seen.completed
        if not accepted or row.status != "running":
            check_kept(await store.read_run(run_key))  # it may have been removed while it was read
        if not accepted:
            raise errors.UnknownUpdateError(
                f"{in_words(row)} has accepted no update of the id {update_id!r}; handle.history() has what it did"
            )
        if row.status != "running":
            raise errors.UpdateUnfinishedError(
                f"{in_words(row)} is {row.status}, and has ended before its update {update_id!r} has. What was done is "
                "in handle.history(). The code can wait for it before it returns: "
                "await workflow.wait_condition(workflow.all_handlers_finished)",
                update_id=update_id,
                workflow_id=row.workflow_id,
                run_id=row.run_id,
            )
        if row.blocked is not None and not wait_while_blocked:
            raise blocks.to_error(row.blocked, row.workflow_id, row.workflow_type, row.run_id)
        watch = connection.watch(run_key)
        try:
            await asyncio.wait([watch], timeout=delay)
        finally:
            connection.unwatch(run_key, watch)
        delay = min(LOOK_MAX_S, delay * 1.5)


async def accepted_before(connection: Connection, row: RunRow, update: UpdateAccepted) -> Told | None:
    """Of a run that has closed: the update that it has accepted under this id. Raises UpdateConflictError."""
    check_kept(row)
    seen = await _look_for(connection.store, row.run_key, update.update_id, 0)
    if seen.accepted is None:
        check_kept(await connection.store.read_run(row.run_key))  # it may have been removed while it was read
        return None
    if updates.digest(seen.accepted) != updates.digest(update):
        raise conflict(row, update.update_id)
    return Told(seen.accepted_at, seen.completed)


async def accepted_in_chain(connection: Connection, row: RunRow, update: UpdateAccepted) -> tuple[RunRow, Told] | None:
    """The same of the runs before this one, which has continued them: their updates are done, and not done again."""
    for segment in range(row.segment - 1, 0, -1):
        run_id = chains.run_id_of(row.chain_id, segment)
        earlier = await connection.store.find_run(row.namespace, row.workflow_id, run_id)
        if earlier is None or earlier.is_forgotten:
            return None
        try:
            told = await accepted_before(connection, earlier, update)
        except errors.NoLongerKeptError:
            return None
        if told is not None:
            return earlier, told
    return None


def conflict(row: RunRow, update_id: str) -> errors.UpdateConflictError:
    return errors.UpdateConflictError(updates.conflict_of(in_words(row), update_id), update_id=update_id)


class _Seen(NamedTuple):
    """What a part of a history says of one update. after_event: where the part ends. accepted_at: the first event of
    the transition in which it was accepted, or 0."""

    after_event: int
    accepted_at: int
    accepted: UpdateAccepted | None
    completed: CompleteUpdate | None


async def _look_for(store: Store, run_key: int, update_id: str, after_event: int) -> _Seen:
    """As far as its outcome, or the end of what is there."""
    accepted_at, accepted = 0, None
    while rows := await store.read_history(run_key, after_event, PAGE):
        for each in rows:
            found = transition.decode(each.body)
            after_event = each.first_event_id + len(found.inputs) + len(found.commands) - 1
            for one in found.events():
                if isinstance(one, UpdateAccepted) and one.update_id == update_id:
                    accepted_at, accepted = each.first_event_id, one
                elif isinstance(one, CompleteUpdate) and one.update_id == update_id:
                    return _Seen(after_event, accepted_at, accepted, one)
        if len(rows) < PAGE:
            break
    return _Seen(after_event, accepted_at, accepted, None)


def _refusal(failure: failures.Failure, row: RunRow, update: UpdateAccepted) -> Exception:
    """Why another process did not take it: of the class that it would have here."""
    if failure.type == "UpdateRejectedError":
        rejected = errors.UpdateRejectedError(
            failure.message, update_id=update.update_id, workflow_id=row.workflow_id, run_id=row.run_id
        )
        rejected.__cause__ = None if failure.cause is None else failures.to_exception(failure.cause)
        return rejected
    if failure.type == "UpdateConflictError":
        return errors.UpdateConflictError(failure.message, update_id=update.update_id)
    if failure.type == "UnknownQueryError":  # it took the update for a query, and has none of this name
        return errors.NoWorkerError(
            f"{in_words(row)} is held by a worker of an earlier version of Pledger, which knows of no updates. Take it "
            "down, or wait until it has gone"
        )
    return asking.refusal(failure)
