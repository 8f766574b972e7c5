"""`Simulation`: whole workers and clients on one ledger, in one thread and in virtual time.

Everything is drawn from a seed: who runs when, how long the store takes, what goes wrong.

    sim = Simulation(seed, workflows=[fulfil], activities=[charge_card], faults=Faults.swarm(seed))
    sim.start(fulfil, order, id="order-1")
    sim.run_until_idle()
    sim.check()

Safety first: while faults happen nothing may ever be wrong. Then liveness: they stop, and everything must finish.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from pledger.engine.limits import Limits
from pledger.errors import UsageError
from pledger.machine import guards
from pledger.machine.definitions import ActivityDefinition, WorkflowDefinition
from pledger.store.memory import State
from pledger.testing.audit import Auditor
from pledger.testing.faults import Faults
from pledger.testing.handles import Ledger, MemoryLedger
from pledger.testing.invariants import ALL, Invariant
from pledger.testing.journal import Program, Then
from pledger.testing.process import Process, Surroundings
from pledger.testing.scheduler import LivelockError, NodeClock, Scheduler
from pledger.testing.world import World

#: The store's clock at the start: any time that is not now, so that a look at a real clock is found out.
EPOCH_MS: Final = 1_000_000_000_000
#: Faults happen for so long at most (virtual seconds).
FAULTS_LAST_S: Final = 60.0
#: So long after they stopped everything must have finished.
SETTLE: Final = timedelta(minutes=10)
DEPLOY_WITHIN_S: Final = 20.0
#: The jumps of the store's clock.
_JUMP_FORWARD_S: Final = 3600.0
_JUMP_BACK_S: Final = 60.0
#: How long a process stands still, or is cut off, at most.
_PAUSE_MAX_S: Final = 15.0


class SimulationFailedError(AssertionError):
    """A promise was broken. seed: gives the same execution again. violations: in words. notes: what happened last."""

    def __init__(self, seed: int, violations: Sequence[str], notes: Sequence[str]) -> None:
        self.seed = seed
        self.violations = list(violations)
        self.notes = list(notes)
        told = "\n".join(violations)
        super().__init__(f"seed {seed}: {told}\n\nThe last of what happened (virtual seconds):\n" + "\n".join(notes))


@dataclass(slots=True)
class _Seat:
    """A place for a process: who sits there has this name and serves these queues (none: a mere client)."""

    name: str
    namespace: str
    task_queues: list[str]
    limits: Limits
    lives: int = 0
    process: Process | None = None


class Simulation:
    """seed: everything is drawn from it. workers, clients: how many processes of each kind; workers have client
    programs too. limits: of the workers; by default each draws its own, small ones among them.

    task_queues: the first one is served by all workers, each other one by some. namespaces: each process belongs to
    one, and what it starts does too; there must be a worker for each. settle: how long after the last fault everything
    must have finished; workflows that wait for longer need more (a virtual day takes some seconds).
    deploy: workflows in place of those of the same name, in processes that start after some moment: until all have, old
    and new code work side by side. Runs of these may block meanwhile, and must go on in the end.
    store: "memory", or "sqlite" for the real store on a simulated disk. durability: as in `connect`, of that one.
    state: the ledger, as dictionaries. world: the outside. workflows: those of the end, by name. programs: the client
    programs with what they were told. hits: how often each fault happened. digest: equal for equal executions. now_s:
    virtual time since the start.
    """

    def __init__(
        self,
        seed: int,
        *,
        workflows: Sequence[Callable[..., Any] | type],
        activities: Sequence[ActivityDefinition[Any, Any]] = (),
        faults: Faults | None = None,
        workers: int = 3,
        clients: int = 1,
        limits: Limits | None = None,
        deploy: Sequence[Callable[..., Any] | type] = (),
        task_queues: Sequence[str] = ("default",),
        namespaces: Sequence[str] = ("default",),
        settle: timedelta = SETTLE,
        store: str = "memory",
        durability: str = "power",
    ) -> None:
        if workers < len(namespaces):
            raise UsageError("a simulation needs at least one worker for each namespace")
        if store not in {"memory", "sqlite"}:
            raise UsageError(f"store={store!r} is not known: use 'memory' or 'sqlite'.")
        guards.install()
        self.seed = seed
        self.hits: Counter[str] = Counter()
        self.programs: list[Program] = []
        self._workflows = {each.name: each for each in map(WorkflowDefinition.of, workflows)}
        self._deploy = {each.name: each for each in map(WorkflowDefinition.of, deploy)}
        self.workflows = self._workflows | self._deploy
        self._dice = random.Random(f"simulation {seed}")  # noqa: S311 - a test, no secret
        self._faults = faults or Faults()
        self._settle_s = settle.total_seconds()
        self._activities = activities
        self.activities = {each.name: each for each in activities}
        self._scheduler = Scheduler(self._new_dice())
        self._clock_ahead_ms = 0
        self.auditor = Auditor(self._store_ms, self._deploy)
        self._ledger = self._new_ledger(store, durability)
        self.world = World(
            self._new_dice(),
            faults=lambda: self._faults,
            hit=self._hit,
            began=self.auditor.attempt_began,
            crowded=lambda worker, most: self.auditor.violated("limits are kept", f"{worker} runs more than {most}"),
        )
        self._surroundings = Surroundings(
            self._scheduler,
            self._ledger,
            self.auditor,
            faults=lambda: self._faults,
            hit=self._hit,
            workflows=lambda: list(self._workflows.values()),
            activities=lambda worker, most: [self.world.watch(each, worker, most) for each in self._activities],
        )
        self._lives: list[Process] = []
        self._code = "code-1"
        self._calm = False
        places = len(namespaces)
        self._seats = [
            _Seat(
                f"worker-{n + 1}",
                namespaces[n % places],
                # The first one of a namespace serves them all, so that every queue is served.
                [each for each in task_queues if n < places or each == task_queues[0] or self._toss()],
                limits or self._draw_limits(),
            )
            for n in range(workers)
        ]
        self._seats += [
            _Seat(f"client-{n + 1}", namespaces[n % places], [], self._draw_limits()) for n in range(clients)
        ]

    @property
    def state(self) -> State:
        return self._ledger.state

    @property
    def digest(self) -> str:
        return self._scheduler.digest

    @property
    def now_s(self) -> float:
        return self._scheduler.now_s

    @property
    def steps(self) -> int:
        return self._scheduler.steps

    def start(
        self,
        workflow: Callable[..., Any] | type,
        *args: Any,
        id: str,  # noqa: A002 - the field's name for it
        then: Then | None = None,
        within_s: float = 5.0,
        **options: Any,
    ) -> Program:
        """Have a client program start a run at some moment of the first `within_s`, and wait for its end.

        then: what it does with the run meanwhile. options: as in `Client.start_workflow`.
        """
        seat = int(self._dice.random() * len(self._seats))
        program = Program(
            workflow, args, id, then, self._dice.random() * within_s, seat, self._seats[seat].namespace, options
        )
        self.programs.append(program)
        return program

    def run_until_idle(self) -> None:
        """Run everything to its end: with faults for a while, then without. Raises SimulationFailedError."""
        with _quiet():
            try:
                for seat in self._seats:
                    self._sit_down(seat)
                self._plan_faults()
                if self._deploy:
                    self._scheduler.at(self._dice.random() * DEPLOY_WITHIN_S, self._deploy_now)
                self._run(self._all_done, FAULTS_LAST_S)
                self._calm_down()
                if not self._run(self._all_closed, self.now_s + self._settle_s):
                    self.auditor.violated("everything finishes once faults stop", self._unfinished())
                    self._stop_if_violated()
                self._shut_down()
                self.auditor.violations += self._ledger.flaws()
                self._stop_if_violated()
            finally:
                for life in self._lives:
                    life.dispose()
                self._ledger.dispose()

    def check(self, *invariants: Invariant) -> None:
        """Hold the ledger, the outside and the clients' journals against each other, and replay every run.

        invariants: further ones; each takes the simulation and gives what is wrong, in words.
        """
        for invariant in (*ALL, *invariants):
            self.auditor.violations += invariant(self)
        self._stop_if_violated()

    # Running ----------------------------------------------------------------------------------------------------------

    def _run(self, until: Callable[[], bool], limit_s: float) -> bool:
        violations = self.auditor.violations
        came_true = False
        try:
            came_true = self._scheduler.run(lambda: bool(violations) or until(), limit_s)
        except LivelockError as error:
            self.auditor.violated("nobody is busy for ever", str(error))
        self._stop_if_violated()
        return came_true

    def _stop_if_violated(self) -> None:
        if self.auditor.violations:
            raise SimulationFailedError(self.seed, self.auditor.violations, list(self._scheduler.notes))

    def _all_done(self) -> bool:
        return all(program.done or self._is_hopeless(program) for program in self.programs)

    def _is_hopeless(self, program: Program) -> bool:
        """Its run is parked for good, since its rows were changed behind the ledger's back."""
        auditor = self.auditor
        return any(auditor.records[run_key].run_id in program.journal.run_ids for run_key in auditor.parked)

    def _all_closed(self) -> bool:
        return self._all_done() and not self._ledger.has_open_runs

    def _unfinished(self) -> str:
        told = [f"program {each.workflow_id} is not done" for each in self.programs if not each.done]
        for run_key in sorted(self.state.open_runs):
            row = self.state.runs[run_key]
            record = self.auditor.records.get(run_key)
            waiting = self.state.inboxes[row.chain_key]
            told.append(f"{row}\n  {record}\n  tasks {self.state.tasks.get(run_key)}\n  inbox {waiting}")
        return "\n".join([*told, f"sessions {self.state.sessions}"])

    def _shut_down(self) -> None:
        """Everybody leaves, and must be able to."""
        self._calm = True
        for seat in self._seats:
            if seat.process is not None:
                seat.process.leave()
        if not self._run(lambda: all(each.process is None for each in self._seats), self.now_s + self._settle_s):
            for seat in self._seats:
                if seat.process is not None:
                    tasks = "; ".join(seat.process.loop.pending())
                    self.auditor.violated("processes can shut down", f"{seat.process.name} waits: {tasks}")
        self._stop_if_violated()

    # Processes --------------------------------------------------------------------------------------------------------

    def _sit_down(self, seat: _Seat) -> None:
        seat.lives += 1
        number = self._seats.index(seat)
        drift = self._faults.clock_drift
        if drift:
            self._hit("clock_drift")
        clock = NodeClock(self._dice.random() * 1e6, 1.0 + (2 * self._dice.random() - 1) * drift)
        clock.jump(self._scheduler.now_s, 0.0)
        seat.process = Process(
            self._surroundings,
            f"{seat.name}.{seat.lives}",
            dice=self._new_dice(),
            clock=clock,
            code=self._code,
            namespace=seat.namespace,
            task_queues=seat.task_queues,
            limits=seat.limits,
            programs=[each for each in self.programs if each.seat == number and not each.done],
            on_end=lambda: self._stand_up(seat),
        )
        self._lives.append(seat.process)

    def _stand_up(self, seat: _Seat) -> None:
        """The process has ended; after a while another one takes its place."""
        seat.process = None
        self._scheduler.bury()
        if not self._calm or not self._all_closed():
            self._scheduler.at(self.now_s + self._dice.random() * 8.0, lambda: self._take_seat(seat))

    def _take_seat(self, seat: _Seat) -> None:
        if seat.process is None and not (self._calm and self._all_closed()):
            self._sit_down(seat)

    def _draw_limits(self) -> Limits:
        return Limits(
            concurrent_activities_max=self._dice.choice([1, 3, 1000]),
            cached_runs_max=self._dice.choice([1, 3, 1000]),
            lease_ms=self._dice.choice([2_000, 5_000]),
            verified_share=self._dice.choice([0.0, 0.5]),
        )

    def _toss(self) -> bool:
        return self._dice.random() < 0.5  # noqa: PLR2004 - heads or tails

    def _new_ledger(self, store: str, durability: str) -> Ledger:
        if store == "memory":
            return MemoryLedger(self._store_ms)
        # Imported here: whoever simulates in memory does not pay for SQLite.
        from pledger.testing.sqlite_ledger import SqliteLedger  # noqa: PLC0415

        return SqliteLedger(
            self.auditor,
            clock=self._store_ms,
            dice=self._new_dice(),
            durability=durability,
            cut_power=self._cut_power,
        )

    def _new_dice(self) -> random.Random:
        """One for each who draws, so that a draw more in one place does not shift the others."""
        return random.Random(self._dice.getrandbits(64))  # noqa: S311 - seeded, as everything here

    # Faults -----------------------------------------------------------------------------------------------------------

    def _hit(self, kind: str) -> None:
        self.hits[kind] += 1

    def _store_ms(self) -> int:
        return EPOCH_MS + self._clock_ahead_ms + int(self._scheduler.now_s * 1000)

    def _plan_faults(self) -> None:
        plans: list[tuple[float, Callable[[], None]]] = [
            (self._faults.kill, self._kill_one),
            (self._faults.restart, self._restart_one),
            (self._faults.pause, self._pause_one),
            (self._faults.cut_off, self._cut_one_off),
            (self._faults.clock_jump, self._jump_clock),
            (self._faults.power_loss, lambda: self._cut_power("power_loss")),
            (self._faults.disk_full, self._fill_disk),
            (self._faults.bit_flip, self._flip_bit),
        ]
        for rate, act in plans:
            if rate > 0:
                self._plan(rate, act)

    def _plan(self, rate: float, act: Callable[[], None]) -> None:
        def happen() -> None:
            if not self._calm:
                act()
                self._plan(rate, act)

        self._scheduler.at(self.now_s + self._dice.expovariate(rate), happen)

    def _calm_down(self) -> None:
        """No more faults. Who is paused goes on, and fresh code comes, which takes up parked runs."""
        self._faults = Faults()
        self._calm = True
        self._ledger.is_full = False
        for seat in self._seats:
            if seat.process is not None:
                seat.process.loop.paused = seat.process.cut_off = False
        if self._deploy or any(run.blocked is not None for run in self.state.runs.values()):
            self._deploy_now()
            for seat in self._seats:
                if seat.process is not None:
                    seat.process.leave()

    def _deploy_now(self) -> None:
        """From now on processes start with the new code."""
        self._code, self._workflows = "code-2", self.workflows

    def _anybody(self) -> Process | None:
        present = [each.process for each in self._seats if each.process is not None]
        return present[int(self._dice.random() * len(present))] if present else None

    def _kill_one(self) -> None:
        process = self._anybody()
        if process is not None:
            process.kill("kill")

    def _restart_one(self) -> None:
        process = self._anybody()
        if process is not None:
            self._hit("restart")
            process.leave()

    def _cut_power(self, kind: str) -> None:
        self._hit(kind)
        self._ledger.lose_power()
        for seat in self._seats:
            if seat.process is not None:
                seat.process.end(kind)

    def _fill_disk(self) -> None:
        self._scheduler.note("the disk is full")
        self._ledger.is_full = True
        self._scheduler.at(self.now_s + self._dice.random() * _PAUSE_MAX_S, self._free_disk)

    def _flip_bit(self) -> None:
        run_key = self._ledger.flip_bit()
        if run_key is not None:
            self._hit("bit_flip")
            self._scheduler.note(f"a bit of the history of run {run_key} flips")

    def _free_disk(self) -> None:
        self._scheduler.note("the disk has room again")
        self._ledger.is_full = False

    def _pause_one(self) -> None:
        process = self._anybody()
        if process is None or process.loop.paused:
            return
        self._hit("pause")
        process.note("paused")
        process.loop.paused = True
        # Leases are 2 s or 5 s: most pauses outlast them, some do not.
        self._scheduler.at(self.now_s + self._dice.random() * _PAUSE_MAX_S, lambda: self._resume(process))

    def _cut_one_off(self) -> None:
        process = self._anybody()
        if process is None or process.cut_off:
            return
        self._hit("cut_off")
        process.note("cut off")
        process.cut_off = True
        self._scheduler.at(self.now_s + self._dice.random() * _PAUSE_MAX_S, lambda: setattr(process, "cut_off", False))

    def _resume(self, process: Process) -> None:
        if process.loop.paused:
            process.note("goes on")
            process.loop.paused = False

    def _jump_clock(self) -> None:
        self._hit("clock_jump")
        by_s = (1 - 2 * self._dice.random()) ** 3
        by_s *= _JUMP_FORWARD_S if by_s > 0 else _JUMP_BACK_S
        by_ms = int(by_s * 1000)
        if by_ms < 0:
            self.auditor.clock_goes_back(-by_ms)
            self._scheduler.at(self.now_s + _PAUSE_MAX_S + 5.0, lambda: self.auditor.clock_is_known(-by_ms))
        self._clock_ahead_ms += by_ms
        self._scheduler.note(f"the store's clock jumps by {by_s:.3f} s")


@contextmanager
def _quiet() -> Iterator[None]:
    """The engine logs what goes wrong; here that is the point, and the report says it better."""
    logger = logging.getLogger("pledger")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)
