"""Resets and redrives: what a new run takes over of another one's history, what it would do again, and the write.

The history up to the point is the new run's row by row, so that its code replays it and draws what it has drawn. What
comes after the point is looked through once: messages that are to be given again, and what has been done already.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import msgspec

from pledger import errors
from pledger.engine.building import phase_row
from pledger.engine.ids import derived_run_id, new_run_id
from pledger.engine.kept import in_words
from pledger.engine.port.answers import Started
from pledger.engine.port.filters import attribute_of
from pledger.engine.port.operations import ResetRun
from pledger.engine.reset_base import Base, ReadRun, events_of, message_ids, read_base, until
from pledger.engine.task_rows import decode_command, queued_row
from pledger.history import events, memos, resets, transition
from pledger.history.prefix import Cut, cut_after, cut_before_failure
from pledger.history.retry import is_whole
from pledger.history.state import RunState, fold
from pledger.history.transition import StoredTransition, Transition
from pledger.machine.identity import RunIdentity

if TYPE_CHECKING:
    from pledger.engine.connection import Connection
    from pledger.engine.port.records import RunRow, TaskRow
    from pledger.engine.port.verbs import Store

How: TypeAlias = Literal["reset", "redrive"]
#: What became of an activity in the run before: "pending" had begun and not ended.
Fate: TypeAlias = Literal["completed", "failed", "cancelled", "pending"]


class ResetReapplyType(Enum):
    """Which messages that reached a run after the point its reset gives to the new run, in their order.

    SIGNAL_AND_UPDATE: signals, and updates, which are accepted as they were: their validators are not asked again.
    SIGNAL: signals alone. ALL_ELIGIBLE: requests to cancel too. NONE: none of those that were delivered; what still
    waits is delivered all the same.
    """

    SIGNAL_AND_UPDATE = "messages"
    SIGNAL = "signals"
    ALL_ELIGIBLE = "all"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Repetition:
    """An activity that has begun in the run before, and of which the new run does not know the outcome.

    event_id: where it was scheduled in the run before. args: JSON array. outcome: what became of it there.
    idempotency_key: what it went by, and goes by again. certain: it is attempted again at once, since it was scheduled
    before the point; else the code decides, and gets the same key when it asks for the same again.
    """

    event_id: int
    activity_type: str
    args: bytes
    outcome: Fate
    idempotency_key: str
    certain: bool


class Draft:
    """A reset, thought through and not done. cut: where. state: what the history amounts to there. reapplied: the
    messages that the new run is given again."""

    def __init__(self, base: Base, cut: Cut, how: How, reapply: ResetReapplyType) -> None:
        self.base = base
        self.cut = cut
        self.how: How = how
        self.reapply = reapply
        kept = until(base.transitions, cut.kept)
        self.state = fold(kept) if cut.kept else RunState()
        self._taken_over = tuple(events_of(kept))
        later = [each.event for run in base.later for each in run.own()]
        self._beyond = [*(each.event for each in cut.beyond), *later]
        new = [each for each in later if base.taken_before.isdisjoint(message_ids([each]))]
        beyond = [*(each.event for each in cut.beyond), *new]
        self.reapplied = tuple(_again([*self._taken_over, *cut.carried], beyond, reapply))
        self.revives = reapply is not ResetReapplyType.NONE and any(
            each.kind == "signal" and each.verdict == "undelivered" for each in base.undelivered
        )

    @property
    def keys(self) -> str:
        """What the default idempotency keys of the run before begin with."""
        return _keys_of(self.base.row)

    def repetitions(self) -> list[Repetition]:
        """What has begun in the run before and may be done again, in the order of its events."""
        carried = {each.scheduled_event_id for each in self.cut.carried if isinstance(each, _OUTCOMES)}
        scheduled = [
            *((event_id, each.command, True) for event_id, each in self.state.activities.items()),
            *((event_id, command, False) for event_id, command in self._scheduled_beyond()),
        ]
        fates, begun = self._fates(), self._begun()
        return [
            Repetition(
                event_id,
                command.activity_type,
                command.args,
                fates.get(event_id, "pending"),
                command.idempotency_key or f"{self.keys}/{event_id}",
                certain,
            )
            for event_id, command, certain in scheduled
            if event_id not in carried and (event_id in fates or event_id in begun)
        ]

    def _scheduled_beyond(self) -> Iterable[tuple[int, events.ScheduleActivity]]:
        return (
            (each.event_id, each.event) for each in self.cut.beyond if isinstance(each.event, events.ScheduleActivity)
        )

    def _fates(self) -> dict[int, Fate]:
        """Of those that ended after the point."""
        fates: dict[int, Fate] = {}
        for each in self.cut.beyond:
            match each.event:
                case events.ActivityCompleted():
                    fates[each.event.scheduled_event_id] = "completed"
                case events.ActivityFailed():
                    cancelled = each.event.retry_state == "cancelled"
                    fates[each.event.scheduled_event_id] = "cancelled" if cancelled else "failed"
                case events.CancelActivity():
                    fates.setdefault(each.event.scheduled_event_id, "cancelled")
                case _:
                    pass
        return fates

    def _begun(self) -> set[int]:
        """Those without an outcome that an attempt has been made of, as far as the store can say: what has no row may
        have begun beside its run."""
        waits = {each.event_id for each in self.base.tasks if each.state == "queued" and each.attempt == 1}
        if self.base.row.status != "running":
            return {each.event_id for each in self.cut.beyond} | set(self.state.activities)
        return {*self.state.activities, *(event_id for event_id, _ in self._scheduled_beyond())} - waits

    def tokens(self) -> int:
        """What no attempt of the run before, or of one that has gone on from it, has had for a fencing token."""
        runs: tuple[ReadRun, ...] = (self.base, *self.base.later)
        tasks = [task for run in runs for task in run.tasks]
        seen = [each.attempt for each in tasks] + [each.attempt for run in runs for each in run.attempts]
        before = [0]
        for event in (each for run in runs for each in events_of(run.transitions)):
            match event:
                case events.ActivityCompleted() | events.ActivityFailed():
                    seen.append(event.attempt)
                case events.ScheduleActivity():
                    before.append(event.options.tokens_before or 0)
                case events.RunReset():
                    before.append(event.tokens)
                case _:
                    pass
        before += [decode_command(each.command).options.tokens_before or 0 for each in tasks]
        return resets.tokens_above(max(before) + max(seen, default=0))

    def _past(self) -> tuple[tuple[str, str, str], ...]:
        """What has been scheduled beyond the point, by this run and by those that went over the same ground."""
        past = dict.fromkeys(resets.past_of(self._scheduled_beyond(), self.keys))
        for reset in self._resets_before():
            past |= dict.fromkeys(reset.past)
        for run in self.base.later:
            if run.is_reset:
                own = ((each.event_id, each.event) for each in run.own())
                scheduled = ((at, each) for at, each in own if isinstance(each, events.ScheduleActivity))
                past |= dict.fromkeys(resets.past_of(scheduled, _keys_of(run.row)))
        used = {each.idempotency_key for each in self._taken_over if isinstance(each, events.ScheduleActivity)}
        return tuple(each for each in past if each[2] not in used)

    def _children(self) -> tuple[str, ...]:
        """The ids of the children that were started beyond the point, by the same runs and by successors of theirs."""
        ids = [each.workflow_id for each in self._beyond if isinstance(each, events.StartChild)]
        return tuple(dict.fromkeys([*ids, *(each for reset in self._resets_before() for each in reset.children or ())]))

    def _resets_before(self) -> Iterator[events.RunReset]:
        """What the run has inherited itself, and may not have asked for since."""
        return (each for each in events_of(self.base.transitions) if isinstance(each, events.RunReset))

    def deadline_ms(self, now_ms: int) -> int | None:
        """The new run has as much time as the one before was given."""
        started = self.base.transitions[0]
        first = started.inputs[0]
        if not isinstance(first, events.RunStarted) or first.deadline_ms is None:
            return None
        return now_ms + first.deadline_ms - started.time_ms

    def operation(self, now_ms: int, run_id: str, reason: str, by: str) -> ResetRun:
        """The write. run_id: of the new run."""
        base, cut, newest = self.base, self.cut, self.base.newest
        # The time of a run never goes back, whatever the clock has done since its last transition.
        now_ms = max(now_ms, base.newest_ms)
        kept = len(until(base.transitions, cut.kept))
        event_id = max(1, cut.event_id)
        event = events.RunReset(
            base.row.run_id,
            event_id,
            self.how,
            reason,
            by,
            self.keys,
            self.tokens(),
            self.deadline_ms(now_ms),
            self._past(),
            self._children() or None,
        )
        return ResetRun(
            namespace=base.row.namespace,
            workflow_id=base.row.workflow_id,
            base_key=base.row.run_key,
            base_event=base.row.last_event,
            base_head=base.row.head,
            newest_key=newest.run_key,
            newest_event=newest.last_event,
            newest_head=newest.head,
            closing=self._closing(run_id, now_ms) if newest.status == "running" else None,
            run_id=run_id,
            kept=cut.kept,
            head=base.heads[kept - 1] if kept else transition.CHAIN_START,
            inputs=transition.encode_inputs(self._inputs(event)),
            tasks=self._tasks(event, run_id, now_ms),
            revive=self.revives,
            time_ms=now_ms,
            base_run_id=base.row.run_id,
            event_id=event_id,
            how=self.how,
            reason=reason,
            by=by,
            attributes=[attribute_of(each) for each in self._at_start.search_attributes.values()],
            memo=memos.written(self._at_start.memo) if self._at_start.memo else None,
            answers_for=self._at_start.owner,
            deadline_ms=event.deadline_ms,
            phases=[
                phase_row(event_id, each.begun)
                for event_id, each in self._at_start.phases.items()
                if each.begun.deadline_ms is not None
            ],
        )

    @functools.cached_property
    def _at_start(self) -> RunState:
        """What the new run says of itself, before its code has said anything."""
        if self.cut.kept:
            return self.state
        begun = (each for each in self.cut.carried if isinstance(each, events.RunStarted))
        return fold([Transition(transition.FORMAT, 0, None, tuple(begun), ())])

    def _closing(self, run_id: str, now_ms: int) -> StoredTransition:
        """The end of the run that is open."""
        newest, base = self.base.newest, self.base.row
        what = "redriven" if self.how == "redrive" else f"reset to event {max(1, self.cut.event_id)}"
        which = "" if newest.run_key == base.run_key else f" of run {base.run_id}"
        ended = events.RunTerminated(f"{what}{which}: run {run_id} goes on")
        body = transition.encode_parts(now_ms, None, (ended,), ())
        first = newest.last_event + 1
        return StoredTransition(first, body, transition.checksum(newest.head, first, body))

    def _inputs(self, event: events.RunReset) -> list[events.Input]:
        """What the new run is given first. Nothing that its code does in answer comes before the reset itself."""
        first = [each for each in self.cut.carried if isinstance(each, events.RunStarted | events.RunReset)]
        rest = [each for each in self.cut.carried if not isinstance(each, events.RunStarted | events.RunReset)]
        return [*first, event, *rest, *self.reapplied]

    def _tasks(self, event: events.RunReset, run_id: str, now_ms: int) -> list[TaskRow]:
        """What is pending at the point, for a first attempt of the new run."""
        identity = _identity(self.base.row, run_id)
        settled = {each.scheduled_event_id for each in self.cut.carried if isinstance(each, _OUTCOMES)}
        rows = []
        for event_id, pending in self.state.activities.items():
            if event_id in settled:
                continue
            task = queued_row(
                identity,
                0,
                event_id,
                resets.taken_over(pending.command, event_id, event),
                number=1,
                due_ms=now_ms,
                scheduled_ms=now_ms,
                run_deadline_ms=event.deadline_ms,
            )
            if pending.cancel_requested:
                task = msgspec.structs.replace(task, cancel_requested=True, expires_ms=0)
            rows.append(task)
        return rows


_OUTCOMES = (events.ActivityCompleted, events.ActivityFailed)
_WITH_UPDATES = frozenset({ResetReapplyType.SIGNAL_AND_UPDATE, ResetReapplyType.ALL_ELIGIBLE})


def draft_reset(base: Base, event_id: int, reapply: ResetReapplyType) -> Draft:
    """Raises UsageError for a point that is none."""
    row = base.row
    last = sum(len(each.events()) for each in base.transitions)
    if not is_whole(event_id):
        raise errors.UsageError(f"event_id={event_id!r} is no event of {in_words(row)}: they are counted from 1")
    if not isinstance(reapply, ResetReapplyType):
        raise errors.UsageError(f"reapply={reapply!r} is no ResetReapplyType")
    if base.damage is not None and event_id > last:
        raise base.damage
    if not last:
        raise errors.UsageError(f"{in_words(row)} has nothing to be reset to: no worker has begun it yet")
    if not 1 <= event_id <= last:
        raise errors.UsageError(
            f"{in_words(row)} has no event {event_id}: its history has {last}; `pledger history {row.workflow_id}` "
            f"lists them"
        )
    return _checked(Draft(base, cut_after(base.transitions, event_id), "reset", reapply))


def draft_redrive(base: Base) -> Draft:
    """Raises RunClosedError and UsageError where there is nothing to be redriven."""
    row = base.row
    if base.damage is not None:
        raise base.damage
    cut = cut_before_failure(base.transitions) if row.status != "running" else None
    if row.status == "running":
        hint = (
            "it is blocked: with code that can carry it on it goes on by itself, or reset it to before the bug"
            if row.blocked is not None
            else "to have it do something again, reset it"
        )
        raise errors.UsageError(f"{in_words(row)} is open, and only a run that has ended badly is redriven; {hint}")
    if cut is None:
        raise errors.RunClosedError(
            f"{in_words(row)} is {row.status}, and only a run that has ended badly is redriven; to have it do "
            f"something again, reset it to the event before",
            status=row.status,
        )
    return _checked(Draft(base, cut, "redrive", ResetReapplyType.SIGNAL_AND_UPDATE))


def _checked(draft: Draft) -> Draft:
    row, newest = draft.base.row, draft.base.newest
    if draft.base.before is not None:
        raise errors.UsageError(
            f"{in_words(row)} goes on from run {draft.base.before}, and no worker has taken it up: reset that one"
        )
    if draft.state.children or draft.state.messages:
        waits = "a child" if draft.state.children else "the answer to a message"
        raise errors.UsageError(
            f"{in_words(row)} waits at event {draft.cut.kept} for {waits}, which goes to that run: reset it to an "
            f"event before that was asked, or after it came"
        )
    if not draft.cut.kept and not draft.cut.carried:
        raise errors.UsageError(
            f"{in_words(row)} ended before any worker had begun it: there is nothing to go on from. Start it anew, "
            f"with id_reuse_policy=IdReusePolicy.ALLOW_DUPLICATE"
        )
    if newest.chain_key != row.chain_key:
        raise errors.UsageError(
            f"{in_words(row)} is not to be gone on from: its workflow id was started anew since, as run "
            f"{newest.run_id} ({newest.status})"
        )
    return draft


def _identity(row: RunRow, run_id: str) -> RunIdentity:
    return RunIdentity(
        namespace=row.namespace,
        workflow_id=row.workflow_id,
        run_id=run_id,
        workflow_type=row.workflow_type,
        task_queue=row.task_queue,
    )


class Asked(NamedTuple):
    """A request. request_id: its name, if whoever asks has given it one."""

    draft: Callable[[Base], Draft]
    reason: str
    by: str
    request_id: str | None


async def carry_out(
    connection: Connection, find: Callable[[], Awaitable[RunRow]], asked: Asked
) -> tuple[str, int, int]:
    """The run that goes on: its run id, its key and that of its chain. One is made, however often that is tried, and
    by a request that has a name however often that is asked. find: the run that is meant."""
    store, run_id = connection.store, None
    while True:
        row = await find()
        if asked.request_id is not None:
            run_id = await _run_id_of(store, row, asked.request_id)
            there = await store.find_run(row.namespace, row.workflow_id, run_id)
            if there is not None:
                return run_id, there.run_key, there.chain_key
        now_ms = await connection.now_ms()
        run_id = run_id or new_run_id(now_ms, connection.entropy(10))
        operation = asked.draft(await read_base(store, row)).operation(now_ms, run_id, asked.reason, asked.by)
        answer = await connection.committer.write(operation)
        if isinstance(answer, Started):
            connection.terminated(operation.newest_key)
            connection.tell_workers()
            return run_id, answer.run_key, answer.chain_key


async def _run_id_of(store: Store, row: RunRow, request_id: str) -> str:
    """Of the run that a request makes, whichever run of the chain it names."""
    [first, *_] = await store.chain_runs([row.chain_key])
    return derived_run_id(first.run_id, f"{first.run_id} {request_id}")


def _keys_of(row: RunRow) -> str:
    """What the default idempotency keys of a run begin with."""
    return f"{row.chain_id}/{row.segment}"


def _again(
    kept: Sequence[events.Event], beyond: Iterable[events.Event], reapply: ResetReapplyType
) -> Iterator[events.Input]:
    """The messages beyond the point that are given again, each once. kept: what the new run knows already."""
    seen = {each.message_id for each in kept if isinstance(each, events.SignalReceived)}
    asked = {each.request_id for each in kept if isinstance(each, events.CancelRequested)}
    updated = {each.update_id for each in kept if isinstance(each, events.UpdateAccepted)}
    for each in beyond:
        match each:
            case events.SignalReceived() if reapply is not ResetReapplyType.NONE:
                if each.message_id not in seen:
                    seen.add(each.message_id)
                    yield each
            case events.UpdateAccepted() if reapply in _WITH_UPDATES:
                if each.update_id not in updated:
                    updated.add(each.update_id)
                    yield each
            case events.CancelRequested() if reapply is ResetReapplyType.ALL_ELIGIBLE:
                if each.request_id not in asked:
                    asked.add(each.request_id)
                    yield each
            case _:
                pass
