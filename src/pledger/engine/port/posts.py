"""What a transition of one run does to other runs, and what it tells its parent: written with it, or not at all.

    the parent's transition                         the child's
    -----------------------                         -----------
    StartChild ----> chain, run, start message      (claimed like any run)
               '---> notice "started" or "taken", in the sender's own inbox
    Post ----------> signal or cancel, in the other run's inbox
               '---> notice "sent", "not_found", "closed" or "inbox_full", in the sender's own inbox
                     notice "ended", in the parent's inbox  <---- Append.report, Terminate.report

Rows are inserted, and nobody else's run is changed but for becoming due where nobody owns it, as for any message. So a
parent that is in memory, in another process, with nobody, or just about to end are one case. A *notice* is a message
like any other: the transition that takes it consumes it, and the end of its run settles it.

A run that ends while children of it are open that are not to outlive it leaves a *parting*: a row that says so, written
with its end. Whichever worker looks next sees to those children, so many at a time, and then removes the row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, Protocol, TypeAlias

from pledger.engine.port.operations import INBOX_MAX, StartRun, Write
from pledger.engine.port.records import Record, RunRow

#: The kind of a message that tells a run of what it has asked of others.
NOTICE: Final = "notice"

#: The name of a notice: what came of it.
Verdict: TypeAlias = Literal["started", "taken", "sent", "not_found", "closed", "inbox_full", "ended"]

#: What becomes of an open child when its parent ends.
ClosePolicy: TypeAlias = Literal["terminate", "request_cancel", "abandon"]


class StartChild(Write):
    """Start a run as a child. event_id: of the command. start: without an owner. notice_id: of the notice to the
    sender, whose body is the run id of the child, or of the run that has its workflow id."""

    event_id: int
    start: StartRun
    policy: ClosePolicy
    notice_id: str


class Post(Write):
    """A message to the run of a workflow id, or to the chain that the run `run_id` belongs to: whichever run of it is
    open. notice_id: of the notice to the sender, "" for none.

    run_key: which that is, filled in by a store that has to know before it locks.
    """

    event_id: int
    namespace: str
    workflow_id: str
    run_id: str | None
    kind: str
    message_id: str
    name: str
    body: bytes
    notice_id: str = ""
    room: int = INBOX_MAX
    run_key: int | None = None


def notice_id(run_id: str, event_id: int, what: str) -> str:
    """The message id of a notice to the run. event_id: of its command. what: "start", "post" or "end".

    The space keeps it apart from what people choose as ids, as far as they can; who chose one of these all the same
    would keep a notice from its run.
    """
    return f"notice {run_id} {event_id} {what}"


def event_of(notice: str) -> int:
    """The event that such a message id names."""
    return int(notice.split(" ")[2])


class Child(Record, frozen=True):
    """A child of a run. event_id: of the command that started it. row: the newest run of its chain."""

    event_id: int
    policy: ClosePolicy
    row: RunRow


class Parting(Record, frozen=True):
    """A run that has ended, and open children of it that are not to outlive it."""

    run_key: int
    workflow_id: str
    run_id: str
    status: str
    children: tuple[Child, ...]


class Families(Protocol):
    """Parents and children. The verbs that read know a run by its key, a child by its chain's."""

    async def read_parent(self, chain_key: int) -> RunRow | None:
        """The run that started the first run of the chain; None when that was no child, or it is not known any more."""
        ...

    async def read_children(self, run_key: int, limit: int, after_event: int = 0) -> list[Child]:
        """The next at most `limit` children, by the events that started them; ended ones too."""
        ...

    async def read_parting(self, namespace: str, limit: int) -> Parting | None:
        """The oldest one, with at most `limit` of its children; with none where there is nothing left to be seen to."""
        ...

    async def settle_parting(self, run_key: int, chain_keys: Sequence[int]) -> None:
        """These children have been seen to: they end, or outlive their parent now. With nobody left, the parting is
        gone."""
        ...
