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
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from pledger.engine.bounds import bounds_of
from pledger.engine.limits import Limits
from pledger.errors import UsageError
from pledger.history import chains
from pledger.history.times import milliseconds
from pledger.machine import guards
from pledger.machine.definitions import ActivityDefinition, WorkflowDefinition
from pledger.store.memory import State
from pledger.testing.audit import Auditor
from pledger.testing.conditions import Conditions
from pledger.testing.dice import fork
from pledger.testing.fault_plan import FaultPlan
from pledger.testing.faults import Faults
from pledger.testing.handles import Ledger, MemoryLedger
from pledger.testing.invariants import ALL, Invariant
from pledger.testing.journal import Beside, Program, Then
from pledger.testing.operator import Operator
from pledger.testing.process import Surroundings
from pledger.testing.scheduler import LivelockError, Scheduler
from pledger.testing.seats import Seats
from pledger.testing.world import World

if TYPE_CHECKING:
    from pledger.engine.secrets import SecretResolver
    from pledger.history.sealing import PayloadCodec

#: Faults happen for so long at most (virtual seconds).
FAULTS_LAST_S: Final = 60.0
#: So long after they stopped everything must have finished.
SETTLE: Final = timedelta(minutes=10)
#: Longer than a simulation lasts, so that nothing is forgotten where nobody asks for it.
RETENTION: Final = timedelta(days=30)
DEPLOY_WITHIN_S: Final = 20.0
#: So long after the last fault every session of the dead is buried, and its runs are claimed: leases and empty seats
#: are shorter.
BURIED_WITHIN_S: Final = 30.0


class SimulationFailedError(AssertionError):
    """A promise was broken. seed: gives the same execution again. violations: in words. notes: what happened last."""

    def __init__(self, seed: int, violations: Sequence[str], notes: Sequence[str]) -> None:
        self.seed = seed
        self.violations = list(violations)
        self.notes = list(notes)
        told = "\n".join(violations)
        super().__init__(f"seed {seed}: {told}\n\nThe last of what happened (virtual seconds):\n" + "\n".join(notes))


class Simulation:
    """seed: everything is drawn from it. workers, clients: how many processes of each kind; workers have client
    programs too. limits: of the workers; by default each draws its own, small ones among them.

    task_queues: the first one is served by all workers, each other one by some. namespaces: each process belongs to
    one, and what it starts does too; there must be a worker for each. settle: how long after the last fault everything
    must have finished; workflows that wait for longer need more (a virtual day takes some seconds).
    deploy: workflows in place of those of the same name, in processes that start after some moment: until all have, old
    and new code work side by side. Runs of these may block meanwhile, and must go on in the end.
    retention: how long finished runs are kept, where the workflow says nothing else.
    store: "memory", "sqlite" for the real store on a simulated disk, or "postgres" for a model of that store, with its
    connections, hints and fail-overs. durability: as in `connect`, of that one. secrets: as in `Worker`. codecs: as in
    `connect`; those that draw anything take it from dice of their own. What
    transactions of activities write is in `rows`.
    state: the ledger, as dictionaries. world: the outside. workflows: those of the end, by name. programs: the client
    programs with what they were told. hits: how often each fault happened. checked: how often each rule was held
    against what had happened. digest: equal for equal executions. now_s:
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
        retention: timedelta = RETENTION,
        store: str = "memory",
        durability: str = "power",
        secrets: Sequence[SecretResolver] = (),
        codecs: Sequence[PayloadCodec] = (),
    ) -> None:
        if workers < len(namespaces):
            raise UsageError("a simulation needs at least one worker for each namespace")
        if store not in {"memory", "sqlite", "postgres"}:
            raise UsageError(f"store={store!r} is not known: use 'memory', 'sqlite' or 'postgres'.")
        guards.install()
        self.seed = seed
        self.codecs = codecs
        self.programs: list[Program] = []
        self._waits_for: Program | None = None
        self._workflows = {each.name: each for each in map(WorkflowDefinition.of, workflows)}
        self._deploy = {each.name: each for each in map(WorkflowDefinition.of, deploy)}
        self.workflows = self._workflows | self._deploy
        self.activities = {each.name: each for each in activities}
        self._dice = random.Random(f"simulation {seed}")  # noqa: S311 - a test, no secret
        self._settle_s = settle.total_seconds()
        self._scheduler = Scheduler(fork(self._dice))
        self._conditions = Conditions(self._scheduler, faults or Faults())
        rules = bounds_of(activities).rules
        self.auditor = Auditor(
            self._conditions.store_ms,
            self._deploy,
            milliseconds(retention),
            rules,
            budgets={each.name: each.retry_budget for each in activities if each.retry_budget is not None},
            now_s=lambda: self._scheduler.now_s,
        )
        self._ledger = self._new_ledger(store, durability)
        self.world = World(
            fork(self._dice),
            faults=lambda: self._conditions.faults,
            hit=self._conditions.hit,
            began=self.auditor.attempt_began,
            is_stale=self.auditor.setbacks.is_stale,
            crowded=lambda worker, most: self.auditor.violated("limits are kept", f"{worker} runs more than {most}"),
        )
        surroundings = Surroundings(
            self._scheduler,
            self._ledger,
            self.auditor,
            faults=lambda: self._conditions.faults,
            hit=self._conditions.hit,
            workflows=lambda: list(self._workflows.values()),
            activities=lambda worker, most: [self.world.watch(each, worker, most) for each in activities],
            transactions={each.transaction: None for each in activities if each.transaction is not None},
            secrets=secrets,
            codecs=codecs,
        )
        self._seats = Seats(
            self._conditions, surroundings, self._dice, programs=self.programs, all_closed=self._all_closed
        )
        self._seats.set_out(workers, clients, limits, task_queues, namespaces, milliseconds(retention))
        shared = (self._conditions, self._scheduler, self._seats, self._ledger)
        # Its own dice: what it draws leaves simulations without it as they are.
        dice = random.Random(f"operator {self.seed}")  # noqa: S311 - a test, no secret
        self._operator = Operator(*shared, dice, types=sorted(self.workflows), task_queues=task_queues)
        self._plan = FaultPlan(*shared, self.auditor, self._operator, self._dice)
        self._plan.witnesses = (self.auditor.setbacks, self.auditor.circuits, self.world, self._seats)

    def _new_ledger(self, store: str, durability: str) -> Ledger:
        if store == "memory":
            return MemoryLedger(self._conditions.store_ms)
        # Imported here: whoever simulates in memory pays for no other store, and need not have installed it.
        if store == "postgres":
            from pledger.testing.server_ledger import ServerLedger  # noqa: PLC0415

            return ServerLedger(self._conditions.store_ms, self._scheduler, fork(self._dice))
        from pledger.testing.sqlite_ledger import SqliteLedger  # noqa: PLC0415

        return SqliteLedger(
            self.auditor,
            clock=self._conditions.store_ms,
            dice=fork(self._dice),
            durability=durability,
            cut_power=self._cut_power,
        )

    def _cut_power(self, kind: str) -> None:
        self._plan.cut_power(kind)

    @property
    def hits(self) -> Counter[str]:
        return self._conditions.hits

    @property
    def checked(self) -> Counter[str]:
        return self.auditor.checked

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

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        """What transactions of activities, and of clients, have written to a table of theirs, in order."""
        return self._ledger.rows(table)

    def start(
        self,
        workflow: Callable[..., Any] | type,
        *args: Any,
        id: str,  # noqa: A002 - the field's name for it
        then: Then | None = None,
        within_s: float = 5.0,
        beside: Beside | None = None,
        **options: Any,
    ) -> Program:
        """Have a client program start a run at some moment of the first `within_s`, and wait for its end.

        then: what it does with the run meanwhile. beside: what it writes in the transaction of its start, on a store
        that has tables of users (store="sqlite"). options: as in `Client.start_workflow`.
        """
        seat, namespace = self._seats.draw_place()
        program = Program(workflow, args, id, then, self._dice.random() * within_s, seat, namespace, options, beside)
        self.programs.append(program)
        return program

    def run_until_idle(self) -> None:
        """Run everything to its end: with faults for a while, then without. Raises SimulationFailedError."""
        with _quiet():
            try:
                self._seats.fill()
                self._plan.begin()
                if self._deploy:
                    self._scheduler.at(self._dice.random() * DEPLOY_WITHIN_S, self._deploy_now)
                self._run(self._all_done, FAULTS_LAST_S)
                self._calm_down()
                self.auditor.checks("everything finishes once faults stop")
                if not self._run(self._all_closed, self.now_s + self._settle_s):
                    self.auditor.violated("everything finishes once faults stop", self._unfinished())
                    self._stop_if_violated()
                self._shut_down()
                self.auditor.violations += self._ledger.flaws()
                self._stop_if_violated()
            finally:
                self._seats.dispose()
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
        self.auditor.checks("nobody is busy for ever")
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
        # Asked whenever time is about to pass, and mostly it is the same one that is not done yet.
        if self._waits_for is None or self._waits_for.done or self._is_hopeless(self._waits_for):
            waits = (program for program in self.programs if not program.done and not self._is_hopeless(program))
            self._waits_for = next(waits, None)
        return self._waits_for is None

    def _is_hopeless(self, program: Program) -> bool:
        """Its run is parked for good, since its rows were changed behind the ledger's back."""
        auditor = self.auditor
        if not auditor.parked:
            return False
        parked = (chains.place_of(auditor.records.by_run[run_key].run_id)[0] for run_key in auditor.parked)
        return any(chain_id in program.journal.run_ids for chain_id in parked)

    def _all_closed(self) -> bool:
        return self._all_done() and not self._ledger.has_open_runs and not self._operator.is_busy

    def _unfinished(self) -> str:
        told = [f"program {each.workflow_id} is not done" for each in self.programs if not each.done]
        for run_key in sorted(self.state.open_runs):
            row = self.state.runs[run_key]
            record = self.auditor.records.by_run.get(run_key)
            waiting = self.state.inboxes[row.chain_key]
            told.append(f"{row}\n  {record}\n  tasks {self.state.tasks.get(run_key)}\n  inbox {waiting}")
        return "\n".join([*told, f"sessions {self.state.sessions}"])

    def _shut_down(self) -> None:
        """Everybody leaves, and must be able to."""
        self._seats.leave()
        self.auditor.checks("processes can shut down")
        if not self._run(lambda: not self._seats.present(), self.now_s + self._settle_s):
            for hindered in self._seats.hindered():
                self.auditor.violated("processes can shut down", hindered)
        self._stop_if_violated()

    def _calm_down(self) -> None:
        """No more faults. Once the last of the dead are buried, fresh code comes, which takes up parked runs: a burial
        counts against the runs of the dead, and may be the one too many."""
        self._plan.end()
        self._run(self._all_closed, self.now_s + BURIED_WITHIN_S)
        if self._deploy or any(run.blocked is not None for run in self.state.runs.values()):
            self._deploy_now()
            self._seats.leave()

    def _deploy_now(self) -> None:
        """From now on processes start with the new code."""
        self._seats.code, self._workflows = "code-2", self.workflows


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
