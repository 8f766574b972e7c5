"""Every error that Pledger raises, in one tree.

    PledgerError
    ├── FailureError                what a workflow or an activity reports; kept across the ledger
    │   ├── ApplicationError        raised by user code, with a type of its own
    │   ├── ActivityError           an activity ended without a result; its cause says why
    │   ├── ChildWorkflowError      a child ended without a result; its cause says why
    │   ├── ExternalWorkflowError   what a run sent to another one reaches nobody
    │   ├── TimeoutError            a deadline passed; its kind says which
    │   ├── WorkerLostError         the worker died with an attempt in flight: outcome unknown
    │   ├── CancelledError          the run or the activity was cancelled
    │   ├── TerminatedError         an operator ended the run at once
    │   ├── WorkflowFailedError     what `handle.result()` raises for a run that failed; its cause says why
    │   └── UpdateFailedError       an update without a result; its cause says why
    │       ├── UpdateRejectedError     the run did not take it, and nothing of it is recorded
    │       └── UpdateUnfinishedError   the run ended before the update's handler did
    ├── DeterminismError            workflow code that cannot be replayed
    │   ├── NondeterminismError     the code asks for something else than what is recorded
    │   ├── ForbiddenCallError      the code called what only an activity may call
    │   └── StuckError              the code did not give the thread back in time
    ├── NoWorkerError               nobody could answer in time
    ├── HistoryFullError            the run has reached the bound of its history and is parked
    ├── WorkflowContinuedAsNewError another run goes on for the one whose result was asked for
    ├── RunBlockedError             a bug in workflow code holds the run; its state is intact
    ├── UsageError                  the caller asked for what cannot be
    │   ├── PayloadError            a value that cannot be kept, or that does not fit its annotation
    │   ├── PayloadTooLargeError    a value over the limit
    │   ├── WorkflowAlreadyStartedError, WorkflowNotFoundError, RunClosedError
    │   ├── NoLongerKeptError       retention has removed what is asked for
    │   ├── StreamOvertakenError    a stream has reached its bound: what is asked for is not kept any more
    │   ├── InboxFullError          too many messages wait for the run: try again later
    │   ├── UnknownSignalError, UnknownQueryError, UnknownUpdateError
    │   ├── UnknownWorkflowError, UnknownActivityError
    │   ├── QueryFailedError
    │   ├── UpdateConflictError     the id belongs to an update with other arguments
    │   ├── InvalidFilterError
    │   ├── SecretError             a secret that is nowhere, or where it must not be
    │   ├── TokenError              a token that completes no activity, and what was refused with it
    │   │   ├── TokenForgedError, TokenExpiredError, TokenMisdirectedError
    │   │   ├── TokenUsedError      the activity has its outcome already
    │   │   ├── TokenSupersededError    its attempt is over: a later one has begun, or the run has closed
    │   │   └── TokenTooEarlyError  its attempt has not been handed out yet: try again
    │   └── InvalidPolicyError      a retry policy or a timeout out of range
    ├── StoreError                  the database
    │   ├── StoreUnavailableError   try again: locked, full, unreachable
    │   ├── SchemaVersionError      the database is newer than this code
    │   ├── CodecError              a payload cannot be opened here: its codec or its key is not there
    │   └── CorruptHistoryError     a history row is damaged, missing or changed
    └── InternalError               a bug of Pledger's own: please report it

Two questions are answered by the class alone: whose fault is it, and may one try again?  Attributes are for
programs, the message for people; every error survives pickling.
"""

from __future__ import annotations

import asyncio
import builtins
from datetime import timedelta
from enum import Enum
from typing import Any, Literal

__all__ = [
    "ActivityError",
    "ApplicationError",
    "ApplicationErrorCategory",
    "CancelledError",
    "ChildWorkflowError",
    "CodecError",
    "CorruptHistoryError",
    "DeterminismError",
    "ExternalWorkflowError",
    "FailureError",
    "ForbiddenCallError",
    "HistoryFullError",
    "InboxFullError",
    "InternalError",
    "InvalidFilterError",
    "InvalidPolicyError",
    "NoLongerKeptError",
    "NoWorkerError",
    "NondeterminismError",
    "PayloadError",
    "PayloadTooLargeError",
    "PledgerError",
    "QueryFailedError",
    "RunBlockedError",
    "RunClosedError",
    "SchemaVersionError",
    "SecretError",
    "StoreError",
    "StoreUnavailableError",
    "StreamOvertakenError",
    "StuckError",
    "TerminatedError",
    "TimeoutError",
    "TimeoutKind",
    "TokenError",
    "TokenExpiredError",
    "TokenForgedError",
    "TokenMisdirectedError",
    "TokenSupersededError",
    "TokenTooEarlyError",
    "TokenUsedError",
    "UnknownActivityError",
    "UnknownQueryError",
    "UnknownSignalError",
    "UnknownUpdateError",
    "UnknownWorkflowError",
    "UpdateConflictError",
    "UpdateFailedError",
    "UpdateRejectedError",
    "UpdateUnfinishedError",
    "UsageError",
    "WorkerLostError",
    "WorkflowAlreadyStartedError",
    "WorkflowContinuedAsNewError",
    "WorkflowFailedError",
    "WorkflowNotFoundError",
]

TimeoutKind = Literal["schedule_to_start", "start_to_close", "schedule_to_close", "heartbeat", "run", "deadline"]


def _rebuild(cls: type[PledgerError], state: dict[str, Any]) -> PledgerError:
    error = cls.__new__(cls)
    Exception.__init__(error, state.get("message", ""))
    error.__dict__.update(state)
    return error


class PledgerError(Exception):
    """The root. `str(error)` is the message."""

    message: str

    def __init__(self, message: str = "") -> None:
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> Any:
        # Keyword-only constructors do not survive the default protocol, which calls cls(*args).
        return _rebuild, (type(self), dict(self.__dict__))


# What workflows and activities report ---------------------------------------------------------------------------------


class FailureError(PledgerError):
    """A failure that the ledger keeps: type, message, details, cause chain and traceback.

    remote_traceback: the traceback text of the process where it was raised, or "" for one raised here.
    """

    remote_traceback: str = ""


class ApplicationErrorCategory(Enum):
    """What a failure is to those who watch. BENIGN: part of the normal course, as an answer "not yet" to a poll is: no
    warning is logged, its attempt is in no metric of failures, and its span is no error. It is retried and recorded as
    any other."""

    UNSPECIFIED = "unspecified"
    BENIGN = "benign"


class ApplicationError(FailureError):
    """Raised by user code to fail an activity or a workflow on purpose.

    type: the name that retry policies match and that callers see; the class name of a wrapped exception.
    non_retryable: no further attempt, whatever the policy says.
    next_retry_delay: asks for this delay before the next attempt instead of the policy's.
    category: whether those who watch want to hear of it.
    details: any payload values, given back to the caller as a tuple.
    """

    def __init__(
        self,
        message: str = "",
        *details: Any,
        type: str | None = None,  # noqa: A002 - the field's name for it
        non_retryable: bool = False,
        next_retry_delay: timedelta | None = None,
        category: ApplicationErrorCategory = ApplicationErrorCategory.UNSPECIFIED,
    ) -> None:
        super().__init__(message)
        self.details = details
        self.type = type or self.__class__.__name__
        self.non_retryable = non_retryable
        self.next_retry_delay = next_retry_delay
        self.category = category

    def __str__(self) -> str:
        return self.message if self.type == "ApplicationError" else f"{self.type}: {self.message}"


class ActivityError(FailureError):
    """An activity ended without a result. `__cause__` is the last failure of its attempts.

    retry_state: why there was no further attempt: "maximum_attempts", "non_retryable", "timeout", "cancelled".
    attempt: how many attempts were made.
    """

    def __init__(
        self,
        message: str = "",
        *,
        activity_type: str = "",
        scheduled_event_id: int = 0,
        attempt: int = 0,
        retry_state: str = "",
    ) -> None:
        super().__init__(message)
        self.activity_type = activity_type
        self.scheduled_event_id = scheduled_event_id
        self.attempt = attempt
        self.retry_state = retry_state


class ChildWorkflowError(FailureError):
    """A child workflow ended without a result. `__cause__` is why: its failure, CancelledError, TerminatedError or
    TimeoutError. status: its terminal state. started_event_id: where the run started it."""

    def __init__(
        self,
        message: str = "",
        *,
        workflow_id: str = "",
        run_id: str = "",
        workflow_type: str = "",
        status: str = "failed",
        started_event_id: int = 0,
    ) -> None:
        super().__init__(message)
        self.workflow_id = workflow_id
        self.run_id = run_id
        self.workflow_type = workflow_type
        self.status = status
        self.started_event_id = started_event_id


class ExternalWorkflowError(FailureError):
    """What a run has sent to another one (a signal, a request to cancel) reaches nobody, and is not kept.

    reason: "not_found", "closed" (it has ended), or "inbox_full" (so many messages wait for it; send it again later).
    """

    def __init__(
        self, message: str = "", *, workflow_id: str = "", run_id: str | None = None, reason: str = "not_found"
    ) -> None:
        super().__init__(message)
        self.workflow_id = workflow_id
        self.run_id = run_id
        self.reason = reason


class TimeoutError(FailureError, builtins.TimeoutError):  # noqa: A001 - the field's name; also catchable as the builtin
    """A deadline passed. kind: which one; "deadline" is that of a block, see `workflow.deadline`.

    last_heartbeat_details: what the attempt reported last, or None.
    """

    def __init__(self, message: str = "", *, kind: TimeoutKind = "start_to_close", last_heartbeat_details: Any = None):
        super().__init__(message)
        self.kind: TimeoutKind = kind
        self.last_heartbeat_details = last_heartbeat_details


class WorkerLostError(FailureError):
    """The worker died while an attempt was in flight: whether the effect happened is *unknown*.

    Counts as an attempt. With maximum_attempts=1 this is the activity's outcome, never guessed away.
    """


class CancelledError(FailureError, asyncio.CancelledError):
    """The run or the activity was cancelled; also an `asyncio.CancelledError`."""


class TerminatedError(FailureError):
    """An operator ended the run at once; no clean-up code ran."""


class WorkflowFailedError(FailureError):
    """A run closed without a result. `__cause__` is its failure; `status` the terminal state."""

    def __init__(self, message: str = "", *, workflow_id: str = "", run_id: str = "", status: str = "failed") -> None:
        super().__init__(message)
        self.workflow_id = workflow_id
        self.run_id = run_id
        self.status = status


class UpdateFailedError(FailureError):
    """An update has no result. `__cause__` is what its handler raised. update_id: under which it was sent."""

    def __init__(self, message: str = "", *, update_id: str = "", workflow_id: str = "", run_id: str = "") -> None:
        super().__init__(message)
        self.update_id = update_id
        self.workflow_id = workflow_id
        self.run_id = run_id


class UpdateRejectedError(UpdateFailedError):
    """The run did not take the update: its validator raised, which is the cause, or its arguments do not fit. Nothing
    of it is recorded, so that it may be sent again under the same id."""


class UpdateUnfinishedError(UpdateFailedError):
    """The run ended before the handler of the update did, which was accepted: how far it got is in the history."""


# Determinism ----------------------------------------------------------------------------------------------------------


class DeterminismError(PledgerError):
    """Workflow code that cannot be replayed. Blocks the run; nothing is lost."""


class NondeterminismError(DeterminismError):
    """The code asks for something else than what is recorded.

    event_id: the first event that differs, or of what the code asks beyond the record.
    recorded, replayed: the two commands in words; None where one side has nothing.
    where: file, line and function of the replayed command, or None.
    """

    def __init__(
        self,
        message: str = "",
        *,
        event_id: int = 0,
        recorded: str | None = None,
        replayed: str | None = None,
        where: str | None = None,
    ) -> None:
        super().__init__(message)
        self.event_id = event_id
        self.recorded = recorded
        self.replayed = replayed
        self.where = where


class ForbiddenCallError(DeterminismError):
    """Workflow code called what is not deterministic or does I/O. call: its name; remedy: what to use instead."""

    def __init__(self, message: str = "", *, call: str = "", remedy: str = "") -> None:
        super().__init__(message)
        self.call = call
        self.remedy = remedy


class StuckError(DeterminismError):
    """Workflow code ran on without waiting for longer than the watchdog allows."""

    def __init__(self, message: str = "the code ran on without waiting for longer than the watchdog allows") -> None:
        # Raised from another thread by its class alone: it has to know what to say.
        super().__init__(message)


class HistoryFullError(PledgerError):
    """The run's history has reached its bound; the run is parked with its state intact. events_max, bytes_max: the
    bounds, one of which it has reached."""

    def __init__(self, message: str = "", *, events_max: int = 0, bytes_max: int = 0) -> None:
        super().__init__(message)
        self.events_max = events_max
        self.bytes_max = bytes_max


class WorkflowContinuedAsNewError(PledgerError):
    """The run has ended for a successor, and its caller did not want to follow it. new_run_id: of the newest one."""

    def __init__(self, message: str = "", *, workflow_id: str = "", run_id: str = "", new_run_id: str = "") -> None:
        super().__init__(message)
        self.workflow_id = workflow_id
        self.run_id = run_id
        self.new_run_id = new_run_id


class RunBlockedError(PledgerError):
    """A bug in workflow code holds the run, its state intact; it goes on when a worker with other code takes it.

    failure_type: class name of the bug; traceback: its text, as the worker saw it.
    """

    def __init__(
        self,
        message: str = "",
        *,
        workflow_id: str = "",
        run_id: str = "",
        failure_type: str = "",
        traceback: str = "",
    ) -> None:
        super().__init__(message)
        self.workflow_id = workflow_id
        self.run_id = run_id
        self.failure_type = failure_type
        self.traceback = traceback


# Usage ----------------------------------------------------------------------------------------------------------------


class UsageError(PledgerError):
    """The caller asked for what cannot be. Trying again does not help."""


class PayloadError(UsageError):
    """A value that cannot be kept, or that does not fit its annotation. path: where in the value, like `$.lines[0]`."""

    def __init__(self, message: str = "", *, path: str = "$") -> None:
        super().__init__(message)
        self.path = path


class PayloadTooLargeError(PayloadError):
    """A value over the limit. size_bytes, size_bytes_max: what it is and what is allowed."""

    def __init__(self, message: str = "", *, size_bytes: int = 0, size_bytes_max: int = 0) -> None:
        super().__init__(message)
        self.size_bytes = size_bytes
        self.size_bytes_max = size_bytes_max


class WorkflowAlreadyStartedError(UsageError):
    """The workflow id is taken, by a run with another input or against the chosen policy."""

    def __init__(self, message: str = "", *, workflow_id: str = "", run_id: str = "") -> None:
        super().__init__(message)
        self.workflow_id = workflow_id
        self.run_id = run_id


class WorkflowNotFoundError(UsageError):
    """No run has this workflow id (and run id)."""


class RunClosedError(UsageError):
    """The run is in a terminal state and takes no message. status: which one."""

    def __init__(self, message: str = "", *, status: str = "") -> None:
        super().__init__(message)
        self.status = status


class NoLongerKeptError(UsageError):
    """The run has ended, and retention has removed its history with its result. status: how it ended."""

    def __init__(self, message: str = "", *, workflow_id: str = "", run_id: str = "", status: str = "") -> None:
        super().__init__(message)
        self.workflow_id = workflow_id
        self.run_id = run_id
        self.status = status


class StreamOvertakenError(UsageError):
    """A stream has reached its bound while nobody looked: the values from the offset on that was asked for are not all
    kept any more. first_offset: of the oldest one that is."""

    def __init__(self, message: str, *, first_offset: int) -> None:
        super().__init__(message)
        self.first_offset = first_offset


class InboxFullError(UsageError):
    """So many messages wait for the run that it takes no more. Nothing is stored; the same may be sent again later."""

    def __init__(self, message: str = "", *, workflow_id: str = "", run_id: str = "") -> None:
        super().__init__(message)
        self.workflow_id = workflow_id
        self.run_id = run_id


class UnknownSignalError(UsageError):
    """The workflow has no such signal."""


class UnknownQueryError(UsageError):
    """The workflow has no such query."""


class UnknownUpdateError(UsageError):
    """The workflow has no such update, or the run knows none of that id."""


class UpdateConflictError(UsageError):
    """The run has accepted an update of this id with another name or other arguments."""

    def __init__(self, message: str = "", *, update_id: str = "") -> None:
        super().__init__(message)
        self.update_id = update_id


class UnknownWorkflowError(UsageError):
    """No definition of this workflow type is known here."""


class UnknownActivityError(UsageError):
    """No definition of this activity is known here."""


class QueryFailedError(UsageError):
    """The query's code raised. The run is untouched."""


class NoWorkerError(PledgerError):
    """No live worker could answer in time. Start one for the task queue and try again."""


class InvalidFilterError(UsageError):
    """A list filter that does not parse, or names an unknown field."""


class InvalidPolicyError(UsageError, ValueError):
    """A retry policy, timeout or other option out of its range."""


class SecretError(UsageError):
    """A secret that no resolver knows, that is asked for where it is not declared, or that was about to be recorded.

    name: of the secret, where there is one. non_retryable: whether another attempt would end the same way.
    """

    def __init__(self, message: str = "", *, name: str = "", non_retryable: bool = False) -> None:
        super().__init__(message)
        self.name = name
        self.non_retryable = non_retryable


class TokenError(UsageError):
    """A token of an attempt that is completed from outside was refused, and nothing was recorded as its outcome. Where
    the token names a run, the refusal stands in that one's attempt log."""

    def __init__(self, message: str = "", *, workflow_id: str = "", run_id: str = "", attempt: int = 0) -> None:
        super().__init__(message)
        self.workflow_id = workflow_id
        self.run_id = run_id
        self.attempt = attempt


class TokenForgedError(TokenError):
    """It is none of this ledger's: changed, made up, or signed by a key that is accepted no more."""


class TokenExpiredError(TokenError):
    """The time is over for which it was made."""


class TokenMisdirectedError(TokenError):
    """It belongs to a run of another namespace or ledger."""


class TokenUsedError(TokenError):
    """The activity has its outcome: by this token, or since its time was over."""


class TokenSupersededError(TokenError):
    """Its attempt is over: a later one has begun, or the run has closed."""


class TokenTooEarlyError(TokenError):
    """Its attempt has not been handed out yet, or is lost with its worker: try again."""


# Store ----------------------------------------------------------------------------------------------------------------


class StoreError(PledgerError):
    """The database failed."""


class StoreUnavailableError(StoreError):
    """Locked, full, read-only or unreachable: nothing was changed, try again once it is mended."""


class SchemaVersionError(StoreError):
    """The database was written by a newer Pledger."""


class CorruptHistoryError(StoreError):
    """A history row is damaged, missing or changed. run_id, event_id: the first one that is wrong."""

    def __init__(self, message: str = "", *, run_id: str = "", event_id: int = 0) -> None:
        super().__init__(message)
        self.run_id = run_id
        self.event_id = event_id


class CodecError(StoreError):
    """A payload cannot be sealed or opened here. codec: which one could not. key_id: of the key that is not there, if
    it is one. Nothing is lost: it can be read where they are."""

    def __init__(self, message: str = "", *, codec: str = "", key_id: str | None = None) -> None:
        super().__init__(message)
        self.codec = codec
        self.key_id = key_id
        #: The row of a history that it is about, for the engine.
        self.unopened: Any = None


class InternalError(PledgerError):
    """A bug of Pledger's own. Please report it with the traceback."""
