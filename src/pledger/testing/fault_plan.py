"""The faults that happen at moments of their own: to a process, to the disk, to the store's clock.

Those that happen to a step (a verb of the store, a write, a call to the outside) are drawn there.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pledger.testing.audit import Auditor
    from pledger.testing.conditions import Conditions
    from pledger.testing.handles import Ledger, Witness
    from pledger.testing.operator import Operator
    from pledger.testing.process import Process
    from pledger.testing.scheduler import Scheduler
    from pledger.testing.seats import Seats

#: How long a process stands still, or is cut off, at most: most outlast their lease (2 s or 5 s), some do not.
PAUSE_MAX_S: Final = 15.0
#: How far a replica lags at most when it takes over.
TAIL_MAX_S: Final = 4.0
#: The jumps of the store's clock.
_JUMP_FORWARD_S: Final = 3600.0
_JUMP_BACK_S: Final = 60.0


class FaultPlan:
    """Each kind comes at its rate, from `begin` until it is calm."""

    def __init__(
        self,
        conditions: Conditions,
        scheduler: Scheduler,
        seats: Seats,
        ledger: Ledger,
        auditor: Auditor,
        operator: Operator,
        dice: random.Random,
    ) -> None:
        self._conditions = conditions
        self._scheduler = scheduler
        self._seats = seats
        self._ledger = ledger
        self._auditor = auditor
        self._operator = operator
        self._dice = dice
        #: Who is told when a fail-over loses something.
        self.witnesses: Sequence[Witness] = ()

    def begin(self) -> None:
        faults = self._conditions.faults
        plans: list[tuple[float, Callable[[], None]]] = [
            (faults.kill, self._kill_one),
            (faults.restart, self._restart_one),
            (faults.pause, self._pause_one),
            (faults.cut_off, self._cut_one_off),
            (faults.clock_jump, self._jump_clock),
            (faults.power_loss, lambda: self.cut_power("power_loss")),
            (faults.disk_full, self._fill_disk),
            (faults.locked, self._lock),
            (faults.bit_flip, self._flip_bit),
            (faults.paused, self._operator.pause),
            (faults.reset, self._operator.reset),
            (faults.listener_stale, self._make_one_stale),
            (faults.tail_lost, self._lag),
        ]
        for rate, act in plans:
            if rate > 0:
                self._plan(rate, act)

    def end(self) -> None:
        """No more faults; who is paused or cut off goes on, the disk has room, and nothing stays paused."""
        self._conditions.calm_down()
        self._ledger.is_full = False
        self._ledger.unlock()
        self._ledger.follow_again()
        for process in self._seats.present():
            process.loop.paused = process.cut_off = False
        self._operator.resume_all()

    def cut_power(self, kind: str) -> None:
        self._conditions.hit(kind)
        self._ledger.lose_power()
        for process in self._seats.present():
            process.end(kind)

    def _plan(self, rate: float, act: Callable[[], None]) -> None:
        def happen() -> None:
            if not self._conditions.calm:
                act()
                self._plan(rate, act)

        self._scheduler.at(self._scheduler.now_s + self._dice.expovariate(rate), happen)

    def _after(self, seconds: float, act: Callable[[], None]) -> None:
        self._scheduler.at(self._scheduler.now_s + seconds, act)

    # To a process -----------------------------------------------------------------------------------------------------

    def _kill_one(self) -> None:
        process = self._seats.anybody()
        if process is not None:
            process.kill("kill")

    def _restart_one(self) -> None:
        process = self._seats.anybody()
        if process is not None:
            self._conditions.hit("restart")
            process.leave()

    def _pause_one(self) -> None:
        process = self._seats.anybody()
        if process is None or process.loop.paused:
            return
        self._conditions.hit("pause")
        process.note("paused")
        process.loop.paused = True
        self._after(self._dice.random() * PAUSE_MAX_S, lambda: _resume(process))

    def _cut_one_off(self) -> None:
        process = self._seats.anybody()
        if process is None or process.cut_off:
            return
        self._conditions.hit("cut_off")
        process.note("cut off")
        process.cut_off = True
        self._after(self._dice.random() * PAUSE_MAX_S, lambda: setattr(process, "cut_off", False))

    def _make_one_stale(self) -> None:
        process = self._seats.anybody()
        if process is not None and self._ledger.make_stale(process):
            self._conditions.hit("listener_stale")
            process.note("its listener is stale")
            self._after(self._dice.random() * PAUSE_MAX_S, lambda: self._ledger.find_out(process))

    # To what all of them share ----------------------------------------------------------------------------------------

    def _fill_disk(self) -> None:
        self._scheduler.note("the disk is full")
        self._ledger.is_full = True
        self._after(self._dice.random() * PAUSE_MAX_S, self._free_disk)

    def _free_disk(self) -> None:
        self._scheduler.note("the disk has room again")
        self._ledger.is_full = False

    def _lock(self) -> None:
        if not self._ledger.is_locked and self._ledger.lock():
            self._scheduler.note("somebody else has the lock of writers")
            self._after(self._dice.random() * PAUSE_MAX_S, self._unlock)

    def _unlock(self) -> None:
        self._scheduler.note("the lock of writers is free again")
        self._ledger.unlock()

    def _lag(self) -> None:
        if self._ledger.stop_following(self.witnesses):
            self._scheduler.note("the replica gets nothing more")
            self._after(self._dice.random() * TAIL_MAX_S, self._lose_tail)

    def _lose_tail(self) -> None:
        if self._ledger.fail_over():
            self._conditions.hit("tail_lost")
            self._scheduler.note("the replica takes over; what it lacks is lost")

    def _flip_bit(self) -> None:
        run_key = self._ledger.flip_bit()
        if run_key is not None:
            self._conditions.hit("bit_flip")
            self._scheduler.note(f"a bit of the history of run {run_key} flips")

    def _jump_clock(self) -> None:
        self._conditions.hit("clock_jump")
        by_s = (1 - 2 * self._dice.random()) ** 3
        by_s *= _JUMP_FORWARD_S if by_s > 0 else _JUMP_BACK_S
        by_ms = int(by_s * 1000)
        if by_ms < 0:
            self._auditor.clock_goes_back(-by_ms)
            self._after(PAUSE_MAX_S + 5.0, lambda: self._auditor.clock_is_known(-by_ms))
        self._conditions.jump_clock(by_ms)
        self._scheduler.note(f"the store's clock jumps by {by_s:.3f} s")


def _resume(process: Process) -> None:
    if process.loop.paused:
        process.note("goes on")
        process.loop.paused = False
