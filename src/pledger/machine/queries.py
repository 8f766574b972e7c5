"""Queries of a run: answered from its present state, by code that may only read."""

from __future__ import annotations

from contextvars import Context
from typing import TYPE_CHECKING

from pledger import errors
from pledger.history import failures
from pledger.machine import guards, interception

if TYPE_CHECKING:
    from pledger.machine.definitions import Handler
    from pledger.machine.machine import Machine


def answer(machine: Machine, name: str, args: bytes) -> bytes:
    """The answer as JSON. Raises UnknownQueryError, QueryFailedError."""
    handler = machine.definition.queries.get(name)
    if handler is None:
        known = ", ".join(sorted(machine.definition.queries)) or "none"
        raise errors.UnknownQueryError(f"{machine.identity} has no query {name!r}; it has: {known}")
    context = machine.context
    context.read_only = f"the query {name!r}"
    mark = context.loop.mark()
    try:
        with machine.inside(context):
            found = Context().run(_ask, machine, handler, args)
    finally:
        began = context.loop.take_back(mark)
        context.read_only = None
        if began:
            machine.spoiled = True  # whoever it woke is awake in memory, and not by the record
    if began:
        raise errors.QueryFailedError(f"query {name!r} of {machine.identity} woke somebody up: it may only read")
    violation = guards.take_violation()
    if violation is not None:
        raise errors.QueryFailedError(f"query {name!r} of {machine.identity}: {violation}") from violation
    return found


def _ask(machine: Machine, handler: Handler, args: bytes) -> bytes:
    try:
        positional, keywords = handler.signature.split(handler.signature.decode_args(args))
        if machine.inbound is not None:
            found = interception.query(machine, handler, positional, keywords)
        else:
            found = getattr(machine.instance, handler.attribute)(*positional, **keywords)
        return handler.signature.encode_result(found)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # the result of a cancelled task, sys.exit(): nothing of it ends who asks
        raise errors.QueryFailedError(
            f"query {handler.name!r} of {machine.identity} raised {type(error).__name__}: {failures.text_of(error)}"
        ) from error
