"""Signals of a run: who takes them, and what becomes of those that nobody takes."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from contextvars import Context
from typing import TYPE_CHECKING, Any

from pledger import errors
from pledger.history import events, failures
from pledger.machine import handlers, interception
from pledger.machine.closing import fails_run
from pledger.machine.context import AtWork
from pledger.machine.continuing import ContinueAsNewError
from pledger.machine.handlers import HandlerUnfinishedPolicy

if TYPE_CHECKING:
    from pledger.machine.handlers import Handler
    from pledger.machine.machine import Machine


def receive(machine: Machine, signal: events.SignalReceived) -> None:
    """Hand a signal to its handler: a plain one runs at once, an async one beside the run method.

    Where nobody takes it yet it is kept, for a handler that the code may set later.
    """
    if machine.context.traced is not None:
        machine.context.trace(f"the signal {signal.name!r}", None)
    handler = handlers.find(machine, "signal", signal.name)
    if handler is not None:
        _hand_over(machine, signal, handler, None)
        return
    known, event_id = handlers.names(machine, "signal"), machine.event_id_of(signal)
    machine.early = (*machine.early, (event_id, signal))
    _refuse(machine, signal, event_id, f"the workflow has no such signal; it has: {known}")


def hand_over_early(machine: Machine) -> None:
    """A handler was set: it gets what has come for it before, in order."""
    early, machine.early = machine.early, ()
    for place in early:
        event_id, signal = place
        handler = handlers.find(machine, "signal", signal.name)
        if handler is None:
            machine.early = (*machine.early, place)
            continue
        machine.unhandled_signals = tuple(each for each in machine.unhandled_signals if each is not signal)
        if not machine.context.replaying:
            machine.refusals = (*machine.refusals, (event_id, signal, None))
        try:
            _hand_over(machine, signal, handler, event_id)
        except Exception as error:  # noqa: BLE001 - a bug of the handler, and none of whoever has set it
            machine.context.loop.note_failure(error)


def _hand_over(machine: Machine, signal: events.SignalReceived, handler: Handler, event_id: int | None) -> None:
    """event_id: where it stands, None for what is being applied."""
    try:
        call = handler.call(machine.instance, signal.name, signal.args)
    except errors.PayloadError as error:
        # A sender that knows only the name can send anything. It stands in the history; the run goes on without it.
        _refuse(machine, signal, event_id or machine.event_id_of(signal), str(error))
        return
    if machine.inbound is not None:
        call = interception.signal(machine, signal.name, call, is_async=handler.is_async)
    if handler.is_async:
        begin(machine, call, AtWork("signal", signal.name, is_told(handler)), _handler_done)
        return
    try:
        call()
    except BaseException as error:  # noqa: BLE001 - judged like what the run method raises
        _handler_failed(machine, error)


def begin(
    machine: Machine,
    call: Callable[[], Any],
    what: AtWork,
    done: Callable[..., None],
    *more: object,
    context: Context | None = None,
) -> None:
    """Have an async handler run beside the run method. done: called with the machine, `more`, and the task."""
    task = machine.context.loop.create_task(call(), name=f"{what.kind}-{what.name}", context=context)
    machine.context.handlers[task] = what
    task.add_done_callback(functools.partial(done, machine, *more))


def is_told(handler: Handler) -> bool:
    return handler.unfinished_policy is HandlerUnfinishedPolicy.WARN_AND_ABANDON


def _refuse(machine: Machine, signal: events.SignalReceived, event_id: int, why: str) -> None:
    machine.unhandled_signals = (*machine.unhandled_signals, signal)
    if not machine.context.replaying:
        machine.refusals = (*machine.refusals, (event_id, signal, why))


def _handler_done(machine: Machine, task: asyncio.Task[Any]) -> None:
    machine.context.handlers.pop(task, None)
    error = None if task.cancelled() else task.exception()
    if error is not None:
        _handler_failed(machine, error)


def _handler_failed(machine: Machine, error: BaseException) -> None:
    """A declared failure of a handler is the run's, as is a bug; and a handler may end the run for a successor."""
    if isinstance(error, ContinueAsNewError):
        machine.closed = error.command
        return
    if not fails_run(machine.definition, error):
        raise error
    machine.closed = events.FailRun(failures.from_exception(error))
