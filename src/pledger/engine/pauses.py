"""What a worker knows of pauses, as of its last look, and what it does about those of its own runs.

The store's claims give it nothing that is paused; so this is about what was here before. A run that is paused makes no
transition more, and leaves: like one that is handed back, but its attempts in flight go on without it, from rows of
their own, and their outcomes wait there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from pledger.engine.port.operations import PutTask, Release
from pledger.engine.task_rows import first_row

if TYPE_CHECKING:
    import asyncio

    from pledger.engine.active_run import ActiveRun
    from pledger.engine.building import InFlight
    from pledger.engine.port.pauses import Pause
    from pledger.engine.runs import Runs

#: A run whose rows are still on their way leaves once they are there: it is looked at again so much later, in seconds.
AGAIN_S: Final = 0.2
#: What is being lifted is looked at as often as something may go on, within these, in ms.
LIFT_LOOK_MIN_MS: Final = 20
LIFT_LOOK_MAX_MS: Final = 1_000


class KnownPauses:
    """task_queue: the worker's. places: pauses of its namespace but those of single runs."""

    def __init__(self, runs: Runs, loop: asyncio.AbstractEventLoop, task_queue: str) -> None:
        self.places: Sequence[Pause] = ()
        self._runs = runs
        self._loop = loop
        self._task_queue = task_queue
        self._singly: frozenset[int] = frozenset()
        self._known = False

    def learn(self, places: Sequence[Pause], singly: Iterable[int]) -> None:
        """What the last look has shown: pauses, and runs of this worker that are paused by themselves."""
        self.places, self._singly = places, frozenset(singly)
        known = bool(self.places or self._singly)
        if known or self._known:
            # Not from the task that looked: destroying a run's code takes a plain callback of the loop.
            self._loop.call_soon(self._see_to_runs)
        self._known = known

    def covers(self, run: ActiveRun) -> bool:
        """Whether the run must stand still."""
        if not self._known:
            return False
        if run.run_key in self._singly:
            return True
        return any(
            each.rate is None and each.covers(run.run_key, run.identity.workflow_type, self._task_queue)
            for each in self.places
        )

    def takes(self, workflow_type: str) -> bool:
        """Whether a run of this type may be born here. While a pause is being lifted it may not: it waits in line."""
        return not any(each.covers(0, workflow_type, self._task_queue) for each in self.places)

    def lift_look_ms(self) -> int | None:
        """After how long something more may go on, of what is being lifted; None for nothing."""
        rates = [each.rate for each in self.places if each.rate is not None]
        return min(LIFT_LOOK_MAX_MS, max(LIFT_LOOK_MIN_MS, int(1000 / max(rates)))) if rates else None

    # Its runs ---------------------------------------------------------------------------------------------------------

    def _see_to_runs(self) -> None:
        for run in list(self._runs.active.values()):
            if self.covers(run):
                self.set_aside(run)
            elif run.held and not run.releasing:
                run.held = False
                if run.has_work:
                    self._runs.make_ready(run)

    def set_aside(self, run: ActiveRun) -> None:
        """Have a paused run make no transition more, and leave as soon as nothing of it is on its way."""
        if run.gone or run.releasing or not self.covers(run):
            return
        run.held = True
        if run.in_flight:
            return  # `Runs.won` comes back to it
        activities = self._runs.activities
        if activities.rows.has_unwritten_put(run.run_key):
            self._loop.call_later(AGAIN_S, self.set_aside, run)
            return
        rows = activities.leave_behind(run.run_key, run.outcomes)
        due_ms = 0 if run.has_work else run.due_ms()
        run.releasing = True

        def left() -> None:
            self._runs.forget(run, "the run is paused")
            activities.rows.left(run.run_key)

        self._runs.leaving.let_go(Release(run.run_key, run.fence, due_ms, rows), left)

    def won(self, built: InFlight) -> None:
        """The transition that was in flight when its run was paused is durable. What it has scheduled to start here
        waits in the store instead."""
        run, activities = built.run, self._runs.activities
        eager, built.eager = built.eager, []
        activities.admission.unreserve(eager)
        for event_id, command in eager:
            row = first_row(run, event_id, command, built.append.time_ms)
            activities.rows.put(PutTask(run.fence, row))
        self._loop.call_soon(self.set_aside, run)
