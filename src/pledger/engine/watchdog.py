"""Watches workflow code: what does not give the thread back would stop every run of its worker.

A thread of its own looks at how long the present activation, query, replay of a page or clean-up has been running.
First it warns, with the stack of the code; past the limit it raises `StuckError` inside that code, which blocks the run
like any bug, or fails the query. (C code that never returns to the interpreter cannot be interrupted: then the warning
is all there is, and the lease goes on.)
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from typing import TYPE_CHECKING, TypeVar

from pledger.errors import StuckError
from pledger.history import tracebacks

if TYPE_CHECKING:
    from collections.abc import Callable

    from pledger.machine.identity import RunIdentity

T = TypeVar("T")

logger = logging.getLogger("pledger.engine")


class Watchdog:
    """warn_s: an activation longer than this is reported once. limit_s: one longer than this is interrupted; 0: never.

    identity: the run whose code is running, or None; activation: a number that is new for each. Both are written by
    whoever activates: they are on the path of every step. Once the code has ended, and `interrupted` is set, it calls
    `delivered`.
    """

    def __init__(self, warn_s: float = 2.0, limit_s: float = 30.0) -> None:
        self._warn_s = warn_s
        self._limit_s = limit_s
        self.identity: RunIdentity | None = None
        self.activation = 0
        self.interrupted = False
        self._thread_id = 0
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Watch the calling thread."""
        self._thread_id = threading.get_ident()
        self._thread = threading.Thread(target=self._watch, name="pledger-watchdog", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def watch(self, identity: RunIdentity, call: Callable[..., T], *args: object) -> T:
        """Call what runs code of the run, other than an activation, which is written out where it is made."""
        self.activation += 1
        self.identity = identity
        try:
            return call(*args)
        finally:
            self.identity = None
            if self.interrupted:
                self.delivered()

    def delivered(self) -> None:
        """The code that was interrupted has ended, perhaps by itself and a moment before: then it is at the beginning
        of this call that the error is raised, and in nothing that comes after it."""
        self.interrupted = False

    def _watch(self) -> None:
        seen, since, warned = -1, 0.0, False
        period_s = min(self._warn_s, self._limit_s or self._warn_s) / 4
        while not self._stopped.wait(period_s):
            identity, activation = self.identity, self.activation
            now = time.monotonic()
            if identity is None or activation != seen:
                seen, since, warned = activation, now, False
                continue
            took = now - since
            if took >= self._warn_s and not warned:
                warned = True
                logger.warning("%s has not given the thread back for %.1f s\n%s", identity, took, self._stack())
            if self._limit_s and took >= self._limit_s:
                self._interrupt(identity, activation)
                since = now

    def _stack(self) -> str:
        frame = sys._current_frames().get(self._thread_id)  # noqa: SLF001 - documented for exactly this
        return tracebacks.running(frame) if frame is not None else "(no stack)"

    def _interrupt(self, identity: RunIdentity, activation: int) -> None:
        import ctypes  # noqa: PLC0415 - hardly ever needed, and not cheap to load

        interrupt, error = ctypes.pythonapi.PyThreadState_SetAsyncExc, ctypes.py_object(StuckError)
        thread_id = ctypes.c_ulong(self._thread_id)
        self.interrupted = True
        # Between the look and the call no other thread has its turn: CPython gives way at calls, and at jumps back.
        if self.identity is identity and self.activation == activation:
            interrupt(thread_id, error)
            # Afterwards: a log's handlers take their time, and the code may end meanwhile.
            logger.error("%s is interrupted: its code ran for more than %.1f s", identity, self._limit_s)
