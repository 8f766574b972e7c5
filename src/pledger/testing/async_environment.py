"""The engine of one test, on a loop: see `environment`."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import inspect
import itertools
import os
import random
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from pledger import activity, errors
from pledger.client import Client
from pledger.engine import blocks
from pledger.engine.code_identity import user_modules
from pledger.engine.connection import Connection
from pledger.engine.engine import Engine
from pledger.engine.limits import Limits
from pledger.engine.port import lanes
from pledger.engine.session import LoopHeart
from pledger.engine.verification import replay_run
from pledger.history import transition
from pledger.history.state import RunState, fold
from pledger.history.times import milliseconds
from pledger.machine import guards
from pledger.machine.definitions import ActivityDefinition
from pledger.testing.alone import JumpHeart, Unwatched
from pledger.testing.virtual_time import JumpingLoop

if TYPE_CHECKING:
    from pledger.engine.port.records import RunRow
    from pledger.testing.environment import Setup

#: Who stops at a breakpoint for longer loses the lease, on a loop whose time is real.
LEASE: Final = timedelta(hours=1)


class EnvironmentFailedError(AssertionError):
    """What is wrong with the runs that a test left. problems: one text each."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = list(problems)
        super().__init__("\n\n".join(problems))


class AsyncEnvironment:
    """The engine of one test, on the loop that is running. client: as of `pledger.connect`.

    told: run ids whose block the test has heard of.
    """

    client: Client

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._activities = {each.name: each for each in setup.activities}
        self.task_queue = setup.task_queue
        self.told: set[str] = set()
        self._stack = contextlib.ExitStack()

    async def open(self) -> None:
        """Begin to work."""
        setup, loop = self._setup, asyncio.get_running_loop()
        self._loop = loop
        self._began_ms = int((setup.now or datetime.now(UTC)).timestamp() * 1000)
        self._began_s = loop.time()
        guards.install(user_modules([each.target for each in setup.workflows]))
        self._ledger = setup.new_ledger(self._now_ms)
        recording = None if setup.metrics is None else setup.metrics.recording("default")
        self._connection = Connection(self._ledger.store, monotonic=loop.time, meter=recording)
        if setup.metrics is not None and recording is not None:
            self._stack.enter_context(setup.metrics.watching(self._connection, recording))
        self._connection.heart_arguments = (loop,)
        self._engine = Engine(
            self._connection,
            workflows=setup.workflows,
            activities=self._activities.values(),
            task_queue=setup.task_queue,
            code="under test",
            identity="environment",
            # Nothing is sampled while it works: at the end every run is replayed, open ones too.
            # Nothing is forgotten in the midst of a test, and no chore keeps its clock from jumping.
            limits=Limits(lease_ms=milliseconds(LEASE), verified_share=0.0, retention_ms=None),
            heart=JumpHeart(loop) if isinstance(loop, JumpingLoop) else LoopHeart(loop),
            watchdog=Unwatched(),
            randomness=random.Random(os.urandom(16)),  # noqa: S311 - jitter
        )
        self._activities = self._engine.activities.definitions
        await self._engine.start()
        counting = None if setup.metrics is None or recording is None else setup.metrics.requests(recording)
        self.client = Client(self._connection, counting=counting)
        if isinstance(loop, JumpingLoop):
            loop.due_s = self._due_s

    async def close(self, *, check: bool = True) -> None:
        """Stop working. check: raise EnvironmentFailedError for a run that does not replay, or is blocked."""
        try:
            problems = [*self._blocked(), *await self._not_replaying()] if check else []
        finally:
            self._engine.activities.interrupt()
            await self._engine.stop(grace_s=1.0)
            self._stack.close()
            await self._connection.close()
        if problems:
            raise EnvironmentFailedError(problems)

    def now(self) -> datetime:
        """The ledger's time, with zone (UTC)."""
        return datetime.fromtimestamp(self._now_ms() / 1000, UTC)

    def fake(self, activity: Callable[..., Any] | str, fn: Callable[..., Any]) -> None:
        """From now on, run `fn` in place of the activity: plain or async, called on the loop with the same arguments.

        activity: its definition, whose types and options stay in force, or its name.
        """
        definition = _named(fn, activity) if isinstance(activity, str) else as_activity(activity)
        self._activities[definition.name] = _on_the_loop(definition, fn)

    def waits(self) -> list[str]:
        """What every open run waits for, in words."""
        state = self._ledger.state
        rows = [state.runs[run_key] for run_key in sorted(state.open_runs)]
        return [f"{row.workflow_id} ({row.workflow_type}) waits for {self._wait_of(row)}" for row in rows]

    # Time -------------------------------------------------------------------------------------------------------------

    def _now_ms(self) -> int:
        if isinstance(self._loop, JumpingLoop):
            return self._began_ms + self._loop.now_us // 1000
        return self._began_ms + int((self._loop.time() - self._began_s) * 1000)

    def _due_s(self) -> float | None:
        """When something is due in the ledger or in the runs that are in memory, as the loop's time."""
        due_ms = min(self._dues(), default=None)
        return None if due_ms is None else (due_ms - self._began_ms) / 1000

    def _dues(self) -> Iterator[int]:
        engine, state = self._engine, self._ledger.state
        for run in engine.runs.active.values():
            if (due_ms := run.due_ms()) is not None:
                yield due_ms
        for run_key in state.open_runs:
            row = state.runs[run_key]
            is_free = row.owner is None and row.blocked is None and row.workflow_type in engine.workflows
            if is_free and row.due_ms is not None:
                yield row.due_ms
        for task in itertools.chain.from_iterable(each.values() for each in state.tasks.values()):
            if task.state != "queued":
                continue
            if task.expires_ms is not None:
                yield task.expires_ms
            if task.task_queue == engine.task_queue and engine.activities.admission.slots.has_room(task.activity_type):
                is_bounded = bool(lanes.uses_of(task.activity_type, task.lane, engine.activities.admission.bounds))
                # What its limit holds up is due when the limit says so, which a claim has been told.
                due_ms = engine.due_ms if is_bounded and task.due_ms <= self._now_ms() else task.due_ms
                if due_ms is not None:
                    yield due_ms

    # Judgement --------------------------------------------------------------------------------------------------------

    def _blocked(self) -> Iterator[str]:
        if self._setup.allow_blocked:
            return
        for row in self._ledger.state.runs.values():
            if row.blocked is not None and row.run_id not in self.told:
                yield str(blocks.to_error(row.blocked, row.workflow_id, row.workflow_type, row.run_id))

    async def _not_replaying(self) -> list[str]:
        problems = []
        for row in list(self._ledger.state.runs.values()):
            if row.blocked is not None or row.workflow_type not in self._engine.workflows:
                continue
            try:
                definition = self._engine.workflows[row.workflow_type]
                await replay_run(self._ledger.store, row, definition, self._loop, code=self._engine.code)
            except Exception as error:  # noqa: BLE001 - a bug of the workflow may be anything
                told = str(error) if isinstance(error, errors.PledgerError) else repr(error)
                problems.append(f"workflow {row.workflow_id!r} (run {row.run_id}) does not replay: {told}")
        return problems

    def _wait_of(self, row: RunRow) -> str:
        if row.blocked is not None:
            return f"a fix: {blocks.read(row.blocked)['message']}"
        rows = self._ledger.state.histories.get(row.run_key, ())
        state = fold([transition.decode(each.body) for each in rows], RunState())
        names = [each.command.activity_type for each in state.activities.values()]
        waits = [
            f"the activity {name!r}" + ("" if name in self._activities else ", which is not in activities=[...]")
            for name in dict.fromkeys(names)
        ]
        return " and ".join(waits) or "a signal, or for what its own code does not do"


# Activities -----------------------------------------------------------------------------------------------------------


def as_activity(found: object) -> ActivityDefinition[Any, Any]:
    if not callable(found):
        raise errors.UsageError(
            f"{found!r} is not an activity: give a definition, or a function that stands in for one"
        )
    definition = found if isinstance(found, ActivityDefinition) else activity.defn(found)
    if definition.executor == "process":
        # Its own process would answer from outside of virtual time. The function is the same, and so are heartbeats.
        definition = copy.copy(definition)
        definition.executor = "thread"
    return definition


def _named(fn: Callable[..., Any], name: str) -> ActivityDefinition[Any, Any]:
    definition: ActivityDefinition[Any, Any] = activity.defn(name=name)(fn)
    return definition


def _on_the_loop(definition: ActivityDefinition[Any, Any], fn: Callable[..., Any]) -> ActivityDefinition[Any, Any]:
    async def faked(*args: Any, **kwargs: Any) -> Any:
        result = fn(*args, **kwargs)
        return await result if inspect.isawaitable(result) else result

    changed = copy.copy(definition)
    changed.fn, changed.executor = faked, "async"
    return changed
