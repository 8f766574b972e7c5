"""The port: what the engine needs of a database, in domain verbs grouped by subject. `pledger.store` implements it.

Writes that concern one run are *operations*, gathered by the committer and handed over as one batch: the store writes
the batch in one durable transaction and answers each operation on its own. A lost fence, a taken workflow id or a
duplicate message is an ordinary answer and never harms its neighbours in the batch.

Rules that every store keeps (`tests/conformance` checks each of them):

- An answer is given after the commit is durable, never before.
- An append wins only if the run is open, its fence and its last event are the expected ones; otherwise nothing of the
  operation is written and the answer is LOST. One that is there already (repeated, since its answer was lost) has WON.
- Terminal states absorb: nothing changes a closed run.
- A run is owned exactly while a session holds it; every change of owner raises the fence.
- Namespaces are apart: a workflow id, and a task queue's name, mean nothing outside of theirs.
- Reads see committed data only.
- An operation is refused on its own with an exception of `pledger.errors` in place of its answer only when it is itself
  at fault; if the whole batch could not be written, the future fails and nothing of it is written.

Keys (`run_key`, `chain_key`, `session_key`, `message_key`, ...) are the store's own numbers, positive, never reused.
All times are milliseconds since 1970 UTC by the store's clock, durations are milliseconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Final, Literal, Protocol, TypeAlias

import msgspec

from pledger.history.transition import StoredTransition

RunStatus: TypeAlias = Literal[
    "running", "completed", "compensated", "failed", "cancelled", "terminated", "timed_out", "continued_as_new"
]
TERMINAL: Final = frozenset(
    {"completed", "compensated", "failed", "cancelled", "terminated", "timed_out", "continued_as_new"}
)


class Record(msgspec.Struct, frozen=True, gc=False):
    """Base of what a store holds and answers: plain, quick to make, and never part of a reference cycle (so that the
    garbage collector need not look at it)."""


class Write(msgspec.Struct, gc=False):
    """Base of the operations: the same, and open to the store, which fills in what it alone knows."""


# What a store holds ---------------------------------------------------------------------------------------------------


class RunRow(Record, frozen=True):
    """One run as lists and descriptions show it.

    last_event: position of its newest event, 0 before the first transition. head: checksum of its newest transition.
    owner: the session that holds it, or None. due_ms: when it must be activated on its own account (0: at once), or
    None when only a message can wake it. claims: take-overs since it last made progress.
    blocked: why it stands still (JSON object with at least "reason"), or None. blocked_code: the code that failed.
    """

    run_key: int
    chain_key: int
    namespace: str
    workflow_id: str
    run_id: str
    workflow_type: str
    task_queue: str
    status: RunStatus
    input_digest: bytes
    started_ms: int
    closed_ms: int | None
    last_event: int
    head: bytes
    fence: int
    owner: int | None
    due_ms: int | None
    claims: int
    blocked: bytes | None
    blocked_code: str | None


class Message(Record, frozen=True):
    """One message of a chain's inbox. kind: "start" (body: an encoded RunStarted), "signal" (body: JSON array of
    arguments) or "cancel" (body: the reason in UTF-8; name is empty).

    verdict: None while it waits; "delivered" (event_id says where), "undelivered" (the run closed first), and for a
    cancel what became of the run: "cancelled", or "too_late:<status>".
    """

    message_key: int
    kind: str
    message_id: str
    name: str
    body: bytes
    sent_ms: int
    verdict: str | None = None
    event_id: int | None = None


class TaskRow(Record, frozen=True):
    """A pending activity that lives in the store: queued, retrying, heartbeating or run by another worker.

    Identity: (run_key, event_id); event_id is where the activity was scheduled. attempt: 1-based, the one that is
    queued or started. state: "queued" (may start at due_ms), "started" (owner runs it since started_ms) or "done"
    (outcome waits for the run). lost: this attempt died with its worker; whoever claims the row judges that first.
    command: the encoded ScheduleActivity. scheduled_ms: when it was scheduled first. expires_ms: when waiting in the
    queue ends without an attempt, or None. heartbeat: last details (JSON), or None. last_failure: encoded Failure or
    None. outcome: encoded ActivityCompleted or ActivityFailed once done.
    cancel_requested: its attempt should stop, and no further one begin. Whatever is written over the row does not take
    that back. While such a row is queued it has expired (expires_ms 0): the first worker that looks settles it, whether
    it serves the queue or not.
    """

    run_key: int
    event_id: int
    namespace: str
    workflow_id: str
    run_id: str
    workflow_type: str
    task_queue: str
    activity_type: str
    state: Literal["queued", "started", "done"]
    attempt: int
    due_ms: int
    command: bytes
    scheduled_ms: int
    started_ms: int | None = None
    expires_ms: int | None = None
    owner: int | None = None
    lost: bool = False
    heartbeat: bytes | None = None
    last_failure: bytes | None = None
    outcome: bytes | None = None
    cancel_requested: bool = False


class AttemptRecord(Record, frozen=True):
    """One line of the bounded attempt log. outcome: "failed", "timed_out", "lost", "cancelled", "late".

    event_id: the activity's; or that of a signal that the code did not take, with why as the failure.

    failure: encoded Failure, or None.
    """

    run_key: int
    event_id: int
    attempt: int
    outcome: str
    started_ms: int | None
    ended_ms: int
    worker: str
    failure: bytes | None = None


class SessionRow(Record, frozen=True):
    """A worker process. identity: what people call it (host, process id). expires_ms: end of its lease."""

    session_key: int
    identity: str
    namespace: str
    task_queue: str
    code: str
    started_ms: int
    expires_ms: int


class Request(Record, frozen=True):
    """A question to the owner of a run. kind: "query". body: JSON array of arguments.

    answer: JSON once answered well; failure: encoded Failure once answered badly.
    """

    request_key: int
    run_key: int
    kind: str
    name: str
    body: bytes
    expires_ms: int
    answer: bytes | None = None
    failure: bytes | None = None


# Operations -----------------------------------------------------------------------------------------------------------


class IdReusePolicy(Enum):
    """What a start does when a *closed* run has the same workflow id. By default the same input gives the same run."""

    SAME_INPUT = "same_input"
    ALLOW_DUPLICATE = "allow_duplicate"
    ALLOW_DUPLICATE_FAILED_ONLY = "allow_duplicate_failed_only"
    REJECT_DUPLICATE = "reject_duplicate"


class IdConflictPolicy(Enum):
    """What a start does when an *open* run has the same workflow id. By default the same input gives the same run."""

    SAME_INPUT = "same_input"
    FAIL = "fail"
    USE_EXISTING = "use_existing"
    TERMINATE_EXISTING = "terminate_existing"


class Append(Write):
    """One transition of one run, by its owner.

    expected_event: the run's last event before. last_event: after. due_ms: see RunRow. closed: the terminal status,
    or None; closing lets go of the run. consumed: (message_key, event_id) of the messages that became inputs. tasks:
    task rows to write (or overwrite); dropped: event ids whose task row goes away; cancelled: event ids of activities
    that are to stop, see TaskRow.cancel_requested; unwritten: their rows, as far as they may have none yet, written
    unless one of that attempt or a later one is there. attempts: log lines.
    """

    run_key: int
    fence: int
    expected_event: int
    transition: StoredTransition
    last_event: int
    due_ms: int | None
    time_ms: int
    closed: RunStatus | None = None
    consumed: Sequence[tuple[int, int]] = ()
    tasks: Sequence[TaskRow] = ()
    dropped: Sequence[int] = ()
    cancelled: Sequence[int] = ()
    unwritten: Sequence[TaskRow] = ()
    attempts: Sequence[AttemptRecord] = ()


class StartRun(Write):
    """Create a chain and its first run. started: an encoded RunStarted.

    owner None: the run waits for a worker, `started` is its first message. With an owner, `first` is the run's first
    transition (its run_key is filled in by the store) and the run is born owned, with fence 1. Answered Started,
    Existing, or LOST when the owner's session has ended: nobody would ever take the run from it.
    """

    namespace: str
    workflow_id: str
    run_id: str
    workflow_type: str
    task_queue: str
    input_digest: bytes
    started: bytes
    started_ms: int
    reuse: IdReusePolicy = IdReusePolicy.SAME_INPUT
    conflict: IdConflictPolicy = IdConflictPolicy.SAME_INPUT
    owner: int | None = None
    first: Append | None = None


class Release(Write):
    """The owner lets go of a run that is not changed. due_ms: as in RunRow. Answered WON or LOST.

    A run whose inbox holds waiting messages, or that has a task with an outcome, becomes due at once whatever due_ms
    says: a sender that saw this owner has stored no wake-up.
    """

    run_key: int
    fence: int
    due_ms: int | None


class Block(Write):
    """The owner lets go of a run that its code cannot carry on. reason: JSON object. Answered WON or LOST.

    tasks: rows to write (or overwrite): what the run's activities have brought or still do, and its history does not
    say, so that nothing that was done is lost by a bug.
    """

    run_key: int
    fence: int
    reason: bytes
    code: str
    tasks: Sequence[TaskRow] = ()


class ConfirmClaim(Write):
    """A claimed run was loaded and is alive: its count of claims without progress goes back to 0."""

    run_key: int
    fence: int


class PutTask(Write):
    """Write a task row outside of a transition, by the run's owner, over that of an earlier attempt.

    Answered WON, LOST, or DUPLICATE when the row of this attempt or a later one is there: a write that was repeated,
    since its answer was lost, must not put back what has begun since.
    """

    fence: int
    task: TaskRow
    attempts: Sequence[AttemptRecord] = ()


class FinishTask(Write):
    """The session that runs an attempt brings its outcome. Wins only while the row is started by it, at this attempt.

    requeue: the row as it shall wait for the next attempt, or None; outcome: encoded ActivityCompleted or
    ActivityFailed, or None. Exactly one of the two. An outcome wakes the run.
    """

    run_key: int
    event_id: int
    attempt: int
    owner: int
    outcome: bytes | None = None
    requeue: TaskRow | None = None
    attempts: Sequence[AttemptRecord] = ()


class ExpireTask(Write):
    """A queued row waited past its expires_ms. Wins only while it is still queued at this attempt; wakes the run."""

    run_key: int
    event_id: int
    attempt: int
    outcome: bytes
    attempts: Sequence[AttemptRecord] = ()


class Heartbeat(Write):
    """Details of a started attempt. Answered HEARTBEAT_OK, CANCEL_REQUESTED, or LOST when it is not its attempt any
    more."""

    run_key: int
    event_id: int
    attempt: int
    owner: int
    details: bytes | None


class LogAttempts(Write):
    """Lines for the attempt log that belong to no other operation: late results. Answered WON."""

    attempts: Sequence[AttemptRecord]


#: Messages of one run that wait for it. A run that works takes them at once; so many pile up only where no worker does,
#: or where a sender has run wild, and each of them is read and delivered in one go.
INBOX_MAX: Final = 10_000
#: Places more for requests to cancel: a run whose inbox is full must be stoppable.
CANCELS_MAX: Final = 1_000


def inbox_room(kind: str) -> int:
    """How many messages may wait in an inbox that takes one more of this kind."""
    return INBOX_MAX + CANCELS_MAX if kind == "cancel" else INBOX_MAX


class Send(Write):
    """A message for the chain whose current run is `run_key`. Answered Sent, DUPLICATE, CLOSED or FULL, or with
    WorkflowNotFoundError when there is no such run.

    A message_id that the chain has seen is DUPLICATE, also after the message was delivered and after the run closed.
    `keep_id` False: the id was made up for this call and needs no memory beyond delivery.
    local: sessions of this process; no wake-up is stored when one of them owns the run, since the sender tells it.
    room: FULL, and nothing is stored, when so many messages of the chain have no verdict yet (see `inbox_room`).
    """

    run_key: int
    kind: str
    message_id: str
    name: str
    body: bytes
    sent_ms: int
    keep_id: bool = True
    local: Sequence[int] = ()
    room: int = INBOX_MAX


class Terminate(Write):
    """Close an open run from outside: `transition` is encoded by the caller against the row it read.

    Wins by the same compare-and-set as an append, on (open, last event), whoever owns the run; raises the fence.
    """

    run_key: int
    expected_event: int
    transition: StoredTransition
    last_event: int
    time_ms: int
    status: RunStatus = "terminated"


Operation: TypeAlias = (
    StartRun
    | Append
    | Release
    | Block
    | ConfirmClaim
    | PutTask
    | FinishTask
    | ExpireTask
    | Heartbeat
    | LogAttempts
    | Send
    | Terminate
)


class Reply(Enum):
    WON = "won"
    LOST = "lost"
    DUPLICATE = "duplicate"
    CLOSED = "closed"
    FULL = "full"
    HEARTBEAT_OK = "heartbeat_ok"
    CANCEL_REQUESTED = "cancel_requested"


class Started(Record, frozen=True):
    """A new run exists."""

    run_key: int
    chain_key: int


class Existing(Record, frozen=True):
    """No new run: the workflow id has this one. decision: what the policies make of it."""

    run: RunRow
    decision: Literal["use", "refuse", "terminate"]


class Sent(Record, frozen=True):
    """The message is in the inbox. owner: the session that holds the run, or None."""

    owner: int | None


Answer: TypeAlias = Reply | Started | Existing | Sent | Exception


def decide_start(existing: RunRow, start: StartRun) -> Literal["start", "use", "refuse", "terminate"]:
    """What a start does when the newest chain of its workflow id is `existing`. Every store asks here."""
    same = existing.input_digest == start.input_digest and existing.workflow_type == start.workflow_type
    if existing.status == "running":
        match start.conflict:
            case IdConflictPolicy.SAME_INPUT:
                return "use" if same else "refuse"
            case IdConflictPolicy.USE_EXISTING:
                return "use"
            case IdConflictPolicy.TERMINATE_EXISTING:
                return "terminate"
            case IdConflictPolicy.FAIL:
                return "refuse"
    match start.reuse:
        case IdReusePolicy.SAME_INPUT:
            return "use" if same else "refuse"
        case IdReusePolicy.ALLOW_DUPLICATE:
            return "start"
        case IdReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY:
            return "refuse" if existing.status == "completed" else "start"
        case IdReusePolicy.REJECT_DUPLICATE:
            return "refuse"


# The port -------------------------------------------------------------------------------------------------------------


class Ledger(Protocol):
    """Runs and their histories."""

    def commit(self, batch: Sequence[Operation]) -> asyncio.Future[list[Answer]]:
        """Write the batch in one durable transaction; the answers come in its order.

        The future may be done on return (a store that commits inline). At most one commit is in flight at a time.
        Raises StoreUnavailableError through the future when nothing was written.
        """
        ...

    async def find_run(self, namespace: str, workflow_id: str, run_id: str | None = None) -> RunRow | None:
        """The run, or without run_id the newest run of the id; None when there is none."""
        ...

    async def read_run(self, run_key: int) -> RunRow: ...

    async def read_statuses(self, run_keys: Sequence[int]) -> dict[int, tuple[RunStatus, bool]]:
        """(status, blocked) of each run, in one query."""
        ...

    async def read_history(self, run_key: int, after_event: int = 0, limit: int = 1000) -> list[StoredTransition]:
        """The next at most `limit` transitions whose first event is after `after_event`, in order."""
        ...

    async def read_last_transitions(self, run_key: int) -> list[StoredTransition]:
        """The newest two, in order: the checksum of the last one covers that of the one before."""
        ...

    async def list_runs(
        self, namespace: str, where: Sequence[Condition], limit: int, before_key: int | None = None
    ) -> list[RunRow]:
        """Runs that meet every condition, newest first, at most `limit`; `before_key` pages on: run_keys below it."""
        ...

    async def count_runs(self, namespace: str, where: Sequence[Condition]) -> int: ...


class Condition(Record, frozen=True):
    """One comparison of a list filter, parsed and checked: column is one of LIST_COLUMNS, operator one of
    = != < <= > >= in. `in` has a tuple as value. Columns that are None meet only `!=`; `blocked` is True or False."""

    column: str
    operator: str
    value: Any


LIST_COLUMNS: Final = (
    "workflow_id",
    "run_id",
    "workflow_type",
    "task_queue",
    "status",
    "started_ms",
    "closed_ms",
    "blocked",
)


class Mailbox(Protocol):
    """Messages accepted for a chain and not yet in its history."""

    async def read_inbox(self, chain_key: int) -> list[Message]:
        """The waiting messages, in the order of their acceptance."""
        ...

    async def read_message(self, chain_key: int, message_id: str) -> Message | None:
        """One message with its verdict; None when its id is not remembered."""
        ...

    async def read_undelivered(self, chain_key: int) -> list[Message]:
        """Messages that arrived after the code had returned, and late cancels."""
        ...


class Tasks(Protocol):
    """Activities that wait in the store or run away from their run's owner."""

    async def claim_tasks(
        self, session_key: int, now_ms: int, namespace: str, task_queue: str, activity_types: Sequence[str], limit: int
    ) -> list[TaskRow]:
        """Start due queued rows in this session's name, oldest due first: state, owner and started_ms are set (of a
        lost attempt started_ms stays, for the log).

        Durable before it returns: this is the record of the attempt (intent before effect).
        """
        ...

    async def expired_tasks(self, namespace: str, now_ms: int, limit: int) -> list[TaskRow]:
        """Queued rows of any queue of the namespace whose expires_ms has passed."""
        ...

    async def owned_tasks(self, session_key: int) -> list[TaskRow]:
        """The started rows of the session, as `Sessions.owned_runs`."""
        ...

    async def read_tasks(self, run_key: int) -> list[TaskRow]: ...

    async def read_attempts(self, run_key: int) -> list[AttemptRecord]:
        """The attempt log of the run, oldest first, at most the newest 100 of each activity."""
        ...


class Sessions(Protocol):
    """Leases of worker processes, and what they own. A session serves one queue of one namespace."""

    async def now_ms(self) -> int:
        """The store's clock."""
        ...

    async def open_session(
        self, identity: str, namespace: str, task_queue: str, code: str, lease_ms: int
    ) -> SessionRow: ...

    def renew_session(self, session_key: int, lease_ms: int) -> int | None:
        """The store's time after the lease was extended, or None when the session is gone (buried).

        Blocking, and callable from the heartbeat's own thread.
        """
        ...

    async def close_session(self, session_key: int) -> None:
        """End the lease at once. What it still owned is orphaned, as by `bury_sessions`."""
        ...

    async def bury_sessions(self, namespace: str) -> list[SessionRow]:
        """End the sessions of the namespace whose lease is over by the store's own clock, never the caller's.

        Their runs become ownerless and due, with a raised fence and one claim more on their count; their started tasks
        become queued at once and `lost`.
        """
        ...

    async def read_sessions(self, namespace: str) -> list[SessionRow]: ...

    async def claim_runs(
        self, session_key: int, now_ms: int, namespace: str, task_queue: str, codes: Mapping[str, str], limit: int
    ) -> list[RunRow]:
        """Take ownerless open runs that are due or have mail, oldest due first; owner and fence are the new ones.

        codes: the workflow types that the session can run, each with the identity of its code. A blocked run is taken
        only when its blocked_code differs from that; taking it clears the block.
        """
        ...

    async def woken_runs(self, session_key: int) -> list[int]:
        """run_keys of this session's own runs that got a message, a task outcome or a request; told once."""
        ...

    async def owned_runs(self, session_key: int) -> list[RunRow]:
        """What the session holds. For a worker that cannot know, since the answer to a claim or a commit was lost."""
        ...

    async def next_due_ms(self, namespace: str, task_queue: str) -> int | None:
        """When the next ownerless run or queued task of the queue is due, or None. May be in the past."""
        ...


class Requests(Protocol):
    """Questions to runs that another process owns, answered by the owner."""

    async def ask(self, run_key: int, kind: str, name: str, body: bytes, expires_ms: int) -> int:
        """The request_key. Wakes the run; an ownerless run becomes due, so that a worker claims it."""
        ...

    async def read_requests(self, run_key: int) -> list[Request]:
        """The unanswered, unexpired ones."""
        ...

    async def answer_request(self, request_key: int, answer: bytes | None, failure: bytes | None) -> None: ...

    async def take_answer(self, request_key: int) -> Request | None:
        """The request once it is answered (it is then deleted), or None."""
        ...

    async def drop_requests(self, now_ms: int) -> None:
        """Forget expired requests."""
        ...


class Store(Ledger, Mailbox, Tasks, Sessions, Requests, Protocol):
    """One database."""

    async def wait_for_change(self, timeout_s: float) -> bool:
        """Return True once another process may have committed something since the last call, False on time-out.

        A hint, never the truth: it may come too often and may miss what this process wrote itself.
        """
        ...

    async def describe(self) -> dict[str, Any]:
        """What `pledger doctor` shows: kind, version, durability, file and schema."""
        ...

    async def close(self) -> None: ...
