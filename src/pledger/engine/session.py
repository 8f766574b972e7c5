"""A worker's session: its lease, the heartbeat that renews it, and the time that the heartbeat brings back.

The heartbeat runs in a thread of its own, so that a busy loop does not lose the lease. Time is the store's: sampled at
each beat and carried on by the monotonic clock between beats, so that a jump of this machine's wall clock moves
nothing. A time once shown never goes back.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from typing import Protocol

from pledger.engine.port.records import SessionRow
from pledger.engine.port.verbs import Store

logger = logging.getLogger("pledger.engine")

#: Beats in one lease period: two may be lost to a slow disk before the lease is.
BEATS_PER_LEASE = 3
#: The kernel slews a clock by at most 500 ppm (adjtimex); crystals are ten times better.
DRIFT_MAX = 0.001
#: A step of the store's clock against this machine's that is worth a warning, in seconds. NTP slews smaller ones.
SKEW_TOLD_S = 1.0


class LedgerClock:
    """The store's time, in ms. monotonic: seconds from any start, of the clock that carries it on.

    drift: by what share that clock may run fast. Between samples the time is carried on slower by as much, so that it
    is never ahead of the store's and no timer fires early.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic, *, drift: float = DRIFT_MAX) -> None:
        self._monotonic = monotonic
        self._pace = 1000 * (1 - drift)
        self._store_ms = 0
        self._sampled_s = 0.0
        self._last_ms = 0

    def sample(self, store_ms: int) -> None:
        """The store said what time it is."""
        self._store_ms, self._sampled_s = store_ms, self._monotonic()

    def read_s(self) -> float:
        """The clock that carries the time on."""
        return self._monotonic()

    def skew_s(self, store_ms: int, asked_s: float) -> float:
        """By how much the store's clock has gone ahead of this machine's (below 0: back) since the last sample, beyond
        what drift explains. Call it before `sample`. asked_s: `read_s` just before the store was asked.

        The store's answer is of some moment between that and now: only what lies outside of both counts, so that a slow
        answer is none of its clock's fault.
        """
        if not self._store_ms:
            return 0.0
        passed_s = (store_ms - self._store_ms) / 1000
        least_s, most_s = asked_s - self._sampled_s, self._monotonic() - self._sampled_s
        allowed_s = most_s * DRIFT_MAX
        if passed_s > most_s + allowed_s:
            return passed_s - most_s
        return min(0.0, passed_s - least_s + allowed_s)

    def now_ms(self) -> int:
        now = self._store_ms + int((self._monotonic() - self._sampled_s) * self._pace)
        if now > self._last_ms:  # noqa: PLR1730 - a call of max() more, twice in every step
            self._last_ms = now
        return self._last_ms


class Heart(Protocol):
    """What calls `beat` every period until it is stopped."""

    def start(self, beat: Callable[[], None], period_s: float) -> None: ...
    def stop(self) -> None: ...


class ThreadHeart:
    """Beats from a thread of its own."""

    def __init__(self) -> None:
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, beat: Callable[[], None], period_s: float) -> None:
        def run() -> None:
            while not self._stopped.wait(period_s):
                beat()

        self._thread = threading.Thread(target=run, name="pledger-heartbeat", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()


class LoopHeart:
    """Beats from the loop: for simulated workers, whose time is the loop's."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._handle: asyncio.TimerHandle | None = None

    def start(self, beat: Callable[[], None], period_s: float) -> None:
        def run() -> None:
            self._handle = self._loop.call_later(period_s, run)
            beat()

        self._handle = self._loop.call_later(period_s, run)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()


class Session:
    """One worker process as the store knows it.

    on_lost: called on the loop when the lease is gone. on_store: called on the loop when the lease could not be renewed
    (the error), and when it was again after that (None).
    """

    def __init__(
        self,
        store: Store,
        clock: LedgerClock,
        heart: Heart,
        *,
        lease_ms: int,
        on_lost: Callable[[], None],
        on_store: Callable[[Exception | None], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._heart = heart
        self._lease_ms = lease_ms
        self._on_lost = on_lost
        self._on_store = on_store
        self._late = False
        self._loop = asyncio.get_running_loop()
        self._row: SessionRow | None = None
        self._lost = False

    @property
    def key(self) -> int:
        """0 while there is no lease: before it was taken and once it is lost. No session has that key."""
        return 0 if self._row is None or self._lost else self._row.session_key

    async def open(self, identity: str, namespace: str, task_queue: str, code: str) -> None:
        """Take a lease and keep it."""
        self._clock.sample(await self._store.now_ms())
        self._row = await self._store.open_session(identity, namespace, task_queue, code, self._lease_ms)
        self._heart.start(self._beat, self._lease_ms / 1000 / BEATS_PER_LEASE)

    async def close(self) -> None:
        """Give the lease up."""
        self._heart.stop()
        if self._row is not None and not self._lost:
            try:
                await self._store.close_session(self._row.session_key)
            except Exception as error:  # noqa: BLE001 - as in a beat
                # Nothing is lost by it but time, and an error here would hide the one that ended the worker.
                logger.warning("the lease could not be given up; others take over once it is over: %s", error)

    def _beat(self) -> None:
        """Runs in the heart's thread."""
        if self._row is None or self._lost:
            return
        asked_s = self._clock.read_s()
        try:
            now_ms = self._store.renew_session(self._row.session_key, self._lease_ms)
        except Exception as error:  # noqa: BLE001 - whatever it is: without beats the worker is dead and never knows it
            # The lease stands until it runs out; the next beat may come through.
            self._tell(error)
            return
        if self._late:
            self._tell(None)
        if now_ms is None:
            self._lost = True
            self._loop.call_soon_threadsafe(self._on_lost)
        else:
            self._look_at_skew(now_ms, asked_s)
            self._clock.sample(now_ms)

    def _look_at_skew(self, now_ms: int, asked_s: float) -> None:
        skew_s = self._clock.skew_s(now_ms, asked_s)
        if abs(skew_s) >= SKEW_TOLD_S:
            logger.warning(
                "the ledger's clock went %s by %.1f s against this machine's. Leases and timers go by the ledger's, so "
                "they may be over early, or last longer. Look at what sets the clock of the ledger's machine.",
                "forward" if skew_s > 0 else "back",
                abs(skew_s),
            )

    def _tell(self, error: Exception | None) -> None:
        self._late = error is not None
        self._loop.call_soon_threadsafe(self._on_store, error)
