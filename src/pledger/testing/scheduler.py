"""One thread, one virtual clock, many simulated processes: who runs next is drawn from the seed.

A *node* is one process: a loop of its own with its own clock. Its callbacks run in the order in which they became
ready, as on any asyncio loop; those of different nodes are interleaved by the dice. When nothing is ready anywhere,
time jumps to the next timer. Nothing here reads a real clock, a selector or a thread, so one seed is one execution, bit
for bit; `digest` says so.

A node can be killed (nothing of it ever runs again, no `finally` either), paused and resumed (its timers are then late,
as after SIGSTOP), and its clock may run fast, slow or jump.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import hashlib
import heapq
import itertools
import struct
from collections import deque
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    import random

T = TypeVar("T")

#: Notes kept for the report of a failing seed.
NOTES_MAX: Final = 4000
#: Callbacks in one instant of virtual time, after which nobody will ever wait any more.
STEPS_AT_ONCE_MAX: Final = 20_000
#: Tasks of a node that are done, and not yet let go of.
TASKS_MAX: Final = 32
#: Bytes of the trace that are hashed at a time.
_TRACE_CHUNK: Final = 1 << 16


class LivelockError(RuntimeError):
    """Some node is busy for ever without waiting for anything: on a real machine, a processor at 100%."""


class NodeClock:
    """What one node takes for time: seconds from any start.

    rate: seconds of it in one true second. Jumps and rates apply from the moment they are set. shown_s: what it showed
    at the true time since_s, from which it goes on.
    """

    __slots__ = ("rate", "shown_s", "since_s")

    def __init__(self, offset_s: float = 0.0, rate: float = 1.0) -> None:
        self.since_s = 0.0
        self.shown_s = offset_s
        self.rate = rate

    def read(self, true_s: float) -> float:
        return self.shown_s + (true_s - self.since_s) * self.rate

    def jump(self, true_s: float, by_s: float) -> None:
        self.shown_s, self.since_s = self.read(true_s) + by_s, true_s


class _Turn:
    """A callback whose turn comes: what asyncio calls a handle, with as much of it as a loop that nobody debugs needs.
    A simulation makes thousands of them in a virtual second."""

    __slots__ = ("args", "callback", "context", "is_cancelled")

    def __init__(
        self, callback: Callable[..., object], args: tuple[Any, ...], context: contextvars.Context | None
    ) -> None:
        self.callback = callback
        self.args = args
        self.context = contextvars.copy_context() if context is None else context
        self.is_cancelled = False

    def cancel(self) -> None:
        """A cancelled one is found out when it comes up. It lets go of what it holds at once."""
        self.is_cancelled = True
        self.callback, self.args = _nothing, ()

    def cancelled(self) -> bool:
        return self.is_cancelled


def _nothing() -> None: ...


#: Of what runs no code that could look at it.
_NO_CONTEXT: Final = contextvars.Context()


def _let_go(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class NodeLoop(asyncio.AbstractEventLoop):
    """The event loop of one node. What it lacks (sockets, signals, subprocesses) a simulated process does not have.

    ready: the callbacks whose turn has come, in their order; none of them runs while the node is paused. timers: those
    whose turn comes, each with when that is by the node's own clock; a heap.
    Work for an executor runs inline, at a moment of its own. unhandled: told of what nobody caught.
    """

    def __init__(
        self, scheduler: Scheduler, name: str, clock: NodeClock, unhandled: Callable[[BaseException], None]
    ) -> None:
        self.name = name
        self.number = scheduler.enter(self)
        self.clock = clock
        self.dead = False
        self._paused = False
        self._unhandled = unhandled
        self._scheduler = scheduler
        self._awake = scheduler.awake
        self.ready: deque[_Turn] = deque()
        self.timers: list[tuple[float, int, _Turn]] = []
        self._ordinals = itertools.count()
        self._tasks: list[asyncio.Task[Any]] = []
        self._tasks_max = TASKS_MAX

    # Fate -------------------------------------------------------------------------------------------------------------

    @property
    def paused(self) -> bool:
        return self._paused

    @paused.setter
    def paused(self, paused: bool) -> None:
        if paused != self._paused:
            self._paused = paused
            if self.ready:
                (self._awake.remove if paused else self._awake.append)(self)

    def kill(self) -> None:
        """Nothing of this node runs any more. Its tasks stay referenced: their clean-up must not run by collection."""
        if self in self._awake:
            self._awake.remove(self)
        self.dead = True
        self.ready.clear()
        self.timers.clear()

    def dispose(self) -> None:
        """The simulation is over: close what is left, quietly."""
        self.kill()
        # Left to a collector, they would be closed in the midst of whatever runs then.
        for task in self._tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined] # noqa: SLF001 - asyncio reads it so itself
            coroutine = task.get_coro()
            if not task.done() and coroutine is not None:
                _close(coroutine)
        self._tasks.clear()

    def pending(self) -> list[str]:
        """Where its tasks wait, for the report."""
        told = []
        for task in self._tasks:
            if not task.done():
                frames = task.get_stack()
                where = f"{frames[-1].f_code.co_qualname}, line {frames[-1].f_lineno}" if frames else "nowhere"
                told.append(f"{task.get_name()} in {where}")
        return told

    # For the scheduler ------------------------------------------------------------------------------------------------

    def ring(self) -> None:
        """The earliest timer is due: its callback is ready, and those of all that are due with it."""
        timers = self.timers
        due_s = max(timers[0][0], self.time())
        while timers and timers[0][0] <= due_s:
            turn = heapq.heappop(timers)[2]
            if turn.callback is _let_go:
                _let_go(*turn.args)  # which runs no code of anybody: it makes ready who waits
            elif not turn.is_cancelled:
                self._is_ready(turn)

    def _is_ready(self, turn: _Turn) -> None:
        if not self.ready and not self._paused:
            self._awake.append(self)
        self.ready.append(turn)

    def pause(self, seconds: float) -> asyncio.Future[None]:
        """Done after so long: a sleep of few parts, since a store that takes its time takes it in every verb."""
        future: asyncio.Future[None] = asyncio.Future(loop=self)
        turn = _Turn(_let_go, (future,), _NO_CONTEXT)
        if not self.dead:
            heapq.heappush(self.timers, (self.time() + seconds, next(self._ordinals), turn))
        return future

    # What asyncio asks of a loop --------------------------------------------------------------------------------------

    def time(self) -> float:
        clock = self.clock  # its `read`, written out: everybody asks for the time, all the time
        return clock.shown_s + (self._scheduler.now_s - clock.since_s) * clock.rate

    def call_soon(  # type: ignore[override] # the typeshed form spells the arguments with a TypeVarTuple
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        turn = _Turn(callback, args, context)
        if not self.dead:
            self._is_ready(turn)
        return turn  # type: ignore[return-value] # as much of a handle as anybody uses

    call_soon_threadsafe = call_soon  # type: ignore[assignment] # one thread is all there is

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        turn = _Turn(callback, args, context)
        if not self.dead:
            heapq.heappush(self.timers, (self.time() + delay, next(self._ordinals), turn))
        return turn  # type: ignore[return-value] # as above

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        turn = _Turn(callback, args, context)
        if not self.dead:
            heapq.heappush(self.timers, (when, next(self._ordinals), turn))
        return turn  # type: ignore[return-value] # as above

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None, context: contextvars.Context | None = None
    ) -> asyncio.Task[T]:
        return self.keep(asyncio.Task(coro, loop=self, name=name, context=context))

    def keep(self, task: asyncio.Task[T]) -> asyncio.Task[T]:
        """A task that it has not made itself: it closes that in the end, too."""
        self._tasks.append(task)
        if len(self._tasks) >= self._tasks_max:
            self._tasks = [each for each in self._tasks if not each.done()]
            self._tasks_max = TASKS_MAX + 2 * len(self._tasks)
        return task

    def run_in_executor(  # type: ignore[override]
        self,
        executor: Any,  # noqa: ARG002 - the loop's own signature
        func: Callable[..., T],
        *args: Any,
    ) -> asyncio.Future[T]:
        future: asyncio.Future[T] = self.create_future()

        def work() -> None:
            # Outside of the loop, as in a thread; the process may die between what it did and its saying so.
            asyncio._set_running_loop(None)  # noqa: SLF001 - documented for event loops
            try:
                result = func(*args)
            except Exception as error:  # noqa: BLE001 - handed to the waiter
                self.call_later(self._scheduler.draw_delay(), _settle, future, None, error)
            else:
                self.call_later(self._scheduler.draw_delay(), _settle, future, result, None)
            finally:
                asyncio._set_running_loop(self)  # noqa: SLF001 - as above

        self.call_later(self._scheduler.draw_delay(), work)
        return future

    def get_task_factory(self) -> None:
        return None

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self.dead

    def is_closed(self) -> bool:
        return self.dead

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, BaseException):
            self.failed(error)

    def failed(self, error: BaseException) -> None:
        """A callback has raised it."""
        if not self.dead:
            self._unhandled(error)


class Scheduler:
    """Runs the nodes. now_s: true time since the start. steps: callbacks that ran. notes: what happened last, in words.
    awake: the nodes that have something ready and are not paused; each sees to that itself.

    dice: decides who runs next, and nothing else draws from it.
    """

    def __init__(self, dice: random.Random) -> None:
        self.now_s = 0.0
        self.steps = 0
        self.nodes: list[NodeLoop] = []
        self.awake: list[NodeLoop] = []
        self._notes: deque[tuple[float, str]] = deque(maxlen=NOTES_MAX)
        self._draw = dice.random
        self._plans: list[tuple[float, int, Callable[[], None]]] = []
        self._ordinals = itertools.count()
        self._numbers = itertools.count()
        self._at_once = 0
        self._hash = hashlib.blake2b(digest_size=16)
        self._trace = bytearray()

    def enter(self, node: NodeLoop) -> int:
        """A new node; its number, never used before."""
        self.nodes.append(node)
        return next(self._numbers)

    def bury(self) -> None:
        """Look no more at nodes that are dead."""
        self.nodes = [node for node in self.nodes if not node.dead]

    @property
    def digest(self) -> str:
        """Of everything that ran, in its order, and all notes: equal for equal executions."""
        self._hash.update(self._trace)
        self._trace.clear()
        return self._hash.copy().hexdigest()

    @property
    def notes(self) -> list[str]:
        return [f"{now_s:12.6f}  {text}" for now_s, text in self._notes]

    def note(self, text: str) -> None:
        """Something worth reading in the report of a failure."""
        self._notes.append((self.now_s, text))
        self._trace += text.encode()

    def draw_delay(self) -> float:
        """A short wait, in seconds."""
        return self._draw() * 0.005

    def at(self, true_s: float, plan: Callable[[], None]) -> None:
        """Call outside of every node, at that time or as soon as it is past."""
        heapq.heappush(self._plans, (true_s, next(self._ordinals), plan))

    def run(self, until: Callable[[], bool], limit_s: float) -> bool:
        """Run until `until()` holds, which is asked whenever time is about to pass; False when `limit_s` (true time)
        comes first, or when nothing is left that could ever run."""
        while True:
            self._run_ready()
            if until():
                return True
            at_s, act = self._next()
            if act is None or at_s > limit_s:
                self.now_s = max(self.now_s, min(at_s, limit_s))
                return False
            if at_s > self.now_s:
                self.now_s = at_s
                self._at_once = 0
                self._trace += struct.pack("<d", at_s)
            act()

    def _run_ready(self) -> None:
        trace, draw, awake, running = self._trace, self._draw, self.awake, None
        try:
            while awake:
                node = awake[int(draw() * len(awake))] if len(awake) > 1 else awake[0]
                self.steps += 1
                self._at_once += 1
                if self._at_once > STEPS_AT_ONCE_MAX:
                    raise LivelockError(
                        f"{node.name} has been busy for {STEPS_AT_ONCE_MAX:,} steps and time stands still"
                    )
                trace.append(node.number & 0xFF)
                turn = node.ready.popleft()
                if not node.ready:
                    awake.remove(node)
                if turn.is_cancelled:
                    continue
                if node is not running:
                    asyncio._set_running_loop(node)  # noqa: SLF001 - documented for event loops
                    running = node
                # What asyncio's own handles do with themselves, without a call for it.
                try:
                    turn.context.run(turn.callback, *turn.args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:  # noqa: BLE001 - as any loop does
                    node.failed(error)
        finally:
            asyncio._set_running_loop(None)  # noqa: SLF001 - as above
        if len(trace) > _TRACE_CHUNK:
            self._hash.update(trace)
            trace.clear()

    def _next(self) -> tuple[float, Callable[[], None] | None]:
        """When something happens next, and what."""
        at_s, act = float("inf"), None
        if self._plans:
            at_s, act = self._plans[0][0], self._carry_out
        for node in self.nodes:
            timers = node.timers
            while timers and timers[0][2].is_cancelled:
                heapq.heappop(timers)
            if not timers or node.paused:
                continue
            clock = node.clock  # when it shows that
            timer_s = clock.since_s + (timers[0][0] - clock.shown_s) / clock.rate
            if timer_s < at_s:
                at_s, act = timer_s, node.ring
        return at_s, act

    def _carry_out(self) -> None:
        heapq.heappop(self._plans)[2]()


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


def _close(coroutine: Any) -> None:
    with contextlib.suppress(BaseException):  # clean-up code of a process that does not exist any more
        coroutine.close()
