"""Updates of a run: checked before they are recorded, begun when they are, and known for as long as the run is.

An update comes to the run's history only once its validator has let it through. Its handler then goes on beside the run
method, as that of a signal does; what it gives is a command like any other. On replay nothing is checked again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextvars import Context, ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pledger import errors
from pledger.history import events, failures, payloads
from pledger.machine import handlers, interception, queries, replay, signals
from pledger.machine.closing import fails_run
from pledger.machine.context import AtWork

if TYPE_CHECKING:
    from pledger.history.events import Input
    from pledger.machine.handlers import Handler
    from pledger.machine.machine import Machine


@dataclass(slots=True)
class Known:
    """What a run keeps of an update that it has accepted. first_event_id: of the transition in which it was. digest: of
    its name and arguments."""

    first_event_id: int
    digest: bytes
    completed: bool = False


#: The update whose handler, or validator, is running. Tasks that a handler starts inherit it.
CURRENT_UPDATE: Final[ContextVar[events.UpdateAccepted | None]] = ContextVar("pledger_update", default=None)
#: Of a run that has accepted none; never written to.
NONE_KNOWN: Final[dict[str, Known]] = {}


def digest(update: events.UpdateAccepted) -> bytes:
    """Equal for what is the same update when it is sent once more."""
    return update.name.encode() + b"\0" + payloads.digest(update.args)


def conflict_of(run: str, update_id: str) -> str:
    """What is told to whoever sends another update under an id that the run knows. run: in words."""
    return (
        f"{run} has an update {update_id!r} with another name or other arguments, and this one is not begun. Send "
        "another update under another id"
    )


def validate(machine: Machine, update: events.UpdateAccepted) -> None:
    """Whether it may be recorded, as the run stands now. Raises UnknownUpdateError, UpdateRejectedError."""
    name = update.name
    handler = handlers.find(machine, "update", name)
    if handler is None:
        known = handlers.names(machine, "update")
        raise errors.UnknownUpdateError(f"{machine.identity} has no update {name!r}; it has: {known}")
    try:
        check = handler.check(machine.instance, name, update.args, None if machine.inbound is None else _let_through)
    except errors.PayloadError as error:
        raise errors.UpdateRejectedError(
            f"update {name!r} of {machine.identity} was sent what it does not take: {error}"
        ) from error
    if check is not None:
        if machine.inbound is not None:
            check = interception.validator(machine, update, check)
        what, called = f"validator of update {name!r}", _named(update, check)
        queries.reading(machine, what, called, errors.UpdateRejectedError)


def receive(machine: Machine, update: events.UpdateAccepted) -> None:
    """Begin it: a plain handler runs at once, an async one beside the run method."""
    if machine.context.traced is not None:
        machine.context.trace(f"the update {update.name!r}", None)
    event_id = machine.event_id_of(update)
    if not machine.updates:
        machine.updates = {}
    machine.updates[update.update_id] = Known(machine.last_event + 1, digest(update))
    handler = handlers.find(machine, "update", update.name)
    if handler is None:  # when it was recorded there was one
        told = f"UpdateAccepted {update.name!r}, which the code does not take any more"
        raise replay.mismatch(machine.identity, event_id=event_id, recorded=told, replayed=None)
    call = handler.call(machine.instance, update.name, update.args)
    if machine.inbound is not None:
        call = interception.update(machine, update, call, is_async=handler.is_async)
    context = Context()
    context.run(CURRENT_UPDATE.set, update)
    if handler.is_async:
        what = AtWork("update", update.name, signals.is_told(handler))
        signals.begin(machine, call, what, _handler_done, update, handler, context=context)
        return
    try:
        result = context.run(call)
    except BaseException as error:  # noqa: BLE001 - judged below
        _failed(machine, update, error)
    else:
        _returned(machine, update, handler, result)


def _let_through(*_: object, **__: object) -> None:
    """What interceptors stand around where an update has no validator."""


def _named(update: events.UpdateAccepted, call: Callable[[], Any]) -> Callable[[], Any]:
    """The call, while which `CURRENT_UPDATE` is the update. It is run in a context of its own."""

    def called() -> Any:
        CURRENT_UPDATE.set(update)
        return call()

    return called


def _handler_done(machine: Machine, update: events.UpdateAccepted, handler: Handler, task: asyncio.Task[Any]) -> None:
    context = machine.context
    context.handlers.pop(task, None)
    if task.cancelled():
        _failed(machine, update, asyncio.CancelledError())
    elif (error := task.exception()) is not None:
        _failed(machine, update, error)
    else:
        _returned(machine, update, handler, task.result())


def _returned(machine: Machine, update: events.UpdateAccepted, handler: Handler, result: object) -> None:
    encoded = handler.signature.encode_result(result)
    what = f"the result of update {update.name!r} of {machine.identity}"
    payloads.check_size(encoded, what, machine.payload_bytes_max)
    _complete(machine, events.CompleteUpdate(update.update_id, encoded))


def _failed(machine: Machine, update: events.UpdateAccepted, error: BaseException) -> None:
    """A declared failure is the update's, and not the run's. Any other one is a bug."""
    if not fails_run(machine.definition, error):
        raise error
    _complete(machine, events.CompleteUpdate(update.update_id, None, failures.from_exception(error)))


def _complete(machine: Machine, command: events.CompleteUpdate) -> None:
    machine.updates[command.update_id].completed = True
    machine.context.ask(command)


def admitted_at_start(machine: Machine, inputs: Sequence[Input], *, time_ms: int) -> list[bool]:
    """Of the first inputs of a run, each, whether it is to be one. Those that are no updates are; updates that stand
    before the first line of the run method, if they are let through there.

    machine: a new one, of which nothing is kept: it is to be destroyed.
    """
    context = machine.begin(inputs[0], time_ms)
    admitted = []
    for one in inputs:
        let_through = True
        if isinstance(one, events.UpdateAccepted):
            try:
                validate(machine, one)
            except (errors.UpdateRejectedError, errors.UnknownUpdateError):
                let_through = False
        if let_through:
            machine.apply(context, one)
        admitted.append(let_through)
    return admitted
