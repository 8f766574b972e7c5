"""The production engine under every order of some of its store calls: a rolling deploy of one run.

Two worker processes of different code work on one ledger in memory. Their calls that claim, write or end a session
stop at a gate. Whenever everybody waits, what may happen next is one of: a call goes through, the old worker is told
to leave, the new one starts, time passes. Each choice is taken in turn, by doing everything over again from the
start, until no order is left (as in stateless model checking). Each order ends in peace: the old worker is gone, and
the run has what it must.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from pledger.engine.limits import Limits
from pledger.engine.port.verbs import Store
from pledger.machine import guards
from pledger.machine.definitions import ActivityDefinition, WorkflowDefinition
from pledger.store.memory.tasks import queued_tasks
from pledger.testing.audit import Auditor
from pledger.testing.conditions import Conditions
from pledger.testing.faults import Faults
from pledger.testing.handles import MemoryLedger, SimulatedStore
from pledger.testing.journal import Program
from pledger.testing.process import Process, Surroundings
from pledger.testing.scheduler import LivelockError, NodeClock, Scheduler
from pledger.testing.world import World

#: The calls that wait for their turn.
GATED: Final = frozenset({"open_session", "close_session", "bury_sessions", "claim_runs", "claim_tasks", "commit"})
#: Nobody needs so many decisions but who goes round for ever.
DECISIONS_MAX: Final = 120
#: For how long time passes when that is chosen, and until the end, in virtual seconds: less than the lease.
PASSES_S: Final = 3.0
END_S: Final = 30.0


class WrongOrderError(AssertionError):
    """What went wrong, and in which order."""


@dataclass
class Choices:
    """Which way to take. given: at the first forks; after them the first one of each. taken: (choice, of how many)."""

    given: Sequence[int]
    taken: list[tuple[int, int]] = field(default_factory=list)
    told: list[str] = field(default_factory=list)

    def choose(self, options: Sequence[str]) -> int:
        at = len(self.taken)
        choice = self.given[at] if at < len(self.given) else 0
        self.taken.append((choice, len(options)))
        self.told.append(options[choice])
        return choice


def every_order(run: Callable[[Choices], None]) -> Iterator[Choices]:
    """Do it in every order there is; the choices of each."""
    given: list[int] = []
    while True:
        choices = Choices(given)
        run(choices)
        yield choices
        taken = choices.taken
        while taken and taken[-1][0] + 1 == taken[-1][1]:
            taken.pop()
        if not taken:
            return
        given = [choice for choice, _ in taken[:-1]] + [taken[-1][0] + 1]


@dataclass
class Gate:
    """Where calls wait. waiting: what each is, and what lets it through. shut: whether anything is stopped at all.

    has_tasks: whether there is a row to claim; a claim of tasks that finds none changes nothing, and is not stopped.
    """

    has_tasks: Callable[[], bool] = lambda: True
    shut: bool = False
    waiting: list[tuple[str, asyncio.Future[None]]] = field(default_factory=list)

    def stop(self, who: str, verb: str, detail: tuple[object, ...]) -> Awaitable[None] | None:
        if not self.shut or verb not in GATED or (verb == "claim_tasks" and not self.has_tasks()):
            return None
        if verb == "commit":
            verb = "+".join(type(operation).__name__ for operation in cast("Sequence[object]", detail[0]))
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append((f"{who}: {verb}", future))
        return future

    def let_through(self, number: int) -> None:
        self.waiting.pop(number)[1].set_result(None)

    def open(self) -> None:
        self.shut = False
        while self.waiting:
            self.let_through(0)


class _Stops:
    """The fault hooks of one handle."""

    def __init__(self, gate: Gate, who: str) -> None:
        self._gate = gate
        self._who = who

    def before(self, verb: str, detail: tuple[object, ...]) -> Awaitable[None] | None:
        return self._gate.stop(self._who, verb, detail)

    def after(self, _: str, __: tuple[object, ...]) -> None:
        return None


class GatedLedger(MemoryLedger):
    def __init__(self, clock: Callable[[], int], gate: Gate) -> None:
        super().__init__(clock)
        self._gate = gate

    def open(self, process: Process) -> Store:
        handle = super().open(process)
        assert isinstance(handle, SimulatedStore)
        handle._faults = _Stops(self._gate, process.name) if process.name != "client" else None
        return handle


class Deploy:
    """One deploy, from the start of the run to its end. versions: the workflow's code, the old and the new.

    What invariants of simulations ask for is here: state, auditor, world, programs, workflows, activities.
    """

    def __init__(
        self,
        old: Callable[..., Any],
        new: Callable[..., Any],
        activities: Sequence[ActivityDefinition[Any, Any]],
    ) -> None:
        guards.install()
        self.versions = {"old": WorkflowDefinition.of(old), "new": WorkflowDefinition.of(new)}
        self.workflows = {self.versions["new"].name: self.versions["new"]}
        self.activities = {each.name: each for each in activities}
        self.scheduler = Scheduler(random.Random(1))
        conditions = Conditions(self.scheduler, Faults())
        self.auditor = Auditor(
            conditions.store_ms,
            self.workflows,
            keep_ms=Limits().retention_ms or 0,
            now_s=lambda: self.scheduler.now_s,
        )
        self.gate = Gate()
        self._ledger = GatedLedger(conditions.store_ms, self.gate)
        self.gate.has_tasks = lambda: any(queued_tasks(self.state, "default"))
        self.world = World(
            random.Random(2),
            faults=Faults,
            hit=conditions.hit,
            began=self.auditor.attempt_began,
            crowded=lambda worker, _: self.auditor.violated("limits are kept", worker),
        )
        self.programs = [Program(old, (), "order-1", None, 0.0, 0, "default", {})]
        self.lives: dict[str, Process] = {}

    @property
    def state(self) -> Any:
        return self._ledger.state

    def _sit_down(self, name: str) -> None:
        surroundings = Surroundings(
            self.scheduler,
            self._ledger,
            self.auditor,
            faults=Faults,
            hit=lambda _: None,
            workflows=lambda: [self.versions[name]],
            activities=lambda worker, most: [self.world.watch(each, worker, most) for each in self.activities.values()],
        )
        is_worker = name in self.versions
        self.lives[name] = Process(
            surroundings,
            name,
            dice=random.Random(name),
            clock=NodeClock(),
            code=f"{name} code",
            namespace="default",
            task_queues=["default"] if is_worker else [],
            limits=Limits(verified_share=0.0, lease_ms=60_000),
            programs=[] if is_worker else self.programs,
            on_end=lambda: None,
        )

    # One order ------------------------------------------------------------------------------------------------------

    def run(self, choices: Choices, waits: int) -> None:
        """waits: how often time may pass while calls wait. Raises WrongOrderError."""
        try:
            self._sit_down("client")
            self._go_on(lambda: bool(self.state.runs), END_S)  # the run is started, and nobody's
            self.gate.shut = True
            self._sit_down("old")
            self._go_on(lambda: True, END_S)
            self.gate.let_through(0)  # its session
            self._decide(choices, waits)
            self.gate.open()
            old = self.lives["old"]
            if not self._go_on(lambda: not old.alive and self._is_settled(), self.scheduler.now_s + END_S):
                self.auditor.violated("all is settled in the end", f"{self.state.runs} {old.loop.pending()}")
            self._stop_if_violated(choices)
        except LivelockError as error:
            self.auditor.violated("nobody is busy for ever", str(error))
            self._stop_if_violated(choices)

    def dispose(self) -> None:
        for process in self.lives.values():
            process.dispose()

    def _decide(self, choices: Choices, waits: int) -> None:
        gate = self.gate
        acts: dict[str, Callable[[], None]] = {
            "the old one is to leave": self.lives["old"].leave,
            "the new one starts": lambda: self._sit_down("new"),
        }
        for _ in range(DECISIONS_MAX):
            self._go_on(lambda: True, self.scheduler.now_s)
            self._stop_if_violated(choices)
            calls = [what for what, _ in gate.waiting]
            options = [*calls, *acts, *(["time passes"] if waits and (calls or acts) else [])]
            if not options:
                return
            choice = choices.choose(options)
            if choice < len(calls):
                gate.let_through(choice)
            elif options[choice] in acts:
                acts.pop(options[choice])()
            else:
                waits -= 1
                self._pass_time(len(calls))
        self.auditor.violated("it comes to rest", f"not after {DECISIONS_MAX} decisions")
        self._stop_if_violated(choices)

    def _pass_time(self, calls: int) -> None:
        """Until one more call waits, but not for long."""
        self._go_on(lambda: len(self.gate.waiting) > calls, self.scheduler.now_s + PASSES_S)

    def _go_on(self, until: Callable[[], bool], limit_s: float) -> bool:
        return self.scheduler.run(lambda: bool(self.auditor.violations) or until(), limit_s)

    def _is_settled(self) -> bool:
        """Whether it has ended, or is blocked and the new code has tried it, whichever blocked it last."""
        return all(
            row.status != "running" or (row.blocked is not None and "new code" in self.state.tried_codes(row))
            for row in self.state.runs.values()
        )

    def _stop_if_violated(self, choices: Choices) -> None:
        if self.auditor.violations:
            order = "\n".join(f"  {number:3}. {each}" for number, each in enumerate(choices.told, 1))
            notes = "\n".join(self.scheduler.notes)
            raise WrongOrderError(f"{self.auditor.violations}\n{order}\n{notes}")
