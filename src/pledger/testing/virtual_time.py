"""A real event loop whose clock stands still while there is work, and jumps when everybody waits.

Threads, sockets and signals work as on any selector loop; only time is not the machine's. A thread of an executor holds
the clock while it runs, so that a plain activity takes no virtual time however long the machine needs for it.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import itertools
import selectors
import sys
from collections.abc import Callable
from typing import Any, Final, TypeVar

T = TypeVar("T")

#: For how long, in seconds, a silent thread holds the clock: then as much virtual time passes, again and again. So code
#: that runs until a time-out stops it comes to its end.
HELD_S: Final = 1.0

#: The engine looks around every second, and every minute at its alarms and for runs without a waker, in case that it
#: missed something. Timers that these modules set are *looks*: time never stops for one, or a month would be two
#: million of them.
LOOKERS: Final = frozenset(
    {"pledger.engine.alarms", "pledger.engine.auditor", "pledger.engine.intake", "pledger.testing.alone"}
)
#: Looks that are waited for when there is nothing else; one that finds nothing will not find it the next time either.
LAST_LOOKS: Final = 8


class NothingLeftError(RuntimeError):
    """Everybody waits, and nobody for a time: nothing will ever happen any more."""


class JumpingLoop(asyncio.SelectorEventLoop):
    """now_us: virtual time in microseconds, from 0. due_s: asked when it is about to jump: the loop's time at which
    somebody who set no timer wants to be looked at, or None. on_jump: called after each jump, before what is due then.
    """

    def __init__(self) -> None:
        self.now_us = 0
        self.due_s: Callable[[], float | None] = lambda: None
        self.on_jump: Callable[[], None] = lambda: None
        self._appointments = _Timers()
        self._looks = _Timers()
        self._looks_in_vain = 0
        self._threads = 0
        super().__init__(_Selector(self))

    # What asyncio asks of a loop --------------------------------------------------------------------------------------

    def time(self) -> float:
        return self.now_us / 1e6

    def call_later(  # type: ignore[override] # the typeshed form spells the arguments with a TypeVarTuple
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        caller = sys._getframe(1).f_globals.get("__name__")  # noqa: SLF001 - as logging and warnings do
        handle = super().call_at(self.time() + delay, callback, *args, context=context)
        (self._looks if caller in LOOKERS else self._appointments).add(handle)
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        handle = super().call_at(when, callback, *args, context=context)
        self._appointments.add(handle)
        return handle

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        future = super().run_in_executor(executor, func, *args)
        self.hold(future)
        return future

    def hold(self, future: asyncio.Future[Any]) -> None:
        """Let the clock stand still until the future is done: something outside of virtual time is at work on it."""
        self._threads += 1
        future.add_done_callback(self._thread_done)

    async def shutdown_default_executor(self, *args: Any, **keywords: Any) -> None:
        """Asyncio waits for the threads in one of its own, which holds the clock as they did."""
        self._threads += 1
        try:
            await super().shutdown_default_executor(*args, **keywords)
        finally:
            self._threads -= 1

    def _thread_done(self, _: asyncio.Future[Any]) -> None:
        self._threads -= 1

    # Time -------------------------------------------------------------------------------------------------------------

    @property
    def held(self) -> bool:
        """Whether a thread is at work."""
        return self._threads > 0

    def jump(self, to_s: float) -> None:
        # To the microsecond after it: whatever is due then is past, however its float was rounded.
        self.now_us = max(self.now_us, int(to_s * 1e6) + 1)
        self.on_jump()

    def next_s(self) -> float | None:
        """Where to jump, now that everybody waits; None when nothing is left to wait for."""
        now_s = self.time()
        times = [self._appointments.first(now_s), self.due_s()]
        ahead = [at_s for at_s in times if at_s is not None and at_s > now_s]
        look_s = self._looks.first(now_s)
        is_overdue = any(at_s is not None and at_s <= now_s for at_s in times)
        if look_s is not None and (is_overdue or (not ahead and self._looks_in_vain < LAST_LOOKS)):
            self._looks_in_vain += not is_overdue
            ahead.append(look_s)
        else:
            self._looks_in_vain = 0
        return min(ahead, default=None)


class _Timers:
    """Handles by their time; those that are cancelled or past are found out when they come up."""

    def __init__(self) -> None:
        self._handles: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._ordinals = itertools.count()

    def add(self, handle: asyncio.TimerHandle) -> None:
        heapq.heappush(self._handles, (handle.when(), next(self._ordinals), handle))

    def first(self, now_s: float) -> float | None:
        """The earliest time after now that somebody waits for."""
        handles = self._handles
        while handles and (handles[0][0] <= now_s or handles[0][2].cancelled()):
            heapq.heappop(handles)
        return handles[0][0] if handles else None


class _Selector(selectors.DefaultSelector):
    """Where the loop would wait, time jumps."""

    def __init__(self, loop: JumpingLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0)
        if events or (timeout is not None and timeout <= 0):
            return events
        loop = self._loop
        if loop.held:
            events = super().select(HELD_S)
            if not events:
                loop.jump(loop.time() + HELD_S)
            return events
        to_s = loop.next_s()
        if to_s is not None:
            loop.jump(to_s)
            return []
        if len(self.get_map()) > 1:  # the loop's own is one: somebody reads from outside, and may hear something
            return super().select(None)
        raise NothingLeftError("everybody waits, and nobody for a time")
