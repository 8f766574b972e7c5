"""What the outside says of an attempt that was handed out: completed, failed, alive, cancelled. By its token.

A token that is refused is refused with an error of its own class, and that stands in the attempt log of the run that
the token names. Those that nothing proves are bounded there: whoever makes tokens up must not push out what is true.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from pledger import errors
from pledger.engine import outside, tokens
from pledger.engine.kept import in_words
from pledger.engine.port.answers import Reply
from pledger.engine.port.operations import Heartbeat, LogAttempts
from pledger.engine.port.records import OUTSIDE
from pledger.engine.task_rows import decode_command, record_of
from pledger.engine.verdicts import cancelled
from pledger.history import failures, payloads, transition
from pledger.history.events import ActivityCompleted, ActivityFailed, ActivityOptions
from pledger.history.secret import found_in, redact_payload
from pledger.history.times import utc

if TYPE_CHECKING:
    from pledger.engine.connection import Connection
    from pledger.engine.port.operations import FinishTask
    from pledger.engine.port.records import AttemptRecord, RunRow, TaskRow
    from pledger.engine.tokens import Claims
    from pledger.history.failures import Failure
    from pledger.machine.definitions import ActivityDefinition

logger = logging.getLogger("pledger.engine")

#: How long a token waits for its attempt to be handed out: whoever it was given to may be faster than the ledger.
HAND_OUT_S: Final = 10.0
#: Refusals of one activity that are kept in the attempt log, which has a hundred lines for it.
REFUSALS_MAX: Final = 20


class Admitted(NamedTuple):
    """An attempt that is out, and its token's. row: as it was read."""

    claims: Claims
    run: RunRow
    row: TaskRow


async def complete(
    connection: Connection, token: str | bytes, result: Any, definition: ActivityDefinition[Any, Any] | None
) -> None:
    encoded = payloads.encode(result) if definition is None else definition.signature.encode_result(result)
    what = "the result of an activity that is completed by its token"
    payloads.check_size(encoded, what, connection.payload_bytes_max)
    if (reference := found_in(encoded)) is not None:
        raise errors.SecretError(
            f"{what} holds the value of {reference}, and is not recorded. Give the Secret itself, or nothing of it",
            name=reference.rpartition("/")[2],
        )
    admitted = await _admit(connection, token)
    await _finish(connection, admitted, outside.completed(admitted.row, encoded))


async def fail(connection: Connection, token: str | bytes, error: BaseException) -> None:
    await _end(connection, await _admit(connection, token), failures.from_exception(error))


async def report_cancellation(connection: Connection, token: str | bytes, reason: str) -> None:
    admitted = await _admit(connection, token)
    if not admitted.row.cancel_requested:
        raise errors.UsageError(
            f"{in_words(admitted.run)}: nobody has asked activity {admitted.row.activity_type!r} to stop, so it cannot "
            "be reported as cancelled. Complete it, or fail it; heartbeat_activity() tells when it was asked"
        )
    await _end(connection, admitted, cancelled(failures.cut(reason) or "the activity was cancelled"))


async def heartbeat(connection: Connection, token: str | bytes, details: tuple[Any, ...]) -> bool:
    """Whether it was asked to stop."""
    data = redact_payload(payloads.encode_args_untyped(details)) if details else None
    if data is not None:
        payloads.check_size(data, "the heartbeat of an activity", payloads.PAYLOAD_BYTES_MAX)
    claims, run, row = admitted = await _admit(connection, token)
    expires_ms = outside.expiry_ms(_options(row), row, await connection.now_ms())
    beat = Heartbeat(run.run_key, claims.event_id, claims.attempt, OUTSIDE, data, expires_ms)
    answer = await connection.committer.write(beat)
    if answer is Reply.LOST:
        raise await _refused_late(connection, admitted)
    return answer is Reply.CANCEL_REQUESTED


async def _end(connection: Connection, admitted: Admitted, failure: Failure) -> None:
    draw = int.from_bytes(connection.entropy(6)) / 2**48
    await _finish(
        connection,
        admitted,
        outside.failed(admitted.row, failure, await connection.now_ms(), outside.WHO, draw),
    )


async def _finish(connection: Connection, admitted: Admitted, finish: FinishTask) -> None:
    run_key = admitted.run.run_key
    if await connection.committer.write(finish, lambda _: connection.outcome_written(run_key)) is Reply.LOST:
        raise await _refused_late(connection, admitted)


def _options(row: TaskRow) -> ActivityOptions:
    try:
        return decode_command(row.command).options
    except msgspec.MsgspecError:  # what is wrong with it is said when it ends
        return ActivityOptions()


# Who may --------------------------------------------------------------------------------------------------------------


async def _admit(connection: Connection, token: str | bytes) -> Admitted:
    """Raises TokenError."""
    claims, body, signature = tokens.read(token)
    now_ms = await connection.now_ms()
    await connection.keyring.read()
    run = await _run_of(connection, claims)
    key = connection.keyring.accepted(claims.key_id, now_ms)
    if key is None or not tokens.is_signed(body, signature, key):
        why = "its signature is wrong" if key is not None else "no key that is accepted here has signed it"
        raise await _refused(connection, run, claims, errors.TokenForgedError, f"{why}. Nothing that it says counts")
    if claims.namespace != connection.namespace:
        what = f"it belongs to namespace {claims.namespace!r}, and this client to {connection.namespace!r}"
        raise await _refused(connection, run, claims, errors.TokenMisdirectedError, what)
    if run is None:
        what = f"this ledger has no run {claims.run_id} of workflow {claims.workflow_id!r}"
        raise await _refused(connection, run, claims, errors.TokenMisdirectedError, what)
    if now_ms >= claims.expires_ms:
        what = f"it was good until {utc(claims.expires_ms).isoformat(timespec='seconds')}"
        raise await _refused(connection, run, claims, errors.TokenExpiredError, what)
    return await _wait_until_out(connection, claims, run)


async def _run_of(connection: Connection, claims: Claims) -> RunRow | None:
    return await connection.store.find_run(claims.namespace, claims.workflow_id, claims.run_id)


async def _wait_until_out(connection: Connection, claims: Claims, run: RunRow) -> Admitted:
    """The token may be faster than the row of its attempt: its code gave it away before it handed the attempt out."""
    until_s, delay_s = connection.monotonic() + HAND_OUT_S, 0.002
    while True:
        row = await _row(connection, claims, run)
        if row is not None and row.owner == OUTSIDE:
            if row.expires_ms is None or await connection.now_ms() < row.expires_ms:
                return Admitted(claims, run, row)
            what = f"its attempt timed out at {utc(row.expires_ms).isoformat(timespec='seconds')}"
            raise await _refused(connection, run, claims, errors.TokenSupersededError, what)
        if connection.monotonic() >= until_s:
            raise errors.TokenTooEarlyError(
                f"{_named(run, claims)}: the attempt has not been handed out within {HAND_OUT_S:g} s. Its code has to "
                "end with activity.raise_complete_async(); if its worker was lost before that, a later attempt has a "
                "token of its own. Nothing is recorded: try again",
                workflow_id=run.workflow_id,
                run_id=run.run_id,
                attempt=claims.attempt,
            )
        await asyncio.sleep(delay_s)
        delay_s = min(0.25, delay_s * 1.5)


async def _row(connection: Connection, claims: Claims, run: RunRow) -> TaskRow | None:
    """Of the attempt, if that goes on; None while nothing is in the store of it. Raises TokenError for one that is
    over."""
    tasks = await connection.store.read_tasks(run.run_key)
    row = next((each for each in tasks if each.event_id == claims.event_id), None)
    if row is not None and (row.attempt, row.state) == (claims.attempt, "started") and not row.lost:
        return row
    if row is not None and row.attempt > claims.attempt:
        what = f"its attempt is over, and the activity is at attempt {row.attempt}"
        raise await _refused(connection, run, claims, errors.TokenSupersededError, what)
    if row is not None and row.state == "done":
        raise await _refused(connection, run, claims, errors.TokenUsedError, "the activity has its outcome already")
    if row is not None and row.lost:
        what = "its attempt was lost with its worker, before it was handed out"
        raise await _refused(connection, run, claims, errors.TokenSupersededError, what)
    if await _has_outcome(connection, claims, run):
        raise await _refused(connection, run, claims, errors.TokenUsedError, "the activity has its outcome already")
    now = await connection.store.read_run(run.run_key)
    if now.status != "running":
        raise await _refused(connection, run, claims, errors.TokenSupersededError, f"the run is {now.status}")
    return None


async def _has_outcome(connection: Connection, claims: Claims, run: RunRow) -> bool:
    after = 0
    while page := await connection.store.read_history(run.run_key, after):
        for stored in page:
            found = transition.decode(stored.body)
            after = stored.first_event_id
            for event in found.inputs:
                if (
                    isinstance(event, ActivityCompleted | ActivityFailed)
                    and event.scheduled_event_id == claims.event_id
                ):
                    return True
    return False


async def _refused_late(connection: Connection, admitted: Admitted) -> errors.TokenError:
    """Somebody was faster: another token, a time-out, the end of the run."""
    claims, run, _ = admitted
    try:
        await _row(connection, claims, run)
    except errors.TokenError as error:
        return error
    return await _refused(connection, run, claims, errors.TokenUsedError, "its attempt has just ended")


def _named(run: RunRow | None, claims: Claims) -> str:
    who = f"workflow {claims.workflow_id!r} (run {claims.run_id})" if run is None else in_words(run)
    return f"the token of attempt {claims.attempt} of the activity at event {claims.event_id} of {who}"


async def _refused(
    connection: Connection, run: RunRow | None, claims: Claims, kind: type[errors.TokenError], why: str
) -> errors.TokenError:
    """The refusal, which is recorded where the run is known."""
    error = kind(
        f"{_named(run, claims)} was refused: {why}",
        workflow_id=claims.workflow_id,
        run_id=claims.run_id,
        attempt=claims.attempt,
    )
    logger.warning("%s", error, extra={"workflow_id": claims.workflow_id, "run_id": claims.run_id})
    if run is not None and 0 < claims.event_id <= run.last_event and 0 < claims.attempt <= _ATTEMPT_MAX:
        log = await connection.store.read_attempts(run.run_key)
        known = [each for each in log if each.event_id == claims.event_id and is_refusal(each.failure)]
        if len(known) < REFUSALS_MAX:
            failure = failures.Failure("application", kind.__name__, error.message)
            place, now_ms = (run.run_key, claims.event_id, claims.attempt), await connection.now_ms()
            record = record_of(place, "late", None, now_ms, outside.WHO, failure)
            await connection.committer.write(LogAttempts([record]))
    return error


#: What a forged token may say of the number of its attempt, for stores that keep it in 32 bits.
_ATTEMPT_MAX: Final = 2**31 - 1
_REFUSALS: Final = frozenset(each.__name__ for each in errors.TokenError.__subclasses__())


def told(log: list[AttemptRecord]) -> list[AttemptRecord]:
    """The attempt log as people are told of it: what says of a token that it was refused has an outcome of its own."""
    return [
        msgspec.structs.replace(each, outcome="refused")
        if each.outcome == "late" and is_refusal(each.failure)
        else each
        for each in log
    ]


def is_refusal(failure: bytes | None) -> bool:
    """Whether a line of the attempt log, by its failure, tells of a token that was refused."""
    return failure is not None and failures.decode(failure).type in _REFUSALS
