"""What a run that leaves memory has open is closed, whatever its clean-up code tries."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pledger.machine.context import RunContext

#: How often clean-up code may wait again while it is closed.
_CLOSES_MAX: Final = 100


class _LeavingMemory(BaseException):
    """Thrown into the coroutines of a run that leaves memory. GeneratorExit, which close() throws, does not get through
    to an async generator that is being iterated before Python 3.13."""


def close_all(context: RunContext) -> None:
    """Close what the run has begun and not ended: tasks, then async generators."""
    _close_tasks(context)
    for generator in context.loop.generators():
        context.close_generator(generator)


def _close_tasks(context: RunContext) -> None:
    """Close the coroutines of all tasks. Clean-up code may wait again and start tasks: then it is closed again, from
    where it got to, up to a bound."""
    for _ in range(_CLOSES_MAX):
        open_tasks = [
            (task, coroutine)
            for task, coroutine in ((task, task.get_coro()) for task in context.loop.live_tasks())
            if getattr(coroutine, "cr_frame", None) is not None
        ]
        if not open_tasks:
            return
        for task, coroutine in open_tasks:
            # It runs as its own task: asyncio.timeout raises an error that could be caught where it finds none.
            asyncio.tasks._enter_task(context.loop, task)  # noqa: SLF001 - as asyncio's own tasks do
            try:
                with contextlib.suppress(BaseException):  # clean-up code of the user; there is nobody to tell
                    coroutine.throw(_LeavingMemory())
            finally:
                asyncio.tasks._leave_task(context.loop, task)  # noqa: SLF001
