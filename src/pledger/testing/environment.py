"""`environment`: workflows under test, in this process, offline and in virtual time.

What runs is the production engine on a ledger in memory. Time passes only when everybody waits, and then it jumps to
whatever is due next: a workflow of a month takes as long as its steps. When the environment is closed, every run is
replayed against its code, and one that is blocked by a bug fails the test.
"""

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
from types import TracebackType
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
from pledger.history.retry import milliseconds
from pledger.history.state import RunState, fold
from pledger.machine import guards
from pledger.machine.definitions import ActivityDefinition, WorkflowDefinition
from pledger.sync import SyncClient, SyncHandle
from pledger.testing.alone import InMemory, JumpHeart, Ledger, Unwatched
from pledger.testing.virtual_time import JumpingLoop, NothingLeftError

if TYPE_CHECKING:
    from pledger.engine.port.records import RunRow

#: Who stops at a breakpoint for longer loses the lease, on a loop whose time is real.
LEASE: Final = timedelta(hours=1)


class EnvironmentFailedError(AssertionError):
    """What is wrong with the runs that a test left. problems: one text each."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = list(problems)
        super().__init__("\n\n".join(problems))


class TimeStandsStillError(errors.PledgerError):
    """The test waits for something that can never happen: every open run waits for a message or for an activity that
    is not there."""


class Setup:
    """What `environment` gives: open it with `with` or `async with`; arguments as there.

    new_ledger: makes the ledger from a clock in ms.
    """

    def __init__(
        self,
        workflows: Sequence[object],
        activities: Sequence[object],
        *,
        task_queue: str,
        now: datetime | None,
        allow_blocked: bool,
    ) -> None:
        if now is not None and now.tzinfo is None:
            raise errors.UsageError(f"environment(now={now!r}) needs a time zone: say datetime(..., tzinfo=UTC)")
        self.workflows = [WorkflowDefinition.of(each) for each in workflows]
        self.activities = [_as_activity(each) for each in activities]
        self.task_queue = task_queue
        self.now = now
        self.allow_blocked = allow_blocked
        self.new_ledger: Callable[[Callable[[], int]], Ledger] = InMemory
        self._opened: Environment | AsyncEnvironment | None = None

    def __enter__(self) -> Environment:
        self._opened = Environment(self)
        return self._opened

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert isinstance(self._opened, Environment)
        self._opened.close(check=error is None)

    async def __aenter__(self) -> AsyncEnvironment:
        self._opened = AsyncEnvironment(self)
        await self._opened.open()
        return self._opened

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert isinstance(self._opened, AsyncEnvironment)
        await self._opened.close(check=error is None)


def environment(
    *,
    workflows: Sequence[object],
    activities: Sequence[object] = (),
    task_queue: str = "default",
    now: datetime | None = None,
    allow_blocked: bool = False,
) -> Setup:
    """An engine for one test, with a ledger in memory that is gone when it closes.

    `with environment(...) as env` gives an `Environment`, whose calls block and whose time is virtual. `async with`
    gives an `AsyncEnvironment` on the loop that is running, whose time is the loop's: real on an ordinary one.

    activities: definitions, or plain functions that stand in for the activity of their name; of two with one name the
    later counts. now: when virtual time begins, with zone; the present by default. allow_blocked: a run that is blocked
    at the end does not fail the test. Nor does one whose RunBlockedError a call of `Environment` has raised.
    Closing raises EnvironmentFailedError: for a run that does not replay, or is blocked.
    """
    return Setup(workflows, activities, task_queue=task_queue, now=now, allow_blocked=allow_blocked)


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

    async def open(self) -> None:
        """Begin to work."""
        setup, loop = self._setup, asyncio.get_running_loop()
        self._loop = loop
        self._began_ms = int((setup.now or datetime.now(UTC)).timestamp() * 1000)
        self._began_s = loop.time()
        guards.install(user_modules([each.target for each in setup.workflows]))
        self._ledger = setup.new_ledger(self._now_ms)
        self._connection = Connection(self._ledger.store, monotonic=loop.time)
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
        self.client = Client(self._connection)
        if isinstance(loop, JumpingLoop):
            loop.due_s = self._due_s

    async def close(self, *, check: bool = True) -> None:
        """Stop working. check: raise EnvironmentFailedError for a run that does not replay, or is blocked."""
        try:
            problems = [*self._blocked(), *await self._not_replaying()] if check else []
        finally:
            self._engine.activities.interrupt()
            await self._engine.stop(grace_s=1.0)
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
        definition = _named(fn, activity) if isinstance(activity, str) else _as_activity(activity)
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
                await replay_run(self._ledger.store, row, self._engine.workflows[row.workflow_type], self._loop)
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


class Environment(SyncClient):
    """The same for tests without a loop of their own: calls block, and time is virtual. It passes in no other way than
    by waiting: for a result, or with `sleep`.
    """

    def __init__(self, setup: Setup) -> None:
        # Not that of SyncClient, which works in a thread: here the loop runs when something is asked of it.
        if _in_a_loop():
            raise _wrong_loop()
        self._loop: JumpingLoop = JumpingLoop()
        self._inner = AsyncEnvironment(setup)
        self._ordinals = itertools.count(1)
        try:
            self._wait(self._inner.open())
        except BaseException:
            self._loop.close()
            raise
        self._client = self._inner.client

    @property
    def client(self) -> Client:
        """The async client, for what `run_until_complete` runs."""
        return self._client

    def close(self, *, check: bool = True) -> None:
        """Stop working. check: raise EnvironmentFailedError for a run that does not replay, or is blocked."""
        if self._loop.is_closed():
            return
        try:
            self._wait(self._end(check=check))
        finally:
            self._loop.close()

    def start(
        self,
        workflow: Callable[..., Any] | type | str,
        *args: Any,
        id: str | None = None,  # noqa: A002 - the field's name for it
        **options: Any,
    ) -> SyncHandle:
        """Start a run. id: one is made up by default. options: as in `Client.start_workflow`."""
        options.setdefault("task_queue", self._inner.task_queue)
        return self.start_workflow(workflow, *args, id=id or f"run-{next(self._ordinals)}", **options)

    def run(self, workflow: Callable[..., Any] | type | str, *args: Any, **options: Any) -> Any:
        """Start a run and give its result, however long it takes by its own clock; options as in `start`."""
        return self.start(workflow, *args, **options).result()

    def run_until_complete(self, awaitable: Any) -> Any:
        """Run async code of the test on the environment's loop, in virtual time; what it gives."""
        return self._wait(awaitable)

    def sleep(self, duration: timedelta) -> None:
        """Let so much time pass, with all that happens in it."""
        self._wait(asyncio.sleep(duration.total_seconds()))

    def now(self) -> datetime:
        """The ledger's time, with zone (UTC)."""
        return self._inner.now()

    def fake(self, activity: Callable[..., Any] | str, fn: Callable[..., Any]) -> None:
        """See `AsyncEnvironment.fake`."""
        self._inner.fake(activity, fn)

    # Inside -----------------------------------------------------------------------------------------------------------

    def _wait(self, call: Any) -> Any:
        if _in_a_loop():
            if inspect.iscoroutine(call):
                call.close()
            raise _wrong_loop()

        async def awaited() -> Any:
            return await call

        task = self._loop.create_task(awaited())
        try:
            return self._loop.run_until_complete(task)
        except errors.RunBlockedError as error:
            self._inner.told.add(error.run_id)
            raise
        except NothingLeftError:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                self._loop.run_until_complete(task)
            waits = "\n".join(self._inner.waits()) or "no run is open"
            raise TimeStandsStillError(
                f"time stands still: the test waits, and nothing is left that could happen.\n{waits}\n"
                f"Send the message, or name the activity in activities=[...] or with env.fake(...)"
            ) from None

    async def _end(self, *, check: bool) -> None:
        try:
            await self._inner.close(check=check)
        finally:
            left = asyncio.all_tasks() - {asyncio.current_task()}
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
            await self._loop.shutdown_asyncgens()
            await self._loop.shutdown_default_executor()


def _in_a_loop() -> bool:
    return asyncio._get_running_loop() is not None  # noqa: SLF001 - documented for event loops


def _wrong_loop() -> errors.UsageError:
    return errors.UsageError(
        "this environment runs a loop of its own and cannot be used inside of another: in an async test say "
        "`async with pledger.testing.environment(...)`, or make the test a plain function"
    )


# Activities -----------------------------------------------------------------------------------------------------------


def _as_activity(found: object) -> ActivityDefinition[Any, Any]:
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
