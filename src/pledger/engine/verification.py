"""Verification by replay: a sample of the finished runs is replayed against the code that made it.

Same history and same code must give the same commands; where they do not, the code is not deterministic and the next
take-over of one of its runs would block. Better to hear of it from a run that has finished.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import random
from typing import TYPE_CHECKING, Final

from pledger import errors
from pledger.engine.callbacks import in_callback
from pledger.engine.loading import HistoryReader, identity_of
from pledger.engine.watchdog import Watchdog
from pledger.history import payloads, tracebacks
from pledger.machine.machine import Machine

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pledger.engine.port.records import RunRow
    from pledger.engine.port.verbs import Store
    from pledger.machine.definitions import WorkflowDefinition
    from pledger.machine.interception import WorkflowInboundInterceptor

logger = logging.getLogger("pledger.engine")

#: Finished runs that wait for their verification; more are let go, it is a sample.
QUEUE_MAX: Final = 100


class Verification:
    """share: of the finished runs, 0.0 to 1.0. failures: what was found, newest last. payload_bytes_max: of the runs'
    worker: code may have caught that a value was too large. codes: the identity of the code of each workflow, by its
    type: what that has recorded must come out with the same values."""

    def __init__(
        self,
        store: Store,
        definitions: dict[str, WorkflowDefinition],
        loop: asyncio.AbstractEventLoop,
        randomness: random.Random,
        share: float,
        payload_bytes_max: int,
        *,
        watchdog: Watchdog,
        codes: Mapping[str, str],
        interceptors: Sequence[type[WorkflowInboundInterceptor]] = (),
    ) -> None:
        self._store = store
        self._definitions = definitions
        self._loop = loop
        self._random = randomness
        self._share = share
        self._payload_bytes_max = payload_bytes_max
        self._watchdog = watchdog
        self._codes = codes
        self._interceptors = interceptors
        self._waiting: list[int] = []
        self._task: asyncio.Task[None] | None = None
        self.verified = 0
        self.failures: list[Exception] = []

    def closed(self, run_key: int) -> None:
        """A run has finished here; it may be in the sample."""
        if self._share <= 0 or self._random.random() >= self._share or len(self._waiting) >= QUEUE_MAX:
            return
        self._waiting.append(run_key)
        if self._task is None or self._task.done():
            self._task = self._loop.create_task(self._work(), name="pledger-verification")

    async def stop(self) -> None:
        if self._task is not None:
            await self._task

    async def _work(self) -> None:
        while self._waiting:
            run_key = self._waiting.pop(0)
            try:
                row = await self._store.read_run(run_key)
                definition = self._definitions.get(row.workflow_type)
                if definition is None or row.is_forgotten:
                    continue
                await replay_run(
                    self._store,
                    row,
                    definition,
                    self._loop,
                    self._payload_bytes_max,
                    self._watchdog,
                    code=self._codes.get(row.workflow_type),
                    interceptors=self._interceptors,
                )
                self.verified += 1
            except errors.StoreUnavailableError:
                continue  # that says nothing of the run, and the next one may be readable again
            except errors.PledgerError as error:
                self.failures.append(error)
                logger.error("a finished run does not replay: %s", error)  # noqa: TRY400 - the message says it all
            except Exception as error:  # code that is not deterministic may raise what it never did live
                self.failures.append(error)
                trace = tracebacks.for_log(error)
                logger.exception("a finished run does not replay: run_key %d raised", run_key, exc_info=trace)
            # Work of others goes first: one replay, then a breath.
            await asyncio.sleep(0)


async def replay_run(
    store: Store,
    row: RunRow,
    definition: WorkflowDefinition,
    loop: asyncio.AbstractEventLoop,
    payload_bytes_max: int = payloads.PAYLOAD_BYTES_MAX,
    watchdog: Watchdog | None = None,
    *,
    code: str | None = None,
    interceptors: Sequence[type[WorkflowInboundInterceptor]] = (),
) -> int:
    """Replay the whole history of a run, page by page, each in a plain callback of the loop; how many events it had.

    watchdog: watches each page; None leaves endless code to a debugger. code: the identity of the definition's code: in
    what that has recorded, values that differ are a difference too. interceptors: of the worker.

    Raises NondeterminismError at the first difference, CorruptHistoryError for a damaged history.
    """
    machine = Machine(definition, identity_of(row), payload_bytes_max=payload_bytes_max, interceptors=interceptors)
    machine.own_code = code
    reader = HistoryReader(store, row.run_key, row.run_id)
    watch = (Watchdog() if watchdog is None else watchdog).watch
    try:
        while page := await reader.next_page():
            replay = functools.partial(machine.replay_all, page, reader.take_sizes())
            await in_callback(loop, functools.partial(watch, machine.identity, replay))
        reader.check_end(row)
    finally:
        loop.call_soon(watch, machine.identity, machine.destroy)
    return reader.last_event
