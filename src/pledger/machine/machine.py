"""The machine: one run in memory, its author's coroutines on our own loop. Inputs in, commands out.

Live and replay are one code path: `activate` does the same in both; given the recorded commands it pairs them with what
the code asked and takes over their event ids, without them it hands out new ids.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import heapq
import itertools
from _thread import get_ident
from asyncio import _get_running_loop, _set_running_loop  # documented for event loops
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import Context
from typing import Any, Final

from pledger import errors
from pledger.history import events, failures, memos, payloads, resets
from pledger.history.attributes import AttributeRecord
from pledger.history.events import Command, Input
from pledger.history.transition import Transition, encode
from pledger.machine import family, guards, interception, queries, replay, sealing, signals, updates
from pledger.machine.context import ActivityHandle, Asked, AtWork, RunContext
from pledger.machine.definitions import WorkflowDefinition
from pledger.machine.generators import stage
from pledger.machine.identity import RunIdentity
from pledger.machine.interception import WorkflowInboundInterceptor
from pledger.machine.labels import Labels
from pledger.machine.leaving import close_all
from pledger.machine.loop import WorkflowTask


class Machine:
    """One run. interceptors: of its code, the first one outermost; inbound: those of this run. commands_max: of one
    transition, live; None: as many as the code asks for.

    instance: of the workflow's class, where it is one. due: the heap of its timers, (time in ms, event id); those that
    were cancelled too, until they come to the top.
    unhandled_signals: those that nobody took. early: of them those that a handler may still be set for, with their
    events. refusals: live, for the engine to tell and clear, each with its event: why nobody took it, None where
    somebody has at last. updates: those that were accepted, by their ids.
    spoiled: a query has changed what only the code may change; a replay mends it.
    unstarted: the activities that the code called just before it returned, and did not await, live, for the engine.
    unfinished: what async handlers were at when the code ended the run, live, for the engine to tell.
    unawaited: tasks that have raised, live, and whose exception nobody has taken, for the engine to tell and clear.
    unrecorded: what the code asked for in its last activation beyond what one transition takes: see `record_more`.
    own_code: the identity of its code, set for a replay that is to find other values too in what that code recorded;
    is_same_code: whether it made what is being replayed.
    started: what the run started with; None before that, and of one that ended before anybody had taken it.
    size: of its history so far, in bytes. before: (events, size) of the history before its newest recorded transition.
    suggests: whether a successor had better go on, since the history has grown long: whoever activates says so.
    published: what the code has published in its last activation, live, for the engine to write and clear.
    given_up: the events that scheduled what the code cancelled in its last activation, of which nothing is recorded.

    Activate it from a plain callback only (see `loop`), one activation at a time.

    An exception out of `activate` means that the code cannot carry the run on: a bug, a call that is forbidden, or a
    mismatch with the record. Nothing of that activation may be kept and the machine is to be destroyed.
    """

    def __init__(
        self,
        definition: WorkflowDefinition,
        identity: RunIdentity,
        *,
        payload_bytes_max: int = payloads.PAYLOAD_BYTES_MAX,
        commands_max: int | None = None,
        interceptors: Sequence[type[WorkflowInboundInterceptor]] = (),
    ) -> None:
        self.payload_bytes_max = payload_bytes_max
        self.commands_max = commands_max
        self.interceptors = interceptors
        self.inbound: WorkflowInboundInterceptor | None = None
        self.definition = definition
        self.identity = identity
        self.last_event = 0
        self.closed: Command | None = None
        # Empty tuples here and elsewhere, where a list would hardly ever hold anything: a worker has thousands of runs
        # in memory, and the collector goes through every list of each.
        self.unhandled_signals: tuple[events.SignalReceived, ...] = ()
        self.refusals: tuple[tuple[int, events.SignalReceived, str | None], ...] = ()
        self.early: tuple[tuple[int, events.SignalReceived], ...] = ()
        self.updates = updates.NONE_KNOWN
        self.unfinished: tuple[AtWork, ...] = ()
        self.unstarted: tuple[str, ...] = ()
        self.unawaited: tuple[asyncio.Task[Any], ...] = ()
        self.given_up: tuple[int, ...] = ()
        self.published: Sequence[tuple[str, bytes]] = ()
        self.started: events.RunStarted | None = None
        self.size = 0
        self.before = (0, 0)
        self.suggests = False
        self.unrecorded: Sequence[Asked] = ()
        self.spoiled = False
        self.own_code: str | None = None
        self.is_same_code = False
        self._context: RunContext | None = None
        self.instance: Any = None
        self._main: WorkflowTask[Any] | None = None
        self._start: Callable[[], Any] | None = None
        self._fed: Sequence[Input] = ()
        self.due: list[tuple[int, int]] = []

    @property
    def context(self) -> RunContext:
        if self._context is None:
            raise errors.InternalError(f"{self.identity} was used before its start")
        return self._context

    # Activation -------------------------------------------------------------------------------------------------------

    def activate(
        self,
        inputs: Sequence[Input],
        *,
        time_ms: int,
        recorded: Sequence[Command] | None = None,
        continues: bool = False,
    ) -> tuple[int, list[Command]]:
        """Hand the inputs to the code, run it until it is blocked, and seal what it asked for.

        time_ms: the transition's time. recorded: its commands, when it is a replay; continues: as the record says.

        Returns how many of the inputs the code still took (it may return before the last), and its commands in the
        order of their event ids, which follow those of the consumed inputs.
        """
        with stage():
            return self.activate_staged(inputs, time_ms=time_ms, recorded=recorded, continues=continues)

    def activate_staged(
        self,
        inputs: Sequence[Input],
        *,
        time_ms: int,
        recorded: Sequence[Command] | None = None,
        continues: bool = False,
    ) -> tuple[int, list[Command]]:
        """The same for a caller who has put up the `stage` for many."""
        context = self._context
        if context is None:
            context = self.begin(inputs[0], time_ms)
        self._fed = inputs
        loop = context.loop
        context.now_ms = loop.now_ms = time_ms
        context.replaying = recorded is not None
        context.suggests, context.size = self.suggests, self.size
        context.events = self.last_event + len(inputs)
        if recorded:
            context.recorded_patches = frozenset(c.patch_id for c in recorded if isinstance(c, events.RecordPatch))
        # As in `inside`, written out: this is done for every transition.
        outer = _get_running_loop()
        _set_running_loop(loop)
        if guards.violations:
            guards.take_violation()  # of an activation that was interrupted
        thread = get_ident()
        guards.inside.add(thread)
        try:
            # Tasks have contexts of their own. What runs outside of one (plain handlers, conditions, decoding) gets a
            # new one each time: variables that it sets, decimal's precision for one, are seen by nobody else.
            consumed = Context().run(self._feed, inputs)
        finally:
            guards.inside.discard(thread)
            _set_running_loop(outer)
            self._fed = ()
        if guards.violations:
            violation = guards.take_violation()
            if violation is not None:
                raise violation
        if loop.failures:
            raise loop.failures[0]
        if loop.failed:
            unawaited = loop.take_unawaited()
            if recorded is None:
                self.unawaited = unawaited
        # What is recorded stands after all inputs, whether the code takes them or not.
        before = self.last_event + (consumed if recorded is None else len(inputs))
        if recorded is None:
            commands = sealing.seal(self, context, self._main, before + 1)
        else:
            sealing.pair(self, context, self._main, before + 1, recorded, continues=continues)
            commands = list(recorded)
        self.last_event += consumed + len(commands)
        return consumed, commands

    def record_more(self) -> list[Command]:
        """The commands of the next transition, which has no inputs: more of what is unrecorded."""
        commands = sealing.seal_more(self, self.context, self.last_event + 1)
        self.last_event += len(commands)
        return commands

    def replay_all(self, transitions: Iterable[Transition], sizes: Iterable[int] = ()) -> None:
        """Re-enact recorded transitions, in order. sizes: of their bodies, in bytes, where they are known."""
        for transition, size in itertools.zip_longest(transitions, sizes):
            self.replay(transition, size)

    def replay(self, transition: Transition, size: int | None = None) -> None:
        """Re-enact a recorded transition. size: of its body, in bytes, where that is known. Raises NondeterminismError
        when the code asks for something else."""
        self.before = (self.last_event, self.size)
        self.suggests = transition.suggests
        self._replay(transition)
        self.size += len(encode(transition)) if size is None else size

    def _replay(self, transition: Transition) -> None:
        before = self.last_event
        if transition.code is not None:
            self.is_same_code = transition.code == self.own_code
        if self.unrecorded and sealing.pair_more(self, self.context, transition):
            self.last_event += len(transition.commands)
            return
        consumed, commands = self.activate(
            transition.inputs,
            time_ms=transition.time_ms,
            recorded=transition.commands,
            continues=transition.continues,
        )
        if consumed < len(transition.inputs):
            raise replay.mismatch(
                self.identity,
                event_id=before + consumed + 1,
                recorded=f"{type(transition.inputs[consumed]).__name__}, while the run went on",
                replayed=Asked(commands[-1], None, ()),
            )

    def begin(self, started: Input, time_ms: int) -> RunContext:
        """Make the context of the run. started: its first input, which is not applied by this."""
        match started:
            case events.RunStarted():
                seed, placement, self.started = started.seed, started.placement, started
                owner, parent = started.owner, started.parent
            case events.RunTerminated() | events.RunTimedOut():
                seed, placement = b"", None  # ended before anybody had taken it: there will be no code to draw
                owner = parent = None
            case _:
                raise errors.InternalError(f"{self.identity}: its first input is {type(started).__name__}")
        context = self._context = RunContext(self.identity, self.definition, seed)
        context.machine = self
        context.started_ms = time_ms
        context.payload_bytes_max = self.payload_bytes_max
        context.owner, context.parent = owner, parent
        if placement is not None:
            context.priority = placement.priority_stated()
        if type(started) is events.RunStarted and (started.search_attributes or started.memo is not None):
            context.labels = Labels(context, started.search_attributes or (), started.memo)
        return context

    @contextlib.contextmanager
    def inside(self, context: RunContext) -> Iterator[None]:
        """Our loop is the running one of this thread, and the guards are up."""
        outer = _get_running_loop()
        with stage():
            _set_running_loop(context.loop)
            guards.enter()
            try:
                yield
            finally:
                guards.leave()
                _set_running_loop(outer)

    def apply(self, context: RunContext, one: Input) -> None:
        """One input by itself, as before the first line of the run method. For a machine of which nothing is kept."""
        self._fed = (one,)
        with self.inside(context):
            Context().run(_APPLY[type(one)], self, one)
            Context().run(context.loop.run_until_blocked)
        violation = guards.take_violation()
        if violation is not None:
            raise violation

    def hand_over_early(self) -> None:
        """See `signals`."""
        signals.hand_over_early(self)

    def event_id_of(self, one: Input) -> int:
        """Where the input stands that is being applied."""
        return self.last_event + 1 + next(at for at, each in enumerate(self._fed) if each is one)

    def _feed(self, inputs: Sequence[Input]) -> int:
        """Apply the inputs in order, each until the code is blocked again; how many were applied."""
        context = self._context
        assert context is not None
        if context.left:
            context.close_left()
        run_until_blocked = context.loop.run_until_blocked
        for position, one in enumerate(inputs):
            if self._start is not None and type(one) not in _BEFORE_THE_FIRST_LINE:
                self._start_main()
            main = self._main
            if self.closed is not None or (main is not None and main.done()):
                return position
            _APPLY[type(one)](self, one)
            run_until_blocked()
            if context.conditions:
                self._settle_conditions()
        if self._start is not None and self.closed is None:
            self._start_main()
        return len(inputs)

    def _settle_conditions(self) -> None:
        context = self.context
        while context.conditions and context.settle_conditions():
            context.loop.run_until_blocked()

    def _start_main(self) -> None:
        start, self._start = self._start, None
        context = self._context
        if start is not None and context is not None:
            self._main = context.main = context.loop.create_task(start(), name="main", looked_after=True)
            context.loop.run_until_blocked()
            if context.conditions:
                self._settle_conditions()

    # Inputs -----------------------------------------------------------------------------------------------------------

    def _construct(self, started: events.RunStarted) -> None:
        definition = self.definition
        args = definition.signature.decode_args(started.args)
        args, kwargs = definition.signature.split(args)
        if definition.run_attribute is None:
            self._start = functools.partial(definition.target, *args, **kwargs)
            if self.interceptors:
                self._start = interception.main(self, started.headers, definition.target, args, kwargs)
            return
        self.instance = definition.target(*args, **kwargs) if definition.init_takes_args else definition.target()
        run_fn = getattr(self.instance, definition.run_attribute)
        self._start = functools.partial(run_fn, *args, **kwargs)
        if self.interceptors:
            self._start = interception.main(self, started.headers, run_fn, args, kwargs)

    # An input before an outcome in the same transition may have cancelled the activity or the timer: then nobody waits
    # for it any more, on replay as it was live.

    def _complete_activity(self, completed: events.ActivityCompleted) -> None:
        assert self._context is not None
        handle = self._context.activities.pop(completed.scheduled_event_id, None)
        if handle is None:
            return
        try:
            value = handle.decode(completed.result)
        except errors.PayloadError as error:
            handle.set_exception(error)
        else:
            handle.set_result(value)

    def _fire_timer(self, fired: events.TimerFired) -> None:
        timer = self.context.timers.pop(fired.started_event_id, None)
        if timer is not None:
            self.context.loop.make_ready(timer.ready())

    def _request_cancel(self, request: events.CancelRequested) -> None:
        self.context.cancel_reason = request.reason
        if self._main is not None:
            self._main.cancel(request.reason or None)

    def _take_over(self, reset: events.RunReset) -> None:
        """What is pending was scheduled by the run before, and is attempted anew, under the key that it had."""
        context = self.context
        context.reset, context.past = reset, resets.Past(reset)
        for event_id, handle in context.activities.items():
            handle.command = resets.taken_over(handle.command, event_id, reset)
            handle.scheduled_ms = context.now_ms

    def _end_unasked(self, _: events.RunTerminated | events.RunTimedOut) -> None:
        """The code is not told: a history ends here and nothing is activated after it."""

    def _fail_activity(self, failed: events.ActivityFailed) -> None:
        handle = self.context.activities.pop(failed.scheduled_event_id, None)
        if handle is None:
            return
        cause = failures.to_exception(failed.failure)
        name = handle.command.activity_type
        if isinstance(cause, errors.CancelledError) and handle.cancel_asked:
            super(ActivityHandle, handle).cancel(failed.failure.message or None)
            return
        error = errors.ActivityError(
            f"activity {name!r} (event {failed.scheduled_event_id}) failed after {failed.attempt} "
            f"attempt{'s' if failed.attempt != 1 else ''}, {failed.retry_state}: {cause}",
            activity_type=name,
            scheduled_event_id=failed.scheduled_event_id,
            attempt=failed.attempt,
            retry_state=failed.retry_state,
        )
        error.__cause__ = cause
        handle.set_exception(error)

    # What the engine asks ---------------------------------------------------------------------------------------------

    def pending_activities(self) -> dict[int, tuple[events.ScheduleActivity, int]]:
        """Activities whose outcome the code still takes: by the event that scheduled them, with the time (ms)."""
        if self._context is None:
            return {}
        return {event_id: (each.command, each.scheduled_ms) for event_id, each in self._context.activities.items()}

    def pending_event_ids(self) -> Iterable[int]:
        """The events that scheduled them."""
        return () if self._context is None else self._context.activities

    @property
    def has_checkpoint(self) -> bool:
        """Whether the code has come to a checkpoint."""
        return self._context is not None and self._context.has_checkpoint

    def trace(self) -> None:
        """Count from now on which lines of the code cause events. What was counted before is forgotten."""
        if self._context is not None:
            self._context.traced = Counter()

    def is_busy(self) -> bool:
        """Whether something of the run is in flight that will end by itself: an activity, or a handler."""
        context = self.context
        return bool(context.activities or context.handlers_at_work())

    def is_timed(self, begun_event_id: int) -> bool:
        """Whether the phase that began there had a deadline."""
        return begun_event_id in self.context.timed_phases

    def sealed_labels(self) -> tuple[tuple[AttributeRecord, ...] | None, bytes | None]:
        """The search attributes and the memo, as they are recorded; None for none."""
        labels = self.context.labels
        if labels is None:
            return None, None
        memo = memos.written(labels.sealed_memo) if labels.sealed_memo else None
        return tuple(labels.sealed_attributes.values()) or None, memo

    def awaits(self, event_id: int) -> bool:
        return self._context is not None and event_id in self._context.activities

    @property
    def parent(self) -> events.Parent | None:
        """The run that started this one."""
        return None if self._context is None else self._context.parent

    @property
    def has_dependants(self) -> bool:
        """Whether it has ever had children that are not to outlive it."""
        context = self._context
        return context is not None and context.family is not None and context.family.has_dependants

    def seed_of_child(self, event_id: int) -> bytes:
        """What the draws of a child come from that was started there."""
        return self.context.seed_of_child(event_id)

    def next_timer_ms(self) -> int | None:
        """When the next timer fires, or None."""
        due = self.due
        timers = self.context.timers
        while due and due[0][1] not in timers:
            heapq.heappop(due)
        return due[0][0] if due else None

    def due_timers(self, now_ms: int) -> list[events.TimerFired]:
        """The timers to fire by `now_ms`, earliest first; each is told once, and must become an input."""
        due = self.due
        fired = []
        while due and due[0][0] <= now_ms:
            _, event_id = heapq.heappop(due)
            if event_id in self.context.timers:
                fired.append(events.TimerFired(event_id))
        return fired

    def query(self, name: str, args: bytes) -> bytes:
        """Answer a query from the present state, as JSON. Raises UnknownQueryError, QueryFailedError."""
        return queries.answer(self, name, args)

    def destroy(self) -> int:
        """Leave memory: coroutines are closed in a dead context, where the API raises and nothing is kept.

        Returns how many of them did not end, whatever was raised in them.
        """
        context = self._context
        if context is None or context.dead:
            return 0
        context.dead = True
        left = 0
        try:
            if context.loop.live_tasks() or context.loop.generators():
                with self.inside(context):
                    left = Context().run(close_all, context)
                guards.take_violation()
        finally:
            # Take the reference cycles apart: thousands of finished runs a second are not left to the collector.
            self._main = self._start = self.instance = None
            self.unrecorded = ()
            context.dismantle()
        return left


_APPLY: dict[type[Input], Callable[[Machine, Any], None]] = {
    events.RunStarted: Machine._construct,  # noqa: SLF001 - this table is the machine's own
    events.ActivityCompleted: Machine._complete_activity,  # noqa: SLF001
    events.ActivityFailed: Machine._fail_activity,  # noqa: SLF001
    events.TimerFired: Machine._fire_timer,  # noqa: SLF001
    events.SignalReceived: signals.receive,
    events.UpdateAccepted: updates.receive,
    events.CancelRequested: Machine._request_cancel,  # noqa: SLF001
    events.ChildStarted: family.child_started,
    events.ChildStartFailed: family.child_start_failed,
    events.ChildClosed: family.child_closed,
    events.MessageDelivered: family.message_delivered,
    events.MessageRefused: family.message_refused,
    events.RunTerminated: Machine._end_unasked,  # noqa: SLF001
    events.RunTimedOut: Machine._end_unasked,  # noqa: SLF001
    events.RunReset: Machine._take_over,  # noqa: SLF001
}
"""What each input does to the machine: a new kind of input has its place here or nowhere."""

#: Signals that came with the start are handled before the first line of the run method.
_BEFORE_THE_FIRST_LINE: Final = frozenset({events.SignalReceived, events.UpdateAccepted, events.RunReset})
