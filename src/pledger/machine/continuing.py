"""Continue-as-new: how the code ends its run so that a successor goes on, and what that one starts with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from msgspec.structs import replace

from pledger.errors import InvalidPolicyError, UsageError
from pledger.history import chains
from pledger.history.calls import encode_call
from pledger.history.events import ChainLink, ContinueAsNew, RunStarted
from pledger.history.names import check_id
from pledger.history.times import DURATION_MAX, check_duration, in_words, milliseconds
from pledger.machine.definitions import WorkflowDefinition
from pledger.machine.interception import ContinueAsNewInput

if TYPE_CHECKING:
    from pledger.machine.context import RunContext
    from pledger.machine.identity import RunIdentity


class ContinueAsNewError(BaseException):
    """Raised by `workflow.continue_as_new`, and passed on to the end of the run method. No failure: `except Exception`
    lets it through."""

    def __init__(self, command: ContinueAsNew) -> None:
        super().__init__(f"the run continues as new ({command.workflow_type})")
        self.command = command


def continue_as_new(
    context: RunContext,
    args: tuple[Any, ...],
    workflow: Callable[..., Any] | type | str | None,
    task_queue: str | None,
    deadline: timedelta | None,
) -> NoReturn:
    """End the run's code. Raises ContinueAsNewError, or what is wrong with the call: see `workflow.continue_as_new`."""
    context.check_may_ask()
    if context.outbound is not None:
        context.outbound.continue_as_new(
            ContinueAsNewInput(
                args,
                workflow,
                task_queue,
                deadline,
                lambda last: _end(context, tuple(last.args), last.workflow, last.task_queue, last.deadline),
            )
        )
    _end(context, args, workflow, task_queue, deadline)


def _end(
    context: RunContext,
    args: tuple[Any, ...],
    workflow: Callable[..., Any] | type | str | None,
    task_queue: str | None,
    deadline: timedelta | None,
) -> NoReturn:
    name, definition = _named(context, workflow)
    encoded = encode_call(
        None if definition is None else definition.signature,
        args,
        call=name,
        what=f"the input of the successor of {context.identity}",
        bytes_max=context.payload_bytes_max,
    )
    queue = context.identity.task_queue if task_queue is None else check_id(task_queue, "the task_queue of a successor")
    raise ContinueAsNewError(ContinueAsNew(name, encoded, queue, _deadline_ms(context, deadline)))


def checkpoint(context: RunContext, args: tuple[Any, ...]) -> None:
    """See `workflow.checkpoint`."""
    context.check_may_ask()
    if asyncio.current_task() is not context.main:
        raise UsageError(
            "workflow.checkpoint was called outside of the run method, whose arguments it gives: call it in the loop "
            "of the run method, between two rounds"
        )
    context.has_checkpoint = True
    if context.suggests and context.is_settled():
        continue_as_new(context, args, None, None, None)


def _named(
    context: RunContext, workflow: Callable[..., Any] | type | str | None
) -> tuple[str, WorkflowDefinition | None]:
    """The name of the successor's workflow, and its definition where that is known."""
    if isinstance(workflow, str):
        if not workflow:
            raise UsageError("workflow.continue_as_new(workflow='') names no workflow; give its name, or None")
        return check_id(workflow, "the name of a workflow"), None
    definition = context.definition if workflow is None else WorkflowDefinition.of(workflow)
    return definition.name, definition


def _deadline_ms(context: RunContext, deadline: timedelta | None) -> int | None:
    if deadline is None:
        return None
    what, or_none = f"the deadline of the successor of {context.identity}", "None for that of this run"
    if check_duration(deadline, what, or_none=or_none) <= timedelta(0):
        raise InvalidPolicyError(f"{what} is {in_words(deadline)}; it must be more than 0, or {or_none}")
    return context.now_ms + milliseconds(min(deadline, DURATION_MAX))


def successor_of(started: RunStarted, command: ContinueAsNew, identity: RunIdentity) -> tuple[str, RunStarted]:
    """The run id of the successor, and what it starts with.

    started: what this run started with. It hands on its deadline, unless the command says another one, its owner and
    the placement of its activities; not its patches, since a history that is empty has no old side.
    """
    segment = identity.segment + 1
    return chains.run_id_of(identity.chain_id, segment), replace(
        started,
        workflow_type=command.workflow_type,
        args=command.args,
        seed=chains.next_seed(started.seed),
        task_queue=command.task_queue,
        deadline_ms=started.deadline_ms if command.deadline_ms is None else command.deadline_ms,
        link=ChainLink(identity.chain_id, identity.run_id, segment),
    )
