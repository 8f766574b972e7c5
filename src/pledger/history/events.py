"""Everything that a history can hold: inputs (what reached the run) and commands (what its code asked for).

A history is a list of transitions (`transition.py`); each holds its inputs, then the commands that the workflow's code
gave in answer. Every input and every command takes one `event_id`, counted from 1 in one run.

The records are arrays on the wire and each carries a number as its tag. Tags are never reused; a field is only ever
added at the end, with a default: an old history then still decodes, and an old worker skips what it does not know.
Times are milliseconds since 1970 UTC (`_ms`), durations are milliseconds (`_ms`, said in the docstring).
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from pledger.history.attributes import AttributeRecord
from pledger.history.failures import Failure
from pledger.history.placement import Placement
from pledger.history.retry import RetryPolicyRecord


class Event(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Base of inputs and commands: an immutable record."""


class ChainLink(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What ties a run to those before it. first_run_id: of the run that was started, which names the chain.
    continued_run_id: of the one before. segment: its number, from 2."""

    first_run_id: str
    continued_run_id: str
    segment: int


# Inputs: past tense ---------------------------------------------------------------------------------------------------


class Parent(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The run that started this one. started_event_id: where it did, in its history."""

    workflow_id: str
    run_id: str
    started_event_id: int


class RunStarted(Event, tag=1, frozen=True):
    """The run exists.

    args: the arguments as one JSON array. seed: feeds every draw of the run, and its successors' after a reset.
    deadline_ms: when the run times out, or None. placement: of its activities, where they state none; in exported
    histories it is called `priority`. owner: who answers for it, a person or a team. link: of a run that goes on for
    another one. parent: of a child. headers: what interceptors of the client had to say, or None. search_attributes: by
    which it is found. memo: JSON object, for people.
    """

    workflow_type: str
    args: bytes
    seed: bytes
    task_queue: str = "default"
    deadline_ms: int | None = None
    placement: Placement | None = msgspec.field(default=None, name="priority")
    owner: str | None = None
    link: ChainLink | None = None
    parent: Parent | None = None
    headers: dict[str, str] | None = None
    search_attributes: tuple[AttributeRecord, ...] | None = None
    memo: bytes | None = None


class ActivityCompleted(Event, tag=2, frozen=True):
    """result: JSON. attempt: the 1-based attempt that brought it."""

    scheduled_event_id: int
    result: bytes
    attempt: int = 1


class ActivityFailed(Event, tag=3, frozen=True):
    """No further attempt follows. retry_state: why ("maximum_attempts", "non_retryable", "timeout", "cancelled")."""

    scheduled_event_id: int
    failure: Failure
    retry_state: str
    attempt: int = 1


class TimerFired(Event, tag=4, frozen=True):
    started_event_id: int


class SignalReceived(Event, tag=5, frozen=True):
    """args: JSON array. message_id: the sender's; one is delivered once in a chain."""

    name: str
    args: bytes
    message_id: str


class CancelRequested(Event, tag=6, frozen=True):
    """request_id: names the cancel message, whose verdict is written when the run closes."""

    reason: str
    request_id: str


class RunTerminated(Event, tag=7, frozen=True):
    """An operator ended the run; the code is not told."""

    reason: str


class RunTimedOut(Event, tag=8, frozen=True):
    """The run's own deadline passed; the code is not told."""


class ChildStarted(Event, tag=41, frozen=True):
    """The child is there. run_id: of its first run."""

    started_event_id: int
    run_id: str


class ChildStartFailed(Event, tag=42, frozen=True):
    """There is no child: its workflow id was taken. run_id: by which run."""

    started_event_id: int
    run_id: str


class ChildClosed(Event, tag=43, frozen=True):
    """The child has ended. status: as what. result: JSON of a completed one. failure: of any other."""

    started_event_id: int
    status: str
    result: bytes | None = None
    failure: Failure | None = None


class MessageDelivered(Event, tag=44, frozen=True):
    """What the run has sent is in the inbox of the other one."""

    sent_event_id: int


class MessageRefused(Event, tag=45, frozen=True):
    """What the run has sent reaches nobody. reason: "not_found", "closed" or "inbox_full"."""

    sent_event_id: int
    reason: str


class RunReset(Event, tag=18, frozen=True):
    """The events before this one are those of another run of the chain, taken over as they are; the code goes on here.

    base_run_id: of that run. event_id: the last of its events that counts; those of them that the code is to answer
    anew follow this one. how: "reset" or "redrive". reason, by: why, and who asked for it.
    keys: what the default idempotency keys of the base begin with. past: (activity type, digest of the arguments, key)
    of what the base has scheduled beyond the point, in order: who asks for the same again gets the key again.
    tokens: no attempt for such a key has had a fencing token above this. deadline_ms: when the run times out, or None.
    children: workflow ids of the children that were started beyond the point, or None: the code may start them again.
    """

    base_run_id: str
    event_id: int
    how: str
    reason: str
    by: str
    keys: str
    tokens: int
    deadline_ms: int | None = None
    past: tuple[tuple[str, str, str], ...] = ()
    children: tuple[str, ...] | None = None


class UpdateAccepted(Event, tag=9, frozen=True):
    """The update's validator has let it through, and its handler begins. args: JSON array. update_id: the sender's; the
    run knows it for ever, and what is sent once more under it gets the outcome of this one."""

    name: str
    args: bytes
    update_id: str


# Commands: imperative -------------------------------------------------------------------------------------------------


class ActivityOptions(msgspec.Struct, array_like=True, frozen=True, gc=False, omit_defaults=True):
    """The contract of one scheduled activity, resolved from its definition and the call. Durations in ms.

    start_to_close_ms bounds one attempt; schedule_to_close_ms all of them; schedule_to_start_ms the wait in the queue;
    heartbeat_ms the silence of an attempt. None: no such bound. retry None: the default policy.
    cancellation: "try" (the code goes on at once), "wait" (it waits for the outcome) or "abandon" (nobody is told).
    run_deadline_ms: when the run times out, in a task row alone: whoever makes the attempt may know nothing else of it.
    tokens_before: fencing tokens begin above this, since attempts of another run have used the idempotency
    key.
    """

    start_to_close_ms: int | None = None
    schedule_to_close_ms: int | None = None
    schedule_to_start_ms: int | None = None
    heartbeat_ms: int | None = None
    retry: RetryPolicyRecord | None = None
    cancellation: str = "try"
    run_deadline_ms: int | None = None
    tokens_before: int | None = None


class ScheduleActivity(Event, tag=21, frozen=True):
    """args: JSON array. task_queue None: the run's own. idempotency_key None: the default, from the position.
    placement None: it stands in its queue as all others do. headers: what interceptors of the workflow had to say."""

    activity_type: str
    args: bytes
    options: ActivityOptions
    task_queue: str | None = None
    idempotency_key: str | None = None
    placement: Placement | None = None
    headers: dict[str, str] | None = None


class CancelActivity(Event, tag=22, frozen=True):
    scheduled_event_id: int


class StartTimer(Event, tag=23, frozen=True):
    """delay_ms counts from the transition's time; fire_at_ms is that sum, so that nothing has to add it again."""

    delay_ms: int
    fire_at_ms: int


class StartDeadline(StartTimer, tag=63, frozen=True):
    """A timer that ends a block of the code when it fires, where others are waited for. To a replay it is one like all
    others: code may go over from `asyncio.timeout` to `workflow.deadline` under open runs."""


class CancelTimer(Event, tag=24, frozen=True):
    started_event_id: int


class RecordPatch(Event, tag=25, frozen=True):
    """The run took the new side of `workflow.patched(patch_id)`.

    is_deprecated: True where the code had no old side any more (`workflow.deprecate_patch`): a replay by code that does
    not name the patch at all has the same commands otherwise. None: it had one.
    """

    patch_id: str
    is_deprecated: bool | None = None


class BeginPhase(Event, tag=61, frozen=True):
    """The run is in a phase of its work from here on, or in a wait that its code has named. For those who look: no
    code depends on it.

    kind: "phase" or "wait". owner: who must act, a person or a team, or None. deadline_ms: when it should be over, or
    None; after that it is overdue, and nothing else. raises: True where the code is told then, by a timer of its own.
    """

    name: str
    kind: str = "phase"
    owner: str | None = None
    deadline_ms: int | None = None
    raises: bool | None = None


class EndPhase(Event, tag=62, frozen=True):
    begun_event_id: int


class StartChild(Event, tag=51, frozen=True):
    """args: JSON array. parent_close_policy: what becomes of it when the run ends before it: "terminate",
    "request_cancel" or "abandon". cancellation: what a cancellation of its handle does, as in
    `ChildWorkflowCancellationType`. timeout_ms: from its start. reuse: an `IdReusePolicy`, by its value.
    search_attributes, memo: as in RunStarted. headers: what interceptors of the workflow had to say."""

    workflow_type: str
    args: bytes
    workflow_id: str
    task_queue: str = "default"
    parent_close_policy: str = "terminate"
    cancellation: str = "wait_cancellation_completed"
    timeout_ms: int | None = None
    reuse: str = "reject_duplicate"
    placement: Placement | None = None
    owner: str | None = None
    search_attributes: tuple[AttributeRecord, ...] | None = None
    memo: bytes | None = None
    headers: dict[str, str] | None = None


class CancelChild(Event, tag=52, frozen=True):
    """Ask the child to stop. is_acknowledged: the run is told once the request is in its inbox."""

    started_event_id: int
    workflow_id: str
    reason: str = ""
    is_acknowledged: bool | None = None


class SendSignal(Event, tag=53, frozen=True):
    """To another run. run_id None: the newest one of the id. args: JSON array. started_event_id: where the run started
    it, if it is a child of its own."""

    workflow_id: str
    name: str
    args: bytes
    run_id: str | None = None
    started_event_id: int | None = None


class SendCancel(Event, tag=54, frozen=True):
    """Ask another run to stop. run_id: as in SendSignal."""

    workflow_id: str
    run_id: str | None = None
    reason: str = ""


class CompleteUpdate(Event, tag=26, frozen=True):
    """The handler of an accepted update has ended. result: JSON, or None where it has failed: the failure says why."""

    update_id: str
    result: bytes | None = None
    failure: Failure | None = None


class UpsertSearchAttributes(Event, tag=71, frozen=True):
    """What the code changed in one activation, by name; one without a value is taken away."""

    attributes: tuple[AttributeRecord, ...]


class UpsertMemo(Event, tag=72, frozen=True):
    """memo: JSON object of what the code changed in one activation; null takes a value away."""

    memo: bytes


class CompleteRun(Event, tag=31, frozen=True):
    """result: JSON."""

    result: bytes


class FailRun(Event, tag=32, frozen=True):
    failure: Failure


class CancelRun(Event, tag=33, frozen=True):
    """The code ended by the cancellation that was asked of it."""

    failure: Failure


class ContinueAsNew(Event, tag=34, frozen=True):
    """The run has ended, and a successor with an empty history goes on for it: the next segment of the chain.

    args: of the successor, as one JSON array. deadline_ms: when the successor times out, None for when this run does.
    """

    workflow_type: str
    args: bytes
    task_queue: str
    deadline_ms: int | None = None


Input: TypeAlias = (
    RunStarted
    | ActivityCompleted
    | ActivityFailed
    | TimerFired
    | SignalReceived
    | CancelRequested
    | RunTerminated
    | RunTimedOut
    | ChildStarted
    | ChildStartFailed
    | ChildClosed
    | MessageDelivered
    | MessageRefused
    | RunReset
    | UpdateAccepted
)
Command: TypeAlias = (
    ScheduleActivity
    | CancelActivity
    | StartTimer
    | StartDeadline
    | CancelTimer
    | RecordPatch
    | BeginPhase
    | EndPhase
    | StartChild
    | CancelChild
    | SendSignal
    | SendCancel
    | CompleteUpdate
    | UpsertSearchAttributes
    | UpsertMemo
    | CompleteRun
    | FailRun
    | CancelRun
    | ContinueAsNew
)

#: Commands as history events are told in the past tense; inputs already are.
PAST_TENSE: dict[type[Event], str] = {
    ScheduleActivity: "ActivityScheduled",
    CancelActivity: "ActivityCancelRequested",
    StartTimer: "TimerStarted",
    StartDeadline: "DeadlineStarted",
    CancelTimer: "TimerCancelled",
    RecordPatch: "PatchRecorded",
    BeginPhase: "PhaseBegun",
    EndPhase: "PhaseEnded",
    StartChild: "ChildStartRequested",
    CancelChild: "ChildCancelRequested",
    SendSignal: "SignalSent",
    SendCancel: "CancelSent",
    CompleteUpdate: "UpdateCompleted",
    UpsertSearchAttributes: "SearchAttributesUpserted",
    UpsertMemo: "MemoUpserted",
    CompleteRun: "RunCompleted",
    FailRun: "RunFailed",
    CancelRun: "RunCancelled",
    ContinueAsNew: "RunContinuedAsNew",
}


def event_type(event: Event) -> str:
    """The event's name as people see it: `ActivityScheduled` for the command `ScheduleActivity`."""
    return PAST_TENSE.get(type(event)) or type(event).__name__
