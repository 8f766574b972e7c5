"""What is written for one run: each operation is answered on its own, and harms no other of its batch."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from pledger.engine.port.filters import Attribute, PhaseRow
from pledger.engine.port.records import RESET_NAME, AttemptRecord, Piece, Record, RunStatus, TaskRow
from pledger.history.reuse import IdReusePolicy
from pledger.history.transition import StoredTransition

if TYPE_CHECKING:
    from pledger.engine.port.posts import Post, StartChild
    from pledger.engine.port.streams import Publication
    from pledger.history.events import Parent


class Write(msgspec.Struct, gc=False, kw_only=True):
    """Base of the operations: the same, and open to the store, which fills in what it alone knows.

    pieces: those that it refers to and that may not be there yet. Written with it, or not at all.
    """

    pieces: Sequence[Piece] = ()


class IdConflictPolicy(Enum):
    """What a start does when an *open* run has the same workflow id. By default the same input gives the same run."""

    SAME_INPUT = "same_input"
    FAIL = "fail"
    USE_EXISTING = "use_existing"
    TERMINATE_EXISTING = "terminate_existing"


class Successor(Record, frozen=True):
    """The run that goes on for one that continues as new: the next segment of its chain, which waits for a worker.

    started: an encoded RunStarted, its first message; name: that of this message, see `with_first`. It takes over the
    digest of the input that its chain was started with, so that a start of the same input finds it; the pauses that
    hold its predecessor singly; its doubts after a loss; its search attributes and its memo; and who answers for it.
    deadline_ms: of RunStarted.
    """

    run_id: str
    workflow_type: str
    task_queue: str
    started: bytes
    name: str = ""
    deadline_ms: int | None = None

    def with_first(self, inputs: bytes) -> Successor:
        """The same that is given more than its start, before all that waits in the inbox. inputs: encoded, as those of
        a run that was reset; the start is the first of them."""
        return Successor(self.run_id, self.workflow_type, self.task_queue, inputs, RESET_NAME, self.deadline_ms)


class Append(Write):
    """One transition of one run, by its owner.

    expected_event: the run's last event before. last_event: after. due_ms: see RunRow. closed: the terminal status,
    or None; closing lets go of the run. consumed: (message_key, event_id) of the messages that became inputs. tasks:
    task rows to write (or overwrite); dropped: event ids whose task row goes away; cancelled: event ids of activities
    that are to stop, see TaskRow.cancel_requested; unwritten: their rows, as far as they may have none yet, written
    unless one of that attempt or a later one is there. attempts: log lines. successor: of a run that closes as
    continued_as_new: no message gets its verdict then, since all belong to the chain, which goes on.
    posts: what it does to other runs, in order. report: the encoded ChildClosed that the parent of a run that closes
    gets, which has no event id yet; a run without a parent has nobody to tell. report_to: the parent, as far as the run
    knows it. has_dependants: children that are not to outlive a run that closes may be open. parent: of a run with a
    report, (run_key, event_id, run_id), filled in by a store that has to know before it locks. See `posts`.
    attributes: those that changed; memo: the whole of it, where it did. terms: (answers_for, deadline_ms), where the
    worker's code says what the start did not. phases: those that begin and have a deadline; phases_over: the events
    where such began that are over.
    published: what the code has published, in order; see `streams`.
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
    successor: Successor | None = None
    posts: Sequence[StartChild | Post] = ()
    report: bytes | None = None
    report_to: Parent | None = None
    has_dependants: bool = False
    parent: tuple[int, int, str] | None = None
    attributes: Sequence[Attribute] = ()
    memo: bytes | None = None
    terms: tuple[str | None, int | None] | None = None
    phases: Sequence[PhaseRow] = ()
    phases_over: Sequence[int] = ()
    published: Sequence[Publication] = ()


class FirstMessage(Write):
    """A signal that is sent with a start. The fields are those of Send."""

    message_id: str
    name: str
    body: bytes
    keep_id: bool = True


class StartRun(Write):
    """Create a chain and its first run. started: an encoded RunStarted.

    owner None: the run waits for a worker, `started` is its first message. With an owner, `first` is the run's first
    transition (its run_key is filled in by the store) and the run is born owned, with fence 1. Answered Started,
    Existing, or LOST when the owner's session has ended: nobody would ever take the run from it.
    beside: of a run without an owner, its second message; with one, it is in the first transition. Where there is no
    new run nothing is sent.
    attributes, memo: what it starts with, also where `first` changes it. answers_for, deadline_ms: of RunStarted.
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
    beside: FirstMessage | None = None
    attributes: Sequence[Attribute] = ()
    memo: bytes | None = None
    answers_for: str | None = None
    deadline_ms: int | None = None


class Release(Write):
    """The owner lets go of a run that is not changed. due_ms: as in RunRow. Answered WON or LOST.

    tasks: as in Block, for a run that is paused while its activities go on.

    A run whose inbox holds waiting messages, or that has a task with an outcome, becomes due at once whatever due_ms
    says: a sender that saw this owner has stored no wake-up.
    """

    run_key: int
    fence: int
    due_ms: int | None
    tasks: Sequence[TaskRow] = ()


#: Codes that are remembered to have failed at one event of a run: more versions than ever run beside each other.
TRIED_MAX: Final = 32


class Block(Write):
    """The owner lets go of a run that its code cannot carry on. reason: JSON object. Answered WON or LOST.

    All codes that have blocked the run since its last event are remembered, the newest TRIED_MAX of them: two versions
    with the same bug beside each other must not hand the run to and fro.

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
    expires_ms: wins only while the row says so, or None: a heartbeat that came first has put the end of its time off.
    """

    run_key: int
    event_id: int
    attempt: int
    owner: int
    outcome: bytes | None = None
    requeue: TaskRow | None = None
    attempts: Sequence[AttemptRecord] = ()
    expires_ms: int | None = None


class HandOut(Write):
    """The session that runs an attempt lets go of it: it is completed from outside. Its row's owner is OUTSIDE from now
    on, whatever becomes of the session, and its slots stay taken.

    expires_ms: when it times out, or None. details: of its last heartbeat, or None for those that are there. Answered
    WON, LOST when it is not the session's attempt any more, or DUPLICATE when it is out already: the answer was lost.
    """

    run_key: int
    event_id: int
    attempt: int
    owner: int
    expires_ms: int | None
    details: bytes | None = None


class ExpireTask(Write):
    """A queued row waited past its expires_ms, or was cancelled, which makes that 0. Wins only while it is still queued
    at this attempt and still says so: what was seen may have been taken back by a fail-over. Wakes the run."""

    run_key: int
    event_id: int
    attempt: int
    expires_ms: int
    outcome: bytes
    attempts: Sequence[AttemptRecord] = ()


class Heartbeat(Write):
    """Details of a started attempt. Answered HEARTBEAT_OK, CANCEL_REQUESTED, or LOST when it is not its attempt any
    more. expires_ms: of one that is OUTSIDE, when it times out now; None leaves that as it is."""

    run_key: int
    event_id: int
    attempt: int
    owner: int
    details: bytes | None
    expires_ms: int | None = None


class Publish(Write):
    """What an attempt has published, in order, while it runs. Answered Published, or LOST when it is not its attempt
    any more: then nothing is written.

    owner: the session that has its row; None for an eager attempt without one, whose right is the run's `fence`.
    number: how many values the attempt had published before these. Those that are there already are not written again:
    the answer was lost.
    """

    run_key: int
    event_id: int
    attempt: int
    owner: int | None
    fence: int
    number: int
    values: Sequence[Publication]
    time_ms: int


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
    """A message for the chain that the run `run_key` is of. Answered Sent, DUPLICATE, CLOSED or FULL, or with
    WorkflowNotFoundError when there is no such run.

    The mailbox is the chain's: where another run goes on for this one, the message is for that, and a wake-up is stored
    whoever owns it.

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

    Wins by the same compare-and-set as an append, on (open, last event), whoever owns the run; raises the fence. It has
    none to show, but the head that `transition` was chained to: what was read may have been taken back by a fail-over,
    and the run may have come as far again by another way. report, parent: as in Append.
    """

    run_key: int
    expected_event: int
    expected_head: bytes
    transition: StoredTransition
    last_event: int
    time_ms: int
    status: RunStatus = "terminated"
    report: bytes | None = None
    parent: tuple[int, int, str] | None = None


class ResetRun(Write):
    """Go on from a part of a run's history in a new run: the next segment of its chain, which waits for a worker.

    base_key, base_event, base_head: the run, and where its history ends. kept: its transitions up to this event are the
    new run's, row by row; head: of the last of them. newest_key, newest_event, newest_head: the same of the newest run
    of the workflow id, which is of this chain; where that is open, `closing` is its last transition. Answered Started,
    or LOST when any of this is not so any more.

    run_id: the new run's. inputs: encoded, what it is given first, see `transition.decode_inputs`. tasks: rows of what
    is pending there; their run_key is filled in by the store. revive: signals that came too late for the chain's runs
    wait again. base_run_id, event_id, how, reason, by: as in RunReset, for those who look. attributes, memo,
    answers_for, phases: what the history says there; deadline_ms: the new run's.

    Messages that wait are the chain's: the new run gets them.
    """

    namespace: str
    workflow_id: str
    base_key: int
    base_event: int
    base_head: bytes
    newest_key: int
    newest_event: int
    newest_head: bytes
    closing: StoredTransition | None
    run_id: str
    kept: int
    head: bytes
    inputs: bytes
    tasks: Sequence[TaskRow]
    revive: bool
    time_ms: int
    base_run_id: str
    event_id: int
    how: str
    reason: str
    by: str
    attributes: Sequence[Attribute] = ()
    memo: bytes | None = None
    answers_for: str | None = None
    deadline_ms: int | None = None
    phases: Sequence[PhaseRow] = ()


Operation: TypeAlias = (
    StartRun
    | Append
    | Release
    | Block
    | ConfirmClaim
    | PutTask
    | FinishTask
    | HandOut
    | ExpireTask
    | Heartbeat
    | Publish
    | LogAttempts
    | Send
    | Terminate
    | ResetRun
)
