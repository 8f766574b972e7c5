"""First-of races: the first decides, the others are cancelled, and of each it is said what became of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from contextvars import copy_context
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar

from pledger import errors
from pledger.machine.context import ActivityHandle, required
from pledger.machine.scopes import Scope, as_coroutine, until_ended
from pledger.machine.scoping import current_scope

if TYPE_CHECKING:
    from pledger.machine.context import RunContext

T = TypeVar("T")

RacerOutcome: TypeAlias = Literal["won", "cancelled", "completed_late", "failed", "unknown"]


@dataclass(frozen=True, slots=True)
class Racer(Generic[T]):
    """What became of one that took part. name: as it was given, or its position, from "0".

    outcome: "won"; "cancelled": it ended by that, and nothing of it was left running; "completed_late": it brought a
    result all the same, at the same moment as the winner or while it was cancelled; "failed"; "unknown": it was
    cancelled, and an activity of it was given up whose outcome nobody knows (`cancellation_type="wait"` waits for it),
    or that was lost with its worker.
    result: of one that won or completed late. error: of one that failed, or whose outcome is unknown for one.
    """

    name: str
    outcome: RacerOutcome
    result: T | None = None
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class Race(Generic[T]):
    """racers: in the order in which they were given."""

    racers: tuple[Racer[T], ...]

    @property
    def winner(self) -> Racer[T]:
        return next(each for each in self.racers if each.outcome == "won")

    @property
    def result(self) -> T:
        """Of the winner."""
        return self.winner.result  # type: ignore[return-value] # a winner has one

    def __getitem__(self, name: str) -> Racer[T]:
        for each in self.racers:
            if each.name == name:
                return each
        raise KeyError(name)

    def __iter__(self) -> Iterator[Racer[T]]:
        return iter(self.racers)


async def first_of(
    *awaitables: Awaitable[T], until: Literal["completed", "succeeded"] = "completed", **named: Awaitable[T]
) -> Race[T]:
    """Wait for the first, cancel the others, wait for their ends, and say what became of each.

        race = await workflow.first_of(answer=ask(question), late=workflow.sleep(timedelta(days=2)))
        if race.winner.name == "late": ...

    until: "completed": the first that ends decides, and one that fails raises its error. "succeeded": the first that
    brings a result; when all fail, an ExceptionGroup of their errors is raised. Of those that end in the same
    transition the one that is given first has won. A cancellation from outside cancels all of them.
    """
    context = required("workflow.first_of")
    given = {**{str(position): each for position, each in enumerate(awaitables)}, **named}
    if problem := _problem(context, until, len(given), len(awaitables) + len(named)):
        for each in (*awaitables, *named.values()):
            if asyncio.iscoroutine(each):
                each.close()
        raise problem
    racers = [_Entrant(context, name, each) for name, each in given.items()]
    try:
        await _decided(racers, until)
    except asyncio.CancelledError:
        await _stop(racers)
        raise
    winner = next((each for each in racers if each.has_result), None)
    if until == "completed":
        winner = next(each for each in racers if each.future.done())
    cancelled = await _stop([each for each in racers if each is not winner])
    if cancelled is not None:
        raise cancelled
    if winner is None:
        raise ExceptionGroup("none of the race has succeeded", [_told(each) for each in racers])
    if not winner.has_result:
        raise _told(winner)
    return Race(tuple(each.ended(has_won=each is winner) for each in racers))


def _problem(context: RunContext, until: str, names: int, entrants: int) -> BaseException | None:
    """Why there can be no race."""
    if until not in ("completed", "succeeded"):
        return errors.UsageError(f'until is {until!r}; use "completed" or "succeeded"')
    if not names or names < entrants:
        return errors.UsageError("workflow.first_of needs at least one awaitable, each with a name of its own")
    try:
        context.check_may_ask()
    except BaseException as error:  # noqa: BLE001 - raised by the caller
        return error
    return None


async def _decided(racers: list[_Entrant], until: str) -> None:
    while pending := [each.future for each in racers if not each.future.done()]:
        if any(each.has_result or (until == "completed" and each.future.done()) for each in racers):
            return
        await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)


async def _stop(racers: list[_Entrant]) -> asyncio.CancelledError | None:
    """Cancel them, and wait until they have ended; a cancellation that came meanwhile."""
    for each in racers:
        each.stop()
    return await until_ended([each.future for each in racers])


def _told(racer: _Entrant) -> Exception:
    """The error of one that ended badly by itself."""
    if racer.future.cancelled():
        return errors.CancelledError(f"{racer.name!r} of the race was cancelled")
    error = racer.future.exception()
    if not isinstance(error, Exception):
        raise error or errors.InternalError("a racer without an outcome")
    return error


class _Entrant:
    """One that takes part. An activity's handle as it is; anything else as a task, in a scope of its own."""

    def __init__(self, context: RunContext, name: str, awaitable: Awaitable[Any]) -> None:
        self.name = name
        self.scope: _Watched | None = None
        self._stopped = False
        if isinstance(awaitable, asyncio.Future):
            self.future: asyncio.Future[Any] = awaitable
        else:
            context.scoped = True
            self.scope = _Watched(current_scope.get())
            inside = copy_context()
            inside.run(current_scope.set, self.scope)
            self.future = context.loop.create_task(as_coroutine(awaitable), context=inside)

    @property
    def has_result(self) -> bool:
        future = self.future
        return future.done() and not future.cancelled() and future.exception() is None

    def stop(self) -> None:
        if self.future.done():
            return
        self._stopped = True
        if isinstance(self.future, ActivityHandle):
            self._given_up = _is_given_up(self.future)
        if self.scope is not None:
            self.scope.look()
        self.future.cancel()

    _given_up = False

    def ended(self, *, has_won: bool) -> Racer[Any]:
        future = self.future
        if has_won:
            return Racer(self.name, "won", future.result())
        if future.cancelled():
            given_up = self._given_up or (self.scope is not None and self.scope.has_given_up())
            return Racer(self.name, "unknown" if given_up else "cancelled")
        error = future.exception()
        if error is None:
            return Racer(self.name, "completed_late", future.result())
        return Racer(self.name, "unknown" if _is_lost(error) else "failed", error=error)


class _Watched(Scope):
    """The scope of a racer: it is never cancelled as such, and knows the activities that were begun in it."""

    def __init__(self, parent: Scope | None) -> None:
        super().__init__()
        self._parent = parent
        self._pending: list[ActivityHandle[Any]] = []

    def look(self) -> None:
        """Before it is stopped: which of its activities are on their way, and would not be waited for."""
        self._pending = [each for each in self._inside if isinstance(each, ActivityHandle) and _is_given_up(each)]

    def has_given_up(self) -> bool:
        return any(each.cancelled() for each in self._pending)


def _is_given_up(handle: ActivityHandle[Any]) -> bool:
    """Whether nobody would know what became of it, were it cancelled now."""
    return not handle.done() and handle.asked is None and handle.command.options.cancellation != "wait"


def _is_lost(error: BaseException) -> bool:
    """Whether it says that an effect may have happened, or not."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, errors.WorkerLostError):
            return True
        if isinstance(cause, errors.TimeoutError) and cause.kind in (
            "start_to_close",
            "schedule_to_close",
            "heartbeat",
        ):
            return True
        cause = cause.__cause__
    return False
