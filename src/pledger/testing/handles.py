"""What a simulation stands on: a ledger, and the handles on it that simulated processes get.

The one here is in memory; the one in a file is in `sqlite_ledger`.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from pledger.engine.port.answers import Answer, Reply
from pledger.engine.port.lanes import Claim, took_nothing
from pledger.engine.port.operations import Operation
from pledger.engine.port.records import Outlook
from pledger.engine.port.verbs import Store
from pledger.errors import StoreUnavailableError
from pledger.store.memory import MemoryStore, State
from pledger.store.memory.store import commit
from pledger.testing import circuits
from pledger.testing.audit import CLAIMS
from pledger.testing.model_transactions import BlockingModelTransaction, ModelTransaction, Tables, let_go
from pledger.testing.notes import in_short
from pledger.testing.views import StateView
from pledger.testing.weather import Weather

if TYPE_CHECKING:
    from pledger.testing.audit import Auditor
    from pledger.testing.process import Process


class Witness(Protocol):
    """Who knows of a ledger what may be lost."""

    def remember(self) -> Any:
        """What it knows now."""
        ...

    def went_back(self, known: Any, state: State) -> None:
        """All that happened since then is gone. known: as it was remembered; state: the ledger now."""
        ...


class Ledger(Protocol):
    """state: all that it holds, to look at. has_open_runs: whether some run is not closed. is_full: whether it takes
    nothing more. is_locked: whether somebody who is none of the processes keeps everybody from writing."""

    is_full: bool

    @property
    def is_locked(self) -> bool: ...
    def lock(self) -> bool:
        """Have somebody else hold the lock of writers. False when that was not to be had."""
        ...

    def unlock(self) -> None:
        """That is over, if it was so."""
        ...

    @property
    def state(self) -> State: ...
    @property
    def has_open_runs(self) -> bool: ...
    def rows(self, table: str) -> list[tuple[Any, ...]]:
        """What transactions of users have written to a table of theirs, in the order of the commits."""
        ...

    def open(self, process: Process) -> Store:
        """The handle of a process. Raises StoreError."""
        ...

    def kill(self, process: Process) -> None:
        """It is dead: what has not reached its commit point never will, and no verb of its handle returns any more."""
        ...

    def lose_power(self) -> None:
        """What is not durable may be gone; all processes are."""
        ...

    def flip_bit(self) -> int | None:
        """Change one bit of some recorded transition; the key of its run, None when there was nothing to change."""
        ...

    def make_stale(self, process: Process) -> bool:
        """Its listener hears nothing any more, and does not know. False where nobody listens."""
        ...

    def find_out(self, process: Process) -> None:
        """It notices."""
        ...

    def stop_following(self, witnesses: Sequence[Witness]) -> bool:
        """A replica has what there is now, and gets nothing more. False where there is none, or it lags already.

        witnesses: who knows what there is now, and is told when the rest is lost.
        """
        ...

    def fail_over(self) -> bool:
        """The replica takes over. False where there is none, or it has everything."""
        ...

    def follow_again(self) -> None:
        """The replica gets what it lacks."""
        ...

    def flaws(self) -> list[str]:
        """What is wrong with it beyond what its rows say, now that nobody uses it."""
        ...

    def dispose(self) -> None: ...


class MemoryLedger:
    """The model of a store. It has no disk, so that nothing is lost."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self.state = State(clock=clock)
        self.is_full = False
        self.is_locked = False
        self.tables = Tables()
        self._handles: dict[Process, SimulatedStore] = {}

    @property
    def has_open_runs(self) -> bool:
        return bool(self.state.open_runs)

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        return self.tables.rows.get(table, [])

    def open(self, process: Process) -> Store:
        auditor = process.surroundings.auditor
        handle = self._handles[process] = SimulatedStore(process, auditor, self.state, tables=self.tables)
        return handle

    def kill(self, process: Process) -> None:
        if process in self._handles:
            self._handles.pop(process).kill()

    def lose_power(self) -> None: ...

    def lock(self) -> bool:
        self.is_locked = True
        return True

    def unlock(self) -> None:
        self.is_locked = False

    def flip_bit(self) -> None: ...

    def make_stale(self, _: Process) -> bool:
        return False

    def find_out(self, process: Process) -> None: ...

    def stop_following(self, _: Sequence[Witness]) -> bool:
        return False

    def fail_over(self) -> bool:
        return False

    def follow_again(self) -> None: ...

    def flaws(self) -> list[str]:
        return []

    def dispose(self) -> None: ...


class SimulatedStore(MemoryStore):
    """A process's handle on a ledger in memory: every operation of a batch is shown to the auditor."""

    #: As on a server, which tells of what is written, too: no hint of this model is lost, and what time alone brings (a
    #: lease that is over) is noticed as late as there. Most of what a simulation did was to look once a second.
    look_every_s = 4.0

    def __init__(
        self, process: Process, auditor: Auditor, state: State, weather: Weather | None = None, *, tables: Tables
    ) -> None:
        super().__init__(state, weather or Weather(process))
        self._tables = tables
        self._process = process
        self._auditor = auditor
        self._view = StateView(state)

    def commit(self, batch: Sequence[Operation]) -> asyncio.Future[list[Answer]]:
        return asyncio.get_running_loop().create_task(self._change(self._write, batch))

    def _write(self, state: State, batch: Sequence[Operation]) -> list[Answer]:
        sessions = self._process.sessions.keys()
        return [
            self._auditor.judge(operation, sessions, functools.partial(_commit_one, state, operation), self._view)
            for operation in batch
        ]

    # Transactions of users --------------------------------------------------------------------------------------------

    in_weather = MemoryStore._pause  # noqa: SLF001 - whatever becomes of the connections that the other verbs have

    def in_weather_blocking(self, side: str, verb: str, detail: tuple[object, ...]) -> None:
        self._check_open()
        if not self._killed:
            let_go(self._hold(side, verb, detail))
        if self._killed:
            raise StoreUnavailableError("This handle was killed.")

    def write_beside(self, batch: Sequence[Operation], write: Callable[[], None]) -> list[Answer]:
        """A batch, and what is not the ledger's if all of it is won."""

        def commit(state: State, batch: Sequence[Operation]) -> list[Answer]:
            answers = self._write(state, batch)
            if all(answer is Reply.WON for answer in answers):
                write()
            return answers

        return self._apply(commit, batch)  # type: ignore[no-any-return]

    def transaction(self, url: str | None = None, *, open_max_s: float | None = None) -> ModelTransaction:  # type: ignore[override] # noqa: ARG002 - the port's
        return ModelTransaction(self, self._tables)

    def blocking_transaction(  # type: ignore[override]
        self,
        url: str | None = None,  # noqa: ARG002 - the port's
        *,
        open_max_s: float | None = None,  # noqa: ARG002 - the port's
    ) -> BlockingModelTransaction:
        return BlockingModelTransaction(self, self._tables)

    async def prepare_transactions(self, urls: Iterable[str | None], count: int) -> None:  # type: ignore[override]
        """There is always room."""

    # ------------------------------------------------------------------------------------------------------------------

    async def look(self, session_key: int, *args: Any) -> Outlook:
        outlook = await super().look(session_key, *args)
        self._auditor.owner_looked(self._process, session_key, outlook)
        return outlook

    _write.__name__ = "commit"  # the name of a rule is the name of its verb

    def _apply(self, rule: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        result = super()._apply(rule, *args, **kwargs)
        if not took_nothing(result):
            self._process.note(in_short(rule.__name__, args, result))
        self._auditor.read_clock()
        self._look_at_circuits(rule.__name__, args, result)
        if rule.__name__ == "open_session":
            self._process.sessions[result.session_key] = result
        elif rule.__name__ in CLAIMS and args[0] in self._process.sessions:  # 0 once the lease is lost: it gets nothing
            self._auditor.look_at_claim(self._process.sessions[args[0]], result, self._view)
        elif rule.__name__ == "forget_chains":
            self._auditor.look_at_forgotten(self._view)
        elif rule.__name__ in {"close_session", "bury_sessions"}:
            self._auditor.check_all_wakers(self._view)
        return result

    def _look_at_circuits(self, verb: str, args: tuple[Any, ...], result: Any) -> None:
        if verb in circuits.WRITERS:
            namespace = args[0] if isinstance(args[0], str) else self._process.namespace
            self._auditor.circuits.wrote(verb, args, namespace, self.state)
            if isinstance(result, Claim):
                self._auditor.circuits.claimed(namespace, result, self.state)


def _commit_one(state: State, operation: Operation) -> Answer:
    return commit(state, [operation])[0]
