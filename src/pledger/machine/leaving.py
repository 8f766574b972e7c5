"""What a run that leaves memory has open is closed, whatever its clean-up code tries."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from pledger.errors import StuckError

if TYPE_CHECKING:
    from pledger.machine.context import RunContext
    from pledger.machine.loop import WorkflowTask

#: How often clean-up code may wait again while it is closed.
_CLOSES_MAX: Final = 100


class _LeavingMemory(BaseException):
    """Thrown into the coroutines of a run that leaves memory. GeneratorExit, which close() throws, does not get through
    to an async generator that is being iterated before Python 3.13."""


def close_all(context: RunContext) -> int:
    """Close what the run has begun and not ended: tasks, then async generators. How many coroutines did not end."""
    try:
        _close_tasks(context)
    except StuckError:
        pass  # the watchdog's patience is all that the clean-up of a run gets
    else:
        for generator in context.loop.generators():
            context.close_generator(generator)
    left = _open_tasks(context)
    for _, coroutine in left:
        _keep_for_ever(coroutine)
    return len(left)


def _close_tasks(context: RunContext) -> None:
    """Close the coroutines of all tasks. Clean-up code may wait again and start tasks: then it is closed again, from
    where it got to, up to a bound. Raises StuckError."""
    for _ in range(_CLOSES_MAX):
        open_tasks = _open_tasks(context)
        if not open_tasks:
            return
        for task, coroutine in open_tasks:
            # It runs as its own task: asyncio.timeout raises an error that could be caught where it finds none.
            asyncio.tasks._enter_task(context.loop, task)  # noqa: SLF001 - as asyncio's own tasks do
            try:
                coroutine.throw(_LeavingMemory())
            except StuckError:
                raise
            except BaseException:  # noqa: BLE001, S110 - clean-up code of the user; there is nobody to tell
                pass
            finally:
                asyncio.tasks._leave_task(context.loop, task)  # noqa: SLF001


def _open_tasks(context: RunContext) -> list[tuple[WorkflowTask[Any], Any]]:
    return [
        (task, coroutine)
        for task, coroutine in ((task, task.get_coro()) for task in context.loop.live_tasks())
        if getattr(coroutine, "cr_frame", None) is not None
    ]


def _keep_for_ever(coroutine: object) -> None:
    """The interpreter closes a coroutine that nobody knows any more, at the latest when the process ends. This one
    would go on then as if it were live, outside of its run, and never come to its end."""
    import ctypes  # noqa: PLC0415 - hardly ever needed, and not cheap to load

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(coroutine))
