"""Why a run stands still: the reason that a block keeps, and the error that it gives to whoever waits."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from pledger import errors
from pledger.history import failures, tracebacks

#: Claims in a row that may end without progress before a run is parked: it kills or hangs its workers.
CLAIMS_MAX: Final = 5


def reason(error: BaseException, now_ms: int, event_id: int) -> bytes:
    """A block's reason as JSON: reason ("nondeterminism", "forbidden_call", "corrupt", "codec", "history_full" or
    "bug"), type, message, traceback, at_ms, event_id (the first wrong one, or the one that would have been next)."""
    match error:
        case errors.NondeterminismError():
            kind = "nondeterminism"
        case errors.ForbiddenCallError():
            kind = "forbidden_call"
        case errors.CorruptHistoryError():
            kind = "corrupt"
        case errors.CodecError():
            kind = "codec"
        case errors.HistoryFullError():
            kind = "history_full"
        case _:
            kind = "bug"
    if isinstance(error, errors.NondeterminismError | errors.CorruptHistoryError):  # others may call anything so
        event_id = error.event_id or event_id
    text = tracebacks.text_of(error)
    return _encode(kind, type(error).__name__, failures.text_of(error), text, now_ms, event_id)


def poison(claims: int, now_ms: int, event_id: int) -> bytes:
    """The reason of a run that ended its workers again and again."""
    message = f"{claims} workers in a row took this run and ended before it made progress; it is parked, not passed on"
    return _encode("poison", "PoisonRun", message, "", now_ms, event_id)


def _encode(kind: str, type_: str, message: str, text: str, now_ms: int, event_id: int) -> bytes:
    fields = {
        "reason": kind,
        "type": type_,
        "message": failures.cut(message),
        "traceback": failures.cut(text),
        "at_ms": now_ms,
        "event_id": event_id,
    }
    return msgspec.json.encode(fields)


def read(block: bytes) -> dict[str, Any]:
    """The reason's fields."""
    return msgspec.json.decode(block, type=dict[str, Any])


def to_error(block: bytes, workflow_id: str, workflow_type: str, run_id: str) -> errors.RunBlockedError:
    """What `handle.result()` raises while the run is blocked."""
    fields = read(block)
    return errors.RunBlockedError(
        f"workflow {workflow_id!r} ({workflow_type}, run {run_id}) is blocked by {fields['type']}: "
        f"{fields['message']}\n"
        f"Its state is intact. Deploy a fix (or roll back): a worker with other code takes the run and goes on.\n"
        f"{fields['traceback']}".rstrip(),
        workflow_id=workflow_id,
        run_id=run_id,
        failure_type=fields["type"],
        traceback=fields["traceback"],
    )
