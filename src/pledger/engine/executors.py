"""Where activity code runs: async functions on the worker's loop, plain ones in threads or in a process of their own.

Each way tells the end and says how the code is told to stop: a task is cancelled; a thread sees a flag
and gets CancelledError out of its next heartbeat (a thread cannot be stopped from outside); a process gets a signal,
then is killed.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future
from queue import SimpleQueue
from typing import Any, TypeAlias

from pledger.engine.attempt import Attempt, running
from pledger.engine.interrupts import is_interrupt
from pledger.errors import WorkerLostError

#: Told that an attempt's code ended: its result, or what it raised.
Done: TypeAlias = Callable[[Attempt, Any, BaseException | None], None]


class Executors:
    """The ways to run an attempt. threads_max: plain activities that run at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, threads_max: int) -> None:
        self._loop = loop
        self._threads_max = threads_max
        self._pool: DaemonThreads | None = None
        # What the worker's program had set when it started the worker. Not the context of whoever has us start an
        # attempt: that may be another activity's code.
        self._context = contextvars.copy_context()

    def start(
        self,
        attempt: Attempt,
        args: list[Any],
        done: Done,
        code: Callable[..., Any] | None = None,
        context: contextvars.Context | None = None,
    ) -> None:
        """Run the attempt's code; `done` gets it with its result, or with what it raised. code: in place of the
        activity's function. context: of its thread, in place of a copy of the worker's program's."""
        definition = attempt.definition
        fn = code or definition.fn
        signature = definition.signature
        positional, keywords = signature.split(args) if signature.keyword_only else (args, {})
        future: asyncio.Future[Any]
        match definition.executor:
            case "async":
                run = _run(attempt, fn, positional, keywords, done)
                attempt.task = self.new_task(run)
                return
            case "thread":
                attempt.cancel_event = threading.Event()
                attempt.stop = attempt.cancel_event.set
                context = self._context.copy() if context is None else context
                context.run(running.set, attempt)
                call = functools.partial(fn, *positional, **keywords)
                future = self._loop.run_in_executor(self._threads(), context.run, _call, call)
            case "process":
                # Imported at the first one: multiprocessing is a tenth of the library's whole start-up.
                from pledger.engine.processes import run_in_process  # noqa: PLC0415

                future, attempt.stop = run_in_process(self._loop, attempt)
        attempt.task = future
        future.add_done_callback(functools.partial(_tell, attempt, done))

    def new_task(self, run: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Made here and not by the loop, whose factory may be the program's own: one that begins tasks at once would
        run the activity in the middle of our books."""
        return asyncio.Task(run, loop=self._loop, context=self._context.copy())

    def _threads(self) -> DaemonThreads:
        if self._pool is None:
            self._pool = DaemonThreads(self._threads_max)
        return self._pool

    def close(self) -> None:
        """Let idle threads end. One that still runs code of an abandoned attempt is not waited for."""
        if self._pool is not None:
            self._pool.shutdown()


class DaemonThreads(Executor):
    """Threads that a process does not wait for when it ends, as it does for those of ThreadPoolExecutor: code that
    hangs must not keep a worker from going."""

    def __init__(self, threads_max: int) -> None:
        self._threads_max = threads_max
        self._count = 0
        self._idle = threading.Semaphore(0)
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call from one thread only."""
        future: Future[Any] = Future()
        self._calls.put(functools.partial(_carry_out, future, functools.partial(fn, *args, **kwargs)))
        if not self._idle.acquire(blocking=False) and self._count < self._threads_max:
            self._count += 1
            threading.Thread(target=self._serve, name=f"pledger-activity_{self._count}", daemon=True).start()
        return future

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = True) -> None:  # noqa: ARG002, FBT001, FBT002
        """Let idle threads end; what has not begun never will."""
        while not self._calls.empty():
            self._calls.get()
        for _ in range(self._count):
            self._calls.put(None)

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
            del call
            self._idle.release()


def _carry_out(future: Future[Any], call: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = call()
    except BaseException as error:  # noqa: BLE001 - it belongs to the future
        future.set_exception(error)
    else:
        future.set_result(result)


async def _run(
    attempt: Attempt, fn: Callable[..., Any], positional: list[Any], keywords: dict[str, Any], done: Done
) -> None:
    """The task of an async activity. It tells its end itself: a callback on the task would come a turn later."""
    running.set(attempt)  # in the task's own context
    try:
        if attempt.ending is not None:
            raise asyncio.CancelledError(attempt.ending.message)
        result = await fn(*positional, **keywords)
    except BaseException as error:
        if is_interrupt(error):
            # It says nothing of the step, which may have had its effect.
            done(attempt, None, WorkerLostError("the program was ended while the activity ran; its effect is unknown"))
            raise
        done(attempt, None, error)
    else:
        done(attempt, result, None)


def _call(call: Callable[[], Any]) -> Any:
    """What a thread does for an attempt."""
    try:
        return call()
    except StopIteration as error:
        # No future takes one (Python 3.11 loses it); a generator makes the same of it.
        raise RuntimeError("the activity raised StopIteration") from error


def _tell(attempt: Attempt, done: Done, future: asyncio.Future[Any]) -> None:
    if future.cancelled():
        done(attempt, None, asyncio.CancelledError())
    elif (error := future.exception()) is not None:
        done(attempt, None, error)
    else:
        done(attempt, future.result(), None)
