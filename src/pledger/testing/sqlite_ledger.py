"""The real SQLite store under a simulation: one file on a simulated disk, which every process opens for itself.

All of a process's transactions run on the simulation's one thread, its clocks are virtual, and its file is reached
through a VFS of its own (`disk_vfs`). A killed process's connections are closed without anything of that reaching the
disk: their locks are gone, as the kernel would see to, and what they had written but not committed stays in the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import random
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal
from weakref import WeakSet

import apsw

from pledger.engine.port.answers import Answer, Started
from pledger.engine.port.lanes import took_nothing
from pledger.engine.port.operations import Operation, ResetRun
from pledger.engine.port.verbs import Store
from pledger.errors import PledgerError, StoreError, StoreUnavailableError
from pledger.store.memory import State
from pledger.store.sqlite.commit import WRITERS, write_batch
from pledger.store.sqlite.database import Database, enter_database
from pledger.store.sqlite.guest import Guest
from pledger.store.sqlite.host import Host
from pledger.store.sqlite.store import SqliteStore
from pledger.store.sqlite.writer import Cursor, LockedError
from pledger.testing.audit import CLAIMS
from pledger.testing.disk import Disk
from pledger.testing.disk_vfs import DiskVfs, Peace
from pledger.testing.disk_weather import DiskWeather
from pledger.testing.model_transactions import let_go
from pledger.testing.notes import in_short
from pledger.testing.sqlite_transactions import (
    BlockingSimulatedTransaction,
    Seen,
    SimulatedTransaction,
    WatchedGuest,
)
from pledger.testing.sqlite_views import Moment, SqliteView, read_state, read_tables
from pledger.testing.weather import READS, Weather

if TYPE_CHECKING:
    from pledger.testing.audit import Auditor
    from pledger.testing.handles import Witness
    from pledger.testing.process import Process

#: How long a transaction waits for others: they are over at once, or their process is dead.
BUSY_TIMEOUT_MS: Final = 100
#: Looks for changes by others come every 60 ms at least, and every second at most.
PATIENCE: Final = 20.0
_FILE: Final = "ledger.db"


class SqliteLedger:
    """disk: what holds the file. durability: as in `open_store`. cut_power: called when a process's fate cuts it.

    Its folder holds the empty files that carry SQLite's locks and shared memory.
    """

    def __init__(
        self,
        auditor: Auditor,
        *,
        clock: Callable[[], int],
        dice: random.Random,
        durability: str,
        cut_power: Callable[[str], None],
    ) -> None:
        self.disk = Disk()
        self.is_full = False
        self.cut_power = cut_power
        self._auditor = auditor
        self._clock = clock
        self._dice = dice
        self._durability = durability
        self._folder = Path(tempfile.mkdtemp(prefix="pledger-simulated-"))
        self._path = self._folder / _FILE
        self._peace = DiskVfs(self.disk, Peace())
        self._places: dict[Process, tuple[DiskVfs, list[SimulatedSqliteStore]]] = {}
        self._graves: list[tuple[DiskVfs, list[SimulatedSqliteStore]]] = []
        self._power_is_lost = False
        self._seen: tuple[int, State] | None = None
        self._tables: dict[str, list[tuple[Any, ...]]] | None = None
        self._locker: apsw.Connection | None = None

    # Processes --------------------------------------------------------------------------------------------------------

    def open(self, process: Process) -> Store:
        """Raises StoreError."""
        self._close_graves()
        if not self._places:
            self._auditor.setbacks.recovered(self.state)
        vfs = DiskVfs(self.disk, DiskWeather(process, self))
        stores: list[SimulatedSqliteStore] = []
        self._places[process] = (vfs, stores)
        host = Host(vfs=vfs.name, monotonic=process.loop.time, threads=False, patience=PATIENCE)
        database = enter_database(self._path, allow_network_fs=True, busy_timeout_ms=BUSY_TIMEOUT_MS, host=host)
        try:
            store = SimulatedSqliteStore(
                process, self._auditor, vfs, database, durable=self._durability == "power", clock=self._clock
            )
        except BaseException:
            database.leave()
            raise
        stores.append(store)
        return store

    def kill(self, process: Process) -> None:
        """It is dead. Its connections are closed before anybody else looks; they may be in use just now."""
        place = self._places.pop(process, None)
        if place is not None:
            vfs, stores = place
            vfs.is_dead = True
            for store in stores:
                store.kill()
            self._graves.append(place)

    def lose_power(self) -> None:
        self.unlock()
        self._power_is_lost = True

    def _close_graves(self) -> None:
        for vfs, stores in self._graves:
            for store in stores:
                store.bury()
            vfs.unregister()
        self._graves.clear()
        if self._power_is_lost:
            assert not self._places, "a power cut leaves nobody alive"
            self._power_is_lost = False
            self.disk.lose_power(self._dice)

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        """As they are at the end, once that has come."""
        tables = self._read_tables() if self._tables is None else self._tables
        return tables.get(table, [])

    def _read_tables(self) -> dict[str, list[tuple[Any, ...]]]:
        self._close_graves()
        with self._looking() as connection:
            return read_tables(lambda sql, bindings: connection.execute(sql, bindings).fetchall())

    # Somebody else's lock ---------------------------------------------------------------------------------------------

    @property
    def is_locked(self) -> bool:
        return self._locker is not None

    def lock(self) -> bool:
        """By a transaction of a connection that is none of a process's: another program's, say."""
        self._close_graves()
        connection = self._connect()
        try:
            connection.execute("BEGIN IMMEDIATE")
        except apsw.Error:
            connection.close()
            return False
        self._locker = connection
        return True

    def unlock(self) -> None:
        if self._locker is not None:
            self._locker.close()
            self._locker = None

    # Looking at it ----------------------------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """What is committed. Looked up anew after each change of the disk."""
        self._close_graves()
        if self._seen is None or self._seen[0] != self.disk.changes:
            try:
                with self._looking() as connection:
                    state = read_state(lambda sql, bindings: connection.execute(sql, bindings).fetchall(), self._clock)
            except (apsw.CorruptError, apsw.NotADBError) as error:
                self._auditor.violated("the file is sound", f"it cannot be read: {error}")
                return State(self._clock) if self._seen is None else self._seen[1]
            self._seen = self.disk.changes, state
        return self._seen[1]

    @property
    def has_open_runs(self) -> bool:
        auditor = self._auditor
        running = (key for key, record in auditor.records.by_run.items() if record.state.status == "running")
        return any(run_key not in auditor.parked for run_key in running)

    def flip_bit(self) -> int | None:
        """Only in the database: SQLite takes a log for ended where it is damaged, which no reader can tell from a power
        cut."""
        histories = [(run_key, each) for run_key, history in self.state.histories.items() for each in history]
        if not histories:
            return None
        run_key, stored = histories[int(self._dice.random() * len(histories))]
        at, bit = int(self._dice.random() * len(stored.body)), int(self._dice.random() * 8)
        # Two runs may have the same body, and never the same checksum, which follows it in the row.
        if not self.disk.damage(str(self._path), stored.body + stored.checksum, at, bit):
            return None
        self._auditor.damaged.add(run_key)
        return run_key

    def make_stale(self, _: Process) -> bool:
        return False

    def find_out(self, process: Process) -> None: ...

    def stop_following(self, _: Sequence[Witness]) -> bool:
        return False

    def fail_over(self) -> bool:
        return False

    def follow_again(self) -> None: ...

    def flaws(self) -> list[str]:
        """A power cut after the end takes nothing away, and the file is sound."""
        before = self.state
        self.disk.lose_power(self._dice)
        after, self._tables = self.state, self._read_tables()
        self._auditor.setbacks.recovered(after)
        self._auditor.checks("nothing acknowledged is lost", "the file is sound")
        found = []
        if self._durability == "power" and _kept(before, before) != _kept(after, before):
            found.append("nothing acknowledged is lost: a power cut after the end changed the ledger")
        with self._looking() as connection:
            told = [text for (text,) in connection.execute("PRAGMA integrity_check")]
        return found + [f"the file is sound: {text}" for text in told if text != "ok"]

    @contextlib.contextmanager
    def _looking(self) -> Iterator[apsw.Connection]:
        connection = self._connect()
        try:
            yield connection
        finally:
            connection.close()

    def _connect(self) -> apsw.Connection:
        """A connection that meets no faults and leaves the disk as it is."""
        self._path.touch()
        connection = apsw.Connection(str(self._path), vfs=self._peace.name)
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        return connection

    def dispose(self) -> None:
        self.unlock()
        for process in list(self._places):
            self.kill(process)
        self._close_graves()
        shutil.rmtree(self._folder)


class SimulatedSqliteStore(SqliteStore):
    """A process's handle on the file: every operation of a batch is shown to the auditor, once it is committed."""

    def __init__(self, process: Process, auditor: Auditor, vfs: DiskVfs, database: Database, **options: Any) -> None:
        self._process = process
        self._auditor = auditor
        self._vfs = vfs
        self._killed = False
        self._weather = Weather(process, has_disk=True)
        self._witnessed: list[Seen] = []
        self._guests: WeakSet[WatchedGuest] = WeakSet()
        self._view = SqliteView(database.rows)
        self._rules = dict.fromkeys(WRITERS, self._witness)
        super().__init__(database, on_commit=self._on_commit_of_batch, **options)

    async def close(self) -> None:
        # apsw tells of errors in a VFS of Python that SQLite ignores, and that no other VFS can tell of.
        with contextlib.suppress(apsw.Error):
            await super().close()

    def kill(self) -> None:
        self._killed = True

    def bury(self) -> None:
        if self._closed:
            return
        self._closed = True
        for guest in self._guests:
            guest.bury()
        with contextlib.suppress(apsw.Error, StoreError):
            self._database.leave()

    # Commits ----------------------------------------------------------------------------------------------------------

    def commit(self, batch: Sequence[Operation]) -> asyncio.Future[list[Answer]]:
        return asyncio.get_running_loop().create_task(self.around("commit", self._commit, (batch,)))

    async def _commit(self, batch: Sequence[Operation]) -> list[Answer]:
        path = self._database.path
        self._witnessed.clear()
        try:
            return await self._submit(lambda cursor: write_batch(cursor, batch, path, self._rules), durable=True)
        finally:
            self._witnessed.clear()

    def _witness(self, cursor: Cursor, operation: Operation) -> Answer:
        seen = self._see(cursor, operation)
        # A batch may be written again, after a roll-back: what counts is the last time.
        self._witnessed = [each for each in self._witnessed if each.sight.operation is not operation]
        self._witnessed.append(seen)
        return seen.answer

    def _see(self, cursor: Cursor, operation: Operation) -> Seen:
        view = SqliteView(cursor.rows)
        with self._vfs.calm():
            sight = self._auditor.look(operation, set(self._process.sessions), view)
        answer: Answer
        try:
            answer = WRITERS[type(operation)](cursor, operation)
        except PledgerError as error:  # raised before anything was written
            answer = error
        run_key = answer.run_key if isinstance(answer, Started) else sight.run_key
        with self._vfs.calm():
            is_reset = isinstance(operation, ResetRun) and isinstance(answer, Started)
            return Seen(sight, answer, Moment(view, run_key, with_history=is_reset))

    def _on_commit_of_batch(self, phase: Literal["before", "after"], _: int) -> None:
        if phase == "after":
            self._conclude(self._witnessed)

    def _conclude(self, seen: Sequence[Seen]) -> None:
        for sight, answer, moment in seen:
            self._auditor.conclude(sight, answer, moment)
        for sight, _answer, moment in {each.sight.run_key: each for each in seen}.values():
            self._auditor.check_waker(sight.run_key, moment)

    # Transactions of users --------------------------------------------------------------------------------------------

    def transaction(self, url: str | None = None, *, open_max_s: float | None = None) -> SimulatedTransaction:  # type: ignore[override]
        return SimulatedTransaction(self, super().transaction(url, open_max_s=open_max_s))

    def blocking_transaction(  # type: ignore[override]
        self, url: str | None = None, *, open_max_s: float | None = None
    ) -> BlockingSimulatedTransaction:
        return BlockingSimulatedTransaction(self, super().blocking_transaction(url, open_max_s=open_max_s))

    def _new_guest(self, open_max_s: float | None) -> Guest:
        guest = WatchedGuest(
            self._database,
            asyncio.get_running_loop(),
            durable=self._durable,
            open_max_s=open_max_s,
            hook=self._around_commit,
        )
        guest.watch(self._see, self._conclude)
        self._guests.add(guest)
        return guest

    # The verbs --------------------------------------------------------------------------------------------------------

    def renew_session(self, session_key: int, lease_ms: int) -> int | None:
        self._weather.before("renew_session", ())
        self._check_alive()
        answer = super().renew_session(session_key, lease_ms)
        self._weather.after("renew_session", ())
        return answer

    async def around(self, verb: str, plain: Callable[..., Awaitable[Any]], args: tuple[Any, ...]) -> Any:
        await self._pause(self._weather.before(verb, args))
        try:
            result = await plain(*args)
        except Exception as error:
            if isinstance(error, LockedError):
                self._process.surroundings.hit("locked")
            await self._unless_killed()
            raise
        await self._unless_killed()
        self._told(verb, args, result)
        await self._pause(self._weather.after(verb, args))
        if verb == "look":
            self._auditor.owner_looked(self._process, args[0], result)
        return result

    def around_blocking(self, verb: str, plain: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        let_go(self._weather.before(verb, args))
        self._check_alive()
        result = plain(*args)
        self._check_alive()
        self._told(verb, args, result)
        let_go(self._weather.after(verb, args))
        self._check_alive()
        return result

    def _check_alive(self) -> None:
        if self._killed:
            raise StoreUnavailableError("This handle was killed.")

    async def _pause(self, pause: Awaitable[None] | None) -> None:
        if pause is not None:
            await pause
        await self._unless_killed()

    async def _unless_killed(self) -> None:
        if self._killed:
            await asyncio.get_running_loop().create_future()  # for ever

    def _told(self, verb: str, args: tuple[Any, ...], result: Any) -> None:
        if verb in READS:
            return
        if not took_nothing(result):
            self._process.note(in_short(verb, args, result))
        if verb == "open_session":
            self._process.sessions[result.session_key] = result
        elif verb in CLAIMS and args[0] in self._process.sessions:  # 0 once the lease is lost: it gets nothing
            with self._vfs.calm():
                self._auditor.look_at_claim(self._process.sessions[args[0]], result, self._view)
        elif verb == "forget_chains":
            with self._vfs.calm():
                self._auditor.look_at_forgotten(self._view)
        elif verb in {"close_session", "bury_sessions"}:
            with self._vfs.calm():
                self._auditor.check_all_wakers(self._view)
        self._auditor.read_clock()


def _kept(state: State, as_of: State) -> list[Any]:
    """What no power cut may change: it may bring back what retention had removed."""
    kept = [row for row in as_of.runs.values() if not row.is_forgotten]
    return [(state.histories.get(row.run_key), state.inboxes.get(row.chain_key)) for row in kept]


def _with_weather(verb: str) -> Callable[..., Awaitable[Any]]:
    plain = getattr(SqliteStore, verb)

    async def call(self: SimulatedSqliteStore, *args: Any) -> Any:
        return await self.around(verb, plain.__get__(self), args)

    return call


for _name, _verb in inspect.getmembers(SqliteStore, inspect.iscoroutinefunction):
    if not _name.startswith("_") and _name not in {"close", "wait_for_change", "describe"}:
        setattr(SimulatedSqliteStore, _name, _with_weather(_name))
