"""The verbs of a store, by subject."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from pledger.engine.port.answers import Answer
from pledger.engine.port.dependencies import Dependencies
from pledger.engine.port.filters import Filter, Labels, Order
from pledger.engine.port.lanes import Bounds, Claim, Served
from pledger.engine.port.operations import Operation
from pledger.engine.port.pauses import Pauses
from pledger.engine.port.pieces import Pieces
from pledger.engine.port.posts import Families
from pledger.engine.port.records import (
    AttemptRecord,
    LimitRow,
    Mail,
    Message,
    OpenRow,
    Outlook,
    PlaceRow,
    QueueRow,
    Request,
    ResetRow,
    RunRow,
    RunStatus,
    SessionRow,
    StoredRun,
    TaskRow,
)
from pledger.engine.port.retention import Retention
from pledger.engine.port.streams import Streams
from pledger.engine.port.tokens import Tokens
from pledger.engine.port.transactions import Transactions
from pledger.history.placement import LimitRule
from pledger.history.transition import StoredTransition


class Ledger(Protocol):
    """Runs and their histories."""

    def commit(self, batch: Sequence[Operation]) -> asyncio.Future[list[Answer]]:
        """Write the batch in one durable transaction; the answers come in its order.

        The future may be done on return (a store that commits inline). At most one commit is in flight at a time.
        Raises StoreUnavailableError through the future when nothing was written.
        """
        ...

    async def find_run(self, namespace: str, workflow_id: str, run_id: str | None = None) -> RunRow | None:
        """The run, or without run_id the newest run of the id; None when there is none."""
        ...

    async def read_run(self, run_key: int) -> RunRow: ...

    async def read_current(self, run_key: int) -> RunRow:
        """The newest run of the chain that the run is of."""
        ...

    async def read_statuses(self, run_keys: Sequence[int]) -> dict[int, tuple[RunStatus, bool]]:
        """(status, blocked) of each run, in one query."""
        ...

    async def read_history(self, run_key: int, after_event: int = 0, limit: int = 1000) -> list[StoredTransition]:
        """The next at most `limit` transitions whose first event is after `after_event`, in order."""
        ...

    async def read_stored_runs(self, run_keys: Sequence[int], limit: int) -> list[StoredRun]:
        """Each of these runs, in their order, with at most `limit` transitions. As few questions as can be, however
        many runs: a worker asks for hundreds when it takes over those of another one, or many are due at once.

        Not of one moment; but the histories are read last. So where one ends as the run's row says, the run has not
        gone on since its messages and tasks were read. A run that is not there has nothing.
        """
        ...

    async def read_last_transitions(self, run_key: int) -> list[StoredTransition]:
        """The newest two, in order: the checksum of the last one covers that of the one before."""
        ...

    async def list_runs(self, namespace: str, where: Filter, limit: int, order: Sequence[Order] = ()) -> list[RunRow]:
        """The first at most `limit` runs that meet the filter, in this order; the newest first where there is none."""
        ...

    async def read_resets(self, run_key: int) -> list[ResetRow]:
        """Where the run goes on from another one, and which go on from it; the oldest first."""
        ...

    async def count_runs(self, namespace: str, where: Filter) -> int: ...

    async def read_labels(self, run_keys: Sequence[int]) -> dict[int, Labels]:
        """Of those runs that are there."""
        ...

    async def attribute_kinds(self, namespace: str) -> list[tuple[str, str]]:
        """The (name, kind) of every search attribute that some run of the namespace has, in order."""
        ...

    async def count_open(self, namespace: str, now_ms: int) -> list[OpenRow]:
        """Open runs by queue, type and what they are at, sorted. It costs as much as there are of them, in indices."""
        ...


class Mailbox(Protocol):
    """Messages accepted for a chain and not yet in its history, and what else comes for a run."""

    async def read_mail(self, run_keys: Sequence[int]) -> list[Mail]:
        """What waits for each of these runs, those left out for which there is nothing. As few questions as can be,
        however many runs: a busy worker asks all the time."""
        ...

    async def read_inbox(self, chain_key: int) -> list[Message]:
        """The waiting messages, in the order of their acceptance."""
        ...

    async def read_message(self, chain_key: int, message_id: str) -> Message | None:
        """One message with its verdict; None when its id is not remembered."""
        ...

    async def read_undelivered(self, chain_key: int) -> list[Message]:
        """Messages that arrived after the code had returned, and late cancels."""
        ...


class Tasks(Protocol):
    """Activities that wait in the store or run away from their run's owner."""

    async def claim_tasks(self, session_key: int, now_ms: int, served: Served, room: int) -> list[TaskRow]:
        """Start due queued rows in this session's name, oldest due first, `room` of them at most: state, owner and
        started_ms are set (of a lost attempt started_ms stays, for the log). None of a run, type, queue or namespace
        that is paused, and none in a lane: see `Queues.claim_queued`. Those due at one moment come in the order of
        (run_key, event_id); which of them, where there are more than it takes, is the store's own affair.

        Durable before it returns: this is the record of the attempt (intent before effect).
        """
        ...

    async def expired_tasks(self, namespace: str, now_ms: int, limit: int) -> list[TaskRow]:
        """Rows of any queue of the namespace whose expires_ms has passed: queued ones, and those that are OUTSIDE."""
        ...

    async def owned_tasks(self, session_key: int) -> list[TaskRow]:
        """The started rows of the session, as `Sessions.owned_runs`."""
        ...

    async def read_tasks(self, run_key: int) -> list[TaskRow]: ...

    async def read_attempts(self, run_key: int) -> list[AttemptRecord]:
        """The attempt log of the run, oldest first, at most the newest 100 of each activity."""
        ...


class Queues(Protocol):
    """Task queues whose rows stand in lanes, or whose activities are limited."""

    async def claim_queued(self, session_key: int, now_ms: int, served: Served, room: int, bounds: Bounds) -> Claim:
        """As `Tasks.claim_tasks`, of all rows, in the order and within the limits that `choosing.choose` gives.

        In the same transaction as the rows are started their slots are taken, tokens and turns are paid, rows that a
        dependency holds up are set aside in lanes of their own, and each dependency counts what it has let through. A
        slot whose attempt does not run any more is free, whatever has ended it: so whoever ends an attempt, or a
        session, frees its slots by that. Durable before it returns, as `Tasks.claim_tasks` is. A session that is gone
        gets an empty claim.
        """
        ...

    async def state_limits(self, namespace: str, rules: Mapping[str, LimitRule]) -> None:
        """What the code of a worker says; for those who look. A power cut may take it: the next worker says it anew."""
        ...

    async def override_limit(self, namespace: str, name: str, override: LimitRule | None) -> None:
        """Other numbers than those of the code, from the next claim on; None: those of the code again. Durable before
        it returns."""
        ...

    async def read_limits(self, namespace: str) -> list[LimitRow]:
        """By name."""
        ...

    async def read_queues(self, namespace: str, now_ms: int) -> list[QueueRow]:
        """Those with activities in the store, by name."""
        ...

    async def read_places(self, run_key: int) -> list[PlaceRow]:
        """Of the run's activities that wait in lanes."""
        ...


class Sessions(Protocol):
    """Leases of worker processes, and what they own. A session serves one queue of one namespace."""

    async def now_ms(self) -> int:
        """The store's clock."""
        ...

    async def open_session(
        self, identity: str, namespace: str, task_queue: str, code: str, lease_ms: int
    ) -> SessionRow: ...

    def renew_session(self, session_key: int, lease_ms: int) -> int | None:
        """The store's time after the lease was extended, or None when the session is gone (buried).

        Blocking, and callable from the heartbeat's own thread.
        """
        ...

    async def close_session(self, session_key: int) -> None:
        """End the lease at once. What it still owned is orphaned, as by `bury_sessions`."""
        ...

    async def bury_sessions(self, namespace: str) -> list[SessionRow]:
        """End the sessions of the namespace whose lease is over by the store's own clock, never the caller's.

        Their runs become ownerless and due, with a raised fence and one claim more on their count; their started tasks
        become queued at once and `lost`.
        """
        ...

    async def read_sessions(self, namespace: str) -> list[SessionRow]: ...

    async def claim_runs(
        self, session_key: int, now_ms: int, namespace: str, task_queue: str, codes: Mapping[str, str], limit: int
    ) -> list[RunRow]:
        """Take ownerless open runs that are due or have mail, oldest due first; owner and fence are the new ones. Those
        due at one moment as in `Tasks.claim_tasks`.

        codes: the workflow types that the session can run, each with the identity of its code. A blocked run is taken
        only by code that has not blocked it since its last event; taking it clears the block. One that is paused is not
        taken.
        """
        ...

    async def woken_runs(self, session_key: int) -> list[int]:
        """run_keys of this session's own runs that got a message, a task outcome or a request; told once."""
        ...

    async def owned_runs(self, session_key: int) -> list[RunRow]:
        """What the session holds. For a worker that cannot know, since the answer to a claim or a commit was lost."""
        ...

    async def look(
        self,
        session_key: int,
        now_ms: int,
        namespace: str,
        task_queue: str,
        codes: Mapping[str, str],
        held: Sequence[int],
    ) -> Outlook:
        """Whether there is anything to do for the session, in one query: all that an idle worker ever asks.

        codes: as in `claim_runs`. held: run_keys to look after, see `Outlook.ended`.
        """
        ...


class Requests(Protocol):
    """Questions to runs that another process owns, answered by the owner."""

    async def ask(self, run_key: int, kind: str, name: str, body: bytes, expires_ms: int) -> int:
        """The request_key. Wakes the run; an ownerless run becomes due, so that a worker claims it."""
        ...

    async def answer_request(
        self, request_key: int, answer: bytes | None, failure: bytes | None, fence: int | None = None
    ) -> None:
        """The first answer counts. fence: that of the owner who gives it, and none once the run has another: then the
        next owner answers, who may do so otherwise. None: whoever answers, it is the same."""
        ...

    async def take_answer(self, request_key: int) -> Request | None:
        """The request once it is answered (it is then deleted), or None."""
        ...

    async def drop_requests(self, now_ms: int) -> None:
        """Forget expired requests."""
        ...


class Losses(Protocol):
    """A ledger that has gone back behind what it had acknowledged: a replica took over that lacked the newest commits,
    or a copy of an earlier moment was put in its place."""

    async def declare_loss(self) -> int:
        """Make the ledger safe to go on from; how many runs were in motion, see `read_losses`.

        What was committed and is gone is known to processes that may still be alive, and was acknowledged to others.
        So every session ends, and every open run gets a fence and every later row a key that was never given: whatever
        somebody knows from before is refused. Attempts that may have begun meanwhile count as lost.
        """
        ...

    async def read_losses(self, run_keys: Sequence[int]) -> Mapping[int, bool]:
        """Of the runs that were open then, whether they were in motion, to their end. One that was may have gone on in
        the part that is gone: what it asks for next may have been done already. One that slept may have if a message
        woke it, which is gone too."""
        ...


class Store(
    Ledger,
    Mailbox,
    Families,
    Tasks,
    Queues,
    Dependencies,
    Sessions,
    Requests,
    Pauses,
    Retention,
    Transactions,
    Losses,
    Pieces,
    Tokens,
    Streams,
    Protocol,
):
    """One database.

    look_every_s: how long a worker may go without a look of its own: so late is noticed at most what no hint told of.
    outlives_s: how long after a verb has failed it may take effect at most: a server goes on with what it was asked
    when the connection is lost.
    """

    look_every_s: float
    outlives_s: float

    async def wait_for_change(self, timeout_s: float) -> bool:
        """Return True once another process may have committed something since the last call that concerns this one,
        False on time-out.

        A hint, never the truth: it may come too often and may miss what this process wrote itself.
        """
        ...

    async def describe(self) -> dict[str, Any]:
        """What `pledger doctor` shows: kind, version, durability, file and schema."""
        ...

    async def back_up(self, path: str) -> int:
        """Copy all that is committed to a new file; its size in bytes. Whole and on the disk, or not there at all.

        Raises UsageError when the file is there already, or for a ledger that lies in no file.
        """
        ...

    async def close(self) -> None: ...
