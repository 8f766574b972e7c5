"""What comes to a worker from outside: runs to claim, messages and questions for its runs, due tasks, orphans.

One task per worker. It sleeps until somebody in this process says that there is something, the store says that another
process may have written, or the next thing is due; then it looks at what the reason calls for. Nothing is scanned:
every question goes to an index, and an idle worker asks next to nothing.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from pledger import errors
from pledger.engine import expiry
from pledger.engine.claims import CLAIM_MAX, Claims
from pledger.engine.mail import MailReader
from pledger.engine.port.answers import Answer, Reply
from pledger.engine.port.operations import LogAttempts
from pledger.engine.task_rows import identity_of

if TYPE_CHECKING:
    from pledger.engine.activities import Activities
    from pledger.engine.committer import Committer
    from pledger.engine.loading import Loader
    from pledger.engine.port.records import Outlook, TaskRow
    from pledger.engine.port.verbs import Store
    from pledger.engine.runs import Runs
    from pledger.engine.session import LedgerClock

logger = logging.getLogger("pledger.engine")

#: What is due and could not be taken is looked at again so much later.
NOT_NOW_MS: Final = 250
#: What waits for a slot or a limit, which tell of themselves, is looked at all the same after so long: its time may be
#: over.
WAITING_LOOK_MS: Final = 1_000


class Intake:
    """The worker's eyes. mail: of its runs. claims: what it takes. on_store: told when the store fails (the error), and
    of rounds that come through (None). partings: called when there are some, see `partings`."""

    def __init__(
        self,
        *,
        store: Store,
        runs: Runs,
        activities: Activities,
        loader: Loader,
        committer: Committer,
        clock: LedgerClock,
        loop: asyncio.AbstractEventLoop,
        randomness: random.Random,
        worker: str,
        session_key: Callable[[], int],
        namespace: str,
        task_queue: str,
        cached_max: int,
        lease_ms: int,
        on_store: Callable[[errors.StoreError | None], None],
        partings: Callable[[], None],
    ) -> None:
        self._store = store
        self._runs = runs
        self._activities = activities
        self._committer = committer
        self._clock = clock
        self._loop = loop
        self._random = randomness
        self._worker = worker
        self._session_key = session_key
        self._namespace = namespace
        self._task_queue = task_queue
        self._lease_ms = lease_ms
        self._on_store = on_store
        self._partings = partings
        self._wake = asyncio.Event()
        self.mail = MailReader(store, runs, loop, self._wake.set)
        self.claims = Claims(
            store=store,
            runs=runs,
            activities=activities,
            loader=loader,
            clock=clock,
            loop=loop,
            session_key=session_key,
            namespace=namespace,
            task_queue=task_queue,
            cached_max=cached_max,
            changed=self.changed,
            due=self.due,
            loaded=self.mail.arrived,
        )
        self._due_ms: int | None = None
        self._look_at = 0.0
        self._looked_at = 0
        self._changed = True
        self._doubt = False
        self._doubt_again_at: float | None = None
        self._stopping = False
        self._task: asyncio.Task[None] | None = None

    # From this process ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._task = self._loop.create_task(self._run(), name="pledger-intake")

    async def stop(self) -> None:
        """Claim nothing more; runs that are being loaded arrive first, and answers are given."""
        self._stopping = True
        self._wake.set()
        if self._task is not None:
            await self._task
        self.mail.stop()
        if under_way := [*self.claims.loads, *self.mail.answers]:
            await asyncio.wait(under_way)

    def changed(self) -> None:
        """Another process may have written, or there is an ownerless run with mail."""
        self._changed = True
        self._wake.set()

    def due(self, due_ms: int | None) -> None:
        """An ownerless run or a queued task is due then."""
        if due_ms is not None and (self._due_ms is None or due_ms < self._due_ms):
            self._due_ms = due_ms
            self._wake.set()

    @property
    def due_ms(self) -> int | None:
        """When it looks next because something is due then, as far as it has been told."""
        return self._due_ms

    def slot_freed(self) -> None:
        """One more attempt may start here, after none could."""
        if self.claims.tasks_wait:
            self.changed()

    def attempts_ended(self) -> None:
        """Attempts that may have had slots are over."""
        if self.claims.limits_wait:
            self.changed()

    def in_doubt(self) -> None:
        """The store failed a call that may have taken effect all the same: something may be ours unknown to us."""
        self._look_for_it()
        self.changed()

    def _look_for_it(self) -> None:
        """Now, and once more when what was on its way has arrived if it ever does."""
        self._doubt = True
        if self._store.outlives_s:
            self._doubt_again_at = self._loop.time() + self._store.outlives_s

    # The task ---------------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        backoff_s = 0.05
        while not self._stopping:
            try:
                await self._round()
                backoff_s = 0.05
                self._on_store(None)
            except errors.StoreError as error:
                # A store that is down for a while must not end the worker (case STO-03).
                self._on_store(error)
                self._changed = True
                self._look_for_it()
                await asyncio.sleep(backoff_s)
                backoff_s = min(2.0, backoff_s * 2)
            except Exception:
                logger.exception("the worker's intake failed; it goes on")
                self._changed = self._doubt = True
                await asyncio.sleep(1.0)

    async def _round(self) -> None:
        await self._sleep()
        if self._stopping:
            return
        now_ms = self._clock.now_ms()
        held: list[int] = []
        if self._loop.time() >= self._look_at:
            self._look_at = self._loop.time() + min(self._store.look_every_s, self._lease_ms / 1000)
            self._changed = True
            held = self._some_held()
        if self._doubt_again_at is not None and self._loop.time() >= self._doubt_again_at:
            self._doubt, self._doubt_again_at = True, None
        if self._doubt:
            self._doubt = False
            await self._look_for_lost_answers()
        if self._changed or (self._due_ms is not None and self._due_ms <= now_ms):
            self._changed = False
            self._due_ms = None
            await self._look(now_ms, held)
        if self.mail.unread:
            await self.mail.read()

    async def _sleep(self) -> None:
        """Until something is to be done."""
        if self._wake.is_set():
            self._wake.clear()
        if self._changed or self.mail.unread:
            return
        timeout = max(0.0, self._look_at - self._loop.time())
        if self._due_ms is not None:
            timeout = min(timeout, max(0, self._due_ms - self._clock.now_ms()) / 1000)
        if timeout > 0:
            handle = self._loop.call_later(timeout, self._wake.set)
            await self._wake.wait()
            handle.cancel()
            self._wake.clear()

    async def _look(self, now_ms: int, held: list[int]) -> None:
        """See to all that the store holds for this worker. Mostly that is nothing, and took one question."""
        place, looked_at = (self._namespace, self._task_queue), self._loop.time()
        self._runs.look_for_keys()
        outlook = await self._store.look(self._session_key(), now_ms, *place, self._runs.claiming_codes, held)
        self._runs.pauses.learn(outlook.pauses, outlook.paused)
        if outlook.overdue:
            await self._store.bury_sessions(self._namespace)
        if outlook.woken:
            self.mail.unread.update(await self._store.woken_runs(self._session_key()))
        self._see_ended(outlook)
        if outlook.expired:
            for task in await self._store.expired_tasks(self._namespace, now_ms, CLAIM_MAX):
                expire = expiry.expire(task, self._clock.now_ms(), self._worker, self._random.random)
                self._committer.submit(expire, functools.partial(self._expired, task.run_key))
        if await self.claims.take(now_ms, outlook, looked_at):
            self._changed = True  # there may be more, and another thing is the next one due
            return
        is_due = outlook.due_ms is not None and outlook.due_ms <= now_ms
        # Of activities that wait for their limits a claim has told when there may be more, of those that wait for a
        # slot of this worker the slot does; neither knows anything of runs.
        waits = self.claims.limits_wait or self.claims.is_full
        due_ms = outlook.runs_due_ms if is_due and waits else outlook.due_ms
        if is_due and waits:
            self.due(self._clock.now_ms() + WAITING_LOOK_MS)
        if due_ms is not None:
            # What is due and was not taken waits for a worker that knows its type, or for room here: not now.
            self.due(self._clock.now_ms() + NOT_NOW_MS if due_ms <= now_ms else due_ms)

    def _see_ended(self, outlook: Outlook) -> None:
        for run_key in outlook.ended:
            run = self._runs.active.get(run_key)
            if run is not None and not run.in_flight:
                self._loop.call_soon(self._runs.ended_elsewhere, run)
        if outlook.partings:
            self._partings()

    def _some_held(self) -> list[int]:
        """Runs of ours, a part of them each time: when another process ends one from outside, nobody tells us."""
        held = list(self._runs.active)
        part = held[self._looked_at : self._looked_at + CLAIM_MAX]
        self._looked_at = self._looked_at + CLAIM_MAX if len(part) == CLAIM_MAX else 0
        return part

    async def _look_for_lost_answers(self) -> None:
        """Take up what a claim or a birth gave us whose answer never came, and all mail: who was woken is told once."""
        session_key = self._session_key()
        self.mail.unread.update(self._runs.active)
        runs = await self._store.owned_runs(session_key)
        tasks = await self._store.owned_tasks(session_key)
        # What was on its way while they were read is known here once this has gone the same way.
        await self._committer.write(LogAttempts(()))
        for run_key in [row.run_key for row in runs if not self._knows_run(row.run_key)]:
            row = await self._store.read_run(run_key)
            if row.owner == session_key == self._session_key() and not self._knows_run(run_key):
                self.claims.load([row])
        for task in [each for each in tasks if not self._knows_task(each)]:
            for now in await self._store.read_tasks(task.run_key):
                if _is_same_attempt(now, task) and session_key == self._session_key() and not self._knows_task(now):
                    self._activities.settle_lost(now, identity_of(now))

    def _knows_run(self, run_key: int) -> bool:
        return run_key in self._runs.active or run_key in self._runs.leaving.run_keys or run_key in self.claims.loading

    def _knows_task(self, task: TaskRow) -> bool:
        """Whether the attempt runs here, or its outcome is on its way to the row or to the run."""
        run = self._runs.active.get(task.run_key)
        taken = run is not None and (not run.machine.awaits(task.event_id) or -task.event_id in run.origins)
        return taken or self._activities.knows(task)

    def _expired(self, run_key: int, answer: Answer) -> None:
        if answer is Reply.WON:
            self.mail.unread.add(run_key)
            self.changed()


def _is_same_attempt(now: TaskRow, task: TaskRow) -> bool:
    """Whether the row still says that the session of `task` runs that attempt. What else is in it may have changed: its
    run may have asked it to stop."""
    return (now.event_id, now.attempt, now.state, now.owner) == (task.event_id, task.attempt, "started", task.owner)
