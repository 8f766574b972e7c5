"""The operator of a simulation: pauses something now and then, and resumes it, at once or little by little; resets runs
and redrives them.

What is asked goes through some process, with all that may happen to it; so the operator looks at the ledger, and asks
again until a pause that shall be over is over.
"""

from __future__ import annotations

import contextlib
import random
from typing import TYPE_CHECKING, Final

from pledger.engine import reset_base, resetting
from pledger.engine.ids import new_run_id
from pledger.engine.port.pauses import PAUSE_KINDS, Scope
from pledger.engine.resetting import ResetReapplyType
from pledger.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pledger.engine.port.verbs import Store
    from pledger.testing.conditions import Conditions
    from pledger.testing.handles import Ledger
    from pledger.testing.process import Process
    from pledger.testing.scheduler import Scheduler
    from pledger.testing.seats import Seats

#: A pause lasts for so long at most, in virtual seconds.
PAUSED_MAX_S: Final = 20.0
#: Between two looks whether a pause is over.
AGAIN_S: Final = 1.0
#: So many go on in a second, where a pause is lifted little by little.
RATES: Final = (0.5, 2.0, 50.0)
#: Share of the resets that are redrives.
REDRIVES: Final = 0.4


class Operator:
    """types, task_queues: what there is to be paused."""

    def __init__(
        self,
        conditions: Conditions,
        scheduler: Scheduler,
        seats: Seats,
        ledger: Ledger,
        dice: random.Random,
        *,
        types: Sequence[str],
        task_queues: Sequence[str],
    ) -> None:
        self._conditions = conditions
        self._scheduler = scheduler
        self._seats = seats
        self._ledger = ledger
        self._dice = dice
        self._types = types
        self._task_queues = task_queues
        self._has_paused = False
        self._under_way: list[Process] = []

    @property
    def is_busy(self) -> bool:
        """Whether a reset is on its way, through a process that lives."""
        return any(process.alive for process in self._under_way)

    def pause(self) -> None:
        """Something, for a while."""
        process = self._seats.anybody()
        scope = None if process is None else self._draw(process.namespace)
        if process is None or scope is None:
            return
        self._conditions.hit("paused")
        self._has_paused = True
        process.ask(lambda store: store.pause(scope, "simulated", "the operator"))
        rate = self._dice.choice((None, *RATES))
        self._after(self._dice.random() * PAUSED_MAX_S, lambda: self._resume(scope, rate))

    def reset(self) -> None:
        """Some run, to some event, or as far as a redrive goes back; whatever becomes of it."""
        process = self._seats.anybody()
        if process is None:
            return
        rows = [row for row in self._ledger.state.runs.values() if row.namespace == process.namespace]
        if not rows:
            return
        row, draw = rows[int(self._dice.random() * len(rows))], self._dice.random()
        reapply, entropy = self._dice.choice(list(ResetReapplyType)), self._dice.randbytes(10)

        async def reset(store: Store) -> None:
            base = await reset_base.read_base(store, await store.read_run(row.run_key))
            last = sum(len(each.events()) for each in base.transitions)
            if draw < REDRIVES:
                draft = resetting.draft_redrive(base)
            else:
                draft = resetting.draft_reset(base, 1 + int(last * (draw - REDRIVES) / (1 - REDRIVES)), reapply)
            now_ms = await store.now_ms()
            operation = draft.operation(now_ms, new_run_id(now_ms, entropy), "simulated", "the operator")
            await store.commit([operation])
            self._conditions.hit("redrive" if draw < REDRIVES else "reset")

        async def try_to(store: Store) -> None:
            self._under_way.append(process)
            try:
                with contextlib.suppress(UsageError):  # it is no run for that
                    await reset(store)
            finally:
                self._under_way.remove(process)

        process.ask(try_to)

    def resume_all(self) -> None:
        """It is calm: nothing stays paused, however late it was."""
        if not self._has_paused:
            return
        for pause in self._ledger.state.pauses.values():
            self._ask_to_resume(pause.scope, None)
        if self._ledger.has_open_runs:
            self._after(AGAIN_S, self.resume_all)

    def _resume(self, scope: Scope, rate: float | None) -> None:
        if self._conditions.calm:
            return  # see `resume_all`
        there = next((each for each in self._ledger.state.pauses.values() if each.scope == scope), None)
        if there is not None and there.rate is None:
            self._ask_to_resume(scope, rate)
            self._after(AGAIN_S, lambda: self._resume(scope, rate))

    def _ask_to_resume(self, scope: Scope, rate: float | None) -> None:
        for process in self._seats.present():
            if process.namespace == scope.namespace:
                process.ask(lambda store: store.resume(scope, rate))
                return

    def _draw(self, namespace: str) -> Scope | None:
        kind = self._dice.choice(PAUSE_KINDS)
        match kind:
            case "type":
                return Scope(namespace, kind, self._dice.choice(self._types))
            case "queue":
                return Scope(namespace, kind, self._dice.choice(self._task_queues))
            case "namespace":
                return Scope(namespace, kind, namespace)
            case "run":
                rows = [row for row in self._ledger.state.runs.values() if row.status == "running"]
                found = [row for row in rows if row.namespace == namespace]
                if not found:
                    return None
                row = found[int(self._dice.random() * len(found))]
                return Scope(namespace, kind, row.run_id, row.run_key, row.workflow_id)

    def _after(self, seconds: float, act: Callable[[], None]) -> None:
        self._scheduler.at(self._scheduler.now_s + seconds, act)
