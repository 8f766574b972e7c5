"""Which activities may start beside their run, in the worker that owns it; all others go by their queue."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pledger.engine.budgets import Budgets
    from pledger.engine.port.lanes import Bounds
    from pledger.engine.slots import Slots
    from pledger.history.events import ScheduleActivity


class Admission:
    """bounds: the worker's limits that hold over all workers. slots: how many more attempts may start here. budgets: of
    what its activities depend on, None where none states any. leaving: the worker is going, and no activity is placed
    here any more. queue_waits: there is more in the queue than there is room for here.
    """

    def __init__(self, bounds: Bounds, slots: Slots, budgets: Budgets | None) -> None:
        self.bounds = bounds
        self.slots = slots
        self.budgets = budgets
        self.leaving = False
        self.queue_waits = False
        self._is_limited = bounds.has_standing or bool(bounds.rules)

    def reserve(self, command: ScheduleActivity) -> bool:
        """Take a slot for an eager attempt, before the transition that schedules it is written; False when this worker
        may not run the activity now, next to its run."""
        if self.leaving or ((self._is_limited or command.placement is not None) and self._must_queue(command)):
            return False
        return self.slots.try_take(command.activity_type)

    def _must_queue(self, command: ScheduleActivity) -> bool:
        """What is limited takes its slots as it leaves the queue; and what has a place in it does not pass by those who
        wait."""
        bounds, placement = self.bounds, command.placement
        if bounds.queue or command.activity_type in bounds.standing:
            return True
        if self.budgets is not None and not self.budgets.may_start(command.activity_type):
            return True
        return placement is not None and (bool(placement.limits) or self.queue_waits)

    def unreserve(self, eager: Iterable[tuple[int, ScheduleActivity]]) -> None:
        """Give back what was reserved for a transition that was not written."""
        for _, command in eager:
            self.slots.give(command.activity_type)
