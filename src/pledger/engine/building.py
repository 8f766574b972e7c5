"""From an activation to what is written of it: the transition itself, and where its activities run."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec.structs import replace

from pledger.engine.families import OF_OTHERS, post_of, report_of
from pledger.engine.interrupts import is_interrupt
from pledger.engine.port.answers import Reply
from pledger.engine.port.filters import PhaseRow, attribute_of
from pledger.engine.port.operations import Append, Successor
from pledger.engine.port.records import SIGNAL_HANDLED_LATER, SIGNAL_NOT_HANDLED, AttemptRecord
from pledger.engine.port.streams import Publication
from pledger.engine.task_rows import first_row, record_of
from pledger.engine.verdicts import is_once
from pledger.history import events, failures, memos, transition
from pledger.history.transition import StoredTransition
from pledger.machine import continuing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pledger.engine.active_run import ActiveRun
    from pledger.engine.activities import Activities
    from pledger.engine.port.answers import Answer
    from pledger.engine.port.records import Piece, RunStatus, TaskRow
    from pledger.engine.vault import Vault
    from pledger.history.events import Command

logger = logging.getLogger("pledger.engine")

#: The origins of the commonest input: the outcome of one eager attempt.
_NO_ORIGIN: Final = [0]
_HANDLED_LATER: Final = failures.Failure(
    "application", SIGNAL_HANDLED_LATER, "the code has set a handler, which got it"
)
#: How a run ends with its last command.
_STATUS: dict[type[Any], RunStatus] = {
    events.CompleteRun: "completed",
    events.FailRun: "failed",
    events.CancelRun: "cancelled",
    events.ContinueAsNew: "continued_as_new",
}


#: What lists show of a run, as its code says it.
_LABELS: Final = frozenset({events.UpsertSearchAttributes, events.UpsertMemo, events.BeginPhase, events.EndPhase})


def phase_row(event_id: int, begun: events.BeginPhase) -> PhaseRow:
    assert begun.deadline_ms is not None
    return PhaseRow(event_id, begun.kind, begun.name, begun.owner, begun.deadline_ms)


def _label(run: ActiveRun, append: Append, event_id: int, command: Command) -> None:
    match command:
        case events.UpsertSearchAttributes():
            append.attributes = [attribute_of(each) for each in command.attributes]
        case events.UpsertMemo():
            append.memo = run.machine.sealed_labels()[1] or memos.EMPTY
        case events.BeginPhase() if command.deadline_ms is not None:
            append.phases = [*append.phases, phase_row(event_id, command)]
        case events.EndPhase() if run.machine.is_timed(command.begun_event_id):
            append.phases_over = [*append.phases_over, command.begun_event_id]
        case _:
            pass


class Settles(Protocol):
    """Who goes on once the store has answered."""

    def won(self, built: InFlight) -> None: ...
    def lost(self, built: InFlight) -> None: ...
    def failed(self, built: InFlight, error: Exception) -> None: ...
    def interrupted(self, run: ActiveRun) -> None: ...
    def published(self, chain_key: int) -> None: ...


class InFlight:
    """A transition on its way to the store. size: of its body before it was sealed, in bytes. eager: what starts here
    once it is durable. unknown: what never starts, since it may have run already."""

    __slots__ = ("append", "commands", "eager", "run", "runs", "size", "unknown")

    def __init__(self, runs: Settles, run: ActiveRun, commands: list[Command], append: Append) -> None:
        self.runs = runs
        self.run = run
        self.commands = commands
        self.append = append
        self.size = 0
        self.eager: list[tuple[int, events.ScheduleActivity]] = []
        self.unknown: tuple[int, ...] = ()

    def settle(self, answer: Answer) -> None:
        if answer is Reply.WON:
            if self.append.published:
                self.runs.published(self.run.chain_key)
            try:
                self.runs.won(self)
            except BaseException as error:
                if is_interrupt(error):
                    self.runs.interrupted(self.run)
                raise
        elif answer is Reply.LOST:
            self.runs.lost(self)
        elif isinstance(answer, Exception):
            self.runs.failed(self, answer)


def _successor(run: ActiveRun, command: events.ContinueAsNew, left: Sequence[events.Input]) -> Successor:
    started = run.machine.started
    assert started is not None, "its code has run"
    attributes, memo = run.machine.sealed_labels()
    started = replace(started, search_attributes=attributes, memo=memo)
    run_id, begun = continuing.successor_of(started, command, run.identity)
    successor = Successor(
        run_id, begun.workflow_type, begun.task_queue, transition.encode_event(begun), deadline_ms=begun.deadline_ms
    )
    return successor.with_first(transition.encode_inputs((begun, *left))) if left else successor


def _take_published(run: ActiveRun) -> Sequence[Publication]:
    published, run.machine.published = run.machine.published, ()
    return [Publication(*each) for each in published]


class Builder:
    """codes: the identity of the code of each workflow, by its type. worker: this one's name, for the attempt log."""

    def __init__(self, *, codes: dict[str, str], task_queue: str, worker: str, vault: Vault) -> None:
        self.activities: Activities  # set by the engine: see `Runs.meet`
        self._codes = codes
        self._task_queue = task_queue
        self._worker = worker
        self._vault = vault

    def build(
        self,
        runs: Settles,
        run: ActiveRun,
        inputs: list[events.Input],
        origins: list[int],
        commands: list[Command],
        now_ms: int,
        *,
        timed_out: bool = False,
        left: Sequence[events.Input] = (),
    ) -> InFlight:
        """The append of an activation that took `inputs`, from `origins`, and gave `commands`. left: messages that it
        did not take, and that no inbox has."""
        identity = self._codes[run.identity.workflow_type]
        first = run.last_event + 1
        code, continues = None if run.code == identity else identity, bool(run.machine.unrecorded) and not timed_out
        suggests = run.machine.suggests
        body = transition.encode_parts(now_ms, code, inputs, commands, continues=continues, suggests=suggests)
        pieces: Sequence[Piece] = ()
        size = len(body)
        if size >= self._vault.least:
            body, pieces = self._vault.seal_transition(
                body,
                run.identity,
                run.run_key,
                first,
                now_ms=now_ms,
                code=code,
                inputs=inputs,
                commands=commands,
                continues=continues,
                suggests=suggests,
            )
        stored = StoredTransition(first, body, transition.checksum(run.head, first, body))
        commands_from = first + len(inputs)
        last = commands_from + len(commands) - 1
        append = Append(run.run_key, run.fence, run.last_event, stored, last, None, now_ms)
        if pieces:
            append.pieces = pieces
        if first == 1:
            append.terms = run.terms
        append.published = _take_published(run) if run.machine.published else ()
        built = InFlight(runs, run, commands, append)
        built.size = size
        if origins != _NO_ORIGIN and any(origins):
            append.consumed = [(origin, first + n) for n, origin in enumerate(origins) if origin > 0]
            append.consumed += [(message_key, first) for message_key in run.settled]
            append.dropped = [-origin for origin in origins if origin < 0]
        closed = run.machine.closed
        if timed_out or closed is not None:
            append.closed = "timed_out" if closed is None or timed_out else _STATUS[type(closed)]
            if type(closed) is events.ContinueAsNew and not timed_out:
                append.successor = _successor(run, closed, left)
            self._part(run, append, commands, commands_from, timed_out=timed_out)
            for event_id, command in enumerate(commands[:-1], commands_from):
                if type(command) in _LABELS:
                    _label(run, append, event_id, command)
        else:
            if commands:
                self._place(run, built, commands_from, now_ms)
            append.due_ms = run.due_ms()
        return built

    def _part(
        self, run: ActiveRun, append: Append, commands: list[Command], first_event_id: int, *, timed_out: bool
    ) -> None:
        """What the end of the run is to others. Of one that times out before it has begun nobody knows yet whose child
        it is; the store does."""
        machine = run.machine
        if len(commands) > 1:
            append.posts = [
                post_of(run, event_id, command, append.time_ms, self._vault, tells=False)
                for event_id, command in enumerate(commands, first_event_id)
                if type(command) in OF_OTHERS
            ]
        append.has_dependants = machine.has_dependants
        if append.successor is None and (machine.parent is not None or (timed_out and run.last_event == 0)):
            assert append.closed is not None
            append.report = report_of(append.closed, commands[-1] if commands else None)
            append.report_to = machine.parent

    def _place(self, run: ActiveRun, built: InFlight, first_event_id: int, now_ms: int) -> None:  # noqa: C901 - by kind
        """Decide where each scheduled activity runs: here and now, or through the queue."""
        activities = self.activities
        tasks: list[TaskRow] = []
        cancelled: list[int] = []
        own = run.identity.task_queue
        for event_id, command in enumerate(built.commands, first_event_id):
            kind = type(command)
            if kind is events.ScheduleActivity:
                assert isinstance(command, events.ScheduleActivity)
                if run.in_doubt and is_once(command):
                    built.unknown = (*built.unknown, event_id)
                elif (command.task_queue or own) == self._task_queue and activities.admission.reserve(command):
                    built.eager.append((event_id, command))
                else:
                    tasks.append(first_row(run, event_id, command, now_ms))
            elif kind is events.CancelActivity:
                assert isinstance(command, events.CancelActivity)
                cancelled.append(command.scheduled_event_id)
                row = activities.unwritten_row(run.run_key, run.fence, command.scheduled_event_id)
                if row is not None:
                    built.append.unwritten = [*built.append.unwritten, row]
            elif kind in OF_OTHERS:
                built.append.posts = [*built.append.posts, post_of(run, event_id, command, now_ms, self._vault)]
            elif kind in _LABELS:
                _label(run, built.append, event_id, command)
        if tasks:
            built.append.tasks = tasks
        if cancelled:
            built.append.cancelled = cancelled

    def signals_told(self, run: ActiveRun, now_ms: int) -> list[AttemptRecord]:
        """Lines of the attempt log for signals that the code did not take, or took later. The history has the signals
        and no more: a replay by code that knows them must not find another history."""
        records = []
        for event_id, signal, why in run.machine.refusals:
            outcome, failure = "late", _HANDLED_LATER
            if why is not None:
                # For a handler that may still be set it is kept; what does not fit is not.
                kept = {"kept": True} if any(early is signal for _, early in run.machine.early) else None
                outcome, failure = (
                    "failed",
                    failures.Failure("application", SIGNAL_NOT_HANDLED, failures.cut(why), attributes=kept),
                )
                logger.warning(
                    "%s: the signal %r (message %s) was not handled: %s",
                    run.identity,
                    signal.name,
                    signal.message_id,
                    why,
                )
            records.append(record_of((run.run_key, event_id, 1), outcome, None, now_ms, self._worker, failure))
        run.machine.refusals = ()
        return records
