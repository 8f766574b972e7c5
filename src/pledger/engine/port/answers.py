"""What a store answers to an operation, and the one rule for starts that every store asks."""

from __future__ import annotations

from enum import Enum
from typing import Literal, TypeAlias

from pledger.engine.port.operations import IdConflictPolicy, StartRun
from pledger.engine.port.records import Record, RunRow
from pledger.history.reuse import IdReusePolicy


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
    """The message is in the inbox. owner: the session that holds the run, or None. successor: the run that goes on for
    the one that was named, and has got it; else None."""

    owner: int | None
    successor: int | None = None


class Published(Record, frozen=True):
    """The values are in the streams of this chain."""

    chain_key: int


Answer: TypeAlias = Reply | Started | Existing | Sent | Published | Exception


def began(existing: RunRow, start: StartRun) -> Started | Existing | None:
    """What this very start has made, if that is what the newest chain of its workflow id is: the answer was lost, and
    it is asked again. A run id is drawn anew for each start. Only of those that are born owned: nobody else has them.
    """
    first = start.first
    if first is None or existing.chain_id != start.run_id:
        return None
    if existing.run_id != start.run_id:
        return Existing(existing, "use")  # it was taken up meanwhile, and has gone on since
    first.run_key, first.fence, first.expected_event = existing.run_key, 1, 0
    return Started(existing.run_key, existing.chain_key)


def decide_start(
    existing: RunRow, start: StartRun, first_type: str | None = None
) -> Literal["start", "use", "refuse", "terminate"]:
    """What a start does when the newest chain of its workflow id is `existing`, its newest run. Every store asks here.

    first_type: the workflow type that the chain was started as, where that run is not its first.
    """
    same = (existing.input_digest, first_type or existing.workflow_type) == (start.input_digest, start.workflow_type)
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
