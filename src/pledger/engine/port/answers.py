"""What a store answers to an operation, and the one rule for starts that every store asks."""

from __future__ import annotations

from enum import Enum
from typing import Literal, TypeAlias

from pledger.engine.port.operations import IdConflictPolicy, IdReusePolicy, StartRun
from pledger.engine.port.records import Record, RunRow


class Reply(Enum):
    WON = "won"
    LOST = "lost"
    DUPLICATE = "duplicate"
    CLOSED = "closed"
    FULL = "full"
    HEARTBEAT_OK = "heartbeat_ok"
    CANCEL_REQUESTED = "cancel_requested"


class Started(Record, frozen=True):
    """A new run exists."""

    run_key: int
    chain_key: int


class Existing(Record, frozen=True):
    """No new run: the workflow id has this one. decision: what the policies make of it."""

    run: RunRow
    decision: Literal["use", "refuse", "terminate"]


class Sent(Record, frozen=True):
    """The message is in the inbox. owner: the session that holds the run, or None."""

    owner: int | None


Answer: TypeAlias = Reply | Started | Existing | Sent | Exception


def decide_start(existing: RunRow, start: StartRun) -> Literal["start", "use", "refuse", "terminate"]:
    """What a start does when the newest chain of its workflow id is `existing`. Every store asks here."""
    same = existing.input_digest == start.input_digest and existing.workflow_type == start.workflow_type
    if existing.status == "running":
        match start.conflict:
            case IdConflictPolicy.SAME_INPUT:
                return "use" if same else "refuse"
            case IdConflictPolicy.USE_EXISTING:
                return "use"
            case IdConflictPolicy.TERMINATE_EXISTING:
                return "terminate"
            case IdConflictPolicy.FAIL:
                return "refuse"
    match start.reuse:
        case IdReusePolicy.SAME_INPUT:
            return "use" if same else "refuse"
        case IdReusePolicy.ALLOW_DUPLICATE:
            return "start"
        case IdReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY:
            return "refuse" if existing.status == "completed" else "start"
        case IdReusePolicy.REJECT_DUPLICATE:
            return "refuse"
