"""Queries of a run, and the validators of its updates: code that may only read its present state."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context
from typing import TYPE_CHECKING, TypeVar

from pledger import errors
from pledger.history import failures
from pledger.machine import guards, handlers, interception

if TYPE_CHECKING:
    from pledger.machine.machine import Machine

T = TypeVar("T")


def answer(machine: Machine, name: str, args: bytes) -> bytes:
    """The answer as JSON. Raises UnknownQueryError, QueryFailedError."""
    handler = handlers.find(machine, "query", name)
    if handler is None:
        known = handlers.names(machine, "query")
        raise errors.UnknownQueryError(f"{machine.identity} has no query {name!r}; it has: {known}")

    def ask() -> bytes:
        call = handler.call(machine.instance, name, args)
        found = call() if machine.inbound is None else interception.query(machine, name, call)
        return handler.signature.encode_result(found)

    return reading(machine, f"query {name!r}", ask, errors.QueryFailedError)


def reading(machine: Machine, what: str, call: Callable[[], T], refusal: type[errors.PledgerError]) -> T:
    """What the call gives, which may only read. Raises `refusal`, with what the call raised as its cause."""
    context = machine.context
    context.read_only = f"the {what}"
    mark = context.loop.mark()
    try:
        with machine.inside(context):
            found = Context().run(_call, machine, what, call, refusal)
    finally:
        began = context.loop.take_back(mark)
        context.read_only = None
        if began:
            machine.spoiled = True  # whoever it woke is awake in memory, and not by the record
    if began:
        raise refusal(f"{what} of {machine.identity} woke somebody up: it may only read")
    violation = guards.take_violation()
    if violation is not None:
        raise refusal(f"{what} of {machine.identity}: {violation}") from violation
    return found


def _call(machine: Machine, what: str, call: Callable[[], T], refusal: type[errors.PledgerError]) -> T:
    try:
        return call()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # the result of a cancelled task, sys.exit(): nothing of it ends who asks
        raise refusal(
            f"{what} of {machine.identity} raised {type(error).__name__}: {failures.text_of(error)}"
        ) from error
