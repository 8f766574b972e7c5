"""How runs leave a worker while they are open: blocked, handed back, or to be begun again from their history."""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from pledger import errors
from pledger.engine import blocks
from pledger.engine.port.answers import Reply
from pledger.engine.port.operations import Block, Release
from pledger.history import failures, tracebacks

if TYPE_CHECKING:
    import asyncio

    from pledger.engine.active_run import ActiveRun
    from pledger.engine.committer import Committer
    from pledger.engine.listener import Listener
    from pledger.engine.port.answers import Answer
    from pledger.engine.runs import Runs
    from pledger.engine.session import LedgerClock
    from pledger.machine.machine import Machine

logger = logging.getLogger("pledger.engine")

#: Before a write that the store could not take is tried again.
AGAIN_S: Final = 0.2
#: Before a run is looked for that the store would not let go, for another reason.
REFUSED_S: Final = 2.0


class Leaving:
    """run_keys: of runs whose leave is on its way to the store. cached_max: runs that may stay in memory."""

    def __init__(
        self,
        runs: Runs,
        *,
        committer: Committer,
        clock: LedgerClock,
        loop: asyncio.AbstractEventLoop,
        listener: Listener,
        cached_max: int,
    ) -> None:
        self.run_keys: set[int] = set()
        self._runs = runs
        self._committer = committer
        self._clock = clock
        self._loop = loop
        self._listener = listener
        self._cached_max = cached_max

    def block(self, run: ActiveRun, error: BaseException) -> None:
        """The code cannot carry the run on: let go of it, its state intact, with the reason for all to see."""
        self.block_with(run, blocks.reason(error, self._clock.now_ms(), run.last_event + 1))
        # Last: a log's handlers run code of the user's, and so do errors that are told in full.
        logger.error("%s is blocked: %s", run.identity, failures.text_of(error), exc_info=tracebacks.for_log(error))

    def block_with(self, run: ActiveRun, reason: bytes) -> None:
        rows = self._runs.activities.leave_behind(run.run_key, [*run.outcomes_applied, *run.outcomes])
        self._runs.forget(run, "the run is blocked")
        self.note_block(run.identity.workflow_type, reason)
        operation = Block(run.run_key, run.fence, reason, self._runs.claiming_codes[run.identity.workflow_type], rows)
        self.let_go(operation, lambda: self._runs.activities.rows.left(run.run_key))

    def note_block(self, workflow_type: str, reason: bytes) -> None:
        """For the meter."""
        if self._runs.meter is not None:
            self._runs.meter.blocked(workflow_type, blocks.read(reason)["reason"])

    def let_go(self, operation: Block | Release, done: Callable[[], None] | None = None) -> None:
        """Write that a run is not held here any more, as often as it takes. done: called once that is settled."""
        self.run_keys.add(operation.run_key)

        def answered(answer: Answer) -> None:
            if isinstance(answer, errors.StoreUnavailableError):
                self._loop.call_later(AGAIN_S, self._committer.submit, operation, answered)
                return
            if isinstance(answer, errors.CodecError) and operation.tasks:
                # Without its rows, as if the worker had died: what they would say cannot be said without the key.
                self.let_go(replace(operation, tasks=()), done)
                return
            self.run_keys.discard(operation.run_key)
            if done is not None:
                done()
            if answer is Reply.WON:
                if isinstance(operation, Block):
                    self._listener.run_changed(operation.run_key)
                else:
                    self._listener.run_released(operation.due_ms)
            elif answer is Reply.LOST:
                # Or it came through before, its answer was lost, and so was that of a claim which has given the run
                # back to this worker: as long as it was leaving, nobody looked for it.
                self._listener.in_doubt()
            elif isinstance(answer, Exception):
                # It is this worker's still, and in nobody's memory: it is looked for, and loaded again.
                logger.error("run %d could not be let go, and is loaded again: %s", operation.run_key, answer)
                self._loop.call_later(REFUSED_S, self._listener.in_doubt)

        self._committer.submit(operation, answered)

    def dispose(self, machine: Machine) -> None:
        """Close what the code has open. Its clean-up is watched, and harms nobody but itself."""
        left = 0
        with contextlib.suppress(errors.StuckError):
            left = self._runs.watchdog.watch(machine.identity, machine.destroy)
        if left:
            logger.warning(
                "%s has left memory, and %d of its coroutines did not end: they stay until the process does. Their "
                "code catches whatever is raised in it, or runs on without waiting. Catch Exception, and not "
                "BaseException, around what waits",
                machine.identity,
                left,
            )

    def evict(self) -> None:
        """Let go of the runs that have rested longest, down to the bound of the cache."""
        surplus = len(self._runs.active) - self._cached_max
        # Runs are kept in the order of their last transition: those at rest come first, so a short look is enough.
        for run in list(itertools.islice(self._runs.active.values(), 2 * surplus + 64)):
            if surplus > 0 and self._may_leave(run):
                surplus -= 1
                self.release(run)
                if self._runs.meter is not None:
                    self._runs.meter.evicted()

    def _may_leave(self, run: ActiveRun) -> bool:
        if run.gone or run.held_back or not run.at_rest:
            return False
        return not self._runs.activities.under_way.has_eager(run.run_key, run.machine.pending_event_ids())

    def release(self, run: ActiveRun) -> None:
        """Hand the run back: it waits in the store until it is due or somebody writes to it.

        One that is not at rest, or has attempts here that are in no row, is due at once: what is durable of it lags
        behind what is known here.
        """
        due_ms = run.due_ms() if self._may_leave(run) else 0
        run.releasing = True
        self.let_go(Release(run.run_key, run.fence, due_ms), lambda: self._runs.forget(run, "the run was handed back"))

    def begin_again(self, run: ActiveRun) -> None:
        """Its memory is not what its history says: let go of it, for whoever replays it. Its attempts go on."""
        rows = self._runs.activities.leave_behind(run.run_key, [*run.outcomes_applied, *run.outcomes])
        run.releasing = True
        self.let_go(Release(run.run_key, run.fence, 0, rows), lambda: self._left(run))

    def _left(self, run: ActiveRun) -> None:
        self._runs.forget(run, "the run was handed back")
        self._runs.activities.rows.left(run.run_key)
