"""`environment`: workflows under test, in this process, offline and in virtual time.

What runs is the production engine on a ledger in memory. Time passes only when everybody waits, and then it jumps to
whatever is due next: a workflow of a month takes as long as its steps. When the environment is closed, every run is
replayed against its code, and one that is blocked by a bug fails the test.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import itertools
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any

from pledger import errors
from pledger.client import Client
from pledger.machine.definitions import WorkflowDefinition
from pledger.sync import SyncClient, SyncHandle
from pledger.testing.alone import InMemory, Ledger
from pledger.testing.async_environment import AsyncEnvironment, as_activity
from pledger.testing.virtual_time import JumpingLoop, NothingLeftError

if TYPE_CHECKING:
    from pledger.metrics import Metrics


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
        metrics: Metrics | None = None,
    ) -> None:
        if now is not None and now.tzinfo is None:
            raise errors.UsageError(f"environment(now={now!r}) needs a time zone: say datetime(..., tzinfo=UTC)")
        self.workflows = [WorkflowDefinition.of(each) for each in workflows]
        self.activities = [as_activity(each) for each in activities]
        self.task_queue = task_queue
        self.now = now
        self.allow_blocked = allow_blocked
        self.metrics = metrics
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
    metrics: Metrics | None = None,
) -> Setup:
    """An engine for one test, with a ledger in memory that is gone when it closes.

    `with environment(...) as env` gives an `Environment`, whose calls block and whose time is virtual. `async with`
    gives an `AsyncEnvironment` on the loop that is running, whose time is the loop's: real on an ordinary one.

    activities: definitions, or plain functions that stand in for the activity of their name; of two with one name the
    later counts. now: when virtual time begins, with zone; the present by default. allow_blocked: a run that is blocked
    at the end does not fail the test. Nor does one whose RunBlockedError a call of `Environment` has raised.
    metrics: as of `connect`.
    Closing raises EnvironmentFailedError: for a run that does not replay, or is blocked.
    """
    return Setup(workflows, activities, task_queue=task_queue, now=now, allow_blocked=allow_blocked, metrics=metrics)


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
