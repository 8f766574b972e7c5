"""The outside of a simulation: systems that remember what was really done, whatever the ledger says about it.

Activities call it through `outside()`. It may refuse, be slow, or do what it was asked and then fail to say so; it
counts every attempt that began and every effect that happened, in a place that no kill reaches. Invariants compare it
with the ledger afterwards.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pledger.engine.attempt import Attempt, running
from pledger.errors import UsageError
from pledger.history.retry import DEFAULT_RETRY

if TYPE_CHECKING:
    import random

    from pledger.machine.definitions import ActivityDefinition
    from pledger.store.memory import State
    from pledger.testing.faults import Faults

#: The longest that a slow outside system takes, in seconds.
SLOW_MAX_S: Final = 60.0


@dataclass(slots=True)
class AttemptSeen:
    """One attempt of an activity as the outside saw it begin. worker: which one ran it.

    returned: whether its code came to an end with `result`; one that raised, was stopped or died with its process has
    not.
    """

    number: int
    worker: str
    returned: bool = False
    result: Any = None

    def end(self, result: Any) -> Any:
        self.returned, self.result = True, result
        return result


@dataclass(slots=True)
class Activity:
    """All attempts of one activity. maximum: how many its policy allows, 0 for any number. keys: what the attempts know
    as the idempotency key; it must be one."""

    activity_type: str
    maximum: int
    keys: set[str] = field(default_factory=set)
    attempts: list[AttemptSeen] = field(default_factory=list)


class World:
    """activities: by (run_id, event_id). effects: how often each was really done, by key; receipts: what was answered.

    is_stale: whether an attempt is of a part of the ledger that is gone. began: called as an attempt begins, before its
    code: the place to look whether it may. crowded: called when a worker runs more attempts at a time than it may.
    """

    def __init__(
        self,
        dice: random.Random,
        *,
        faults: Callable[[], Faults],
        hit: Callable[[str], None],
        began: Callable[[Attempt, Activity], None],
        crowded: Callable[[str, int], None],
        is_stale: Callable[[Attempt], bool] = lambda _: False,
    ) -> None:
        self.activities: dict[tuple[str, int], Activity] = {}
        self.effects: Counter[str] = Counter()
        self.receipts: dict[str, str] = {}
        self.asked: dict[str, list[str]] = defaultdict(list)
        self._dice = dice
        self._faults = faults
        self._hit = hit
        self._began = began
        self._is_stale = is_stale
        self._crowded = crowded
        self._running: Counter[str] = Counter()

    # For activities ---------------------------------------------------------------------------------------------------

    async def apply(self, what: str, *, key: str | None = None) -> str:
        """Have an effect; the receipt. By default the outside knows the activity's idempotency key: asked again with
        the same key it does nothing and gives the first receipt. key "": it does whatever it is asked.

        Raises ConnectionError: nobody knows whether it happened.
        """
        refused, lost = self._weather()
        delay_s = self._delay_s()
        if delay_s:
            await asyncio.sleep(delay_s)
        try:
            return self._do(what, key, refused=refused, lost=lost)
        finally:
            if self._meets(self._faults().effect_reply_slow, "effect_reply_slow"):
                await asyncio.sleep(self._dice.random() ** 2 * SLOW_MAX_S)

    def apply_now(self, what: str, *, key: str | None = None) -> str:
        """The same for plain activities."""
        refused, lost = self._weather()
        return self._do(what, key, refused=refused, lost=lost)

    def _weather(self) -> tuple[bool, bool]:
        faults = self._faults()
        return self._dice.random() < faults.effect_refused, self._dice.random() < faults.effect_reply_lost

    def _delay_s(self) -> float:
        if self._meets(self._faults().effect_slow, "effect_slow"):
            return self._dice.random() ** 2 * SLOW_MAX_S
        return self._dice.random() * 0.02

    def _meets(self, share: float, kind: str) -> bool:
        if not share or self._dice.random() >= share:
            return False
        self._hit(kind)
        return True

    def _do(self, what: str, key: str | None, *, refused: bool, lost: bool) -> str:
        faults = self._faults()
        if refused and faults.effect_refused:  # unless all faults have stopped while it was slow
            self._hit("effect_refused")
            raise ConnectionError(f"{what}: refused")
        if key is None:
            key = running.get().idempotency_key
        receipt = self.receipts.get(key) if key else None
        if receipt is None:
            self.effects[f"{what} {key}".rstrip()] += 1
            receipt = f"{what}-{sum(self.effects.values())}"
            if key:
                self.receipts[key] = receipt
        if lost and faults.effect_reply_lost:
            self._hit("effect_reply_lost")
            raise ConnectionError(f"{what}: the reply was lost")
        return receipt

    # For the simulation -----------------------------------------------------------------------------------------------

    def watch(self, definition: ActivityDefinition[Any, Any], worker: str, most: int) -> ActivityDefinition[Any, Any]:
        """The activity as a simulated worker runs it: every attempt is seen to begin and to end.

        most: attempts at a time of that worker.
        """
        watched: ActivityDefinition[Any, Any] = object.__new__(type(definition))
        watched.__dict__.update(definition.__dict__)
        plain = definition.fn
        if definition.executor == "async":

            async def run_async(*args: Any) -> Any:
                _current.set(self)
                with self._attempt(worker, most) as seen:
                    return seen.end(await plain(*args))

            watched.fn = run_async
        else:

            def run(*args: Any) -> Any:
                _current.set(self)
                with self._attempt(worker, most) as seen:
                    return seen.end(plain(*args))

            watched.fn = run
        return watched

    @contextlib.contextmanager
    def _attempt(self, worker: str, most: int) -> Iterator[AttemptSeen]:
        self._running[worker] += 1
        if self._running[worker] > most:
            self._crowded(worker, most)
        try:
            yield self._begin(worker)
        finally:
            self._running[worker] -= 1

    def _begin(self, worker: str) -> AttemptSeen:
        attempt = running.get()
        place = (attempt.identity.run_id, attempt.event_id)
        activity = None if self._is_stale(attempt) else self.activities.get(place)
        if activity is None:
            policy = attempt.command.options.retry
            maximum = (policy or DEFAULT_RETRY).maximum_attempts
            activity = Activity(attempt.definition.name, maximum)
            if not self._is_stale(attempt):
                self.activities[place] = activity
        seen = AttemptSeen(attempt.number, worker)
        activity.keys.add(attempt.idempotency_key)
        activity.attempts.append(seen)
        self._began(attempt, activity)
        return seen

    def remember(self) -> dict[tuple[str, int], int]:
        """How many attempts of each activity have begun."""
        return {place: len(activity.attempts) for place, activity in self.activities.items()}

    def went_back(self, known: dict[tuple[str, int], int], _: State) -> None:
        """What the ledger does not know of any more is none of its attempts; effects stay."""
        for place, activity in [*self.activities.items()]:
            if place in known:
                del activity.attempts[known[place] :]
            else:
                del self.activities[place]


_current: contextvars.ContextVar[World] = contextvars.ContextVar("pledger_simulated_world")


def outside() -> World:
    """The world that the present activity acts on. Raises UsageError outside of a simulation."""
    world = _current.get(None)
    if world is None:
        raise UsageError("there is no simulated world here: outside() is for activities that run in a Simulation")
    return world
