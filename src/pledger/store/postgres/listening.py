"""One listener for a process: it hears what other processes say, and wakes those who wait."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from typing import Any, Final

import psycopg

from pledger.store.postgres import news
from pledger.store.postgres.address import Address
from pledger.store.postgres.links import conninfo
from pledger.store.postgres.news import Interest
from pledger.store.postgres.quota import Quota

#: Between two attempts to listen again, in seconds.
_AGAIN_S: Final = (0.2, 5.0)
#: By how much a wait for changes may be shorter than asked for: processes must not all look at one moment.
_JITTER: Final = 0.25


class Listener:
    """interest: what is worth waking for. heard: set when something was, or when something may have been missed;
    for_workers: whether that may be for a worker, and not only for those who wait for the end of a run, or for what it
    publishes. draw: random
    numbers below 1."""

    def __init__(
        self,
        address: Address,
        interest: Interest,
        quota: Quota,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self.heard = asyncio.Event()
        self.for_workers = False
        self._address = address
        self._interest = interest
        self._quota = quota
        self._draw = draw
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run(), name="pledger-listener")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._quota.give("listener", self)
            self._task = None

    async def wait(self, timeout_s: float) -> bool:
        """See the port's `wait_for_change`. False also as soon as a run has closed, or something was published: that
        concerns nobody but those who wait for it."""
        self.start()
        try:
            await asyncio.wait_for(self.heard.wait(), timeout_s * (1 - _JITTER * self._draw()))
        except TimeoutError:
            return False
        self.heard.clear()
        for_workers, self.for_workers = self.for_workers, False
        return for_workers

    async def _run(self) -> None:
        pause_s = _AGAIN_S[0]
        while True:
            with contextlib.suppress(psycopg.Error, OSError):
                async with await self._connect() as connection:
                    pause_s = _AGAIN_S[0]
                    self._hear(news.OF_ANYTHING)  # whatever was said while nobody listened
                    async for said in connection.notifies():
                        if self._interest.concerns(said.payload):
                            self._hear(said.payload)
            self._quota.give("listener", self)
            # All processes lose their connections at the same moment, and should not come back at one.
            await asyncio.sleep(pause_s * (0.5 + self._draw()))
            pause_s = min(_AGAIN_S[1], pause_s * 2)

    def _hear(self, payload: str) -> None:
        self.for_workers = self.for_workers or not (payload.endswith(news.OF_CLOSED) or news.is_of_stream(payload))
        self.heard.set()

    async def _connect(self) -> psycopg.AsyncConnection[Any]:
        self._quota.take("listener", self)
        connection = await psycopg.AsyncConnection.connect(conninfo(self._address, "listener"), autocommit=True)
        try:
            await connection.execute(f'LISTEN "{self._address.channel}"')
        except BaseException:
            await connection.close()
            raise
        return connection
