"""What an engine has that nobody else works beside: a ledger without other writers, a heart and no watchdog."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from pledger.engine.session import Heart
from pledger.engine.watchdog import Watchdog
from pledger.store.memory import MemoryStore, State
from pledger.testing.virtual_time import JumpingLoop

if TYPE_CHECKING:
    from pledger.engine.port.verbs import Store


class Ledger(Protocol):
    """What an environment works on. state: all that it holds, to look at."""

    @property
    def store(self) -> Store: ...
    @property
    def state(self) -> State: ...


class InMemory:
    def __init__(self, clock: Callable[[], int]) -> None:
        self.state = State(clock=clock)
        self.store = LonelyStore(self.state)


class LonelyStore(MemoryStore):
    """Only this process writes to it."""

    async def wait_for_change(self, timeout_s: float) -> bool:
        # The timer is set here, and not within asyncio, so that virtual time knows it for a look (see `virtual_time`).
        passed = asyncio.Event()
        timer = asyncio.get_running_loop().call_later(timeout_s, passed.set)
        try:
            await passed.wait()
        finally:
            timer.cancel()
        return False


class JumpHeart(Heart):
    """Beats whenever time jumps: no lease runs out, and the engine's clock is exact."""

    def __init__(self, loop: JumpingLoop) -> None:
        self._loop = loop

    def start(self, beat: Callable[[], None], period_s: float) -> None:  # noqa: ARG002 - its period is the next jump
        self._loop.on_jump = beat

    def stop(self) -> None:
        self._loop.on_jump = lambda: None


class Unwatched(Watchdog):
    """A debugger may stop workflow code for as long as it likes."""

    def start(self) -> None: ...

    def stop(self) -> None: ...
