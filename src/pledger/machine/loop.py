"""The event loop that workflow code runs on: deterministic, driven from plain callbacks, without I/O.

It is the standard library's `asyncio` on top (its tasks, futures, locks, timeouts and task groups), with three
differences below:

- It only ever runs inside `run_until_blocked`, called by a machine during an activation, and runs what is ready in the
  order in which it became ready.
- Time stands still during an activation; a timer is a command to the ledger.
- Tasks and futures hash by (seed of the run, ordinal), never by address: the standard library keeps them in sets (task
  group aborts, `wait`), and the order of a set must be the same on every replay.

Activations are made from plain callbacks of the outer loop, never from one of its tasks: Python 3.14 refuses to enter a
task while another is running in the same thread, whatever their loops.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
import zlib
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar

from pledger.errors import ForbiddenCallError
from pledger.history.times import DURATION_MS_MAX
from pledger.machine.generators import Generators
from pledger.machine.scoping import current_scope

if TYPE_CHECKING:
    from asyncio.events import _ProtocolFactory  # noqa: F401 - names the type in signatures inherited unchanged

T = TypeVar("T")

#: A spawn path longer than this is folded into one number: a chain of tasks that each start the next must stay linear.
PATH_MAX = 64

# Large, odd and fixed: spreads ordinals over the hash space so that sets of consecutive tasks do not iterate in step.
_HASH_STEP = 0x9E3779B97F4A7C15
_HASH_MASK = (1 << 61) - 1


class Timers(Protocol):
    """Who turns a timer of the loop into a command: the run's context."""

    def start_timer(self, timer: LoopTimer, delay_ms: int) -> None: ...
    def cancel_timer(self, timer: LoopTimer) -> None: ...


class Ready(asyncio.Handle):
    """A callback that is ready to run. Set by hand: `asyncio.Handle` asks the loop for its debug mode each time."""

    __slots__ = ()

    def cancel(self) -> None:
        self._cancelled = True

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...], context: contextvars.Context) -> None:
        self._callback = callback
        self._args = args
        self._context = context
        self._cancelled = False
        self._repr = None
        self._source_traceback = None
        self._loop = None


class LoopTimer(asyncio.TimerHandle):
    """A timer that workflow code waits for. event_id is set once the command has its place in the history."""

    __slots__ = ("due", "event_id", "fire_at_ms", "scheduled_command", "timers")

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context,
        timers: Timers,
    ) -> None:
        self._callback = callback
        self._args = args
        self._context = context
        self._cancelled = False
        self._repr = None
        self._source_traceback = None
        self._loop = None
        self._when = when
        self._scheduled = True
        self.timers = timers
        self.event_id = 0
        self.fire_at_ms = 0
        self.scheduled_command: object = None
        self.due: Ready | None = None

    def cancel(self) -> None:
        if self._scheduled and not self._cancelled:
            self._scheduled = False
            self.timers.cancel_timer(self)
        elif self.due is not None:
            self.due.cancel()
        self._cancelled = True

    def ready(self) -> Ready:
        """The callback, now that the timer fired."""
        self._scheduled = False
        self.due = Ready(self._callback, tuple(self._args), self._context)
        return self.due

    @property
    def is_cancelled(self) -> bool:
        return self._cancelled


class WorkflowFuture(asyncio.Future[T]):
    """A future whose hash is the same on every replay."""

    __slots__ = ("_hash",)

    def __init__(self, *, loop: WorkflowLoop) -> None:
        self._hash = loop.next_hash()
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._hash


class WorkflowTask(asyncio.Task[T]):
    """A task whose hash is the same on every replay, and that knows its spawn path.

    path: the ordinals of its ancestors and its own among its parent's children; the main task is (0,).
    """

    __slots__ = ("_hash", "children", "path")

    def __init__(
        self,
        coro: Coroutine[Any, Any, T],
        *,
        loop: WorkflowLoop,
        path: tuple[int, ...],
        name: str | None,
        context: contextvars.Context | None,
    ) -> None:
        # Before the task's own constructor: that one puts the task into a set of all tasks.
        self._hash = loop.next_hash()
        self.path = path
        self.children = 0
        super().__init__(
            coro,
            loop=loop,
            name=name or "task-" + ".".join(map(str, path)),
            context=contextvars.Context() if context is None else context,
        )
        # A run leaves memory with its tasks pending; that is no news for anybody's log.
        self._log_destroy_pending = False

    def __hash__(self) -> int:
        return self._hash


class WorkflowLoop(asyncio.AbstractEventLoop):
    """One run's loop. `now_ms` is the time of the activation; `owner` is the run's context, for the workflow API."""

    #: Tells guards and the workflow API that code running under this loop is workflow code.
    pledger_workflow_loop = True

    def __init__(self, timers: Timers, seed: bytes) -> None:
        self._ready: deque[asyncio.Handle] = deque()
        self._seed = int.from_bytes(seed[:8], "big")
        self._ordinal = 0
        self._root_children = 0
        self._tasks: list[WorkflowTask[Any]] = []
        self._tasks_limit = 32
        self._generators: Generators | None = None
        self.failures: tuple[BaseException, ...] = ()
        self.failed: tuple[asyncio.Task[Any], ...] = ()
        self.now_ms = 0
        self.owner: Any = timers

    # Running ----------------------------------------------------------------------------------------------------------

    def run_until_blocked(self) -> None:
        """Run what is ready, and what becomes ready by that, until nothing is."""
        ready = self._ready
        while ready:
            handle = ready.popleft()
            if not handle._cancelled:  # noqa: SLF001 - its own kind of handle
                try:
                    handle._context.run(handle._callback, *handle._args)  # type: ignore[attr-defined] # noqa: SLF001
                except Exception as error:  # noqa: BLE001 - user callbacks; kept for the machine to judge
                    self.note_failure(error)

    def note_failure(self, error: BaseException) -> None:
        """What the machine must judge after the activation, whatever the code does with it."""
        self.failures = (*self.failures, error)

    def next_hash(self) -> int:
        """The hash of the next task or future."""
        self._ordinal += 1
        return (self._seed + self._ordinal * _HASH_STEP) & _HASH_MASK

    def make_ready(self, handle: asyncio.Handle) -> None:
        self._ready.append(handle)

    def current_path(self) -> tuple[int, ...]:
        """The spawn path of the running task, () outside of one (a plain signal handler)."""
        task = asyncio.current_task(self)
        return task.path if type(task) is WorkflowTask else ()

    def live_tasks(self) -> list[WorkflowTask[Any]]:
        """Tasks that are not done, in the order of their creation."""
        return [task for task in self._tasks if not task.done()]

    def dismantle(self) -> None:
        """Let go of tasks and callbacks: nothing runs here any more."""
        self._tasks.clear()
        self._ready.clear()
        self.failures = ()
        self.failed = ()
        if self._generators is not None:
            self._generators.forget()
        self.owner = None

    def mark(self) -> tuple[int, int]:
        """Where the loop stands before code that may only read is run."""
        return self._ordinal, self._root_children

    def take_back(self, mark: tuple[int, int]) -> bool:
        """Make undone what such code has begun; whether it was more than a future that nobody waits for."""
        self._ordinal, self._root_children = mark
        began = bool(self._ready)
        self._ready.clear()
        return began

    # What asyncio asks of a loop --------------------------------------------------------------------------------------

    def call_soon(  # type: ignore[override] # the typeshed form spells the arguments with a TypeVarTuple
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        # An empty context is false, and is not the same as none.
        handle = Ready(callback, args, contextvars.copy_context() if context is None else context)
        self._ready.append(handle)
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        if not math.isfinite(delay):
            raise ValueError(f"a timer needs a finite delay, not {delay!r}; wait on an event instead")
        return self._start_timer(math.ceil(delay * 1000 - 1e-6), callback, args, context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        if not math.isfinite(when):
            raise ValueError(f"a timer needs a finite time, not {when!r}; wait on an event instead")
        # Seconds since 1970 as a float are exact to a quarter of a microsecond: what is smaller is no millisecond more.
        return self._start_timer(math.ceil(when * 1000 - self.now_ms - 1e-3), callback, args, context)

    def _start_timer(
        self,
        delay_ms: int,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context | None,
    ) -> LoopTimer:
        # Whoever waits for longer waits for ever, and there is no datetime for its end.
        delay_ms = min(delay_ms, DURATION_MS_MAX)
        when = (self.now_ms + delay_ms) / 1000
        timer = LoopTimer(when, callback, args, contextvars.copy_context() if context is None else context, self.owner)
        if delay_ms <= 0:
            self._ready.append(timer.ready())
        else:
            self.owner.start_timer(timer, delay_ms)
        return timer

    def time(self) -> float:
        return self.now_ms / 1000

    def create_future(self) -> WorkflowFuture[Any]:
        return WorkflowFuture(loop=self)

    def create_task(  # type: ignore[override]
        self,
        coro: Coroutine[Any, Any, T] | asyncio.Future[T],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
        looked_after: bool = False,
        **_: Any,  # eager_start and what later versions add: a matter of order, which carries no meaning here
    ) -> WorkflowTask[T]:
        # Calling an activity gives a future, and reads like calling any async function: as a task it is one too.
        coroutine = _outcome_of(coro) if isinstance(coro, asyncio.Future) else coro
        if self.owner.read_only is not None:
            coroutine.close()
            self.owner.check_may_ask()
        parent = asyncio.current_task(self)
        if isinstance(parent, WorkflowTask):
            path = (*parent.path, parent.children)
            parent.children += 1
            if context is None:
                context = contextvars.copy_context()
        else:
            path = (self._root_children,)
            self._root_children += 1
        if len(path) > PATH_MAX:
            path = (zlib.crc32(repr(path).encode()),)
        task = WorkflowTask(coroutine, loop=self, path=path, name=name, context=context)
        if not looked_after:
            task.add_done_callback(self._task_ended)
        if self.owner.scoped:
            scope = current_scope.get() if context is None else context.get(current_scope)
            if scope is not None:
                scope.note(task)
        tasks = self._tasks
        tasks.append(task)
        if len(tasks) > self._tasks_limit:
            self._tasks = [each for each in tasks if not each.done()]
            self._tasks_limit = 2 * len(self._tasks) + 32
        return task

    def _task_ended(self, task: asyncio.Task[Any]) -> None:
        if task._log_traceback:  # noqa: SLF001 - told of to asyncio's own log by this
            self.failed = (*self.failed, task)

    def take_unawaited(self) -> tuple[asyncio.Task[Any], ...]:
        """The tasks that have raised since this was asked, and whose exception nobody has taken."""
        failed, self.failed = self.failed, ()
        return tuple(task for task in failed if task._log_traceback)  # noqa: SLF001 - as above

    def get_task_factory(self) -> None:
        return None

    # Whatever PYTHONASYNCIODEBUG says: debug mode records stacks and changes timing, a run must not know. `bool()` is
    # False, and costs no frame of Python: every future and every task asks.
    get_debug = staticmethod(bool)

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """A callback or a forgotten task raised. The machine decides what becomes of it."""
        error = context.get("exception")
        if isinstance(error, Exception) and "future" not in context and "task" not in context:
            self.note_failure(error)

    # Async generators: kept, so that an eviction can close them in a dead context -------------------------------------

    def generator_begun(self, generator: AsyncGenerator[Any, Any]) -> None:
        if self._generators is None:
            self._generators = Generators(self.owner.generator_left)
        self._generators.add(generator)

    def generators(self) -> list[AsyncGenerator[Any, Any]]:
        return [] if self._generators is None else self._generators.alive()

    # What workflow code may not have ----------------------------------------------------------------------------------

    def refuse(self, call: str) -> NoReturn:
        """Raise for a call that workflow code may not make. It blocks the run also where the code swallows the error,
        except in a query, which cannot harm the run."""
        remedy = "do it in an activity"
        error = ForbiddenCallError(
            f"{call} was called in workflow code, which has no threads and no I/O: {remedy}", call=call, remedy=remedy
        )
        if self.owner.read_only is None:
            self.note_failure(error)
        raise error


async def _outcome_of(future: asyncio.Future[T]) -> T:
    return await future


def _refusing(name: str) -> Callable[..., NoReturn]:
    def method(self: WorkflowLoop, *_: object, **__: object) -> NoReturn:
        self.refuse(f"loop.{name}")

    return method


# Everything else that a loop can do is I/O, threads, or running the loop itself.
for _name, _member in vars(asyncio.AbstractEventLoop).items():
    if callable(_member) and not _name.startswith("_") and _name not in vars(WorkflowLoop):
        setattr(WorkflowLoop, _name, _refusing(_name))


def _hash_of_gathered(self: asyncio.Future[Any]) -> int:
    loop = self.get_loop()
    if type(loop) is not WorkflowLoop:
        return object.__hash__(self)
    found: int | None = getattr(self, "_pledger_hash", None)
    if found is None:
        found = self._pledger_hash = loop.next_hash()  # type: ignore[attr-defined] # made up here
    return found


# The one kind of future that asyncio makes by itself, where it does not ask the loop for it.
asyncio.tasks._GatheringFuture.__hash__ = _hash_of_gathered  # type: ignore[attr-defined] # noqa: SLF001
