"""The context of one run: what the workflow API does while the run's code is being activated.

Every call of user code that asks for something (an activity, a timer, a patch) becomes an `Asked`: a command and
whatever waits for its outcome. Commands get their event ids when the transition is sealed, not when they are asked for:
inside a transition order carries no meaning, and on replay the ids are those of the record.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextvars import Context
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar

import msgspec

from pledger.errors import ForbiddenCallError, UsageError
from pledger.history import events, payloads
from pledger.history.events import Command, ScheduleActivity
from pledger.history.names import check_id, check_str
from pledger.history.placement import LimitUse, Priority, place
from pledger.history.times import utc
from pledger.machine import interception
from pledger.machine.callers import where
from pledger.machine.definitions import ActivityDefinition, StepOptions
from pledger.machine.family import CancelRequest, ChildWorkflowHandle, Delivery, Family
from pledger.machine.identity import RunIdentity
from pledger.machine.loop import LoopTimer, WorkflowFuture, WorkflowLoop
from pledger.machine.scoping import current_scope

if TYPE_CHECKING:
    import random
    import uuid

    from pledger.history.resets import Past
    from pledger.machine.definitions import WorkflowDefinition
    from pledger.machine.draws import Draws
    from pledger.machine.handlers import Handler, Kind
    from pledger.machine.interception import WorkflowOutboundInterceptor
    from pledger.machine.labels import Labels
    from pledger.machine.machine import Machine
    from pledger.machine.publishing import Outgoing


T = TypeVar("T")

#: Activities that one run may have pending at a time (promise 10).
PENDING_ACTIVITIES_MAX: Final = 10_000

#: How often a run that has left memory is refused what it asks for.
REFUSALS_MAX: Final = 1_000

_NO_OPTIONS = StepOptions()
_NONE: Final[frozenset[str]] = frozenset()
_GENERATOR: Final = "the clean-up of an async generator that was left before its end"

#: Who waits for what becomes of a command.
Waiter: TypeAlias = "ActivityHandle[Any] | LoopTimer | PhaseMark | ChildWorkflowHandle[Any] | Delivery | CancelRequest"


class Asked:
    """A command that the code gave in the running activation, and who waits for it.

    path: spawn path of the asking task. where: file, line and function, noted only on replay (it costs a walk up the
    stack). withdrawn: cancelled before the transition ended, as if never asked.
    """

    __slots__ = ("command", "path", "waiter", "where", "withdrawn")

    def __init__(self, command: Command, waiter: Waiter | None, path: tuple[int, ...]) -> None:
        self.command = command
        self.waiter = waiter
        self.path = path
        self.where: str | None = None
        self.withdrawn = False


class ActivityHandle(WorkflowFuture[T]):
    """The outcome of a scheduled activity, as a future. Cancelling it cancels the activity, as its type says.

    event_id: where it was scheduled; 0 until the transition is sealed. scheduled_ms: when.
    """

    __slots__ = ("_run", "asked", "cancel_asked", "command", "decode", "event_id", "scheduled_ms")

    def __init__(self, context: RunContext, asked: ScheduleActivity, decode: Callable[[bytes], Any]) -> None:
        # As WorkflowFuture does, written out: one is made for every step.
        loop = context.loop
        self._hash = loop.next_hash()
        asyncio.Future.__init__(self, loop=loop)
        self._run = context
        self.command = asked
        self.decode = decode
        self.event_id = 0
        self.scheduled_ms = context.now_ms
        self.asked: Asked | None = None
        self.cancel_asked = False

    def cancel(self, msg: Any | None = None) -> bool:
        if self.done():
            return False
        waits = self.command.options.cancellation == "wait"
        withdrawn = self._run.cancel_activity(self)
        if waits and not withdrawn:
            return True  # the outcome, cancelled or not, still comes
        return super().cancel(msg)


class PhaseMark:
    """A phase that the code is in. event_id: where it began; 0 until that is recorded. asked: until then."""

    __slots__ = ("asked", "event_id")

    def __init__(self) -> None:
        self.asked: Asked | None = None
        self.event_id = 0


class AtWork(NamedTuple):
    """What an async handler is at. is_told: whether the log is to tell of it when the run ends before it does."""

    kind: Kind
    name: str
    is_told: bool


class RunContext:
    """One run's side of the workflow API, and the `Timers` of its loop.

    replaying: the activation re-enacts a recorded transition. dead: the run has left memory; the API raises.
    read_only: names what is running and may not act (a query, the clean-up of a generator), or None.
    scoped: its code has entered a scope: what it begins may be in one.
    stage: the phase that `workflow.set_phase` has begun, which the next one ends.
    late: phases that begin or end here, and not in the history: they are recorded by the next activation that is live.
    outgoing: what the code publishes; None as long as that is nothing.
    reset: where the run took over from another one, last; past: what that had done beyond the point; None without one.
    labels: its search attributes and its memo, where it has any. timed_phases: where those began that have a deadline.
    left: async generators that the collector found, to be closed in the next activation. handlers: the tasks of async
    handlers, each with what it handles. own_handlers: those that the code has set, by kind and name (None: a dynamic
    one), None where it has taken one away; None as long as it has set none. machine: what the run lives in. family:
    what it has to do with other runs, None for nothing. owner: who answers for the run. parent: who started it.
    suggests, size: see `Machine`. main: the task of the run method. has_checkpoint: the code has come to one. traced:
    how many events each line of the code has caused, while somebody wants to know; else None.
    """

    def __init__(self, identity: RunIdentity, definition: WorkflowDefinition, seed: bytes) -> None:
        self.identity = identity
        self.definition = definition
        self.loop = WorkflowLoop(self, seed)  # type: ignore[abstract] # the rest refuses, see there
        self._seed = seed
        self._draws: Draws | None = None
        self.asked: list[Asked] = []
        self.late: list[Asked] = []
        self.withdrawals = 0
        self.activities: dict[int, ActivityHandle[Any]] = {}
        self.timers: dict[int, LoopTimer] = {}
        self.conditions: dict[int, tuple[Callable[[], bool], asyncio.Future[None]]] = {}
        self.handlers: dict[asyncio.Task[Any], AtWork] = {}
        self.own_handlers: dict[tuple[Kind, str | None], Handler | None] | None = None
        self.machine: Machine | None = None
        self.patches: dict[str, bool] = {}
        self.recorded_patches = _NONE
        self.replaying = False
        self.suggests = False
        self.size = 0
        self.main: asyncio.Task[Any] | None = None
        self.has_checkpoint = False
        self.traced: Counter[str] | None = None
        self.dead = False
        self.read_only: str | None = None
        self.scoped = False
        self.stage: PhaseMark | None = None
        self.outgoing: Outgoing | None = None
        self.left: tuple[AsyncGenerator[Any, Any], ...] = ()
        self.now_ms = 0
        self.started_ms = 0
        self.events = 0
        self.payload_bytes_max = payloads.PAYLOAD_BYTES_MAX
        self.priority: Priority | None = None
        self.owner: str | None = None
        self.parent: events.Parent | None = None
        self.family: Family | None = None
        self.outbound: WorkflowOutboundInterceptor | None = None
        self.cancel_reason: str | None = None
        self.reset: events.RunReset | None = None
        self.past: Past | None = None
        self.labels: Labels | None = None
        self.timed_phases: set[int] = set()
        self._condition_ordinal = 0
        self._refused = 0

    def dismantle(self) -> None:
        """Let go of everything: the run has left memory."""
        self.activities.clear()
        self.timers.clear()
        self.conditions.clear()
        self.handlers.clear()
        self.own_handlers = self.machine = None
        self.asked.clear()
        self.family = None
        self.left = ()
        self.main = None
        self.loop.dismantle()

    # Commands ---------------------------------------------------------------------------------------------------------

    def ask(self, command: Command, waiter: Waiter | None = None) -> Asked:
        """Note one command of the running activation. Raises in a query and in a run that has left memory."""
        self.check_may_ask()
        asked = Asked(command, waiter, self.loop.current_path())
        if self.replaying or self.traced is not None:
            self._note(asked, type(command).__name__)
        self.asked.append(asked)
        return asked

    def _note(self, asked: Asked, what: str, events_caused: int = 1) -> None:
        """Where it was asked for: for a mismatch, or for whoever wants to know what causes events."""
        asked.where = where()
        if not self.replaying:
            self.trace(what, asked.where, events_caused)

    def trace(self, what: str, place: str | None, events_caused: int = 1) -> None:
        """Count what causes events."""
        if self.traced is not None:
            self.traced[what if place is None else f"{place} ({what})"] += events_caused

    def check_may_ask(self) -> None:
        if self.dead or self.read_only is not None:
            self._refuse()

    def _refuse(self) -> None:
        if not self.dead:
            raise _may_not_act(str(self.read_only))
        self._refused += 1
        if self._refused <= REFUSALS_MAX:
            # BaseException: clean-up code of a run that leaves memory must not go on as if it were live.
            raise asyncio.CancelledError("this run has left the worker's memory")
        # Code that catches that too and tries again would do so for ever. What it asks for now it waits for, in vain.

    def schedule_activity(
        self,
        activity_type: str,
        args: bytes,
        options: events.ActivityOptions,
        decode: Callable[[bytes], Any],
        *,
        task_queue: str | None = None,
        idempotency_key: str | None = None,
        priority: Priority | None = None,
        limits: tuple[LimitUse, ...] = (),
        headers: dict[str, str] | None = None,
    ) -> ActivityHandle[Any]:
        """Schedule one activity. Raises PayloadTooLargeError, and UsageError at the bound of pending activities.

        priority: over that of the run.
        """
        if idempotency_key is not None:
            idempotency_key = check_str(idempotency_key, f"the idempotency key of activity {activity_type!r}")
        if len(args) > self.payload_bytes_max:
            what = f"the input of activity {activity_type!r} in {self.identity}"
            payloads.check_size(args, what, self.payload_bytes_max)
        if len(self.activities) + len(self.asked) >= PENDING_ACTIVITIES_MAX and self._is_full():
            raise UsageError(
                f"{self.identity} has {PENDING_ACTIVITIES_MAX} activities pending, the bound of one run; "
                f"wait for some before scheduling more"
            )
        if self.dead or self.read_only is not None:
            self._refuse()
        if self.past is not None:
            options, idempotency_key = self.past.take(activity_type, args, options, idempotency_key)
        scope = current_scope.get() if self.scoped else None
        if scope is not None:
            options = _bounded(options, scope.deadline_ms(), self.now_ms)
        if priority is None and not limits and self.priority is None and headers is None:
            command = ScheduleActivity(activity_type, args, options, task_queue, idempotency_key)
        else:
            stated = self.priority if priority is None else priority.over(self.priority)
            placement = place(stated, limits)
            command = ScheduleActivity(activity_type, args, options, task_queue, idempotency_key, placement, headers)
        handle: ActivityHandle[Any] = ActivityHandle(self, command, decode)
        asked = handle.asked = Asked(command, handle, self.loop.current_path())
        if self.replaying or self.traced is not None:
            self._note(asked, f"activity {activity_type!r}", 2)
        self.asked.append(asked)
        if scope is not None:
            scope.note(handle)
        return handle

    def _is_full(self) -> bool:
        """Exactly: not everything that was asked for is an activity, nor still wanted."""
        asked = sum(type(one.command) is ScheduleActivity and not one.withdrawn for one in self.asked)
        return len(self.activities) + asked >= PENDING_ACTIVITIES_MAX

    def cancel_activity(self, handle: ActivityHandle[Any]) -> bool:
        """Withdraw the command (True) or ask for the attempt to stop (False)."""
        if self.dead or self.read_only is _GENERATOR:
            return True
        if handle.asked is not None:
            handle.asked.withdrawn = True
            handle.asked = None
            self.withdrawals += 1
            return True
        if not handle.cancel_asked and handle.command.options.cancellation != "abandon":
            handle.cancel_asked = True
            self.ask(events.CancelActivity(handle.event_id))
        if handle.command.options.cancellation != "wait":
            self.activities.pop(handle.event_id, None)
        return False

    def with_family(self) -> Family:
        """Made when first asked for: most runs are alone."""
        if self.family is None:
            self.family = Family()
        return self.family

    def seed_of_child(self, event_id: int) -> bytes:
        return hashlib.blake2b(event_id.to_bytes(8, "big"), key=self._seed[:64], digest_size=16).digest()

    def may_not_act(self) -> bool:
        """Whether what is cancelled now is not the code's doing: it leaves no command."""
        return self.dead or self.read_only is _GENERATOR

    def withdraw(self, asked: Asked) -> None:
        """As if never asked."""
        asked.withdrawn = True
        self.withdrawals += 1

    def start_timer(self, timer: LoopTimer, delay_ms: int) -> None:
        timer.fire_at_ms = self.now_ms + delay_ms
        timer.scheduled_command = self.ask(events.StartTimer(delay_ms, timer.fire_at_ms), timer)

    def cancel_timer(self, timer: LoopTimer) -> None:
        if self.dead or self.read_only is _GENERATOR:
            return  # harmless: it will fire, and nobody waits
        asked = timer.scheduled_command
        if isinstance(asked, Asked):
            asked.withdrawn = True
            timer.scheduled_command = None
            self.withdrawals += 1
        elif self.timers.pop(timer.event_id, None) is not None:
            self.ask(events.CancelTimer(timer.event_id))

    def start_deadline(self, passed: Callable[[], None], at_ms: int) -> LoopTimer:
        """Have a block told at that time, which lies ahead."""
        timer = LoopTimer(at_ms / 1000, passed, (), Context(), self)
        timer.fire_at_ms = at_ms
        timer.scheduled_command = self.ask(events.StartDeadline(at_ms - self.now_ms, at_ms), timer)
        return timer

    # Phases -----------------------------------------------------------------------------------------------------------

    def begin_phase(self, begun: events.BeginPhase) -> PhaseMark:
        mark = PhaseMark()
        mark.asked = self.ask(begun, mark)
        return mark

    def end_phase(self, mark: PhaseMark) -> None:
        if self.dead or self.read_only is _GENERATOR:
            return
        if mark.asked is not None:
            mark.asked.withdrawn = True
            mark.asked = None
            self.withdrawals += 1
        elif mark.event_id:
            self.ask(events.EndPhase(mark.event_id))
            mark.event_id = 0

    # Async generators that nobody iterates any more -------------------------------------------------------------------

    def generator_left(self, generator: AsyncGenerator[Any, Any]) -> None:
        """The collector found an async generator. It may have come for it in another thread, or while another run is
        being activated: then the generator waits for the next activation of its own run."""
        if asyncio._get_running_loop() is self.loop:  # noqa: SLF001 - see `current`
            self.close_generator(generator)
        else:
            self.left = (*self.left, generator)

    def close_left(self) -> None:
        while self.left:
            left, self.left = self.left, ()
            for generator in left:
                self.close_generator(generator)

    def close_generator(self, generator: AsyncGenerator[Any, Any]) -> None:
        """Run its clean-up code, which may neither act nor wait: when the collector comes is no input of the run.

        Code that tries is a bug of the workflow, unless the run is leaving memory anyway.
        """
        before, self.read_only = self.read_only, _GENERATOR
        try:
            generator.aclose().send(None)
        except StopIteration:
            return
        except ForbiddenCallError as error:
            self.loop.note_failure(error)
        except BaseException:  # noqa: BLE001 - the user's clean-up failed; its caller has long gone on
            return
        else:
            self.loop.note_failure(_may_not_act(_GENERATOR))
        finally:
            self.read_only = before

    # Conditions -------------------------------------------------------------------------------------------------------

    def add_condition(self, holds: Callable[[], bool]) -> tuple[int, asyncio.Future[None]]:
        """Wait until `holds()` after some step of the run; the key takes it back."""
        self.check_may_ask()
        self._condition_ordinal += 1
        future = self.loop.create_future()
        self.conditions[self._condition_ordinal] = (holds, future)
        return self._condition_ordinal, future

    def remove_condition(self, key: int) -> None:
        self.conditions.pop(key, None)

    def settle_conditions(self) -> bool:
        """Resolve the conditions that hold now; whether there was one."""
        settled = False
        for key, (holds, future) in list(self.conditions.items()):
            if future.done():
                continue
            try:
                found = holds()
                if not found:
                    continue
                check_is_verdict(found)
            except Exception as error:  # noqa: BLE001 - user code; its waiter gets it
                future.set_exception(error)
            else:
                future.set_result(None)
            self.conditions.pop(key, None)
            settled = True
        return settled

    # Handlers ---------------------------------------------------------------------------------------------------------

    def handlers_at_work(self) -> list[AtWork]:
        """What the async handlers that have not returned are at."""
        # The callback that takes a handler off comes a step after its end.
        return [what for task, what in self.handlers.items() if not task.done()]

    def handler(self, kind: Kind, name: str | None) -> Handler | None:
        """The one of exactly this name (None: the dynamic one), or None."""
        if self.own_handlers is not None and (kind, name) in self.own_handlers:
            return self.own_handlers[kind, name]
        assert self.machine is not None
        known = self.machine.definition.handlers
        return known.dynamic.get(kind) if name is None else known.named[kind].get(name)

    def set_handler(self, kind: Kind, name: str | None, handler: Handler | None) -> None:
        """name: None of a dynamic one. handler: None for none."""
        if self.own_handlers is None:
            self.own_handlers = {}
        self.own_handlers[kind, name] = handler
        if kind == "signal" and handler is not None and self.machine is not None and self.machine.early:
            self.machine.hand_over_early()

    def is_settled(self) -> bool:
        """Whether the run method is all that there is of the run: no activity is pending, no child and no message to
        another run, no timer runs, no handler and no other task is at work, and nobody has asked it to stop."""
        if self.activities or self.timers or self.cancel_reason is not None or self.handlers_at_work():
            return False
        family = self.family
        if family is not None and (family.children or family.messages or family.requests):
            return False
        asked = any(one.waiter is not None and not one.withdrawn for one in self.asked)
        return not asked and self.loop.live_tasks() == [self.main]

    # Reading ----------------------------------------------------------------------------------------------------------

    def now(self) -> datetime:
        return utc(self.now_ms)

    def patched(self, patch_id: str, *, is_deprecated: bool | None = None) -> bool:
        """Whether the run takes the new side: True and recorded when asked first while live, else as recorded."""
        known = self.patches.get(patch_id) if type(patch_id) is str else None
        if known is not None:
            return known
        patch_id = check_id(patch_id, "a patch id")
        taken = not self.replaying or patch_id in self.recorded_patches
        self.check_may_ask()
        self.patches[patch_id] = taken
        if taken:
            self.ask(events.RecordPatch(patch_id, is_deprecated))
        return taken

    def deprecate_patch(self, patch_id: str) -> None:
        """The old side is gone from the code. It is recorded all the same: a worker that still has that side may get
        the run, in a rolling deployment or after a rollback, and must take the new one."""
        if self.read_only is None:
            self.patched(patch_id, is_deprecated=True)

    @property
    def draws(self) -> Draws:
        """Made at the first draw: most runs never draw."""
        if self._draws is None:
            from pledger.machine.draws import Draws  # noqa: PLC0415 - with the generators of the standard library

            self._draws = Draws(self._seed)
        return self._draws

    def draw_uuid(self, caller: str, name: str | None) -> uuid.UUID:
        self.check_may_ask()
        return self.draws.uuid4(self.loop.current_path(), caller, name)

    def draw_generator(self, caller: str, name: str | None) -> random.Random:
        self.check_may_ask()
        return self.draws.generator(self.loop.current_path(), caller, name)


def _bounded(options: events.ActivityOptions, deadline_ms: int | None, now_ms: int) -> events.ActivityOptions:
    """The options of an activity that must be over by the deadline of the block that it is in."""
    if deadline_ms is None:
        return options
    left_ms = max(1, deadline_ms - now_ms)
    if options.schedule_to_close_ms is not None and options.schedule_to_close_ms <= left_ms:
        return options
    return msgspec.structs.replace(options, schedule_to_close_ms=left_ms)


def _may_not_act(what: str) -> ForbiddenCallError:
    remedy = "only read state here; act in the run method, a signal or an update"
    if what is _GENERATOR:
        remedy = "iterate it to its end, or close it: async with contextlib.aclosing(...)"
    return ForbiddenCallError(f"{what} may not act, wait or draw: {remedy}", call=what, remedy=remedy)


def check_is_verdict(found: object) -> None:
    """Raises UsageError for what a condition gave, where that is still to be awaited."""
    if found is not True and asyncio.iscoroutine(found):
        found.close()
        raise UsageError(
            "a condition of workflow.wait_condition gave a coroutine, which is true before anybody has awaited it; "
            "give a plain function that says whether the condition holds"
        )


def current() -> RunContext | None:
    """The context of the run whose code is running in this thread, or None outside of workflow code."""
    loop = asyncio._get_running_loop()  # noqa: SLF001 - documented for event loops; get_running_loop raises instead
    return loop.owner if type(loop) is WorkflowLoop else None


def required(call: str) -> RunContext:
    """The same, where it must be there. Raises UsageError naming `call`."""
    context = current()
    if context is None:
        raise UsageError(f"{call} works only in workflow code, and this is not: no run is being activated here")
    return context


def schedule_call(
    definition: ActivityDefinition[Any, Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    options: StepOptions = _NO_OPTIONS,
    idempotency_key: str | None = None,
    headers: dict[str, str] | None = None,
) -> ActivityHandle[Any] | None:
    """Schedule a call of the activity, its options over those of the definition; None outside of workflow code.

    idempotency_key: over that of the definition. headers: of interceptors, where they have been asked.
    """
    loop = asyncio._get_running_loop()  # noqa: SLF001 - as in `current`, written out: this is the hot path
    if type(loop) is not WorkflowLoop:
        return None
    context: RunContext = loop.owner
    if context.outbound is not None and headers is None:
        return _intercepted(context.outbound, definition, args, kwargs, options, idempotency_key)
    stated = definition.options if options is _NO_OPTIONS else options.over(definition.options)
    key = definition.idempotency_key
    if key is not None and idempotency_key is None:
        idempotency_key = key(*args, **kwargs)
    return context.schedule_activity(
        definition.name,
        definition.signature.encode_args(args, kwargs),
        definition.record if options is _NO_OPTIONS else stated.record(),
        definition.decode_result,
        task_queue=stated.task_queue,
        idempotency_key=idempotency_key,
        priority=stated.priority,
        limits=definition.uses(args, kwargs) if definition.limits else (),
        headers=headers or None,
    )


def _intercepted(
    outbound: WorkflowOutboundInterceptor,
    definition: ActivityDefinition[Any, Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    options: StepOptions,
    idempotency_key: str | None,
) -> ActivityHandle[Any]:
    """The same by way of the interceptors, which may change the arguments by position, and add headers."""

    def schedule(args: Sequence[Any], headers: dict[str, str] | None) -> ActivityHandle[Any]:
        handle = schedule_call(definition, tuple(args), kwargs, options, idempotency_key, headers or {})
        assert handle is not None
        return handle

    return interception.start_activity(outbound, definition.name, args, schedule)


ActivityDefinition.schedule = staticmethod(schedule_call)
