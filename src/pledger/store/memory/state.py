"""What a database would hold, as dictionaries, and the few moves that several subjects share."""

from __future__ import annotations

import itertools
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from msgspec.structs import replace

from pledger.engine.port.circuit import Dependency
from pledger.engine.port.filters import Attribute, PhaseRow
from pledger.engine.port.lane_text import Share
from pledger.engine.port.lanes import Slot, SlotKey
from pledger.engine.port.pauses import Pause
from pledger.engine.port.posts import ClosePolicy
from pledger.engine.port.records import (
    AttemptRecord,
    Message,
    Request,
    ResetRow,
    RunRow,
    RunStatus,
    SessionRow,
    TaskRow,
)
from pledger.engine.port.streams import StreamValue
from pledger.engine.port.tokens import TokenKey
from pledger.errors import WorkflowNotFoundError
from pledger.history.placement import LimitRule, LimitUse
from pledger.history.transition import StoredTransition


def system_clock() -> int:
    return time.time_ns() // 1_000_000


@dataclass
class QueueState:
    """Of one namespace. slots, full_ms: see `lanes.Situation`. passes: the shares of each task queue; clocks: of its
    priorities. stated, overrides: numbers of limits, by name."""

    slots: dict[SlotKey, Slot] = field(default_factory=dict)
    full_ms: dict[LimitUse, float] = field(default_factory=dict)
    passes: dict[tuple[str, Share], float] = field(default_factory=dict)
    clocks: dict[tuple[str, int], float] = field(default_factory=dict)
    stated: dict[str, LimitRule] = field(default_factory=dict)
    overrides: dict[str, LimitRule] = field(default_factory=dict)


@dataclass
class Link:
    """From a child, by its chain, to the run that started it, and where. child: its namespace and workflow id."""

    child: tuple[str, str]
    parent_key: int
    event_id: int
    policy: ClosePolicy


@dataclass
class Stream:
    """next: the position of the value to come. weight: of all values that ever were in it. values: those that are kept,
    each after the weight of all before it. is_forgotten: retention has taken it; what is left goes piece by piece."""

    next: int = 0
    weight: int = 0
    published_ms: int = 0
    values: list[tuple[int, StreamValue]] = field(default_factory=list)
    is_forgotten: bool = False


@dataclass
class State:
    """One ledger, shared by every handle that was opened on it.

    open_runs: keys of the runs in `runs` that are not closed. newest: the run keys of each (namespace, workflow_id),
    oldest first. inboxes: the messages of each chain by message_key. message_keys: which message has an id in a
    chain. unkept: keys of messages whose id needs no memory beyond delivery. wakes: owned runs that another process
    wrote to. tried: of runs that were blocked, the event at which that was, and the codes that failed there. queues:
    what limits and fairness go by, of each namespace. dependencies: by name, of each namespace. leftovers: forgotten
    runs that still have some of their history. attributes, memos: of runs that have any. terms: who answers for a
    run, and its deadline. phases: those with a deadline, by where they began. duties: (owner, until_ms) of each
    chore, by namespace and name. losses: see `Losses.read_losses`. resets: of runs that go on from another one, from
    which. pieces: by their names; piece_uses: the names of those that a run uses. token_keys: the newest last. links:
    of children, by their chains; children: the chains of each parent, in the order of their starts. partings: runs
    that have ended, and whose children are to be seen to. streams: by chain and topic; published: how many values each
    attempt has in them, by (run_key, event_id, attempt). news: set by a rule that writes what may concern another
    process: something that may be due, a run or a slot that is free, an end. listeners: called with the handle that
    wrote, after a write that was such.
    """

    clock: Callable[[], int] = system_clock
    keys: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    lock: threading.RLock = field(default_factory=threading.RLock)
    runs: dict[int, RunRow] = field(default_factory=dict)
    open_runs: set[int] = field(default_factory=set)
    newest: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    histories: dict[int, list[StoredTransition]] = field(default_factory=dict)
    inboxes: dict[int, dict[int, Message]] = field(default_factory=dict)
    message_keys: dict[tuple[int, str], int] = field(default_factory=dict)
    unkept: set[int] = field(default_factory=set)
    tasks: dict[int, dict[int, TaskRow]] = field(default_factory=dict)
    attempts: dict[int, list[AttemptRecord]] = field(default_factory=dict)
    sessions: dict[int, SessionRow] = field(default_factory=dict)
    wakes: set[int] = field(default_factory=set)
    requests: dict[int, Request] = field(default_factory=dict)
    queues: dict[str, QueueState] = field(default_factory=dict)
    dependencies: dict[str, dict[str, Dependency]] = field(default_factory=dict)
    pauses: dict[int, Pause] = field(default_factory=dict)
    tried: dict[int, tuple[int, list[str]]] = field(default_factory=dict)
    leftovers: set[int] = field(default_factory=set)
    attributes: dict[int, dict[str, Attribute]] = field(default_factory=dict)
    memos: dict[int, bytes] = field(default_factory=dict)
    terms: dict[int, tuple[str | None, int | None]] = field(default_factory=dict)
    phases: dict[int, dict[int, PhaseRow]] = field(default_factory=dict)
    duties: dict[tuple[str, str], tuple[int | None, int]] = field(default_factory=dict)
    losses: dict[int, bool] = field(default_factory=dict)
    pieces: dict[bytes, bytes] = field(default_factory=dict)
    piece_uses: dict[int, set[bytes]] = field(default_factory=dict)
    token_keys: list[TokenKey] = field(
        default_factory=lambda: [TokenKey(secrets.token_hex(4), secrets.token_bytes(32), 0)]
    )
    links: dict[int, Link] = field(default_factory=dict)
    children: dict[int, list[int]] = field(default_factory=dict)
    partings: dict[int, None] = field(default_factory=dict)
    resets: dict[int, ResetRow] = field(default_factory=dict)
    streams: dict[int, dict[str, Stream]] = field(default_factory=dict)
    published: dict[tuple[int, int, int], int] = field(default_factory=dict)
    news: bool = False
    listeners: list[Callable[[object], None]] = field(default_factory=list)

    def run(self, run_key: int) -> RunRow:
        try:
            return self.runs[run_key]
        except KeyError:
            raise WorkflowNotFoundError(f"No run has the key {run_key}. Was it deleted by retention?") from None

    def current_of(self, run: RunRow) -> RunRow:
        """The newest run of its chain."""
        if run.status == "running":
            return run
        keys = self.newest[run.namespace, run.workflow_id]
        return next(each for each in map(self.run, reversed(keys)) if each.chain_key == run.chain_key)

    def owned_run(self, run_key: int, fence: int) -> RunRow | None:
        """The run, if it is open and held under this fence."""
        run = self.runs.get(run_key)
        return run if run is not None and run.owner is not None and run.fence == fence else None

    def tried_codes(self, run: RunRow) -> list[str]:
        """The codes that have blocked the run where it stands, newest last."""
        event, codes = self.tried.get(run.run_key, (0, []))
        return codes if event == run.last_event else []

    def waiting(self, chain_key: int) -> list[Message]:
        return [message for message in self.inboxes[chain_key].values() if message.verdict is None]

    def wake(self, run_key: int) -> None:
        """Something arrived for an open run: its owner is told by `woken_runs`, or a worker claims it."""
        run = self.runs[run_key]
        if run.status != "running":
            return
        self.news = True
        if run.owner is None:
            self.runs[run_key] = replace(run, due_ms=0)
        else:
            self.wakes.add(run_key)

    def let_go(self, run: RunRow, due_ms: int | None) -> RunRow:
        """The row of `run` once nobody owns it: with a raised fence, and due at once when something waits for it.

        What waits is looked up rather than remembered: a sender of the owner's own process stores no wake-up, and the
        owner may let go before it hears of the message.
        """
        has_mail = (
            bool(self.waiting(run.chain_key))
            or any(task.state == "done" for task in self.tasks.get(run.run_key, {}).values())
            or any(r.run_key == run.run_key and r.answer is r.failure is None for r in self.requests.values())
        )
        self.wakes.discard(run.run_key)
        if has_mail:
            due_ms = 0
        self.news = self.news or due_ms is not None
        return replace(run, owner=None, fence=run.fence + 1, due_ms=due_ms)

    def close_run(self, run: RunRow, status: RunStatus, closed_ms: int) -> None:
        """The effects of a closing append beside the history: verdicts for all messages, nothing left to do."""
        late = f"too_late:{status}"
        inbox = self.inboxes[run.chain_key]
        for key, message in [] if status == "continued_as_new" else list(inbox.items()):
            if message.kind == "cancel" and message.verdict == "delivered":
                inbox[key] = replace(message, verdict="cancelled" if status == "cancelled" else late)
            elif message.verdict is None:
                inbox[key] = replace(message, verdict=late if message.kind == "cancel" else "undelivered")
        self.end_run(run, status, closed_ms)

    def end_run(self, run: RunRow, status: RunStatus, closed_ms: int) -> None:
        """The same where the chain goes on, and its messages with it."""
        self.tasks.pop(run.run_key, None)
        self.wakes.discard(run.run_key)
        self.open_runs.discard(run.run_key)
        self.tried.pop(run.run_key, None)
        self.news = True
        self.runs[run.run_key] = replace(
            run,
            status=status,
            closed_ms=closed_ms,
            owner=None,
            fence=run.fence + 1,
            due_ms=None,
            blocked=None,
            blocked_code=None,
        )
