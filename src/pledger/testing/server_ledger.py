"""A model of the PostgreSQL store under a simulation: a ledger in memory that is reached as a server is.

What writes a batch patiently, looks up what became of a COMMIT whose connection was lost, begins again after a deadlock
and listens for hints is the code of the real store. Here is what it meets: connections that break before, after and in
the midst of things, statements that outlive theirs, hints that are lost or come late, and a replica that takes over
without the newest commits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar

import psycopg
from msgspec.structs import replace
from psycopg import errors as pg

from pledger.engine.port.answers import Answer
from pledger.engine.port.operations import Operation
from pledger.engine.port.records import StoredRun
from pledger.engine.port.verbs import Store
from pledger.errors import StoreUnavailableError
from pledger.store.memory import State
from pledger.store.memory.store import commit
from pledger.store.postgres.at_once import AtOnce
from pledger.store.postgres.commit import Committer, Doubt
from pledger.store.postgres.failures import is_of_the_connection
from pledger.store.postgres.handed_out import OPEN_MAX_S
from pledger.store.postgres.handle import PATIENCE_S, PostgresHandle
from pledger.store.postgres.news import Interest
from pledger.store.postgres.patience import until_nobody_is_in_the_way, write_patiently
from pledger.testing.handles import MemoryLedger, SimulatedStore
from pledger.testing.server_links import READ_MARK, Ear, Link, lost
from pledger.testing.server_transactions import BlockingServerTransaction, ServerTransaction
from pledger.testing.tail import Tail, copy_of
from pledger.testing.weather import READS, Weather

if TYPE_CHECKING:
    import random

    from pledger.testing.audit import Auditor
    from pledger.testing.handles import Witness
    from pledger.testing.process import Process
    from pledger.testing.scheduler import Scheduler

P = ParamSpec("P")
T = TypeVar("T")

#: How long a statement waits for a lock before it is given up, in seconds: the store's own setting.
LOCK_TIMEOUT_S: Final = 3.0
#: For how long a statement goes on at most whose connection is lost, in seconds.
OUTLIVES_S: Final = 5.0


class ServerLedger(MemoryLedger):
    """term: how often a replica has taken over. running: transactions that may yet be committed, by id. marks: see
    `Committer.resolve`."""

    def __init__(self, clock: Callable[[], int], scheduler: Scheduler, dice: random.Random) -> None:
        super().__init__(clock)
        self.term = 0
        self.running: set[str] = set()
        self.marks: dict[str, int] = {}
        self._scheduler = scheduler
        self._dice = dice
        self._transactions = 0
        self._tail: Tail | None = None
        self._stores: dict[Process, ServerStore] = {}

    def open(self, process: Process) -> Store:
        handle = ServerStore(self, process, process.surroundings.auditor, self.state)
        self._handles[process] = self._stores[process] = handle
        return handle

    def begin(self) -> str:
        self._transactions += 1
        return str(self._transactions)

    def later(self, transaction: str, act: Callable[[], object]) -> None:
        """What was sent goes on without its connection, if the server lives: until it is done it is running."""
        term = self.term
        self.running.add(transaction)

        def arrive() -> None:
            if term == self.term:
                self.running.discard(transaction)
                act()

        self._scheduler.at(self._scheduler.now_s + self._dice.random() * OUTLIVES_S, arrive)

    # Hints ------------------------------------------------------------------------------------------------------------

    def make_stale(self, process: Process) -> bool:
        store = self._stores.get(process)
        return store is not None and store.ear.make_stale()

    def find_out(self, process: Process) -> None:
        if process in self._stores:
            self._stores[process].ear.find_out()

    # Fail-over --------------------------------------------------------------------------------------------------------

    def stop_following(self, witnesses: Sequence[Witness]) -> bool:
        if self._tail is not None:
            return False
        self._tail = Tail(self.state, self.marks, [*witnesses, self.tables])
        return True

    def fail_over(self) -> bool:
        """Whoever comes to it first finds out, and declares the loss."""
        tail, self._tail = self._tail, None
        if tail is None:
            return False
        self.term += 1
        self.running.clear()
        self.marks = tail.marks
        tail.cut(self.state)
        for store in self._stores.values():
            store.ear.find_out()
        return True

    def follow_again(self) -> None:
        self._tail = None


class ServerWeather(Weather):
    """What a server does to those who ask: the same failures, in its own words, and more of them."""

    def before(self, verb: str, detail: tuple[object, ...]) -> Awaitable[None] | None:
        if verb == "renew_session":
            return super().before(verb, detail)
        if self._process.cut_off:
            raise lost(f"{self._process.name} is cut off")
        faults, draw = self._process.surroundings.faults(), self._dice.random
        if verb not in READS:
            if faults.deadlock_victim and draw() < faults.deadlock_victim:
                self._fail("deadlock_victim", verb)
            if faults.statement_timeout and draw() < faults.statement_timeout:
                self._process.surroundings.hit("statement_timeout")
                return self._wait_in_vain(verb)
        return super().before(verb, detail)

    def outlives(self, verb: str) -> bool:
        """Whether the connection is lost while the server goes on with it."""
        share = self._process.surroundings.faults().late_effect
        if not share or self._dice.random() >= share:
            return False
        self._process.surroundings.hit("late_effect")
        self._process.note(f"late_effect: {verb}")
        return True

    async def _wait_in_vain(self, verb: str) -> None:
        await asyncio.sleep(LOCK_TIMEOUT_S)
        self._process.note(f"statement_timeout: {verb}")
        raise pg.LockNotAvailable(f"simulated: statement_timeout at {verb}")

    def _fail(self, kind: str, verb: str) -> None:
        if verb == "renew_session":
            super()._fail(kind, verb)
        self._process.surroundings.hit(kind)
        self._process.note(f"{kind}: {verb}")
        match kind:
            case "deadlock_victim":
                raise pg.DeadlockDetected(f"simulated: {kind} at {verb}")
            case "locked":
                raise pg.LockNotAvailable(f"simulated: {kind} at {verb}")
            case "disk_full":
                raise pg.DiskFull(f"simulated: {kind} at {verb}")
            case "disk_read_error":
                raise pg.IoError(f"simulated: {kind} at {verb}")
            case _:
                raise lost(f"{kind} at {verb}")


class ServerStore(SimulatedStore):
    """A process's handle: what writes has one connection, what reads another, each for one user at a time."""

    look_every_s, outlives_s = PostgresHandle.look_every_s, PostgresHandle.outlives_s

    def __init__(self, ledger: ServerLedger, process: Process, auditor: Auditor, state: State) -> None:
        self._weather = ServerWeather(process)
        super().__init__(process, auditor, state, self._weather, tables=ledger.tables)
        self._ledger = ledger
        self._writer, self._reader = Link(ledger, process), Link(ledger, process)
        self._committer = _Committer(self, process.name)
        self.ear = Ear(process)

    async def close(self) -> None:
        await self.ear.stop()
        await super().close()

    def commit(self, batch: Sequence[Operation]) -> asyncio.Future[list[Answer]]:
        self._check_open()
        loop = asyncio.get_running_loop()
        return loop.create_task(
            write_patiently(self._committer, self._writer, batch, patience_s=PATIENCE_S, monotonic=loop.time)
        )

    async def transact(self, batch: Sequence[Operation], *, leaves_mark: bool = True) -> list[Answer]:
        """Once. Raises psycopg.Error."""
        committer = self._committer
        await self._pause("before", "commit", (batch,))
        transaction, mark = self._ledger.begin(), committer.next_mark() if leaves_mark else None
        answers: list[Answer] = []
        if mark is not None:
            committer.doubt = Doubt(transaction, mark, answers)
        if self._weather.outlives("commit"):
            if self.toss():  # else it is rolled back
                self._ledger.later(transaction, lambda: self._write_marked(batch, mark, answers))
            else:
                answers[:] = commit(copy_of(self.state), batch)
                self._ledger.later(transaction, lambda: None)
            raise lost("in the midst of a commit")
        self._write_marked(batch, mark, answers)
        await self._pause("after", "commit", (batch,))
        committer.is_there()
        return answers

    def outlives(self, verb: str) -> bool:
        """Whether the connection is lost in the midst of it."""
        return self._weather.outlives(verb)

    def toss(self) -> bool:
        return self._process.dice.random() < 0.5  # noqa: PLR2004 - a coin

    def transaction(self, url: str | None = None, *, open_max_s: float | None = None) -> ServerTransaction:  # type: ignore[override] # noqa: ARG002 - the port's
        return ServerTransaction(self, self._ledger, OPEN_MAX_S if open_max_s is None else open_max_s)

    def blocking_transaction(  # type: ignore[override]
        self,
        url: str | None = None,  # noqa: ARG002 - the port's
        *,
        open_max_s: float | None = None,  # noqa: ARG002 - the port's
    ) -> BlockingServerTransaction:
        return BlockingServerTransaction(self, self._ledger.tables)

    def _write_marked(self, batch: Sequence[Operation], mark: int | None, answers: list[Answer]) -> None:
        answers[:] = self._apply(self._write, batch)
        if mark is not None:
            self._ledger.marks[self._process.name] = mark

    # The verbs --------------------------------------------------------------------------------------------------------

    async def _call(self, rule: Callable[Concatenate[State, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        if rule.__name__ not in READS:
            return await self._change(rule, *args, **kwargs)
        try:
            return await self._read(rule, *args, **kwargs)
        except StoreUnavailableError as error:
            if not is_of_the_connection(error.__cause__):
                raise
        return await self._read(rule, *args, **kwargs)  # to look again harms nobody

    async def _read(self, rule: Callable[Concatenate[State, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        async with self._reader.use():
            await self._pause("before", rule.__name__, args)
            result = rule(self.state, *args, **kwargs)
            await self._pause("after", rule.__name__, args)
            return result

    async def _change(self, rule: Callable[Concatenate[State, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        async def change() -> T:
            async with self._writer.use():
                await self._pause("before", rule.__name__, args)
                if self._weather.outlives(rule.__name__):
                    self._ledger.later(self._ledger.begin(), lambda: self._apply(rule, *args, **kwargs))
                    raise lost(f"in the midst of {rule.__name__}")
                result: T = self._apply(rule, *args, **kwargs)
                await self._pause("after", rule.__name__, args)
                return result

        return await until_nobody_is_in_the_way(change)

    async def _pause(self, side: str, verb: str, detail: tuple[object, ...]) -> None:
        await super()._pause(side, verb, detail)
        (self._reader if verb in READS else self._writer).check()

    async def read_stored_runs(self, run_keys: Sequence[int], limit: int) -> list[StoredRun]:
        """As the server does, statement by statement: others write between them. Histories come last."""
        before = await super().read_stored_runs(run_keys, 0)
        return [
            replace(now, messages=then.messages, tasks=then.tasks)
            for then, now in zip(before, await super().read_stored_runs(run_keys, limit), strict=True)
        ]

    # Hints ------------------------------------------------------------------------------------------------------------

    async def wait_for_change(self, timeout_s: float) -> bool:
        self._check_open()
        return await self.ear.wait(timeout_s)

    def _on_change(self, writer: object) -> None:
        if writer is not self:
            self.ear.hint()


class _Committer(Committer):
    """The real one, up to where it would talk to a server."""

    def __init__(self, store: ServerStore, name: str) -> None:
        interest = Interest()
        interest.name = name
        super().__init__({"read_mark": READ_MARK}, "simulated", interest)
        self._store = store

    def next_mark(self) -> int:
        return next(self._marks)

    def is_there(self) -> None:
        self._is_there(self.doubt)

    async def _write(self, _: psycopg.AsyncConnection[Any], batch: Sequence[Operation]) -> list[Answer]:
        return await self._store.transact(batch)

    async def _write_at_once(self, _: psycopg.AsyncConnection[Any], batch: AtOnce) -> list[Answer]:
        return await self._store.transact(batch.batch, leaves_mark=False)

    async def _write_singly(self, _: psycopg.AsyncConnection[Any], batch: Sequence[Operation]) -> list[Answer]:
        return await self._store.transact(batch)
