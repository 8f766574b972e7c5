"""From a task into a plain callback and back: workflow code never runs inside a task of the outer loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from pledger.engine.interrupts import is_interrupt
from pledger.errors import InternalError, StoreUnavailableError

T = TypeVar("T")


async def in_callback(loop: asyncio.AbstractEventLoop, call: Callable[[], T]) -> T:
    """Call from a callback of the loop; its result, or what it raised.

    SystemExit or a CancelledError out of workflow code is a bug of that code like any other: it comes as an
    InternalError, and neither stops the worker nor looks as if the caller had been cancelled.
    """
    future: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        if future.done():
            return
        try:
            future.set_result(call())
        except SystemExit as error:
            if is_interrupt(error):
                future.set_exception(_interrupted(error))
                raise
            future.set_exception(InternalError(f"workflow code raised SystemExit({error.code!r})"))
        except (StopIteration, asyncio.CancelledError) as error:  # the first one no future takes
            raised = InternalError(f"workflow code raised {type(error).__name__}")
            raised.__cause__ = error
            future.set_exception(raised)
        except BaseException as error:
            if is_interrupt(error):
                future.set_exception(_interrupted(error))
                raise
            future.set_exception(error)

    loop.call_soon(run)
    return await future


def _interrupted(error: BaseException) -> StoreUnavailableError:
    """As if the store had failed at this moment: whoever waits must not wait for ever, and nothing is wrong with the
    run."""
    return StoreUnavailableError(f"it was interrupted by {type(error).__name__}")
