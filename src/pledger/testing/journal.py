"""Client programs of a simulation, and the journal of what they were told.

The journal lies outside of every process, as a customer does: what it holds was acknowledged, and no kill may take it
back. Every call is repeated while its outcome is unknown (the store could not be reached, the process died), under the
same workflow id or message id.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, Unpack

from pledger import errors
from pledger.engine.port.records import OUTSIDE
from pledger.history import payloads
from pledger.updates import WorkflowUpdateStage

if TYPE_CHECKING:
    import random

    from pledger.client import Client, WorkflowHandle
    from pledger.following import StreamItem
    from pledger.handle import ResetOptions
    from pledger.store.memory import State
    from pledger.testing.faults import Faults

T = TypeVar("T")

#: A client that got no answer tries again after at most so long.
AGAIN_MAX_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Signalled:
    """An acknowledged signal. order: of the acknowledgements to one program."""

    run_id: str
    name: str
    message_id: str
    order: int


@dataclass(frozen=True, slots=True)
class Updated:
    """A completed update, as its client was told. run_id: of the run that has accepted it."""

    run_id: str
    update_id: str
    value: Any


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended, as its client was told. value: of a completed run; error: of any other.

    status: also "damaged", or "forgotten" once retention was there.
    """

    run_id: str
    status: str
    value: Any = None
    error: BaseException | None = None


@dataclass(slots=True)
class Journal:
    """What was acknowledged to one program, and what was refused.

    offered, completed: (run_id, event_id, result) of activities that it has tried to complete by a token, and of those
    that were accepted. run_ids: what its start was answered with, one for each time it was asked, and what went on by
    its resets. cancels: (run_id, request_id). updates_accepted: (run_id, update_id) of those that are to survive
    whatever comes. updates_refused: the same of those that were rejected, or came when the run had closed. followed:
    what it has read of each topic, however often it broke off; followed_to_the_end: the topics whose end it was told,
    with the run that it asked about. went_back: whether the ledger ever has, and lacks some of what was acknowledged.
    """

    run_ids: list[str] = field(default_factory=list)
    signals: list[Signalled] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    cancels: list[tuple[str, str]] = field(default_factory=list)
    terminated: list[str] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    offered: list[tuple[str, int, Any]] = field(default_factory=list)
    completed: list[tuple[str, int, Any]] = field(default_factory=list)
    updates: list[Updated] = field(default_factory=list)
    updates_accepted: list[tuple[str, str]] = field(default_factory=list)
    updates_refused: list[tuple[str, str]] = field(default_factory=list)
    followed: dict[str, list[StreamItem[Any]]] = field(default_factory=dict)
    followed_to_the_end: dict[str, str] = field(default_factory=dict)
    went_back: bool = False

    def forget(self, state: State) -> None:
        """The ledger has gone back to `state`, and nobody is held to what was acknowledged since."""
        self.went_back = True
        rows = {row.chain_id: row for row in state.runs.values()}  # of each chain the newest run
        there = {
            (row.chain_id, each.message_id) for row in rows.values() for each in state.inboxes[row.chain_key].values()
        }
        closed = {run_id for run_id, row in rows.items() if row.status != "running"}
        if not closed.issuperset(self.run_ids):
            self.refused.clear()
        self.updates.clear()
        self.updates_accepted.clear()
        self.updates_refused.clear()
        self.run_ids = [each for each in self.run_ids if each in rows]
        self.signals = [each for each in self.signals if (each.run_id, each.message_id) in there]
        self.cancels = [each for each in self.cancels if each in there]
        self.terminated = [each for each in self.terminated if each in closed]
        self.completed.clear()
        self.followed.clear()
        self.followed_to_the_end.clear()
        forgotten = {run_id for run_id in closed if rows[run_id].is_forgotten}
        self.outcomes = [
            each for each in self.outcomes if each.run_id in (forgotten if each.status == "forgotten" else closed)
        ]


@dataclass(slots=True)
class Program:
    """One client program: it starts a run, then does what `then` says. It begins anew when its process dies.

    starts_s: when it first runs. lives: how often it had to begin again since the ledger went back. seat: the process
    that runs it, by number; namespace: of that process. beside: what else it writes in the transaction of its start,
    which is one of `Client.connection` then; None: the start is a transaction of its own.
    """

    workflow: Callable[..., Any] | type
    args: tuple[Any, ...]
    workflow_id: str
    then: Then | None
    starts_s: float
    seat: int
    namespace: str = "default"
    options: dict[str, Any] = field(default_factory=dict)
    beside: Beside | None = None
    journal: Journal = field(default_factory=Journal)
    done: bool = False
    lives: int = 0

    def begin_again(self, state: State) -> None:
        self.done = False
        self.lives += 1
        self.journal.forget(state)


class Caller:
    """A program's hands on its run."""

    def __init__(
        self,
        program: Program,
        client: Client,
        dice: random.Random,
        *,
        faults: Callable[[], Faults],
        hit: Callable[[str], None],
        note: Callable[[str], None],
    ) -> None:
        self.workflow_id = program.workflow_id
        self.dice = dice
        self._program = program
        self._life = program.lives
        self._journal = program.journal
        self._client = client
        self._faults = faults
        self._hit = hit
        self._note = note
        self._handle: WorkflowHandle[Any] | None = None

    @property
    def handle(self) -> WorkflowHandle[Any]:
        assert self._handle is not None, "start() comes first"
        return self._handle

    @property
    def run_id(self) -> str:
        return self.handle.run_id or ""

    async def start(self) -> None:
        self._handle = await self._repeated(self._start)
        self._journal.run_ids.append(self.run_id)
        self._told(f"started as {self.run_id}")

    async def _start(self) -> WorkflowHandle[Any]:
        program, start = self._program, self._client.start_workflow
        options = {"id": program.workflow_id, **program.options}
        if program.beside is None:
            return await start(program.workflow, *program.args, **options)
        try:
            async with self._client.connection() as connection:
                handle = await start(program.workflow, *program.args, **options, connection=connection)
                await program.beside(connection, handle)
        except errors.UsageError as error:
            # A slow store has kept it open for too long: it was rolled back.
            raise errors.StoreUnavailableError(str(error)) from error
        return handle

    async def signal(self, signal: Callable[..., Any] | str, *args: Any, message_id: str) -> bool:
        """Whether it was accepted: a closed run takes no signal."""
        for _ in range(1 + self._duplicates()):
            try:
                await self._repeated(lambda: self.handle.signal(signal, *args, message_id=message_id))
            except errors.RunClosedError:
                self._journal.refused.append(message_id)
                return False
            name = signal if isinstance(signal, str) else signal.__name__
            self._journal.signals.append(Signalled(self.run_id, name, message_id, len(self._journal.signals)))
            self._told(f"signal {message_id} accepted")
        return True

    async def cancel(self, reason: str = "") -> bool:
        """Whether it was accepted."""
        for _ in range(1 + self._duplicates()):
            try:
                verdict = await self._repeated(lambda: self.handle.cancel(reason))
            except errors.RunClosedError:
                return False
            self._journal.cancels.append((self.run_id, verdict.request_id))
            self._told(f"cancel {verdict.request_id} accepted")
        return True

    async def terminate(self, reason: str = "") -> bool:
        """Whether this call ended the run."""
        try:
            await self._repeated(lambda: self.handle.terminate(reason))
        except errors.RunClosedError:
            return False
        self._journal.terminated.append(self.run_id)
        self._told("terminated")
        return True

    async def reset(self, event_id: int, **options: Unpack[ResetOptions]) -> None:
        """From here on the program has the run that goes on."""
        await self._go_on(lambda: self.handle.reset(event_id, **options))

    async def redrive(self, reason: str = "", *, by: str | None = None) -> None:
        """The same."""
        await self._go_on(lambda: self.handle.redrive(reason=reason, by=by))

    async def _go_on(self, ask: Callable[[], Awaitable[WorkflowHandle[Any]]]) -> None:
        self._handle = await self._repeated(ask)
        self._journal.run_ids.append(self.run_id)
        self._told(f"goes on as {self.run_id}")

    async def follow(self, topic: str, *, leaves: float = 0.2) -> None:
        """Read the stream to its end, from where this program has come to. leaves: how often it breaks off after a
        value, to go on a little later. What it has read is known outside, as all that a journal holds."""
        seen = self._journal.followed.setdefault(topic, [])
        while True:
            try:
                items = self.handle.stream(topic, seen[-1].offset + 1 if seen else 0)
                async with contextlib.aclosing(items):
                    async for item in items:
                        await self._if_it_counts()
                        seen.append(item)
                        self._told(f"reads {topic} {item.offset} of {item.run_id}")
                        if self.dice.random() < leaves:
                            break
                    else:
                        await self._if_it_counts()
                        self._journal.followed_to_the_end[topic] = self.run_id
                        return
            except errors.NoLongerKeptError:
                return
            except errors.StoreUnavailableError:
                pass
            except Exception:
                await self._if_it_counts()
                raise
            await asyncio.sleep(self.dice.random() * AGAIN_MAX_S)

    async def query(self, query: Callable[..., Any] | str, *args: Any) -> Any:
        """The answer, or None when nobody gave one in time or the run is closed or blocked."""
        try:
            return await self._repeated(lambda: self.handle.query(query, *args))
        except (errors.RunClosedError, errors.NoWorkerError, errors.RunBlockedError):
            return None

    async def handed_out(self) -> list[tuple[int, str]] | None:
        """(event_id, token) of the activities that are out, each the last detail of its heartbeat; None once the run is
        closed."""
        try:
            found = await self._repeated(self.handle.describe)
        except (errors.NoLongerKeptError, errors.CorruptHistoryError):
            return None
        if found.summary.closed is not None:
            return None
        out = [row for row in found.pending if row.owner == OUTSIDE and row.heartbeat is not None]
        return [(row.event_id, payloads.decode(row.heartbeat or b"[]")[-1]) for row in out]

    async def complete(self, event_id: int, token: str, result: Any) -> bool:
        """Whether the result of the activity was accepted. A token that was used, by an answer that was lost too, or
        whose time is over, is refused."""
        place = (self.run_id, event_id, result)
        self._journal.offered.append(place)
        self._told(f"offers {result!r} for event {event_id}")
        try:
            await self._repeated(lambda: self._client.complete_activity(token, result))
        except errors.TokenError as error:
            self._told(f"event {event_id}: {type(error).__name__}")
            return False
        self._journal.completed.append(place)
        self._told(f"event {event_id} was completed with {result!r}")
        return True

    async def fail(self, token: str, message: str) -> bool:
        """The same of a failure."""
        try:
            await self._repeated(lambda: self._client.fail_activity(token, message))
        except errors.TokenError:
            return False
        return True

    @property
    def updates_refused(self) -> Sequence[str]:
        """Their ids, of all lives of the program."""
        return [update_id for _, update_id in self._journal.updates_refused]

    async def update(self, update: Callable[..., Any] | str, *args: Any, id: str) -> bool | None:  # noqa: A002 - the field's
        """Whether it was done: a run refuses some, and takes none once it is closed. Sent until that is known.

        None where nobody knows it any more, or the run has ended before its handler.
        """
        for _ in range(1 + self._duplicates()):
            try:
                done = await self._repeated(lambda: self._updated(update, args, id))
            except (errors.UpdateRejectedError, errors.RunClosedError) as error:
                self._journal.updates_refused.append((getattr(error, "run_id", None) or self.run_id, id))
                self._told(f"update {id} refused")
                return False
            except (errors.UpdateUnfinishedError, errors.NoLongerKeptError, errors.CorruptHistoryError):
                return None
            self._journal.updates.append(done)
            self._told(f"update {id} done")
        return True

    async def _updated(self, update: Callable[..., Any] | str, args: tuple[Any, ...], update_id: str) -> Updated:
        """Some wait until it is accepted first, and are told so."""
        stage = self.dice.choice(list(WorkflowUpdateStage))
        try:
            sent = await self.handle.start_update(update, *args, id=update_id, wait_for_stage=stage)
            accepted = (sent.workflow_run_id or self.run_id, update_id)
            if stage is WorkflowUpdateStage.ACCEPTED and accepted not in self._journal.updates_accepted:
                self._journal.updates_accepted.append(accepted)
                self._told(f"update {update_id} accepted")
            return Updated(accepted[0], update_id, await sent.result())
        except (errors.NoWorkerError, errors.RunBlockedError) as error:
            raise errors.StoreUnavailableError(str(error)) from error  # nobody knows: it is sent again

    async def outcome(self) -> Outcome:
        """How the run ended; blocked ones are waited for."""
        try:
            value = await self._repeated(lambda: self.handle.result(wait_while_blocked=True))
        except errors.CorruptHistoryError as error:
            outcome = Outcome(self.run_id, "damaged", error=error)
        except errors.NoLongerKeptError as error:
            outcome = Outcome(self.run_id, "forgotten", error=error)
        except errors.WorkflowFailedError as error:
            outcome = Outcome(self.run_id, error.status, error=error.__cause__)
        else:
            outcome = Outcome(self.run_id, "completed", value)
        self._journal.outcomes.append(outcome)
        self._told(f"told that it is {outcome.status}")
        return outcome

    async def _repeated(self, call: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                told = await call()
            except errors.StoreUnavailableError:
                await asyncio.sleep(self.dice.random() * AGAIN_MAX_S)
            except Exception:
                await self._if_it_counts()
                raise
            else:
                await self._if_it_counts()
                return told

    async def _if_it_counts(self) -> None:
        """What it is told may be gone already: then another life of the program asks again, and ends this one."""
        if self._program.lives != self._life:
            await asyncio.Event().wait()

    def _duplicates(self) -> int:
        if self.dice.random() >= self._faults().duplicate_message:
            return 0
        self._hit("duplicate_message")
        return 1

    def _told(self, what: str) -> None:
        self._note(f"{self.workflow_id}: {what}")


Then: TypeAlias = Callable[[Caller], Awaitable[None]]
"""What a program does with its run once it is started."""

Beside: TypeAlias = "Callable[[Any, WorkflowHandle[Any]], Awaitable[None]]"
"""What a program writes in the transaction of its start: given the connection, and the handle of the run."""
