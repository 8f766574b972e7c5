"""What a run does to other runs: from its commands to what is written with them, and from notices to inputs. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from pledger.engine.ids import derived_run_id
from pledger.engine.port.filters import attribute_of
from pledger.engine.port.operations import IdConflictPolicy, StartRun, inbox_room
from pledger.engine.port.posts import ClosePolicy, Post, StartChild, Verdict, notice_id
from pledger.errors import InternalError
from pledger.history import events, payloads, transition
from pledger.history.failures import Failure
from pledger.history.reuse import IdReusePolicy

if TYPE_CHECKING:
    from pledger.engine.active_run import ActiveRun
    from pledger.engine.port.records import Message, RunStatus
    from pledger.engine.vault import Vault
    from pledger.history.events import Command

#: The commands that concern other runs.
OF_OTHERS: Final[tuple[type[Any], ...]] = (events.StartChild, events.CancelChild, events.SendSignal, events.SendCancel)


def post_of(
    run: ActiveRun, event_id: int, command: Command, now_ms: int, vault: Vault, *, tells: bool = True
) -> StartChild | Post:
    """What a command of OF_OTHERS does to another run. tells: the run is told what came of it. Raises CodecError."""
    identity = run.identity
    notice = notice_id(identity.run_id, event_id, "post") if tells else ""
    match command:
        case events.StartChild():
            notice = notice_id(identity.run_id, event_id, "start") if tells else ""
            policy = cast("ClosePolicy", command.parent_close_policy)
            return StartChild(event_id, _start_of(run, event_id, command, now_ms, vault), policy, notice)
        case events.CancelChild():
            run_id: str | None = child_run_id(identity.run_id, command.started_event_id)
            what = ("cancel", "", command.reason.encode())
            notice = notice if command.is_acknowledged else ""
        case events.SendSignal():
            run_id, what = command.run_id, ("signal", command.name, command.args)
        case events.SendCancel():
            run_id, what = command.run_id, ("cancel", "", command.reason.encode())
        case _:
            raise InternalError(f"{identity}: {type(command).__name__} concerns no other run")
    kind, name, body = what
    message_id = f"{identity.run_id} {event_id}"
    place = (identity.namespace, command.workflow_id, run_id)
    return Post(event_id, *place, kind, message_id, name, body, notice, inbox_room(kind))


def _start_of(run: ActiveRun, event_id: int, command: events.StartChild, now_ms: int, vault: Vault) -> StartRun:
    identity = run.identity
    started = events.RunStarted(
        command.workflow_type,
        command.args,
        run.machine.seed_of_child(event_id),
        command.task_queue,
        None if command.timeout_ms is None else now_ms + command.timeout_ms,
        command.placement,
        command.owner,
        parent=events.Parent(identity.workflow_id, identity.run_id, event_id),
        search_attributes=command.search_attributes,
        memo=command.memo,
        headers=command.headers,
    )
    return StartRun(
        identity.namespace,
        command.workflow_id,
        child_run_id(identity.run_id, event_id),
        command.workflow_type,
        command.task_queue,
        vault.digest(payloads.digest(command.args), identity.namespace, command.workflow_id),
        transition.encode_event(started),
        now_ms,
        _reuse_of(run, command),
        IdConflictPolicy.FAIL,
        attributes=[attribute_of(each) for each in started.search_attributes or ()],
        memo=started.memo,
        answers_for=started.owner,
        deadline_ms=started.deadline_ms,
    )


#: The run of somebody else is nobody's child, whatever its input was.
_REUSE: Final = {each.value: each for each in IdReusePolicy} | {"same_input": IdReusePolicy.REJECT_DUPLICATE}


def _reuse_of(run: ActiveRun, command: events.StartChild) -> IdReusePolicy:
    reset = run.machine.context.reset
    if reset is not None and command.workflow_id in (reset.children or ()):
        return IdReusePolicy.ALLOW_DUPLICATE  # it is the child of before, whose start does not count any more
    return _REUSE[command.reuse]


def child_run_id(run_id: str, event_id: int) -> str:
    """Of the child that a run has started there: the same whoever asks. It bears the time of the parent's own id."""
    return derived_run_id(run_id, f"{run_id} {event_id}")


def report_of(status: RunStatus, command: Command | None, reason: str = "") -> bytes:
    """What the parent of a run that closes is told. command: the last of its code, None where something else ended it.
    reason: of a termination."""
    result: bytes | None = None
    failure: Failure | None = None
    match command:
        case events.CompleteRun():
            result = command.result
        case events.FailRun() | events.CancelRun():
            failure = command.failure
        case _ if status == "timed_out":
            failure = Failure("timeout", "TimeoutError", "the run passed its deadline", attributes={"kind": "run"})
        case _:
            failure = Failure("terminated", "TerminatedError", reason or "the run was terminated")
    return transition.encode_event(events.ChildClosed(0, status, result, failure))


def input_of(message: Message, run_id: str) -> events.Input:
    """What a notice tells the run. Raises ValueError for one that is damaged, also as msgspec.MsgspecError.

    One that was meant for another run of the chain, which has ended, tells it nothing: of an event that is none.
    """
    _, addressee, event, _ = message.message_id.split(" ")
    event_id = int(event) if addressee == run_id else 0
    verdict = cast("Verdict", message.name)
    match verdict:
        case "started":
            return events.ChildStarted(event_id, message.body.decode())
        case "taken":
            return events.ChildStartFailed(event_id, message.body.decode())
        case "ended":
            return msgspec.structs.replace(transition.decode_closed(message.body), started_event_id=event_id)
        case "sent":
            return events.MessageDelivered(event_id)
        case "not_found" | "closed" | "inbox_full":
            return events.MessageRefused(event_id, verdict)
        case _:
            raise ValueError(f"it says {message.name!r}, which this version does not know")
