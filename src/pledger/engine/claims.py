"""What a worker takes of what the store holds for it: tasks into slots and a little ahead of them, runs into memory."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final

from pledger.engine.loading import together
from pledger.engine.port.lanes import Claim, Served

if TYPE_CHECKING:
    from pledger.engine.activities import Activities
    from pledger.engine.loading import Loader
    from pledger.engine.port.records import Outlook, RunRow, TaskRow
    from pledger.engine.port.verbs import Store
    from pledger.engine.runs import Runs
    from pledger.engine.session import LedgerClock

logger = logging.getLogger("pledger.engine")

#: Rows taken by one claim: enough to keep a worker busy, few enough that others get some too.
CLAIM_MAX: Final = 200
#: Runs that wait for room are claimed again once there is so much of it: a claim is a few round trips.
ROOM_MIN: Final = CLAIM_MAX // 4


class Claims:
    """tasks_wait: more tasks may be due than there were slots for. limits_wait: some of them wait for slots of a limit.
    runs_wait: more runs may be due than there was room for.
    is_full: none was asked for, since none could have started or waited here.

    loading: the runs that are on their way into memory, by whom; loads: all who bring some. changed, due: called when
    there may be more to claim, now or then. loaded: called with a run that is here, or could not be loaded.
    """

    def __init__(
        self,
        *,
        store: Store,
        runs: Runs,
        activities: Activities,
        loader: Loader,
        clock: LedgerClock,
        loop: asyncio.AbstractEventLoop,
        session_key: Callable[[], int],
        namespace: str,
        task_queue: str,
        cached_max: int,
        changed: Callable[[], None],
        due: Callable[[int | None], None],
        loaded: Callable[[int], None],
    ) -> None:
        self.tasks_wait = False
        self.limits_wait = False
        self.runs_wait = False
        self.is_full = False
        self._lift_at = 0.0
        self.loading: dict[int, asyncio.Task[None]] = {}
        self.loads: set[asyncio.Task[None]] = set()
        self._store = store
        self._runs = runs
        self._activities = activities
        self._loader = loader
        self._clock = clock
        self._loop = loop
        self._session_key = session_key
        self._place = (namespace, task_queue)
        self._cached_max = cached_max
        self._changed = changed
        self._due = due
        self._loaded = loaded

    async def take(self, now_ms: int, outlook: Outlook, looked_at: float) -> int:
        """Take what is due, if anything may be, and what pauses let go on that are being lifted; how much was due.

        The latter first, since it takes no more than its rate: it would have no room behind others that do not end; and
        meanwhile nothing is claimed ahead. Tasks come before runs: they finish what has begun.
        looked_at: when the outlook was asked for, by the loop's clock.
        """
        taken, look_ms = 0, self._runs.pauses.lift_look_ms()
        self.runs_wait = False
        lifts = look_ms is not None and self._may_lift(look_ms)
        runs_due = _is_past(outlook.runs_due_ms, now_ms) or outlook.unblocked or outlook.overdue
        # A run that is due may hide a task that is, and who is buried leaves both.
        tasks_due = _is_past(outlook.due_ms, now_ms) or outlook.lanes or outlook.overdue
        if tasks_due:
            self.limits_wait = False
        if lifts:
            await self._claim_tasks(now_ms, functools.partial(self._claim_in_order, self._store.claim_lifted_tasks))
        if tasks_due:
            has_order, ahead_since = self._has_order(outlook), looked_at if look_ms is None else None
            in_order = functools.partial(self._claim_in_order, self._store.claim_queued)
            taken = await self._claim_tasks(now_ms, in_order if has_order else self._store.claim_tasks, ahead_since)
        if lifts:
            await self._claim_runs(now_ms, self._store.claim_lifted_runs)
        if runs_due:
            taken += await self._claim_runs(now_ms, self._store.claim_runs)
        return taken

    def _may_lift(self, look_ms: int) -> bool:
        """Whether pauses that are being lifted may let something go on now: after each `look_ms`."""
        self._due(self._clock.now_ms() + look_ms)
        if self._loop.time() < self._lift_at:
            return False
        if all(room > 0 for _, room in self._activities.admission.slots.claimable()):
            self._lift_at = self._loop.time() + look_ms / 1000
        # Else the next slot that is free is for what is let go on, and not only one that is free just when it looks.
        return True

    # Tasks ------------------------------------------------------------------------------------------------------------

    async def _claim_tasks(
        self, now_ms: int, claim: Callable[..., Awaitable[list[TaskRow]]], looked_at: float | None = None
    ) -> int:
        """Start what is due and may start here; how many. claim: as the store's `claim_tasks`.

        looked_at: when this was looked for, where something may be claimed ahead.
        """
        admission, held = self._activities.admission, self._activities.held
        self.tasks_wait, self.is_full = False, True
        # Mostly there are few, of whatever kind, or none: then one question is enough.
        joined, free = admission.slots.together()
        started, room = 0, min(free, CLAIM_MAX)
        if room > 0:
            started = await self._claim_some(now_ms, claim, looked_at, joined, room, 0)
        asked = joined if started < room else ()
        for types, free in admission.slots.claimable():
            if types[0] in asked:
                continue
            slots = max(0, min(free, CLAIM_MAX))
            ahead = 0 if looked_at is None else min(held.room(types), CLAIM_MAX - slots)
            count = 0
            if slots + ahead:
                count = await self._claim_some(now_ms, claim, looked_at, types, slots, ahead)
            started += count
            self.tasks_wait = self.tasks_wait or count >= slots
        admission.queue_waits = self.tasks_wait
        return started

    async def _claim_some(
        self,
        now_ms: int,
        claim: Callable[..., Awaitable[list[TaskRow]]],
        looked_at: float | None,
        types: Sequence[str],
        slots: int,
        ahead: int,
    ) -> int:
        activities = self._activities
        self.is_full = False
        served = Served(*self._place, types, ahead=ahead)
        with activities.admission.slots.kept(types, slots):
            tasks = await claim(self._session_key(), now_ms, served, slots + ahead)
        if tasks and looked_at is not None:
            activities.held.claimed([task.activity_type for task in tasks], self._loop.time() - looked_at)
        for task in tasks:
            activities.take_claimed(task)
        return len(tasks)

    def _has_order(self, outlook: Outlook) -> bool:
        """Whether there is more to a claim than age: rows stand in lanes, or activities have limits."""
        return outlook.lanes or self._activities.admission.bounds.has_standing

    async def _claim_in_order(
        self, claim_queued: Callable[..., Awaitable[Claim]], session_key: int, now_ms: int, served: Served, room: int
    ) -> list[TaskRow]:
        """As `claim_tasks` of the store, of all rows, by a verb that goes by their order and their limits."""
        admission, asked_at = self._activities.admission, self._loop.time()
        claim = await claim_queued(session_key, now_ms, served, room, admission.bounds)
        self.limits_wait = self.limits_wait or claim.waits
        if admission.budgets is not None:
            admission.budgets.learn(claim.dependencies, asked_at)
        if claim.has_moved:
            self._changed()  # what is due now is something else
        self._due(claim.due_ms)
        return claim.tasks

    # Runs -------------------------------------------------------------------------------------------------------------

    async def _claim_runs(self, now_ms: int, claim: Callable[..., Awaitable[list[RunRow]]]) -> int:
        """Take what is due, as far as there is room; how many."""
        room, rows = self._room(), []
        if room > 0 and self._runs.definitions:
            rows = await claim(self._session_key(), now_ms, *self._place, self._runs.claiming_codes, room)
            self.load(rows)
        self.runs_wait = self.runs_wait or len(rows) >= room
        return len(rows)

    def _room(self) -> int:
        return min(self._cached_max + CLAIM_MAX - len(self._runs.active) - len(self.loading), CLAIM_MAX)

    def run_left(self) -> None:
        """There may be room for runs that wait for it."""
        if self.runs_wait and self._room() >= ROOM_MIN:
            self._changed()

    def load(self, rows: Sequence[RunRow]) -> None:
        """Bring runs of this worker into memory."""
        for portion in together(rows):
            load = self._loop.create_task(self._loader.load(portion), name=f"pledger-load-{portion[0].run_id}")
            self.loading.update((row.run_key, load) for row in portion)
            self.loads.add(load)
            load.add_done_callback(functools.partial(self._loads_ended, portion))

    def _loads_ended(self, rows: Sequence[RunRow], load: asyncio.Task[None]) -> None:
        """Have their mail looked at once more: what came while they were loading found nobody to tell, and a question
        that woke one has not been read yet."""
        self.loads.discard(load)
        if not load.cancelled() and (error := load.exception()) is not None:
            logger.error("runs could not be loaded", exc_info=error)
        for row in rows:
            if self.loading.get(row.run_key) is load:  # else it was of an earlier lease, and another one is on its way
                del self.loading[row.run_key]
            self._loaded(row.run_key)
        self.run_left()  # some may have by now, and were still counted as on their way


def _is_past(due_ms: int | None, now_ms: int) -> bool:
    return due_ms is not None and due_ms <= now_ms
