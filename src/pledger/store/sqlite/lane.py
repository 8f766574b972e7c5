"""Where transactions run: on the caller's thread while the disk is fast, on a thread of their own while it is not.

Inline, a commit costs no hand-over between threads, which is most of what a lone commit costs on a good disk; but the
event loop stands still meanwhile. So the loop takes commits itself only while they are short. While they are not, it
still takes one each second, to see whether they have become short again: in the thread that cannot be seen, since what
it measures includes its wait for the interpreter's lock, and behind a busy loop every disk looks slow.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, TypeVar

import apsw

from pledger.errors import StoreError
from pledger.store.sqlite.failures import store_failure
from pledger.store.sqlite.writer import Job, LockedError, PhaseHook, Writer

T = TypeVar("T")

#: Commits that take longer than this on average leave the event loop; one shorter than the second brings them back.
SLOW_MS: Final = 5.0
FAST_AGAIN_MS: Final = 2.5

#: Weight of the newest commit in that average.
_NEWEST: Final = 0.2

#: How long the event loop does not try a slow disk again.
PROBE_S: Final = 1.0

#: How long the event loop itself waits for another process's transaction: about as long as one takes.
_INLINE_WAIT_MS: Final = 5


class Lane:
    """inline: whether commits run on the caller's thread. average_ms: what they take there. threads: as in
    `Host`. busy_timeout_ms: how long a transaction waits for those of other processes."""

    def __init__(self, writer: Writer, path: str, busy_timeout_ms: int, *, threads: bool = True) -> None:
        self._writer = writer
        self._path = path
        self.busy_timeout_ms = busy_timeout_ms
        self._threads = threads
        self._thread: ThreadPoolExecutor | None = None
        self._queued: set[Future[Any]] = set()
        self._probe_at_s = 0.0
        self.inline = True
        self.average_ms = 0.0

    def submit(self, job: Job[T], *, durable: bool, hook: PhaseHook | None = None) -> asyncio.Future[T]:
        """Run `job` in a transaction of its own. The future is done on return if it ran inline.

        Jobs submitted from one thread run in their order.
        """
        loop = asyncio.get_running_loop()
        if self._may_run_inline(durable=durable) and self._writer.lock.acquire(blocking=False):
            future: asyncio.Future[T] = loop.create_future()
            try:
                future.set_result(self._writer.run(job, durable=durable, wait_ms=_INLINE_WAIT_MS, hook=hook))
                if durable:
                    self._measured(self._writer.commit_ms)
            except LockedError as error:
                # Another process is at it: wait for it in the thread.
                if not self._threads:
                    future.set_exception(error)
            except apsw.Error as error:
                future.set_exception(_with_cause(store_failure(error, self._path), error))
            except Exception as error:  # noqa: BLE001 - whatever it is, it belongs to the future
                future.set_exception(error)
            finally:
                self._writer.lock.release()
            if future.done():
                return future
        return asyncio.wrap_future(self._hand_over(job, durable=durable, hook=hook), loop=loop)

    def run_blocking(self, job: Job[T], *, durable: bool, hook: PhaseHook | None = None) -> T:
        """The same on the calling thread, waiting for its turn."""
        with self._writer.lock:
            try:
                return self._writer.run(job, durable=durable, wait_ms=self.busy_timeout_ms, hook=hook)
            except apsw.Error as error:
                raise store_failure(error, self._path) from error

    def close(self) -> None:
        """After whatever is queued."""
        if self._thread is not None:
            self._thread.shutdown()

    def _may_run_inline(self, *, durable: bool) -> bool:
        if not self._threads:
            return True
        if self._queued:
            return False  # what was submitted first is written first
        return self.inline or (durable and time.monotonic() >= self._probe_at_s)

    def _measured(self, commit_ms: float) -> None:
        if not self._threads:
            return
        if self.inline:
            # One commit that met a busy moment of the machine says nothing of the disk: it counts as twice the bound.
            self.average_ms += (min(commit_ms, 2 * SLOW_MS) - self.average_ms) * _NEWEST
            self.inline = self.average_ms < SLOW_MS
        elif commit_ms < FAST_AGAIN_MS:
            self.average_ms = commit_ms
            self.inline = True
        self._probe_at_s = time.monotonic() + PROBE_S

    def _hand_over(self, job: Job[T], *, durable: bool, hook: PhaseHook | None) -> Future[T]:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="pledger-writer")
        future = self._thread.submit(self.run_blocking, job, durable=durable, hook=hook)
        self._queued.add(future)
        future.add_done_callback(self._queued.discard)
        return future


def _with_cause(failure: StoreError, cause: Exception) -> StoreError:
    failure.__cause__ = cause
    return failure
