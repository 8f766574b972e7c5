"""How a handle calls the rules: the lock, the fault hooks around the commit point, and the wake-up of other handles."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Concatenate, ParamSpec, TypeVar

from pledger.errors import StoreError, StoreUnavailableError
from pledger.store.memory.faults import Faults
from pledger.store.memory.state import State

P = ParamSpec("P")
T = TypeVar("T")


class MemoryHandle:
    """One process's handle on a `State`, without the verbs."""

    look_every_s = 1.0
    outlives_s = 0.0

    def __init__(self, state: State, faults: Faults | None = None) -> None:
        self.state = state
        self._faults = faults
        self._killed = False
        self._closed = False
        self._changed = False
        self._waiter: tuple[asyncio.AbstractEventLoop, int, asyncio.Future[None]] | None = None
        state.listeners.append(self._on_change)

    def kill(self) -> None:
        """The process is dead: what has not reached its commit point never will, and no verb returns any more.

        Its session and whatever it owned stay behind, as a crash leaves them.
        """
        self._killed = True
        self._detach()

    async def close(self) -> None:
        self._closed = True
        self._detach()

    def _detach(self) -> None:
        if self._on_change in self.state.listeners:
            self.state.listeners.remove(self._on_change)

    async def _call(self, rule: Callable[Concatenate[State, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """A verb that reads. The name of a rule is the name of its verb."""
        verb = rule.__name__
        if (pause := self._hold("before", verb, args)) is not None:
            await pause
        if self._killed:
            await _never()
        with self.state.lock:
            result = rule(self.state, *args, **kwargs)
        if (pause := self._hold("after", verb, args)) is not None:
            await pause
        if self._killed:
            await _never()
        return result

    async def _change(self, rule: Callable[Concatenate[State, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """A verb that writes."""
        verb = rule.__name__
        if (pause := self._hold("before", verb, args)) is not None:
            await pause
        if self._killed:
            await _never()
        result = self._apply(rule, *args, **kwargs)
        if (pause := self._hold("after", verb, args)) is not None:
            await pause
        if self._killed:
            await _never()
        return result

    def _apply(self, rule: Callable[Concatenate[State, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The commit point."""
        with self.state.lock:
            self.state.news = False
            result = rule(self.state, *args, **kwargs)
            if self.state.news:  # else idle workers would wake each other
                for listener in self.state.listeners:
                    listener(self)
        return result

    async def _pause(self, side: str, verb: str, detail: tuple[object, ...]) -> None:
        """What every verb does on both sides of its commit point; the usual ones have it written out."""
        if (pause := self._hold(side, verb, detail)) is not None:
            await pause
        if self._killed:
            await _never()

    def _hold(self, side: str, verb: str, detail: tuple[object, ...]) -> Awaitable[None] | None:
        """What a verb has to wait for before it goes on."""
        if self._closed:
            raise self._closed_error()
        if self._killed:
            return _never()
        if self._faults is None:
            return None
        return self._faults.before(verb, detail) if side == "before" else self._faults.after(verb, detail)

    def _apply_blocking(self, rule: Callable[Concatenate[State, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """A blocking verb, callable from any thread. A dead process cannot block for ever here, so it is refused."""
        self._check_open()
        if self._faults is not None:
            self._faults.before(rule.__name__, args)
        if self._killed:
            raise StoreUnavailableError("This handle was killed.")
        result = self._apply(rule, *args, **kwargs)
        if self._faults is not None:
            self._faults.after(rule.__name__, args)
        return result

    def _check_open(self) -> None:
        if self._closed:
            raise self._closed_error()

    def _closed_error(self) -> StoreError:
        return StoreError("This store is closed. Open it again with open_store().")

    # Wake-ups ---------------------------------------------------------------------------------------------------------

    async def wait_for_change(self, timeout_s: float) -> bool:
        await self._pause("before", "wait_for_change", (timeout_s,))
        if not self._changed:
            loop = asyncio.get_running_loop()
            waiter: asyncio.Future[None] = loop.create_future()
            self._waiter = (loop, threading.get_ident(), waiter)
            timer = loop.call_later(timeout_s, _let_go, waiter)
            try:
                await waiter
            finally:
                timer.cancel()
                self._waiter = None
        changed, self._changed = self._changed, False
        await self._pause("after", "wait_for_change", (timeout_s,))
        return changed

    def _on_change(self, writer: object) -> None:
        if writer is self:
            return
        self._changed = True
        if self._waiter is None:
            return
        loop, thread, waiter = self._waiter
        # Handles may live on loops of different threads; waking one's own loop the thread-safe way costs a system call
        # and needs a socket, which a simulated loop does not have.
        if thread == threading.get_ident():
            _let_go(waiter)
        else:
            loop.call_soon_threadsafe(_let_go, waiter)


def _let_go(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


async def _never() -> None:
    await asyncio.get_running_loop().create_future()
