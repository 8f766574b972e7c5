"""How a run ends whose code has ended: what is a result, what a declared failure, and what a bug."""

from __future__ import annotations

import asyncio
import builtins
from typing import TYPE_CHECKING, Any

from pledger import errors
from pledger.history import events, failures, payloads
from pledger.history.events import Command
from pledger.machine.continuing import ContinueAsNewError

if TYPE_CHECKING:
    from pledger.machine.definitions import WorkflowDefinition
    from pledger.machine.machine import Machine


def command_of(machine: Machine, main: asyncio.Task[Any]) -> Command:
    """The command that ends the run. main: its task, which is done. Raises what is a bug in its code."""
    context = machine.context
    if main.cancelled():
        error: BaseException = asyncio.CancelledError(*filter(None, [context.cancel_reason]))
    else:
        failure = main.exception()
        if failure is None:
            result = machine.definition.signature.encode_result(main.result())
            payloads.check_size(result, f"the result of {machine.identity}", context.payload_bytes_max)
            return events.CompleteRun(result)
        error = failure
    if isinstance(error, ContinueAsNewError):
        return error.command
    if isinstance(error, asyncio.CancelledError) and context.cancel_reason is not None:
        return events.CancelRun(failures.from_exception(error))
    if not fails_run(machine.definition, error):
        raise error
    return events.FailRun(failures.from_exception(error))


def fails_run(definition: WorkflowDefinition, error: BaseException) -> bool:
    """Whether the exception is a declared failure; any other one is a bug, which blocks the run."""
    if isinstance(error, BaseExceptionGroup):
        return all(fails_run(definition, one) for one in error.exceptions)
    declared = (
        errors.FailureError,
        asyncio.CancelledError,
        builtins.TimeoutError,
        errors.WorkflowAlreadyStartedError,  # of a child's id: what is taken, no reading of the code can tell
    )
    return isinstance(error, (*declared, *definition.failure_exception_types))
