"""What a store holds and shows: runs, messages, tasks, attempts, sessions, requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

from pledger.history import chains
from pledger.history.placement import LimitRule
from pledger.history.transition import StoredTransition

if TYPE_CHECKING:
    from pledger.engine.port.pauses import Pause

RunStatus: TypeAlias = Literal[
    "running", "completed", "compensated", "failed", "cancelled", "terminated", "timed_out", "continued_as_new"
]

TERMINAL: Final = frozenset(
    {"completed", "compensated", "failed", "cancelled", "terminated", "timed_out", "continued_as_new"}
)


class Record(msgspec.Struct, frozen=True, gc=False):
    """Base of what a store holds and answers: plain, quick to make, and never part of a reference cycle (so that the
    garbage collector need not look at it)."""


class RunRow(Record, frozen=True):
    """One run as lists and descriptions show it.

    last_event: position of its newest event, 0 before the first transition. head: checksum of its newest transition.
    owner: the session that holds it, or None. due_ms: when it must be activated on its own account (0: at once), or
    None when only a message can wake it. claims: take-overs since it last made progress.
    A closed run with last_event 0 was forgotten by retention: its row is all that is left.
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

    @property
    def is_forgotten(self) -> bool:
        return self.last_event == 0 and self.status != "running"

    @property
    def chain_id(self) -> str:
        """The run id of the first run of its chain."""
        return chains.place_of(self.run_id)[0]

    @property
    def segment(self) -> int:
        """Its number in the chain, from 1."""
        return chains.place_of(self.run_id)[1]


#: The id of the message that holds a start: no sender has it. That of the run would not do, which callers know and may
#: name a message by: it would be known already, and never delivered.
START_ID: Final = ""
#: What that message is called when it holds the first inputs of a run that goes on from another one's history.
RESET_NAME: Final = "reset"


class Message(Record, frozen=True):
    """One message of a chain's inbox. kind: "start" (body: an encoded RunStarted, or the inputs of a run that was
    reset), "signal" (body: JSON array of arguments), "cancel" (body: the reason in UTF-8; name is empty) or "notice"
    (see `posts`).

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


#: Who runs an attempt that was handed out, to be completed from outside by its token: a session that never ends. Those
#: of workers count from 1.
OUTSIDE: Final = 0


class TaskRow(Record, frozen=True):
    """A pending activity that lives in the store: queued, retrying, heartbeating or run by another worker.

    Identity: (run_key, event_id); event_id is where the activity was scheduled. attempt: 1-based, the one that is
    queued or started. state: "queued" (may start at due_ms), "started" (owner runs it since started_ms) or "done"
    (outcome waits for the run). lost: this attempt died with its worker; whoever claims the row judges that first.
    command: the encoded ScheduleActivity. scheduled_ms: when it was scheduled first. expires_ms: when waiting in
    the queue ends without an attempt, or None; of a started one whose owner is OUTSIDE, when it times out.
    heartbeat: last details (JSON), or None. last_failure: encoded Failure or None. outcome: encoded
    ActivityCompleted or ActivityFailed once done.
    cancel_requested: its attempt should stop, and no further one begin. Whatever is written over the row does not take
    that back. While such a row is queued it has expired (expires_ms 0): the first worker that looks settles it, whether
    it serves the queue or not.
    lane: where it waits among others (see `lanes`), None for a row that states nothing of that. weight: of its turns.
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
    lane: str | None = None
    weight: float = 1.0


#: Where the attempt log has the warnings of a history that grows: the event of the start, which has no attempts.
GROWTH_EVENT: Final = 1


class AttemptRecord(Record, frozen=True):
    """One line of the bounded attempt log. outcome: "failed", "timed_out", "lost", "cancelled", "late".

    A token that was refused is kept as "late", with the class of its error as the type of the failure, and shown as
    "refused" (see `completing.told`).

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


#: The types of the failures that lines of the attempt log have which are of signals: the code did not take it; it has
#: set a handler for it since.
SIGNAL_NOT_HANDLED: Final = "SignalNotHandled"
SIGNAL_HANDLED_LATER: Final = "SignalHandledLater"


class SessionRow(Record, frozen=True):
    """A worker process. identity: what people call it (host, process id). expires_ms: end of its lease."""

    session_key: int
    identity: str
    namespace: str
    task_queue: str
    code: str
    started_ms: int
    expires_ms: int


class Outlook(Record, frozen=True):
    """What a store holds for a session at one moment.

    overdue: some session of its namespace has outlived its lease, by the store's own clock. woken: there is news for a
    run of its own. expired: a queued task of its namespace has waited too long. unblocked: a run of its queue was
    blocked by other code than the session has. ended: of the runs it asked about, those that are not open any more.
    due_ms: when the next ownerless run or queued task of its queue is due, or None; may be in the past. What is
    paused is not counted, and neither are tasks in lanes. runs_due_ms: the same of runs alone.
    pauses: those of its namespace but those of single runs. paused: of its own runs, those that are paused singly.
    lanes: whether any task of its queue waits in a lane. partings: whether a run of its namespace has ended whose
    children are to be seen to.
    """

    overdue: bool
    woken: bool
    expired: bool
    unblocked: bool
    ended: tuple[int, ...]
    due_ms: int | None
    pauses: tuple[Pause, ...] = ()
    paused: tuple[int, ...] = ()
    lanes: bool = False
    runs_due_ms: int | None = None
    partings: bool = False


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


class Mail(Record, frozen=True):
    """What waits for a run.

    messages: of its inbox, in the order of their acceptance. outcomes: its task rows that are done. requests: the
    unanswered, unexpired ones.
    """

    run_key: int
    messages: tuple[Message, ...] = ()
    outcomes: tuple[TaskRow, ...] = ()
    requests: tuple[Request, ...] = ()


class StoredRun(Record, frozen=True):
    """What a worker needs of a run, besides its row, to bring it into memory.

    transitions: the first of its history, in order. messages: of its inbox, in the order of their acceptance. tasks:
    its task rows, in the order of their events.
    """

    run_key: int
    transitions: tuple[StoredTransition, ...] = ()
    messages: tuple[Message, ...] = ()
    tasks: tuple[TaskRow, ...] = ()


class ResetRow(Record, frozen=True):
    """That a run goes on from a part of another one's history. run_key, run_id: the new run. base_key, base_run_id: the
    other one. event_id, how, reason, by: as in RunReset. kept: up to this event its history is the other one's."""

    run_key: int
    run_id: str
    base_key: int
    base_run_id: str
    event_id: int
    kept: int
    how: str
    reason: str
    by: str
    reset_ms: int


class LimitRow(Record, frozen=True):
    """A limit. stated: its numbers in the code of the worker that started last, None where no code has it.
    override: those that an operator has set, or None. keys: (key, slots in use, activities that wait), of those keys
    that have any, the most used first, at most a hundred."""

    name: str
    stated: LimitRule | None
    override: LimitRule | None
    keys: tuple[tuple[str, int, int], ...] = ()


class QueueRow(Record, frozen=True):
    """What is to be done in a task queue. queued: activities that wait and are due; oldest_ms: since when the oldest of
    them has been due, or None. later: those that are not due yet. started: attempts from the queue that run."""

    task_queue: str
    queued: int
    oldest_ms: int | None
    later: int
    started: int


class OpenRow(Record, frozen=True):
    """Open runs of one type and queue. state: "blocked"; "ready", due now and not held by a worker; "waiting"
    for a time or a message; or "held" by a worker. oldest_ms: since when the one of these that has waited longest
    has had something to do, as far as that is known; None for other states."""

    task_queue: str
    workflow_type: str
    state: str
    count: int
    oldest_ms: int | None = None

    def place(self) -> tuple[str, str, str]:
        return self.task_queue, self.workflow_type, self.state


class PlaceRow(Record, frozen=True):
    """Where a queued activity of a run stands. position: from 1, among those of its lane. limits: of those that it
    counts for, (name, key, slots in use). dependency: the one that it was set aside for, or None; is_retry: and whether
    as a retry."""

    event_id: int
    position: int
    limits: tuple[tuple[str, str, int], ...]
    dependency: str | None = None
    is_retry: bool = False


class Piece(Record, frozen=True):
    """Of a large value. name: see `pledger.history.pieces`. body: as it is to be kept, perhaps encoded by codecs."""

    name: bytes
    body: bytes
