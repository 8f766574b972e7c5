"""The ledger as a whole, asked for when somebody scrapes, and not more often than every few seconds."""

from __future__ import annotations

import asyncio
import logging
import threading
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Final

from pledger.engine.census import Census, take_census
from pledger.errors import StoreError

if TYPE_CHECKING:
    from concurrent.futures import Future

    from pledger.engine.connection import Connection

logger = logging.getLogger("pledger.metrics")

#: How long a scrape waits for the ledger. Prometheus itself gives up after 10 s.
WAIT_S: Final = 2.0
#: A census costs the ledger at most this share of its time, however large it is.
SHARE_MAX: Final = 0.02
#: What has not been answered for so many times the interval, after it was due, is not told any more.
STALE: Final = 3


class Watched:
    """One connection, whose ledger is looked at. every_s: at most so often.

    A scrape comes in a thread of its own, and the ledger is asked on the connection's loop: the scrape waits for it for
    a moment, and tells what it knew before where that is not enough. One on the loop itself cannot wait: it tells what
    it knows, and the next one has what is asked now.
    """

    def __init__(self, connection: Connection, every_s: float) -> None:
        self.namespace = connection.namespace
        self._connection = connection
        self._every_s = every_s
        self._lock = threading.Lock()
        self._asking: Future[None] | None = None
        self._census: Census | None = None
        self._next_s: float | None = None
        self._failing = False

    def look(self) -> Census | None:
        """As the ledger was a moment ago; None if it did not answer. Callable from any thread."""
        if self._connection.loop.is_closed():
            return None
        asking = self._ask()
        if asking is not None and self._can_wait():
            try:
                asking.result(WAIT_S)
            except TimeoutError:
                pass  # it goes on, and the next scrape has what comes of it
            except CancelledError:
                return None  # the connection is closed
        overdue_s = 0.0 if self._next_s is None else self._connection.monotonic() - self._next_s
        return None if self._failing or overdue_s > STALE * self._every_s + WAIT_S else self._census

    def close(self) -> None:
        """On the loop. Nothing is asked any more."""
        if self._asking is not None:
            self._asking.cancel()

    def _can_wait(self) -> bool:
        """Whether the loop runs, and in another thread."""
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        return here is not self._connection.loop and self._connection.loop.is_running()

    def _ask(self) -> Future[None] | None:
        """What is being asked, from now on if it is time; else None."""
        with self._lock:
            if self._asking is not None and not self._asking.done():
                return self._asking
            if self._next_s is not None and self._connection.monotonic() < self._next_s:
                return None
            coroutine = self._take()
            try:
                self._asking = asyncio.run_coroutine_threadsafe(coroutine, self._connection.loop)
            except RuntimeError:  # the loop was closed this very moment
                coroutine.close()
                return None
            return self._asking

    async def _take(self) -> None:
        began_s = self._connection.monotonic()
        try:
            self._census = await take_census(self._connection)
        except StoreError as error:
            # The worker's own log says it loudly.
            logger.debug("the ledger could not be looked at: %s", error)
            self._failing = True
        except Exception:
            logger.exception("looking at the ledger for its metrics failed; it is tried again")
            self._failing = True
        else:
            self._failing = False
        took_s = self._connection.monotonic() - began_s
        self._next_s = began_s + max(self._every_s, took_s / SHARE_MAX)
