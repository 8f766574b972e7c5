"""Signals of a run: who takes them, and what becomes of those that nobody takes."""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING, Any

from pledger import errors
from pledger.history import events, failures
from pledger.machine import interception
from pledger.machine.closing import fails_run
from pledger.machine.continuing import ContinueAsNewError

if TYPE_CHECKING:
    from pledger.machine.machine import Machine


def receive(machine: Machine, signal: events.SignalReceived) -> None:
    """Hand a signal to its handler: a plain one runs at once, an async one beside the run method."""
    if machine.context.traced is not None:
        machine.context.trace(f"the signal {signal.name!r}", None)
    handler = machine.definition.signals.get(signal.name)
    if handler is None:
        known = ", ".join(sorted(machine.definition.signals)) or "none"
        _refuse(machine, signal, f"the workflow has no such signal; it has: {known}")
        return
    try:
        args, kwargs = handler.signature.split(handler.signature.decode_args(signal.args))
    except errors.PayloadError as error:
        # A sender that knows only the name can send anything. It stands in the history; the run goes on without it.
        _refuse(machine, signal, str(error))
        return
    call = functools.partial(getattr(machine.instance, handler.attribute), *args, **kwargs)
    if machine.inbound is not None:
        call = interception.signal(machine, handler, args, kwargs)  # type: ignore[assignment] # called alike
    if handler.is_async:
        task = machine.context.loop.create_task(call(), name=f"signal-{signal.name}")
        machine.context.handlers[task] = signal.name
        task.add_done_callback(functools.partial(_handler_done, machine))
        return
    try:
        call()
    except BaseException as error:  # noqa: BLE001 - judged like what the run method raises
        _handler_failed(machine, error)


def _refuse(machine: Machine, signal: events.SignalReceived, why: str) -> None:
    machine.unhandled_signals = (*machine.unhandled_signals, signal)
    if not machine.context.replaying:
        machine.refusals = (*machine.refusals, (signal, why))


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
