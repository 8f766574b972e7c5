"""One life of a process: a real one, on a real file, that meets its fate at a chosen commit.

It asks for what its case says and waits for its end, with workers for all its queues beside. Only time is virtual: it
jumps when everybody waits, so that a lease of five seconds costs none. The store's clock is the same one, and begins
after the last moment of the life before.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import random
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from pledger import Client
from pledger.engine import processes
from pledger.engine.attempt import Attempt
from pledger.engine.code_identity import user_modules
from pledger.engine.connection import Connection
from pledger.engine.engine import Engine
from pledger.engine.limits import Limits
from pledger.engine.session import LoopHeart
from pledger.engine.watchdog import Watchdog
from pledger.errors import RunBlockedError
from pledger.machine import guards
from pledger.machine.definitions import ActivityDefinition, WorkflowDefinition
from pledger.store.sqlite import SqliteStore
from pledger.store.sqlite.database import enter_database
from pledger.store.sqlite.host import Host
from pledger.testing import Caller, Faults, JumpingLoop
from pledger.testing.journal import Program
from tests.crashes.cases import QUEUES, WORKFLOWS, Crash
from tests.crashes.diary import Diary, of_kind, read
from tests.crashes.outside import KeptWorld
from tests.reference import changing, shop

Phase: TypeAlias = Literal["before", "after"]

LEDGER: Final = "ledger.db"
#: When the first life of a case begins.
EPOCH_MS: Final = 1_767_225_600_000
#: Between one life and the next, in seconds: less than the lease, so that it must run out first, or more.
DOWN_S: Final = (0.0, 2.5, 6.0)
#: A life that is not over by then, in virtual seconds, never will be.
STUCK_S: Final = 900.0
STUCK: Final = 4


@dataclass(frozen=True)
class Fate:
    """Where a life ends: just before or just after its `commit`th COMMIT. 0: it lives to its end."""

    phase: Phase = "before"
    commit: int = 0


def prepare() -> None:
    """What all lives share, done once before they are forked."""
    workflows = [WorkflowDefinition.of(each) for each in [*WORKFLOWS, *changing.BEFORE, *changing.AFTER]]
    guards.install(user_modules([each.target for each in workflows]))
    gc.freeze()


def live(crash: Crash, folder: Path, fate: Fate, seed: str) -> None:
    """Returns when all is done. Raises what a client or worker did not expect."""
    logging.getLogger("pledger").setLevel(logging.CRITICAL + 1)  # lost attempts and the like are the point here
    with asyncio.Runner(loop_factory=_Loop) as runner:
        runner.run(_live(crash, folder, fate, seed))


async def _live(crash: Crash, folder: Path, fate: Fate, seed: str) -> None:
    await _Life(crash, folder, fate, random.Random(seed)).live()


class _Loop(JumpingLoop):
    """Time stops for every timer, the engine's looks too: these lives are short."""

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any, context: Any = None) -> Any:
        return self.call_at(self.time() + delay, callback, *args, context=context)


class _Store(SqliteStore):
    """Only this process writes to it."""

    async def wait_for_change(self, timeout_s: float) -> bool:
        await asyncio.sleep(timeout_s)
        return True


class _Unwatched(Watchdog):
    """Looks at no real clock, from no thread."""

    def start(self) -> None: ...

    def stop(self) -> None: ...


class _Life:
    def __init__(self, crash: Crash, folder: Path, fate: Fate, dice: random.Random) -> None:
        lines = read(folder)
        self._loop = _running_loop()
        self._crash = crash
        self._fate = fate
        self._dice = dice
        self._diary = Diary(folder)
        self._world = KeptWorld(lines, self._diary, began=self._attempt_began)
        ended = list(of_kind(lines, "ended"))
        self._begins_ms = ended[-1][0] + int(dice.choice(DOWN_S) * 1000) if ended else EPOCH_MS
        self._is_deployed = any(of_kind(lines, "deployed"))
        self._name = f"life-{len(ended) + 1}"
        # Without threads: what one of them did would take no virtual time, or any.
        host = Host(monotonic=self._loop.time, threads=False)
        database = enter_database(folder / LEDGER, allow_network_fs=False, busy_timeout_ms=10_000, host=host)
        self._store = _Store(database, clock=self._now_ms, on_commit=self._on_commit)
        self._commits = 0

    def _now_ms(self) -> int:
        return self._begins_ms + self._loop.now_us // 1000

    def _on_commit(self, phase: Phase, number: int) -> None:
        self._commits = number
        if (phase, number) == (self._fate.phase, self._fate.commit):
            self._diary.write("ended", self._now_ms(), self._commits)
            os.kill(os.getpid(), signal.SIGKILL)

    def _attempt_began(self, attempt: Attempt) -> None:
        """Before its code: the ledger must hold what it stands on."""
        what = f"attempt {attempt.number} of {attempt.definition.name} in {attempt.identity.workflow_id}"
        [(last_event, closed_ms)] = self._store._rows(
            "SELECT last_event, closed_ms FROM pledger_run WHERE run_key = ?", attempt.run_key
        )
        if last_event < attempt.event_id:
            self._diary.write("violated", f"intent before effect: {what} began, and its schedule is not durable")
        row = self._store._row(
            "SELECT attempt, state FROM pledger_task WHERE run_key = ? AND event_id = ?",
            attempt.run_key,
            attempt.event_id,
        )
        is_gone = row is None and closed_ms is not None  # its run closed between the claim and the code's first step
        if attempt.number > 1 and row != (attempt.number, "started") and not is_gone:
            self._diary.write("violated", f"intent before effect: {what} began, and its row says {row}")

    # Its course -------------------------------------------------------------------------------------------------------

    async def live(self) -> None:
        loop = self._loop
        loop.set_exception_handler(self._unhandled)
        loop.call_at(STUCK_S, self._is_stuck)
        _hold_for_processes(loop)
        connection = Connection(self._store, monotonic=loop.time, entropy=self._dice.randbytes)
        connection.heart_arguments = (loop,)
        callers = [
            Caller(program, Client(connection), self._dice, faults=Faults, hit=_ignore, note=_Clerk(self, n, program))
            for n, program in enumerate(self._crash.programs())
        ]
        if self._crash.case.early:
            for caller in callers:
                await caller.start()
                await self._then(caller)
        if self._crash.deploy and not self._is_deployed:
            async with self._workers(connection, "old"):
                await callers[0].start()
                await self._until_deploy(callers[0])
            self._diary.write("deployed")
        async with self._workers(connection, "new" if self._crash.deploy else "code"):
            await asyncio.gather(*map(self._run, callers))
        await connection.close()
        self._diary.write("ended", self._now_ms(), self._commits)

    async def _run(self, caller: Caller) -> None:
        await caller.start()
        if not self._crash.case.early:
            await self._then(caller)
        await caller.outcome()

    async def _then(self, caller: Caller) -> None:
        if self._crash.case.then is not None:
            await self._crash.case.then(caller)

    async def _until_deploy(self, caller: Caller) -> None:
        """Until the old code can go no further, or for a while."""
        with contextlib.suppress(RunBlockedError, TimeoutError):
            await asyncio.wait_for(caller.handle.result(), 1.0)

    @contextlib.asynccontextmanager
    async def _workers(self, connection: Connection, code: str) -> AsyncIterator[None]:
        workflows = [WorkflowDefinition.of(each) for each in self._workflows(new=code != "old")]
        engines = [self._engine(connection, queue, workflows, code) for queue in QUEUES]
        for engine in engines:
            await engine.start()
        yield
        for engine in engines:
            await engine.stop(grace_s=30.0)

    def _workflows(self, *, new: bool = True) -> list[Any]:
        return list(self._crash.workflows(new=new))

    def _engine(
        self, connection: Connection, task_queue: str, workflows: Sequence[WorkflowDefinition], code: str
    ) -> Engine:
        worker = f"{self._name} {task_queue}"
        return Engine(
            connection,
            workflows=workflows,
            activities=[self._watched(each, worker) for each in self._crash.activities],
            task_queue=task_queue,
            code=code,
            identity=worker,
            # Every run is replayed afterwards. There is a commit to be killed at within a fan-out too.
            limits=Limits(verified_share=0.0, commands_max=2),
            heart=LoopHeart(connection.loop),
            watchdog=_Unwatched(),
            randomness=random.Random(self._dice.getrandbits(64)),
            transactions=shop.TRANSACTIONS if self._crash.is_of_shop else None,
            secrets=[shop.Vault()] if self._crash.is_of_shop else (),
        )

    def _watched(self, definition: ActivityDefinition[Any, Any], worker: str) -> ActivityDefinition[Any, Any]:
        return definition if definition.executor == "process" else self._world.watch(definition, worker, 1_000)

    # What must not be -------------------------------------------------------------------------------------------------

    def _unhandled(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self._diary.write("violated", f"errors are handled: {context['message']}: {context.get('exception')!r}")

    def _is_stuck(self) -> None:
        self._diary.write("violated", f"everything finishes: not after {STUCK_S:g} s; open are {self._open_runs()}")
        os._exit(STUCK)

    def _open_runs(self) -> list[Any]:
        return self._store._rows(
            "SELECT workflow_id, last_event, owner, due_ms FROM pledger_run WHERE closed_ms IS NULL"
        )

    def keep(self, kind: str, *values: Any) -> None:
        self._diary.write(kind, *values)


class _Clerk:
    """Called after each acknowledgement to a program: keeps what is new in its journal."""

    def __init__(self, life: _Life, number: int, program: Program) -> None:
        self._life = life
        self._number = number
        self._journal = program.journal
        self._kept = dict.fromkeys(
            (
                "started",
                "signal",
                "refused",
                "cancel",
                "terminated",
                "outcome",
                "offered",
                "completed",
                "accepted",
                "updated",
            ),
            0,
        )

    def __call__(self, _: str) -> None:
        journal = self._journal
        entries: dict[str, list[Any]] = {
            "started": journal.run_ids,
            "signal": [[each.run_id, each.name, each.message_id] for each in journal.signals],
            "refused": journal.refused,
            "cancel": [list(each) for each in journal.cancels],
            "terminated": journal.terminated,
            "accepted": [list(each) for each in journal.updates_accepted],
            "updated": [[each.run_id, each.update_id, each.value] for each in journal.updates],
            "outcome": [[each.run_id, each.status, each.value] for each in journal.outcomes],
            "offered": [list(each) for each in journal.offered],
            "completed": [list(each) for each in journal.completed],
        }
        for kind, values in entries.items():
            for value in values[self._kept[kind] :]:
                self._life.keep(kind, self._number, value)
            self._kept[kind] = len(values)


def _running_loop() -> _Loop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, _Loop)
    return loop


def _hold_for_processes(loop: _Loop) -> None:
    """Activities in processes of their own take no virtual time either."""
    start = processes.run_in_process

    def run_in_process(on: asyncio.AbstractEventLoop, attempt: Attempt) -> Any:
        future, stop = start(on, attempt)
        loop.hold(future)
        return future, stop

    processes.run_in_process = run_in_process


def _ignore(_: str) -> None: ...
