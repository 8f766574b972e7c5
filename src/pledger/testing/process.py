"""A simulated process: its loop and clock, its handle on the store, a worker or only a client, its programs.

What runs in it is the production engine. Only what comes from outside of it is simulated: time, randomness, the store's
weather, and its end.
"""

from __future__ import annotations

import asyncio
import random
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pledger import errors
from pledger.client import Client
from pledger.engine.connection import Connection
from pledger.engine.engine import Engine
from pledger.engine.limits import Limits
from pledger.engine.session import LoopHeart
from pledger.engine.watchdog import Watchdog
from pledger.testing.dice import fork
from pledger.testing.journal import Caller, Program
from pledger.testing.scheduler import NodeClock, NodeLoop

if TYPE_CHECKING:
    from pledger.engine.port.records import SessionRow
    from pledger.engine.port.verbs import Store
    from pledger.engine.secrets import SecretResolver
    from pledger.history.sealing import PayloadCodec
    from pledger.machine.definitions import ActivityDefinition, WorkflowDefinition
    from pledger.machine.identity import RunIdentity
    from pledger.machine.machine import Machine
    from pledger.testing.audit import Auditor
    from pledger.testing.faults import Faults
    from pledger.testing.handles import Ledger
    from pledger.testing.scheduler import Scheduler


class Surroundings:
    """What all processes of one simulation share. hit: counts a fault. faults, workflows: as they are now.
    transactions, secrets: as of an engine. codecs: of each connection."""

    def __init__(
        self,
        scheduler: Scheduler,
        ledger: Ledger,
        auditor: Auditor,
        *,
        faults: Callable[[], Faults],
        hit: Callable[[str], None],
        workflows: Callable[[], list[WorkflowDefinition]],
        activities: Callable[[str, int], list[ActivityDefinition[Any, Any]]],
        transactions: Mapping[str, str | None] | None = None,
        secrets: Sequence[SecretResolver] = (),
        codecs: Sequence[PayloadCodec] = (),
    ) -> None:
        self.scheduler = scheduler
        self.ledger = ledger
        self.auditor = auditor
        self.faults = faults
        self.hit = hit
        self.workflows = workflows
        self.activities = activities
        self.transactions = transactions
        self.secrets = secrets
        self.codecs = codecs


class _Unwatched(Watchdog):
    """Looks at no real clock, from no thread."""

    def start(self) -> None: ...

    def stop(self) -> None: ...


class Process:
    """One life of a process; the next one on its seat takes its place.

    task_queues: those that it has a worker for; none for a mere client. sessions: those that it has opened, by key.
    cut_off: it cannot reach the store. ended: how it came to its end, or None.
    """

    def __init__(
        self,
        surroundings: Surroundings,
        name: str,
        *,
        dice: random.Random,
        clock: NodeClock,
        code: str,
        namespace: str,
        task_queues: Sequence[str],
        limits: Limits,
        programs: Sequence[Program],
        on_end: Callable[[], None],
    ) -> None:
        self.surroundings = surroundings
        self.name = name
        self.dice = dice
        self.loop = NodeLoop(surroundings.scheduler, name, clock, self._unhandled)  # type: ignore[abstract] # as far as it is used
        self.sessions: dict[int, SessionRow] = {}
        self.cut_off = False
        self.ended: str | None = None
        self._leaving = False
        self._has_begun = False
        self._machines: list[Machine] = []
        self._code = code
        self.namespace = namespace
        self._task_queues = task_queues
        self._limits = limits
        self._engines: list[Engine] = []
        self._programs = programs
        self._on_end = on_end
        self._connection: Connection | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self.loop.call_soon(self._boot)

    @property
    def alive(self) -> bool:
        return not self.loop.dead

    def note(self, what: str) -> None:
        self.surroundings.scheduler.note(f"{self.name}: {what}")

    def _unhandled(self, error: BaseException) -> None:
        self.surroundings.auditor.violated("errors are handled", f"{self.name}: {_traceback(error)}")

    def dispose(self) -> None:
        """The simulation is over: let go of everything, without any of its code acting any more."""
        for machine in self._machines:
            machine.destroy()
        self.loop.dispose()

    def _keep_machines(self, engine: Engine) -> None:
        """Hold on to the runs in its memory, and to its attempts: after a kill nobody closes their coroutines, and a
        collector would do so in the midst of another run."""
        new_machine = engine.runs.new_machine

        def kept(definition: WorkflowDefinition, identity: RunIdentity) -> Machine:
            machine = new_machine(definition, identity)
            self._machines.append(machine)
            return machine

        engine.runs.new_machine = kept  # type: ignore[method-assign]
        new_task = engine.activities.executors.new_task
        engine.activities.executors.new_task = lambda run: self.loop.keep(new_task(run))  # type: ignore[method-assign]

    # Its end ----------------------------------------------------------------------------------------------------------

    def kill(self, kind: str) -> None:
        """As by SIGKILL. What it had in flight before the commit point never reaches it."""
        if self.alive:
            self.surroundings.hit(kind)
            self.end(kind)

    def leave(self) -> None:
        """Shut down gracefully, as at SIGTERM."""
        if self.alive and not self._leaving:
            self._leaving = True
            self.loop.call_soon(lambda: self.loop.create_task(self._leave(), name="leave"))

    def ask(self, what: Callable[[Store], Awaitable[object]]) -> None:
        """Have it ask the store for something that no program of its does: it may fail, or die over it."""
        if self.alive and not self._leaving and self._connection is not None:
            self.loop.call_soon(lambda: self.loop.create_task(self._ask(what), name="ask"))

    async def _ask(self, what: Callable[[Store], Awaitable[object]]) -> None:
        assert self._connection is not None
        try:
            await what(self._connection.store)
        except errors.StoreError as error:
            self.note(f"asked in vain: {type(error).__name__}")
        for engine in self._engines:
            engine.changed()

    def end(self, how: str) -> None:
        """Whatever it is doing, it does nothing more."""
        if not self.alive:
            return  # it died while its own code was ending it
        self.note(how)
        self.ended = how
        self.surroundings.ledger.kill(self)
        self.loop.kill()
        self._on_end()

    # Its life ---------------------------------------------------------------------------------------------------------

    def _boot(self) -> None:
        self.loop.create_task(self._live(), name="main")

    async def _live(self) -> None:
        try:
            store = self.surroundings.ledger.open(self)
        except errors.StoreError as error:
            self.end(f"could not open the ledger: {type(error).__name__}")
            return
        connection = Connection(
            store,
            namespace=self.namespace,
            monotonic=self.loop.time,
            entropy=self.dice.randbytes,
            codecs=self.surroundings.codecs,
            meter=self.surroundings.auditor.tally,
        )
        connection.heart_arguments = (self.loop,)
        self._connection = connection
        for task_queue in self._task_queues:
            engine = self._new_engine(connection, task_queue)
            self._keep_machines(engine)
            if engine.budgets is not None:
                self.surroundings.auditor.circuits.watch(engine.budgets, self.namespace)
            try:
                await engine.start()
            except errors.StoreError as error:
                self.end(f"could not start: {type(error).__name__}")
                return
            self._engines.append(engine)
        self._begin_programs()

    def _begin_programs(self) -> None:
        assert self._connection is not None
        self._has_begun = True
        for program in self._programs:
            if not program.done:
                run = self._run(program, Client(self._connection))
                self._tasks.append(self.loop.create_task(run, name=program.workflow_id))

    def begin_again(self) -> None:
        """Its programs ask again for all that they want; see `Seats.went_back`."""
        if self.alive and not self._leaving and self._has_begun:
            self.loop.call_soon(self._begin_programs_again)

    def _begin_programs_again(self) -> None:
        if not self._leaving:
            for task in self._tasks:
                task.cancel()
            self._begin_programs()

    def _new_engine(self, connection: Connection, task_queue: str) -> Engine:
        return Engine(
            connection,
            workflows=self.surroundings.workflows(),
            activities=self.surroundings.activities(
                f"{self.name} {task_queue}", self._limits.concurrent_activities_max
            ),
            task_queue=task_queue,
            code=self._code,
            identity=self.name,
            limits=self._limits,
            heart=LoopHeart(self.loop),
            watchdog=_Unwatched(),
            randomness=fork(self.dice),
            transactions=self.surroundings.transactions,
            secrets=self.surroundings.secrets,
        )

    async def _run(self, program: Program, client: Client) -> None:
        wait_s = program.starts_s - self.surroundings.scheduler.now_s
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        caller = Caller(
            program,
            client,
            self.dice,
            faults=self.surroundings.faults,
            hit=self.surroundings.hit,
            note=self.note,
        )
        try:
            await caller.start()
            if program.then is not None:
                await program.then(caller)
            await caller.outcome()
        except Exception as error:  # noqa: BLE001 - whatever a client does not expect
            self.surroundings.auditor.violated("clients are not surprised", _traceback(error))
        else:
            program.done = True

    async def _leave(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        try:
            for engine in self._engines:
                await engine.stop(grace_s=30.0)
            if self._connection is not None:
                await self._connection.close()
        except errors.StoreError as error:
            self.note(f"did not close well: {type(error).__name__}")
        except Exception as error:  # noqa: BLE001 - whatever it is, the process hangs
            self._unhandled(error)
        self.end("left")


def _traceback(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))
