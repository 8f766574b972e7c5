"""Where transactions run: on the caller's thread while the disk is fast, on a thread of their own while it is not.

Inline, a commit costs no hand-over between threads, which is most of what a lone commit costs on a good disk; but the
event loop stands still meanwhile. So the loop takes them itself only while commits are short, and goes back to it when
they have become short again: the average is kept up in both modes.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, TypeVar

import apsw

from pledger.errors import StoreError
from pledger.store.sqlite.failures import store_failure
from pledger.store.sqlite.writer import Job, LockedError, PhaseHook, Writer

T = TypeVar("T")

#: Commits longer than this on average leave the event loop; shorter than the second they come back.
SLOW_MS: Final = 5.0
FAST_AGAIN_MS: Final = 2.5

#: How long the event loop itself waits for another process's transaction: about as long as one takes.
_INLINE_WAIT_MS: Final = 5


class Lane:
    def __init__(self, writer: Writer, path: str, busy_timeout_ms: int) -> None:
        self._writer = writer
        self._path = path
        self._busy_timeout_ms = busy_timeout_ms
        self._thread: ThreadPoolExecutor | None = None
        self._queued: set[Future[Any]] = set()
        self.inline = True

    def submit(self, job: Job[T], *, durable: bool, hook: PhaseHook | None = None) -> asyncio.Future[T]:
        """Run `job` in a transaction of its own. The future is done on return if it ran inline.

        Jobs submitted from one thread run in their order.
        """
        loop = asyncio.get_running_loop()
        if self._may_run_inline() and self._writer.lock.acquire(blocking=False):
            future: asyncio.Future[T] = loop.create_future()
            try:
                future.set_result(self._writer.run(job, durable=durable, wait_ms=_INLINE_WAIT_MS, hook=hook))
            except LockedError:
                pass  # another process is at it: wait for it in the thread
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
                return self._writer.run(job, durable=durable, wait_ms=self._busy_timeout_ms, hook=hook)
            except apsw.Error as error:
                raise store_failure(error, self._path) from error

    def close(self) -> None:
        """After whatever is queued."""
        if self._thread is not None:
            self._thread.shutdown()

    def _may_run_inline(self) -> bool:
        average = self._writer.commit_ms
        self.inline = average < (SLOW_MS if self.inline else FAST_AGAIN_MS)
        return self.inline and not self._queued

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
