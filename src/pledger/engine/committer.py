"""Group commit: one committer per process gathers what all its runs and clients want to write.

A *turn* lets everybody who has work prepare it, then writes what has gathered in one transaction. While a commit is on
its way nothing else is committed; what comes meanwhile is the next batch. So the batch grows with the load and a lone
operation is written at once.

Turns are plain callbacks of the loop, never tasks: runs are activated in them (see `machine.loop`).
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn, Protocol

from pledger.engine.interrupts import is_interrupt
from pledger.engine.port.answers import Answer
from pledger.engine.port.operations import Operation
from pledger.errors import InternalError, StoreUnavailableError

if TYPE_CHECKING:
    from pledger.engine.meter import Meter

#: Operations of one transaction at most: a bound on how long other processes wait for the lock.
BATCH_MAX = 2_000


class Writes(Protocol):
    """The one verb of the store that a committer needs."""

    def commit(self, batch: list[Operation]) -> asyncio.Future[list[Answer]]: ...


class Committer:
    """Gathers operations and writes them in batches; every operation gets its own answer.

    on_error: told of an exception that a preparer or an answer's callback raised; that is a bug of ours and must not
    take the other operations of the batch with it, nor those to come. on_store: told when a batch finds the store
    unavailable (the error), and of the first one that is written after that (None). meter: told of each batch
    that is written.
    """

    def __init__(
        self,
        store: Writes,
        loop: asyncio.AbstractEventLoop,
        on_error: Callable[[BaseException], None] | None = None,
        on_store: Callable[[StoreUnavailableError | None], None] | None = None,
        meter: Meter | None = None,
    ) -> None:
        self._meter = meter
        self._began_s = 0.0
        self._store = store
        self._loop = loop
        self._on_error = on_error or self._log
        self._on_store = on_store
        self._unavailable = False
        self._operations: list[Operation] = []
        self._callbacks: list[Callable[[Answer], None]] = []
        self._preparers: list[Callable[[], None]] = []
        self._scheduled = False
        self._in_flight = False
        self._idle: list[asyncio.Future[None]] = []
        # Turns are nobody's: not even the context variables of who asked for one are seen by what it starts.
        self._context = contextvars.copy_context()

    def on_turn(self, prepare: Callable[[], None]) -> None:
        """Call `prepare` at the start of every turn; it submits what is ready."""
        self._preparers.append(prepare)

    def off_turn(self, prepare: Callable[[], None]) -> None:
        self._preparers.remove(prepare)

    def submit(self, operation: Operation, done: Callable[[Answer], None]) -> None:
        """Write the operation with the next batch. done: gets its answer, or the exception if nothing was written."""
        self._operations.append(operation)
        self._callbacks.append(done)
        if not self._scheduled:
            self.kick()

    def write(self, operation: Operation, then: Callable[[Answer], None] | None = None) -> asyncio.Future[Answer]:
        """The same for those who wait in a task. The future raises what the answer would hold.

        then: gets the answer too, before the one who waits and also when nobody waits any more.
        """
        future: asyncio.Future[Answer] = self._loop.create_future()

        def done(answer: Answer) -> None:
            if then is not None:
                then(answer)
            if future.done():
                return  # its waiter was cancelled; the operation is written all the same
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)

        self.submit(operation, done)
        return future

    def kick(self) -> None:
        """There is something to prepare or to write: have a turn soon."""
        if not self._scheduled:
            self._scheduled = True
            if not self._in_flight:
                self._loop.call_soon(self._turn, context=self._context)

    async def drain(self) -> None:
        """Return once nothing waits and nothing is in flight."""
        while self._in_flight or self._scheduled or self._operations:
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._idle.append(waiter)
            await waiter

    def _turn(self) -> None:
        # A turn makes hundreds of objects that are gone at its end: the collector would go through them again and again
        # for nothing. It comes once afterwards.
        collects = gc.isenabled()
        gc.disable()
        try:
            for prepare in self._preparers:
                try:
                    prepare()
                except BaseException as raised:  # noqa: BLE001 - see on_error; the turns must go on
                    self._raised(raised)
            self._scheduled = False
            if self._operations:
                self._write()
            else:
                self._rest()
        finally:
            if collects:
                gc.enable()

    def _write(self) -> None:
        operations, callbacks = self._operations, self._callbacks
        if len(operations) > BATCH_MAX:
            self._operations, self._callbacks = operations[BATCH_MAX:], callbacks[BATCH_MAX:]
            operations, callbacks = operations[:BATCH_MAX], callbacks[:BATCH_MAX]
            self._scheduled = True
        else:
            self._operations, self._callbacks = [], []
        self._in_flight = True
        if self._meter is not None:
            self._began_s = self._loop.time()
        try:
            future = self._store.commit(operations)
        except BaseException as error:  # noqa: BLE001 - see on_error; and Ctrl-C, where a store commits on this thread
            # Written or not: who has submitted them asks or repeats them, as after any answer that is lost.
            future = self._loop.create_future()
            future.set_exception(StoreUnavailableError(f"the commit was interrupted by {type(error).__name__}"))
            self._raised(error)
        if future.done():
            self._settle(future, callbacks)
        else:
            future.add_done_callback(lambda settled: self._settle(settled, callbacks))

    def _settle(self, future: asyncio.Future[list[Answer]], callbacks: list[Callable[[Answer], None]]) -> None:
        answers: list[Answer]
        if future.cancelled():
            answers = [asyncio.CancelledError("the store was closed")] * len(callbacks)  # type: ignore[list-item]
        else:
            error = future.exception()
            if error is None:
                if self._meter is not None:
                    self._meter.committed(len(callbacks), self._loop.time() - self._began_s)
                answers = future.result()
                if len(answers) != len(callbacks):
                    # A bug of the store's: whose answer is whose is not known, and must not be guessed.
                    told = f"the store gave {len(answers)} answers to {len(callbacks)} operations. Please report this."
                    answers = [InternalError(told)] * len(callbacks)
                if self._unavailable:
                    self._tell(None)
            else:
                failed = error if isinstance(error, Exception) else RuntimeError(str(error))
                answers = [failed] * len(callbacks)
                if isinstance(error, StoreUnavailableError):
                    self._tell(error)
        for done, answer in zip(callbacks, answers, strict=True):
            try:
                done(answer)
            except BaseException as raised:  # noqa: BLE001 - see on_error
                self._raised(raised)
        # Only now: who kicks while answers are told must not have a turn besides the one that follows.
        self._in_flight = False
        if self._scheduled or self._operations:
            self._scheduled = True
            self._loop.call_soon(self._turn, context=self._context)
        else:
            self._rest()

    def _tell(self, error: StoreUnavailableError | None) -> None:
        self._unavailable = error is not None
        if self._on_store is not None:
            self._on_store(error)

    def _rest(self) -> None:
        if self._idle and not (self._in_flight or self._scheduled):
            idle, self._idle = self._idle, []
            for waiter in idle:
                if not waiter.done():
                    waiter.set_result(None)

    def _raised(self, error: BaseException) -> None:
        if is_interrupt(error):
            # It is the program's, but not in the midst of a batch: what is to close in good order needs the next turns.
            self._loop.call_soon(_raise, error)
        else:
            self._on_error(error)

    def _log(self, error: BaseException) -> None:
        self._loop.call_exception_handler({"message": "an answer could not be taken in", "exception": error})


def _raise(error: BaseException) -> NoReturn:
    raise error
