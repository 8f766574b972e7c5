"""A simulated process: its loop and clock, its handle on the store, a worker or only a client, its programs.

What runs in it is the production engine. Only what comes from outside of it is simulated: time, randomness, the store's
weather, and its end.
"""

from __future__ import annotations

import asyncio
import functools
import random
import traceback
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from pledger import errors
from pledger.client import Client
from pledger.engine import port
from pledger.engine.connection import Connection
from pledger.engine.engine import Engine
from pledger.engine.limits import Limits
from pledger.engine.session import LoopHeart
from pledger.engine.watchdog import Watchdog
from pledger.store.memory import MemoryStore, State
from pledger.store.memory.store import commit
from pledger.testing.journal import Caller, Program
from pledger.testing.scheduler import NodeClock, NodeLoop

if TYPE_CHECKING:
    from pledger.machine.context import RunIdentity
    from pledger.machine.definitions import ActivityDefinition, WorkflowDefinition
    from pledger.machine.machine import Machine
    from pledger.testing.audit import Auditor
    from pledger.testing.faults import Faults
    from pledger.testing.scheduler import Scheduler

#: Verbs that only look: an answer of theirs that is lost is the same as one that failed.
_READS: Final = frozenset(
    {
        "find_run",
        "read_run",
        "read_statuses",
        "read_history",
        "read_last_transition",
        "list_runs",
        "count_runs",
        "read_inbox",
        "read_message",
        "read_undelivered",
        "expired_tasks",
        "read_tasks",
        "read_attempts",
        "now_ms",
        "read_sessions",
        "next_due_ms",
        "read_requests",
    }
)
#: How long a verb takes, in seconds: mostly, and when the store is slow.
LATENCY_S: Final = 0.002
SLOW_S: Final = 3.0


class Surroundings:
    """What all processes of one simulation share. hit: counts a fault. faults, workflows: as they are now."""

    def __init__(
        self,
        scheduler: Scheduler,
        state: State,
        auditor: Auditor,
        *,
        faults: Callable[[], Faults],
        hit: Callable[[str], None],
        workflows: Callable[[], list[WorkflowDefinition]],
        activities: Callable[[str, int], list[ActivityDefinition[Any, Any]]],
    ) -> None:
        self.scheduler = scheduler
        self.state = state
        self.auditor = auditor
        self.faults = faults
        self.hit = hit
        self.workflows = workflows
        self.activities = activities


class _Unwatched(Watchdog):
    """Looks at no real clock, from no thread."""

    def start(self) -> None: ...

    def stop(self) -> None: ...


class SimulatedStore(MemoryStore):
    """A process's handle on the ledger: every operation of a batch is shown to the auditor."""

    def __init__(self, process: Process, auditor: Auditor) -> None:
        super().__init__(process.surroundings.state, _Weather(process))
        self._process = process
        self._auditor = auditor

    def commit(self, batch: Sequence[port.Operation]) -> asyncio.Future[list[port.Answer]]:
        return asyncio.get_running_loop().create_task(self._change(self._write, batch))

    def _write(self, state: State, batch: Sequence[port.Operation]) -> list[port.Answer]:
        sessions = self._process.session_keys
        return [
            self._auditor.judge(operation, sessions, functools.partial(_commit_one, state, operation))
            for operation in batch
        ]

    _write.__name__ = "commit"  # the name of a rule is the name of its verb

    def _apply(self, rule: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        result = super()._apply(rule, *args, **kwargs)
        if result != []:
            self._process.note(_in_short(rule.__name__, args, result))
        self._auditor.read_clock()
        if rule.__name__ == "open_session":
            self._process.session_keys.add(result.session_key)
        elif rule.__name__ in {"claim_runs", "claim_tasks"}:
            self._auditor.look_at_claim(args[0], result)
        elif rule.__name__ in {"close_session", "bury_sessions"}:
            self._auditor.check_all_wakers()
        return result


class _Weather:
    """The fault hooks of one handle: latency, failures on both sides of the commit point, death at a commit."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._dice = process.dice

    def before(self, verb: str, _: tuple[object, ...]) -> Awaitable[None] | None:
        if verb == "wait_for_change":
            return None
        faults = self._process.surroundings.faults()
        draw = self._dice.random
        if self._process.cut_off:
            raise errors.StoreUnavailableError(f"simulated: {self._process.name} is cut off, at {verb}")
        if verb == "commit" and draw() < faults.kill_at_commit / 2:
            self._process.kill("kill_before_commit")
            return None
        if draw() < faults.store_unavailable:
            self._fail("store_unavailable", verb)
        return self._latency(verb, faults)

    def after(self, verb: str, _: tuple[object, ...]) -> Awaitable[None] | None:
        if verb == "wait_for_change":
            return None
        faults = self._process.surroundings.faults()
        draw = self._dice.random
        if verb == "commit" and draw() < faults.kill_at_commit / 2:
            self._process.kill("kill_after_commit")
            return None
        if verb not in _READS and draw() < faults.reply_lost:
            self._fail("reply_lost", verb)
        return self._latency(verb, faults)

    def _fail(self, kind: str, verb: str) -> None:
        self._process.surroundings.hit(kind)
        self._process.note(f"{kind}: {verb}")
        raise errors.StoreUnavailableError(f"simulated: {kind} at {verb}")

    def _latency(self, verb: str, faults: Faults) -> Awaitable[None] | None:
        if verb == "renew_session":
            return None  # it cannot wait
        draw = self._dice.random
        if faults.slow_store and draw() < faults.slow_store:
            self._process.surroundings.hit("slow_store")
            return asyncio.sleep(draw() * SLOW_S)
        return asyncio.sleep(draw() * LATENCY_S) if draw() < 0.5 else None  # noqa: PLR2004 - half of them at once


class Process:
    """One life of a process; the next one on its seat takes its place.

    task_queues: those that it has a worker for; none for a mere client. session_keys: the sessions that it has opened.
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
        self.store = SimulatedStore(self, surroundings.auditor)
        self.session_keys: set[int] = set()
        self.cut_off = False
        self.ended: str | None = None
        self._leaving = False
        self._machines: list[Machine] = []
        self._code = code
        self._namespace = namespace
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
        """Hold on to the runs in its memory: after a kill nobody closes their coroutines, and a collector would do so
        in the midst of another run."""
        new_machine = engine.runs.new_machine

        def kept(definition: WorkflowDefinition, identity: RunIdentity) -> Machine:
            machine = new_machine(definition, identity)
            self._machines.append(machine)
            return machine

        engine.runs.new_machine = kept  # type: ignore[method-assign]

    # Its end ----------------------------------------------------------------------------------------------------------

    def kill(self, kind: str) -> None:
        """As by SIGKILL. What it had in flight before the commit point never reaches it."""
        if self.alive:
            self.surroundings.hit(kind)
            self._end(kind)

    def leave(self) -> None:
        """Shut down gracefully, as at SIGTERM."""
        if self.alive and not self._leaving:
            self._leaving = True
            self.loop.call_soon(lambda: self.loop.create_task(self._leave(), name="leave"))

    def _end(self, how: str) -> None:
        self.note(how)
        self.ended = how
        self.store.kill()
        self.loop.kill()
        self._on_end()

    # Its life ---------------------------------------------------------------------------------------------------------

    def _boot(self) -> None:
        self.loop.create_task(self._live(), name="main")

    async def _live(self) -> None:
        connection = Connection(
            self.store, namespace=self._namespace, monotonic=self.loop.time, entropy=self.dice.randbytes
        )
        connection.heart_arguments = (self.loop,)
        self._connection = connection
        for task_queue in self._task_queues:
            engine = self._new_engine(connection, task_queue)
            self._keep_machines(engine)
            try:
                await engine.start()
            except errors.StoreError as error:
                self._end(f"could not start: {error}")
                return
            self._engines.append(engine)
        for program in self._programs:
            self._tasks.append(self.loop.create_task(self._run(program, Client(connection)), name=program.workflow_id))

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
            randomness=random.Random(self.dice.getrandbits(64)),  # noqa: S311 - seeded, as everything here
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
            self.note(f"did not close well: {error}")
        except Exception as error:  # noqa: BLE001 - whatever it is, the process hangs
            self._unhandled(error)
        self._end("left")


def _traceback(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def _in_short(verb: str, args: tuple[Any, ...], result: Any) -> str:
    """A write in a line of the report."""
    if verb == "commit":
        return "; ".join(f"{_fields(each)} -> {_answer(answer)}" for each, answer in zip(args[0], result, strict=True))
    found = ", ".join(map(_fields, result)) if isinstance(result, list) else str(result)
    return f"{verb} -> {found}"


def _fields(row: Any) -> str:
    """What is short in an operation or a row."""
    if not isinstance(row, (port.Record, port.Write)):
        return str(row)
    shown = []
    for name in row.__struct_fields__:
        value = getattr(row, name)
        if isinstance(value, (port.Record, port.Write)):
            shown.append(f"{name}={_fields(value)}")
        elif isinstance(value, int | str) and value not in _DULL:
            shown.append(f"{name}={value!r}")
    return f"{type(row).__name__}({', '.join(shown)})"


#: Values that say nothing in a report.
_DULL: Final = frozenset({0, "", "default"})


def _answer(answer: port.Answer) -> str:
    return answer.name if isinstance(answer, port.Reply) else type(answer).__name__


def _commit_one(state: State, operation: port.Operation) -> port.Answer:
    return commit(state, [operation])[0]
