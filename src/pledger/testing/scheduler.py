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
#: Bytes of the trace that are hashed at a time.
_TRACE_CHUNK: Final = 1 << 16


class LivelockError(RuntimeError):
    """Some node is busy for ever without waiting for anything: on a real machine, a processor at 100%."""


class NodeClock:
    """What one node takes for time: seconds from any start.

    rate: seconds of it in one true second. Jumps and rates apply from the moment they are set.
    """

    def __init__(self, offset_s: float = 0.0, rate: float = 1.0) -> None:
        self._since_s = 0.0
        self._shown_s = offset_s
        self._rate = rate

    def read(self, true_s: float) -> float:
        return self._shown_s + (true_s - self._since_s) * self._rate

    def true(self, shown_s: float) -> float:
        """When it shows, or showed, so much."""
        return self._since_s + (shown_s - self._shown_s) / self._rate

    def jump(self, true_s: float, by_s: float) -> None:
        self._shown_s, self._since_s = self.read(true_s) + by_s, true_s


class NodeLoop(asyncio.AbstractEventLoop):
    """The event loop of one node. What it lacks (sockets, signals, subprocesses) a simulated process does not have.

    ready: the callbacks whose turn has come, in their order; none of them runs while the node is paused.
    Work for an executor runs inline, at a moment of its own. unhandled: told of what nobody caught.
    """

    def __init__(
        self, scheduler: Scheduler, name: str, clock: NodeClock, unhandled: Callable[[BaseException], None]
    ) -> None:
        self.name = name
        self.number = scheduler.enter(self)
        self.clock = clock
        self.paused = False
        self.dead = False
        self._unhandled = unhandled
        self._scheduler = scheduler
        self.ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._ordinals = itertools.count()
        self._tasks: list[asyncio.Task[Any]] = []

    # Fate -------------------------------------------------------------------------------------------------------------

    def kill(self) -> None:
        """Nothing of this node runs any more. Its tasks stay referenced: their clean-up must not run by collection."""
        self.dead = True
        self.ready.clear()
        self._timers.clear()

    def dispose(self) -> None:
        """The simulation is over: close what is left, quietly."""
        self.kill()
        # Activities make their tasks themselves; all_tasks() has those, too. Left to a collector, they would be closed
        # in the midst of whatever runs then.
        for task in [*self._tasks, *asyncio.all_tasks(self)]:
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

    def next_timer(self) -> float | None:
        """The true time of the earliest timer, or None."""
        timers = self._timers
        if self.paused or not timers:
            return None
        while timers[0][2].cancelled():
            heapq.heappop(timers)
            if not timers:
                return None
        return self.clock.true(timers[0][0])

    def ring(self) -> None:
        """The earliest timer is due: its callback is ready, and those of all that are due with it."""
        timers = self._timers
        due_s = max(timers[0][0], self.time())
        while timers and timers[0][0] <= due_s:
            handle = heapq.heappop(timers)[2]
            if not handle.cancelled():
                self.ready.append(handle)

    def step(self) -> None:
        """Run the next ready callback."""
        handle = self.ready.popleft()
        if not handle.cancelled():
            asyncio._set_running_loop(self)  # noqa: SLF001 - documented for event loops
            try:
                handle._run()  # noqa: SLF001 - what every loop does with its handles
            finally:
                asyncio._set_running_loop(None)  # noqa: SLF001 - as above

    # What asyncio asks of a loop --------------------------------------------------------------------------------------

    def time(self) -> float:
        return self.clock.read(self._scheduler.now_s)

    def call_soon(  # type: ignore[override] # the typeshed form spells the arguments with a TypeVarTuple
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        if not self.dead:
            self.ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment] # one thread is all there is

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        if not self.dead:
            heapq.heappush(self._timers, (when, next(self._ordinals), handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Asyncio's own hook; a cancelled timer is found out when it comes up."""

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None, context: contextvars.Context | None = None
    ) -> asyncio.Task[T]:
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        self._tasks.append(task)
        if len(self._tasks) % 512 == 0:
            self._tasks = [each for each in self._tasks if not each.done()]
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
        if isinstance(error, BaseException) and not self.dead:
            self._unhandled(error)


class Scheduler:
    """Runs the nodes. now_s: true time since the start. steps: callbacks that ran. notes: what happened last, in words.

    dice: decides who runs next, and nothing else draws from it.
    """

    def __init__(self, dice: random.Random) -> None:
        self.now_s = 0.0
        self.steps = 0
        self.nodes: list[NodeLoop] = []
        self.notes: deque[str] = deque(maxlen=NOTES_MAX)
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

    def note(self, text: str) -> None:
        """Something worth reading in the report of a failure."""
        self.notes.append(f"{self.now_s:12.6f}  {text}")
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
        trace, draw = self._trace, self._draw
        # Every step comes by here: hence no call for what a look at two attributes tells.
        while ready := [node for node in self.nodes if node.ready and not node.paused]:
            node = ready[int(draw() * len(ready))] if len(ready) > 1 else ready[0]
            self.steps += 1
            self._at_once += 1
            if self._at_once > STEPS_AT_ONCE_MAX:
                raise LivelockError(f"{node.name} has been busy for {STEPS_AT_ONCE_MAX:,} steps and time stands still")
            trace.append(node.number & 0xFF)
            node.step()
        if len(trace) > _TRACE_CHUNK:
            self._hash.update(trace)
            trace.clear()

    def _next(self) -> tuple[float, Callable[[], None] | None]:
        """When something happens next, and what."""
        at_s, act = float("inf"), None
        if self._plans:
            at_s, act = self._plans[0][0], self._carry_out
        for node in self.nodes:
            timer_s = node.next_timer()
            if timer_s is not None and timer_s < at_s:
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
