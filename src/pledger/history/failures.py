"""Failures as the ledger keeps them, and their way from and to exceptions.

A failure keeps the type, message, details, cause chain and traceback of an exception, so that what a caller catches in
another process, or a year later, says what the first one said. Nothing is unpickled: an exception of a class that is
not ours comes back as an `ApplicationError` whose `type` is that class's name.
"""

from __future__ import annotations

import asyncio
import builtins
from datetime import timedelta
from typing import Any, Final, cast

import msgspec

from pledger import errors
from pledger.history import payloads, tracebacks
from pledger.history.secret import redact, redact_payload
from pledger.history.times import DURATION_MS_MAX

#: A cause chain longer than this is cut: it is bounded like everything in a history.
CAUSES_MAX = 20
#: So many details are told of those that cannot be kept as they are.
DETAILS_MAX = 10
#: Text longer than this is cut in the middle of the ledger's record, never in the log of the process that saw it.
TEXT_MAX = 16_000

_OF_CHILDREN = ("workflow_id", "run_id", "workflow_type", "status", "started_event_id")


class Failure(msgspec.Struct, array_like=True, frozen=True):
    """kind: "application", "activity", "child_workflow", "external_workflow", "timeout", "worker_lost", "cancelled" or
    "terminated".

    details: JSON array of payload values, or None. attributes: what the kind needs beyond that (all JSON values).
    next_retry_delay_ms: what the error asked for, or None.
    """

    kind: str
    type: str
    message: str
    traceback: str = ""
    details: bytes | None = None
    non_retryable: bool = False
    next_retry_delay_ms: int | None = None
    cause: Failure | None = None
    attributes: dict[str, Any] | None = None


_decoder = msgspec.msgpack.Decoder(Failure)

decode = _decoder.decode


#: What is recorded of a failure that its author expects; nothing of any other.
_BENIGN: Final = {"category": errors.ApplicationErrorCategory.BENIGN.value}
_CATEGORIES: Final = (errors.ApplicationErrorCategory.UNSPECIFIED, errors.ApplicationErrorCategory.BENIGN)


def is_benign(failure: Failure) -> bool:
    """Whether it is part of the normal course, and no news to those who watch."""
    return failure.kind == "application" and failure.attributes == _BENIGN


def from_exception(error: BaseException, *, depth: int = 0) -> Failure:
    """The record of `error` with its causes. It is made of whatever user code raises, and can be read again."""
    cause = _cause_of(error)
    inner = from_exception(cause, depth=depth + 1) if cause is not None and depth < CAUSES_MAX else None
    try:
        failure = _record(error)
        decode(msgspec.msgpack.encode(failure))  # attributes that user code has set may be of any type
    except Exception:  # noqa: BLE001 - a failure that could not be kept would leave its attempt open for ever
        failure = Failure("application", type(error).__name__, cut(text_of(error)))
    return failure if inner is None else msgspec.structs.replace(failure, cause=inner)


def text_of(error: BaseException) -> str:
    """What the error says, also where its own code cannot tell."""
    try:
        return str(error)
    except Exception as broken:  # noqa: BLE001 - whatever it is, the error behind it must be told
        return f"(no text: its str() raised {type(broken).__name__})"


def _record(error: BaseException) -> Failure:  # noqa: C901 - a line for each kind
    text = _traceback_text(error)
    message = cut(str(error.message) if isinstance(error, errors.PledgerError) else text_of(error))
    match error:
        case errors.ApplicationError():
            delay = error.next_retry_delay
            return Failure(
                "application",
                redact(str(error.type)),
                message,
                text,
                _details(error.details),
                bool(error.non_retryable),
                min(round(delay.total_seconds() * 1000), DURATION_MS_MAX) if isinstance(delay, timedelta) else None,
                attributes=_BENIGN if error.category is errors.ApplicationErrorCategory.BENIGN else None,
            )
        case errors.SecretError():
            return Failure("application", "SecretError", message, text, non_retryable=error.non_retryable)
        case errors.ActivityError():
            attributes = {
                "activity_type": error.activity_type,
                "scheduled_event_id": error.scheduled_event_id,
                "attempt": error.attempt,
                "retry_state": error.retry_state,
            }
            return Failure("activity", "ActivityError", message, text, attributes=attributes)
        case errors.ChildWorkflowError():
            attributes = {name: getattr(error, name) for name in _OF_CHILDREN}
            return Failure("child_workflow", "ChildWorkflowError", message, text, attributes=attributes)
        case errors.ExternalWorkflowError():
            attributes = {name: getattr(error, name) for name in ("workflow_id", "run_id", "reason")}
            return Failure("external_workflow", "ExternalWorkflowError", message, text, attributes=attributes)
        case errors.TimeoutError():
            details = None if error.last_heartbeat_details is None else _details((error.last_heartbeat_details,))
            return Failure("timeout", "TimeoutError", message, text, details, attributes={"kind": error.kind})
        case errors.WorkerLostError():
            return Failure("worker_lost", "WorkerLostError", message, text)
        case errors.TerminatedError():
            return Failure("terminated", "TerminatedError", message, text)
        case asyncio.CancelledError():
            return Failure("cancelled", "CancelledError", message, text)
        case builtins.TimeoutError():
            return Failure("application", "TimeoutError", message, text)
        case _:
            return Failure("application", type(error).__name__, message, text)


def to_exception(failure: Failure) -> errors.FailureError | errors.CancelledError:
    """The exception that `failure` records, its causes chained."""
    error: errors.FailureError
    attributes = failure.attributes or {}
    details = _undetailed(failure.details)
    match failure.kind:
        case "activity":
            error = errors.ActivityError(failure.message, **attributes)
        case "child_workflow":
            error = errors.ChildWorkflowError(failure.message, **attributes)
        case "external_workflow":
            error = errors.ExternalWorkflowError(failure.message, **attributes)
        case "timeout":
            last = details[0] if details else None
            error = errors.TimeoutError(failure.message, last_heartbeat_details=last, **attributes)
        case "worker_lost":
            error = errors.WorkerLostError(failure.message)
        case "terminated":
            error = errors.TerminatedError(failure.message)
        case "cancelled":
            error = errors.CancelledError(failure.message)
        case _:
            delay = failure.next_retry_delay_ms
            error = errors.ApplicationError(
                failure.message,
                *details,
                type=failure.type,
                non_retryable=failure.non_retryable,
                next_retry_delay=None if delay is None else timedelta(milliseconds=delay),
                category=_CATEGORIES[is_benign(failure)],
            )
    error.remote_traceback = failure.traceback
    if failure.cause is not None:
        error.__cause__ = to_exception(failure.cause)
    return error


def with_cause(failure: Failure, cause: Failure | None) -> Failure:
    """`failure` with `cause` at the end of its chain, so that what happened first stays visible."""
    if cause is None:
        return failure
    inner = cause if failure.cause is None else with_cause(failure.cause, cause)
    return msgspec.structs.replace(failure, cause=inner)


def _cause_of(error: BaseException) -> BaseException | None:
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is None and isinstance(error, BaseExceptionGroup):
        # What failed is more than that something did: of a group without a cause the first one stands for it.
        return error.exceptions[0]
    return cause


def _details(values: tuple[Any, ...]) -> bytes | None:
    if not values:
        return None
    try:
        data = redact_payload(payloads.encode(list(values)))
        payloads.check_size(data, "the details of a failure", payloads.PAYLOAD_BYTES_MAX)
    except errors.PayloadError:
        pass
    else:
        return data
    # The failure itself must reach the ledger; each of its details that cannot be kept is told by its representation.
    kept = [value if _can_be_kept(value) else cut(_shown(value)) for value in values[:DETAILS_MAX]]
    return redact_payload(payloads.encode(kept))


def _can_be_kept(value: object) -> bool:
    try:
        return len(payloads.encode(value)) <= TEXT_MAX
    except errors.PayloadError:
        return False


def _shown(value: object) -> str:
    try:
        return repr(value)
    except Exception as broken:  # noqa: BLE001 - as in `text_of`
        return f"(no text: the repr() of a {type(value).__name__} raised {type(broken).__name__})"


def _undetailed(data: bytes | None) -> list[Any]:
    return [] if data is None else cast("list[Any]", payloads.decode(data))


def _traceback_text(error: BaseException) -> str:
    remote = getattr(error, "remote_traceback", "")
    if remote or error.__traceback__ is None:
        return cast("str", remote)
    return cut(tracebacks.text_of(error, chain=False))


def cut(text: str) -> str:
    """Text that is kept in the ledger, whatever user code puts in it: bounded, and such as can be encoded."""
    # Before it is cut: of half a secret nobody would know what it is.
    text = redact(text)
    # Lone surrogates cannot be encoded; they must not stop the failure from being kept.
    text = text.encode("utf-8", "backslashreplace").decode()
    if len(text) <= TEXT_MAX:
        return text
    half = TEXT_MAX // 2
    return f"{text[:half]}\n... {len(text) - TEXT_MAX} characters left out ...\n{text[-half:]}"
