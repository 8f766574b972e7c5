"""Where activity code runs: async functions on the worker's loop, plain ones in threads or in a process of their own.

Each way gives a future of the result and says how the code is told to stop: a task is cancelled; a thread sees a flag
and gets CancelledError out of its next heartbeat (a thread cannot be stopped from outside); a process gets a signal,
then is killed.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pledger.engine.attempt import Attempt, running


class Executors:
    """The ways to run an attempt. threads_max: plain activities that run at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, threads_max: int) -> None:
        self._loop = loop
        self._threads_max = threads_max
        self._pool: ThreadPoolExecutor | None = None

    def start(self, attempt: Attempt, args: list[Any], done: Callable[[Attempt, asyncio.Future[Any]], None]) -> None:
        """Run the attempt's code; `done` gets it with the finished future."""
        context = contextvars.copy_context()
        context.run(running.set, attempt)
        definition = attempt.definition
        positional, keywords = definition.signature.split(args)
        future: asyncio.Future[Any]
        match definition.executor:
            case "async":
                task = self._loop.create_task(definition.fn(*positional, **keywords), context=context)
                attempt.stop = functools.partial(_cancel, task)
                future = task
            case "thread":
                attempt.cancel_event = threading.Event()
                attempt.stop = attempt.cancel_event.set
                call = functools.partial(definition.fn, *positional, **keywords)
                future = self._loop.run_in_executor(self._threads(), context.run, call)
            case "process":
                # Imported at the first one: multiprocessing is a tenth of the library's whole start-up.
                from pledger.engine.processes import run_in_process  # noqa: PLC0415

                future, attempt.stop = run_in_process(self._loop, attempt)
        attempt.task = future
        future.add_done_callback(functools.partial(done, attempt))

    def _threads(self) -> ThreadPoolExecutor:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads_max, thread_name_prefix="pledger-activity")
        return self._pool

    def close(self) -> None:
        """Let idle threads end. One that still runs code of an abandoned attempt is not waited for."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)


def _cancel(task: asyncio.Task[Any]) -> None:
    task.cancel()
