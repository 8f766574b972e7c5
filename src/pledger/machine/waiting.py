"""Waiting that is the same on every version of Python, and keeps its order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterable
from datetime import timedelta
from typing import Literal, TypeVar

from pledger.errors import UsageError

T = TypeVar("T")


async def wait_for(awaitable: Awaitable[T], timeout: float | timedelta | None) -> T:
    """Await with a time limit (a timedelta, seconds, or None). Raises TimeoutError after cancelling the awaitable."""
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    try:
        async with asyncio.timeout(seconds):
            return await awaitable
    except BaseException:
        # Clean-up code of a run that leaves memory can set no limit: then what it would have awaited has not begun.
        if asyncio.iscoroutine(awaitable):
            awaitable.close()
        raise


async def wait(
    awaitables: Iterable[Awaitable[T]],
    *,
    timeout: float | timedelta | None = None,
    return_when: Literal["FIRST_COMPLETED", "FIRST_EXCEPTION", "ALL_COMPLETED"] = "ALL_COMPLETED",
) -> tuple[list[asyncio.Future[T]], list[asyncio.Future[T]]]:
    """As `asyncio.wait`, with lists in place of sets: done and pending, both in the order of the arguments."""
    futures = [asyncio.ensure_future(one) for one in awaitables]
    if not futures:
        raise UsageError("workflow.wait needs at least one awaitable")
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    done, _ = await asyncio.wait(futures, timeout=seconds, return_when=return_when)
    return [one for one in futures if one in done], [one for one in futures if one not in done]


async def as_completed(
    awaitables: Iterable[Awaitable[T]], *, timeout: float | timedelta | None = None
) -> AsyncIterator[asyncio.Future[T]]:
    """Yield the futures as they complete, in the recorded order; those that were done before, in that of the arguments.

    Started in the order of the arguments. timeout: for all of them; raises TimeoutError where the next one is waited
    for, never in the body of the caller's loop.
    """
    futures = [asyncio.ensure_future(one) for one in awaitables]
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    arrived: asyncio.Queue[asyncio.Future[T] | None] = asyncio.Queue()
    for one in futures:
        one.add_done_callback(arrived.put_nowait)
    over = None if seconds is None else asyncio.get_running_loop().call_later(seconds, arrived.put_nowait, None)
    try:
        for _ in futures:
            done = await arrived.get()
            if done is None:
                raise TimeoutError
            yield done
    finally:
        if over is not None:
            over.cancel()
