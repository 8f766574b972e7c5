"""Scopes, deadlines and shields: blocks of workflow code that are cancelled as a whole, or not at all.

A scope knows what was begun inside it: the block itself, the tasks that it has spawned, the activities that it has
scheduled. Cancelling it cancels all of that, and only that. A deadline is a scope with a timer, and bounds the
activities that are scheduled inside it, so that no attempt begins, or goes on, for a block that is over.

Which scope code is in stands in a context variable, which the tasks that it spawns inherit. Runs that use none never
read it: `RunContext.scoped` says whether there is any.

Sources: trio `src/trio/_core/_run.py` (`CancelScope`; that of the two a deadline is a property of a scope), asyncio
`timeouts.py` (who has asked for a cancellation is told by counting), sdk-typescript
`packages/workflow/src/cancellation-scope.ts` (what a scope cancels). A block of asyncio is told once, at its next
`await`; whatever it awaits after that is clean-up, and runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from contextvars import copy_context
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeVar

from pledger.errors import ActivityError, TimeoutError, UsageError  # noqa: A004 - ours, which is the builtin's too
from pledger.history.times import LAST_MS, check_duration, milliseconds, utc
from pledger.machine.context import ActivityHandle, required
from pledger.machine.scoping import current_scope

if TYPE_CHECKING:
    from pledger.machine.context import RunContext
    from pledger.machine.loop import LoopTimer, WorkflowTask

T = TypeVar("T")

#: What has ended is dropped from a scope when it holds this many more than at the last time.
_SWEEP_AT: Final = 32


class Scope:
    """`async with workflow.scope() as scope`: a block that `scope.cancel()` ends, with all that was begun inside it.

    The block's next `await` raises CancelledError, which ends at its edge: the code behind the block goes on, and
    `scope.cancelled` says why. A cancellation of the run, or of a scope around it, passes through.
    """

    def __init__(self) -> None:
        self._state: Literal["new", "entered", "left"] = "new"
        self._context: RunContext
        self._task: asyncio.Task[Any] | None = None
        self._parent: Scope | None = None
        self._cancelling = 0
        self._asked = False
        self._caught = False
        self._inside: list[asyncio.Future[Any]] = []
        self._inside_limit = _SWEEP_AT

    @property
    def cancelled(self) -> bool:
        """Whether the block was ended by the scope's own cancellation."""
        return self._caught

    @property
    def cancel_requested(self) -> bool:
        """Whether somebody has asked for that, whatever has come of it."""
        return self._asked

    def cancel(self) -> None:
        """Cancel the block, and what was begun inside it and has not ended, also where the block has been left."""
        if self._state == "new":
            raise UsageError("this scope was not entered: `async with workflow.scope() as scope: ...`")
        if self._asked:
            return
        self._asked = True
        inside, self._inside = self._inside, []
        if self._state == "entered" and self._task is not None:
            self._task.cancel()
        for each in inside:
            each.cancel()

    async def __aenter__(self) -> Self:
        if self._state != "new":
            raise UsageError("a scope is entered once: make a new one for each block")
        task = asyncio.current_task()
        self._context = required(f"workflow.{type(self).__name__.lower()}")
        if task is None:
            raise UsageError("a scope needs a task to cancel: enter it in an async function")
        self._context.check_may_ask()
        self._context.scoped = True
        self._task, self._cancelling = task, task.cancelling()
        self._parent = current_scope.get()
        current_scope.set(self)
        self._state = "entered"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        assert self._task is not None
        self._state = "left"
        # Not by the token of `set`: a generator may be closed in another context than it was begun in.
        current_scope.set(self._parent)
        if not self._asked or self._context.dead:
            return None
        is_cancelled = kind is not None and issubclass(kind, asyncio.CancelledError)
        taken = not is_cancelled and await self._take_pending()
        if self._task.uncancel() > self._cancelling:
            if taken:
                raise asyncio.CancelledError  # somebody around has asked for it too
            return None
        self._caught = is_cancelled or taken
        return self._ended_by_itself(error) if is_cancelled else None

    @staticmethod
    async def _take_pending() -> bool:
        """Whether the cancellation was still on its way to the task: the block may have ended before it awaited
        anything. Before Python 3.13 taking back its count does not stop it."""
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            return True
        return False

    def _ended_by_itself(self, error: BaseException | None) -> bool:  # noqa: ARG002 - deadlines raise from it
        return True

    # What the context tells of what is begun --------------------------------------------------------------------------

    def note(self, begun: asyncio.Future[Any]) -> None:
        """A task or an activity was begun inside."""
        scope: Scope | None = self
        while scope is not None:
            scope._inside.append(begun)  # noqa: SLF001 - its own kind
            if len(scope._inside) > scope._inside_limit:  # noqa: SLF001
                scope._sweep()  # noqa: SLF001
            if type(begun) is ActivityHandle and isinstance(scope, Deadline):
                scope._note_bounded(begun)  # noqa: SLF001
            scope = scope._parent  # noqa: SLF001

    def _sweep(self) -> None:
        self._inside = [each for each in self._inside if not each.done()]
        self._inside_limit = 2 * len(self._inside) + _SWEEP_AT

    def deadline_ms(self) -> int | None:
        """When the earliest deadline around the code passes that has not passed yet, or None.

        What runs inside one that has passed is clean-up, which it does not bound.
        """
        return None if self._parent is None else self._parent.deadline_ms()

    def _is_around(self, task: asyncio.Task[Any] | None) -> bool:
        """Whether the block lies around what this task does now: it is then left later."""
        return self._state == "entered" and self._task is task


class Deadline(Scope):
    """`async with workflow.deadline(...) as deadline`: see `deadline`. when: the time at which it passes."""

    def __init__(self, at: datetime | timedelta | None, *, what: str = "the block") -> None:
        super().__init__()
        self._given = checked(at, what)
        self._what = what
        self._at_ms: int | None = None
        self._timer: LoopTimer | None = None
        self._soon: asyncio.Handle | None = None
        self._expired = False
        self._bounded: list[ActivityHandle[Any]] = []
        self._bounded_limit = _SWEEP_AT

    @property
    def when(self) -> datetime | None:
        """With zone (UTC); None before it is entered, and for one without end."""
        return None if self._at_ms is None else utc(self._at_ms)

    @property
    def expired(self) -> bool:
        """Whether it has passed while the block was at work."""
        return self._expired

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        context = self._context
        self._at_ms = when_ms(self._given, context.now_ms)
        if self._at_ms is None:
            return self
        if self._at_ms <= context.now_ms:
            self._soon = context.loop.call_soon(self._passed)
        elif not self._is_bounded_by_another():
            self._timer = context.start_deadline(self._passed, self._at_ms)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        for waiting in (self._timer, self._soon):
            if waiting is not None:
                waiting.cancel()
        self._timer = self._soon = None
        told = await super().__aexit__(kind, error, traceback)
        if not self._asked and isinstance(error, ActivityError) and self._has_bounded(error):
            # The activity knew of the deadline, and is told before the block: its time is over, or it cannot be tried
            # again before that.
            self._expired = True
            self.cancel()  # the block has been left: what was begun inside it and goes on
            raise self._error() from error
        return told

    def deadline_ms(self) -> int | None:
        around = super().deadline_ms()
        if self._at_ms is None or self._state != "entered" or self._asked:
            return around
        return self._at_ms if around is None else min(self._at_ms, around)

    def _is_bounded_by_another(self) -> bool:
        """A deadline around this one passes first, and its timer serves both."""
        scope = self._parent
        assert self._at_ms is not None
        while scope is not None:
            if isinstance(scope, Deadline) and scope._is_around(self._task):  # noqa: SLF001 - its own kind
                at_ms = scope._at_ms  # noqa: SLF001
                if at_ms is not None and at_ms <= self._at_ms and not scope._asked:  # noqa: SLF001
                    return True
            scope = scope._parent  # noqa: SLF001
        return False

    def _passed(self) -> None:
        self._timer = self._soon = None
        if self._state == "entered":
            self._expired = True
            self.cancel()

    def _ended_by_itself(self, error: BaseException | None) -> bool:
        if self._expired:
            raise self._error() from error
        return True  # somebody has called `cancel`

    def _note_bounded(self, handle: ActivityHandle[Any]) -> None:
        """An activity was begun inside; whether it is this deadline that bounds it. Only those that may still say so
        are kept."""
        whole_ms = handle.command.options.schedule_to_close_ms
        if whole_ms is None or handle.scheduled_ms + whole_ms != self._at_ms:
            return
        self._bounded.append(handle)
        if len(self._bounded) > self._bounded_limit:
            self._bounded = [each for each in self._bounded if not _has_ended_well(each)]
            self._bounded_limit = 2 * len(self._bounded) + _SWEEP_AT

    def _has_bounded(self, error: ActivityError) -> bool:
        """Whether an activity has failed for want of time, which this deadline has given it."""
        cause = error.__cause__
        if not (isinstance(cause, TimeoutError) and cause.kind == "schedule_to_close"):
            return False
        return any(each.event_id == error.scheduled_event_id for each in self._bounded)

    def _error(self) -> TimeoutError:
        return TimeoutError(f"the deadline of {self._what} passed at {self.when}", kind="deadline")


def _has_ended_well(handle: ActivityHandle[Any]) -> bool:
    return handle.done() and (handle.cancelled() or handle.exception() is None)


def checked(at: object, what: str) -> datetime | timedelta | None:
    """The deadline of `what`, as the user gave it. Raises UsageError and InvalidPolicyError for what is none."""
    if at is None:
        return None
    if isinstance(at, datetime):
        if at.tzinfo is None:
            raise UsageError(f"the deadline of {what} is {at!r}, without a zone: use workflow.now() + timedelta(...)")
        return at
    return check_duration(at, f"the deadline of {what}", or_none="a datetime with zone, or None for no deadline")


def when_ms(at: datetime | timedelta | None, now_ms: int) -> int | None:
    """The time in the ledger's count; None for what never comes."""
    if at is None or at == timedelta.max:
        return None
    if isinstance(at, datetime):
        return milliseconds(at - utc(0))
    return min(now_ms + milliseconds(at), LAST_MS)


def scope() -> Scope:
    """A block that can be cancelled by itself, with the tasks and activities that were begun inside it.

    async with workflow.scope() as scope:
        self.stop = scope.cancel            # a signal handler may call it
        await pick_and_pack(order)
    if scope.cancelled: ...
    """
    return Scope()


def deadline(at: timedelta | datetime | None) -> Deadline:
    """A block that is over by then: `async with workflow.deadline(timedelta(hours=2)):`. None, timedelta.max: no end.

    Raises `errors.TimeoutError` with kind "deadline" at the block's edge, after what was begun inside was cancelled.
    Activities that are scheduled inside must be over by then, all their attempts: `activity.info().deadline` says so.
    Of nested deadlines the earliest counts. Clean-up that runs in the block after it has passed is not bounded by it.
    """
    return Deadline(at)


def deadline_ms() -> int | None:
    """The deadline around the code that asks, see `Scope.deadline_ms`."""
    found = current_scope.get()
    return None if found is None else found.deadline_ms()


async def shield(awaitable: Awaitable[T]) -> T:
    """Run something to its end, whatever is cancelled around it; then raise the cancellation, if there was one.

        finally:
            await workflow.shield(refund(order))

    No scope or deadline around it holds inside. An error inside is raised in place of the cancellation. For what is to
    go on while the caller goes its way, use `asyncio.shield`.
    """
    context = required("workflow.shield")
    if isinstance(awaitable, ActivityHandle):
        _take_out(awaitable)
        inner: asyncio.Future[T] = awaitable
    elif isinstance(awaitable, asyncio.Future):
        inner = awaitable
    else:
        outside = copy_context()
        outside.run(current_scope.set, None)
        inner = context.loop.create_task(as_coroutine(awaitable), context=outside)
    cancelled = await until_ended([inner])
    if cancelled is not None:
        if inner.cancelled() or inner.exception() is None:
            raise cancelled
        raise inner.exception() from cancelled  # type: ignore[misc] # it is not None
    return inner.result()


async def until_ended(futures: list[asyncio.Future[Any]] | list[WorkflowTask[Any]]) -> asyncio.CancelledError | None:
    """Wait until all have ended, whoever cancels meanwhile; the first cancellation, for the caller to raise."""
    cancelled: asyncio.CancelledError | None = None
    context = required("workflow.shield")
    while pending := [each for each in futures if not each.done()]:
        try:
            await asyncio.wait(pending)
        except asyncio.CancelledError as error:
            if context.dead:
                raise
            cancelled = cancelled or error
    return cancelled


async def _as_coroutine(awaitable: Awaitable[T]) -> T:
    return await awaitable


def _take_out(handle: ActivityHandle[Any]) -> None:
    """It was begun in the scopes around, and is not theirs any more."""
    scope = current_scope.get()
    while scope is not None:
        if handle in scope._inside:  # noqa: SLF001 - of this module
            scope._inside.remove(handle)  # noqa: SLF001
        scope = scope._parent  # noqa: SLF001


def as_coroutine(awaitable: Awaitable[T]) -> Coroutine[Any, Any, T]:
    """Something that a task can be made of."""
    return awaitable if isinstance(awaitable, Coroutine) else _as_coroutine(awaitable)
