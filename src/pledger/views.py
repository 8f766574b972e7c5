"""What a client gets to see of runs, workers and histories: frozen records, times with zone (UTC)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from pledger import errors
from pledger.engine import blocks
from pledger.engine.callbacks import in_callback
from pledger.engine.port.circuit import Dependency, Phase
from pledger.engine.port.filters import NO_LABELS, Labels
from pledger.engine.port.pauses import Pause, PauseKind
from pledger.engine.port.records import (
    SIGNAL_HANDLED_LATER,
    SIGNAL_NOT_HANDLED,
    AttemptRecord,
    LimitRow,
    Message,
    PlaceRow,
    QueueRow,
    ResetRow,
    RunRow,
    RunStatus,
    SessionRow,
    TaskRow,
)
from pledger.engine.port.streams import StreamRow
from pledger.engine.resetting import Draft, Repetition
from pledger.history import failures, memos, payloads, view
from pledger.history.attributes import TypedSearchAttributes, typed
from pledger.history.events import SignalReceived, UpdateAccepted
from pledger.history.placement import LimitRule
from pledger.history.state import OpenPhase, RunState
from pledger.history.times import utc
from pledger.history.transition import Transition
from pledger.history.view import HistoryEvent, numbered
from pledger.interceptors import Interceptor, checked, of_workflows
from pledger.machine import guards
from pledger.machine.definitions import WorkflowDefinition
from pledger.machine.identity import RunIdentity
from pledger.machine.machine import Machine
from pledger.waiting import WaitingFor, waiting_for


@dataclass(frozen=True, slots=True)
class PauseSummary:
    """What stands still because somebody said so. kind: "run", "type", "queue" or "namespace". name: of a run its
    workflow id, and run_id says which run of it. since: with zone (UTC).

    rate: how many a second go on while it is being lifted, or None while nothing does; of `backlog` that waited when
    that began `released` have.
    """

    kind: PauseKind
    name: str
    reason: str
    paused_by: str
    since: datetime
    run_id: str | None = None
    rate: float | None = None
    backlog: int = 0
    released: int = 0


@dataclass(frozen=True, slots=True)
class ResetSummary:
    """That the run `run_id` goes on from the run `base_run_id`, after its event `event_id`. how: "reset" or "redrive".
    reason, by, at: why, who asked for it, and when (UTC)."""

    run_id: str
    base_run_id: str
    event_id: int
    how: str
    reason: str
    by: str
    at: datetime


@dataclass(frozen=True, slots=True)
class StreamSummary:
    """The stream of a topic. first_offset: of the oldest value that is kept; next_offset: of the one to come. bytes: of
    what is kept, about. published: when the newest value came (UTC)."""

    topic: str
    first_offset: int
    next_offset: int
    bytes: int
    published: datetime


@dataclass(frozen=True, slots=True)
class ResetPlan:
    """What a reset or a redrive would do. event_id: the last event that counts. open_run_id: the run that it would end,
    or None. repetitions: what has begun in the run before and may be done again. reapplied: messages that the new run
    is given again, in their order: the name of a signal, or "cancel"."""

    how: str
    run_id: str
    event_id: int
    open_run_id: str | None
    repetitions: tuple[Repetition, ...]
    reapplied: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunSummary:
    """One run of a list. Times with zone (UTC). closed: None while open. blocked: why it stands still, or None.
    paused: the same, where somebody said so. first_run_id: of the run that its chain began with; segment: its number in
    the chain, from 1. history_length: how many events it has. search_attributes, memo: as they are now; the memo's
    values are plain. owner: who answers for it; deadline: when it times out; None for none, also of runs from before
    they were kept. attention: why it is in the view "needs-attention"."""

    workflow_id: str
    run_id: str
    workflow_type: str
    task_queue: str
    status: RunStatus
    started: datetime
    closed: datetime | None
    blocked: str | None
    paused: str | None = None
    first_run_id: str = ""
    segment: int = 1
    history_length: int = 0
    search_attributes: TypedSearchAttributes = field(default_factory=TypedSearchAttributes)
    memo: Mapping[str, Any] = field(default_factory=dict)
    owner: str | None = None
    deadline: datetime | None = None
    attention: str | None = None


@dataclass(frozen=True, slots=True)
class WorkerSummary:
    """One worker process. session_key: names it among owners. expires: end of its lease. live: whether that lies ahead;
    a worker that is not has died without saying so, and others take over its runs."""

    session_key: int
    identity: str
    task_queue: str
    code: str
    started: datetime
    expires: datetime
    live: bool


@dataclass(frozen=True, slots=True)
class QueueSummary:
    """A task queue. queued: activities in the store that wait and are due; oldest: since when the oldest of them has
    been due, or None. later: those that are not due yet. started: attempts from the queue that run. workers: live ones.
    Attempts that start straight after their commit never stand in the queue, and are not counted."""

    task_queue: str
    queued: int
    oldest: datetime | None
    later: int
    started: int
    workers: int


@dataclass(frozen=True, slots=True)
class LimitKey:
    """key: what is counted apart; empty where all is counted together. used: attempts that hold a slot. queued:
    activities that wait in the store and name the limit."""

    key: str
    used: int
    queued: int


@dataclass(frozen=True, slots=True)
class LimitSummary:
    """A limit as it holds now. concurrency, rate: None for no such bound; rate counts starts in each `per`.
    overridden: whether an operator has set any of it. keys: those that are in use, the most used first, at most 100."""

    name: str
    concurrency: int | None
    rate: float | None
    per: timedelta
    overridden: bool
    keys: tuple[LimitKey, ...] = ()


@dataclass(frozen=True, slots=True)
class DependencyChange:
    """A change of phase of a dependency. by: the operator who asked for it, or None."""

    at: datetime
    phase: Phase
    reason: str
    by: str | None


@dataclass(frozen=True, slots=True)
class DependencySummary:
    """A system that activities depend on, as it is now. phase: "closed" (attempts begin), "open" (none does, until
    `until`), "half_open" (`limit` at a time), or "paused" (an operator said so). reason, by: why it came to that, and
    the operator who asked for it.

    calls, retries: attempts of the last `window` that began, the first ones and the others; succeeded, failed: those
    that ended. retries_left: how many may begin at once. ratio, minimum_per_second: see RetryBudget. activity_types:
    the activities that state it. changes: the newest, oldest first.
    """

    name: str
    phase: Phase
    since: datetime
    reason: str
    by: str | None
    until: datetime | None
    limit: int | None
    calls: int
    retries: int
    succeeded: int
    failed: int
    window: timedelta
    retries_left: int
    ratio: float
    minimum_per_second: float
    has_breaker: bool
    last_failure: str
    activity_types: tuple[str, ...]
    changes: tuple[DependencyChange, ...]


@dataclass(frozen=True, slots=True)
class History:
    """A history. `events` numbers them; `transitions` is what replay takes.

    damage: why it ends early, where only what stands before a damaged row could be read; else None.
    """

    identity: RunIdentity
    transitions: tuple[Transition, ...]
    damage: errors.StoreError | None = None

    @property
    def events(self) -> list[HistoryEvent]:
        return numbered(self.transitions)

    def export(self) -> bytes:
        """JSON text that `read` takes back. Payloads are in it as the JSON that they are, digit by digit."""
        run = {name: getattr(self.identity, name) for name in RunIdentity.__slots__}
        return view.export(self.transitions, run)

    @classmethod
    def read(cls, data: bytes) -> History:
        """The history of an exported text. Raises PayloadError when it is none."""
        run, transitions = view.read_export(data)
        try:
            identity = RunIdentity(**run)
        except TypeError:
            raise errors.PayloadError("this exported history does not say whose it is; `run` names its run") from None
        return cls(identity, transitions)

    async def replay(
        self,
        workflow: Callable[..., Any] | type,
        *,
        payload_bytes_max: int = payloads.PAYLOAD_BYTES_MAX,
        interceptors: Sequence[Interceptor] = (),
    ) -> int:
        """Replay it against the workflow as it is now; how many events it has.

        payload_bytes_max, interceptors: those of the worker.
        Raises NondeterminismError at the first difference, ForbiddenCallError, or whatever the code itself raises.
        """
        from pledger.engine.code_identity import user_modules  # noqa: PLC0415 - a part of the engine

        definition = WorkflowDefinition.of(workflow)
        guards.install(user_modules([definition.target]))
        machine = Machine(
            definition,
            self.identity,
            payload_bytes_max=payload_bytes_max,
            interceptors=of_workflows(checked(interceptors, "History.replay(interceptors=...)")),
        )
        loop = asyncio.get_running_loop()
        try:
            for each in self.transitions:
                await in_callback(loop, partial(machine.replay, each))
        finally:
            loop.call_soon(machine.destroy)
        return machine.last_event


@dataclass(frozen=True, slots=True)
class Description:
    """One run in full. state: what its history amounts to. pending: activities that wait in the store (retries, other
    queues). owner: the worker that holds it, or None. due: when it goes on by itself, or None when only a message can
    wake it. inbox: messages not yet in its history. workers: all of this ledger. now: the store's time. pauses: those
    that hold it. places: where its activities stand that wait for a turn or within a limit. dependencies: those
    that hold up activities of it, by name. parent: the run that started it, of a child. resets: where it goes on from
    another run, and which go on from it. history_warnings: what was said when its history
    came to 25, 50 and 75 % of its bound, and which line of the code causes that. streams: what its chain has published,
    by topic."""

    summary: RunSummary
    history: History
    state: RunState
    last_event: int
    owner: str | None
    due: datetime | None
    pending: list[TaskRow]
    attempts: list[AttemptRecord]
    inbox: list[Message]
    undelivered: list[Message]
    blocked: dict[str, Any] | None
    workers: tuple[WorkerSummary, ...]
    now: datetime
    pauses: tuple[PauseSummary, ...] = ()
    places: tuple[PlaceRow, ...] = ()
    dependencies: Mapping[str, DependencySummary] = field(default_factory=dict)
    parent: RunSummary | None = None
    resets: tuple[ResetSummary, ...] = ()
    history_warnings: tuple[str, ...] = ()
    streams: tuple[StreamSummary, ...] = ()

    @property
    def waiting_for(self) -> WaitingFor | None:
        """In one answer: what it waits for, since when, who must act, and what wakes it; None once it is closed."""
        return waiting_for(self)

    @property
    def overdue(self) -> tuple[OpenPhase, ...]:
        """The phases and named waits whose deadline has passed, the outermost first."""
        now_ms = round(self.now.timestamp() * 1000)
        return tuple(each for each in self.state.phases.values() if each.is_overdue(now_ms))

    @property
    def buffered(self) -> tuple[HistoryEvent, ...]:
        """Signals of an open run that no handler has taken so far, in order: they are kept for one that its code may
        still set. Why each was not taken is in `attempts`."""
        if self.summary.closed is not None:
            return ()
        waiting: set[int] = set()
        for record in self.attempts:
            kind = None if record.failure is None else failures.decode(record.failure)
            if kind is not None and kind.type == SIGNAL_NOT_HANDLED and kind.attributes:
                waiting.add(record.event_id)
            elif kind is not None and kind.type == SIGNAL_HANDLED_LATER:
                waiting.discard(record.event_id)
        return tuple(each for each in self.history.events if each.event_id in waiting)


@dataclass(frozen=True, slots=True)
class CancelVerdict:
    """What became of a cancel request. verdict: None while the run is still open, then "cancelled" or
    "too_late:<status>"."""

    request_id: str
    verdict: str | None


def worker_summary(session: SessionRow, now_ms: int) -> WorkerSummary:
    return WorkerSummary(
        session.session_key,
        session.identity,
        session.task_queue,
        session.code,
        utc(session.started_ms),
        utc(session.expires_ms),
        session.expires_ms > now_ms,
    )


def stream_summary(row: StreamRow) -> StreamSummary:
    return StreamSummary(row.topic, row.first, row.next, row.weight, utc(row.published_ms))


def queue_summaries(rows: Sequence[QueueRow], workers: Sequence[WorkerSummary]) -> tuple[QueueSummary, ...]:
    """Those with activities in the store and those that a live worker serves, by name."""
    live = Counter(each.task_queue for each in workers if each.live)
    found = {row.task_queue: row for row in rows}
    return tuple(
        QueueSummary(
            name, row.queued, None if row.oldest_ms is None else utc(row.oldest_ms), row.later, row.started, live[name]
        )
        for name in sorted(found.keys() | live.keys())
        for row in (found.get(name) or QueueRow(name, 0, None, 0, 0),)
    )


def limit_summary(row: LimitRow) -> LimitSummary:
    rule = (row.stated or LimitRule()).under(row.override)
    return LimitSummary(
        row.name,
        rule.concurrency,
        rule.rate,
        timedelta(milliseconds=rule.per_ms),
        row.override is not None,
        tuple(LimitKey(*each) for each in row.keys),
    )


def dependency_summary(name: str, row: Dependency) -> DependencySummary:
    """row: as of now."""
    total, rule = row.total, row.rule
    return DependencySummary(
        name,
        row.phase,
        utc(row.since_ms),
        row.reason,
        row.by or None,
        utc(row.until_ms) if row.phase == "open" else None,
        row.limit if row.phase == "half_open" else None,
        total.calls,
        total.retries,
        total.succeeded,
        total.failed,
        timedelta(milliseconds=rule.window_ms),
        int(row.tokens),
        rule.ratio,
        rule.minimum_per_second,
        rule.failure_ratio is not None,
        row.last_failure,
        row.activity_types,
        tuple(DependencyChange(utc(each.at_ms), each.phase, each.reason, each.by or None) for each in row.changes),
    )


def pause_summary(pause: Pause) -> PauseSummary:
    scope = pause.scope
    is_run = scope.kind == "run"
    return PauseSummary(
        scope.kind,
        scope.workflow_id if is_run else scope.name,
        pause.reason,
        pause.paused_by,
        utc(pause.paused_ms),
        scope.name if is_run else None,
        pause.rate,
        pause.backlog,
        pause.released,
    )


def reset_summary(row: ResetRow) -> ResetSummary:
    return ResetSummary(row.run_id, row.base_run_id, row.event_id, row.how, row.reason, row.by, utc(row.reset_ms))


def reset_plan(draft: Draft) -> ResetPlan:
    newest = draft.base.newest
    return ResetPlan(
        draft.how,
        draft.base.row.run_id,
        max(1, draft.cut.event_id),
        newest.run_id if newest.status == "running" else None,
        tuple(draft.repetitions()),
        tuple(each.name if isinstance(each, SignalReceived | UpdateAccepted) else "cancel" for each in draft.reapplied),
    )


def run_summary(
    row: RunRow, pauses: Sequence[Pause] = (), labels: Labels = NO_LABELS, attention: str | None = None
) -> RunSummary:
    """pauses: those that hold it. attention: see RunSummary."""
    return RunSummary(
        row.workflow_id,
        row.run_id,
        row.workflow_type,
        row.task_queue,
        row.status,
        utc(row.started_ms),
        None if row.closed_ms is None else utc(row.closed_ms),
        None if row.blocked is None else _in_short(blocks.read(row.blocked)),
        _why_paused(pauses[0]) if pauses else None,
        row.chain_id,
        row.segment,
        row.last_event,
        typed(labels.attributes),
        memos.values(memos.read(labels.memo)),
        labels.answers_for,
        None if labels.deadline_ms is None else utc(labels.deadline_ms),
        attention,
    )


def _why_paused(pause: Pause) -> str:
    """Like `queue 'gpu' by ada@ops: the model is wrong`."""
    what = "" if pause.scope.kind == "run" else f"{pause.scope.kind} {pause.scope.name!r} "
    return f"{what}by {pause.paused_by}{': ' + pause.reason if pause.reason else ''}"


def _in_short(block: dict[str, Any]) -> str:
    """A block's reason in a line, like `ZeroDivisionError: division by zero`."""
    line = str(block["message"]).strip().partition("\n")[0]
    return f"{block['type']}: {line}" if line else str(block["type"])
