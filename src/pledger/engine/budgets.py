"""What a worker knows of the dependencies of its activities, and what it reports of them.

Whether an attempt from the queue may start is decided in the store, in the claim. An eager attempt starts without
asking: only while the worker knows, from a short while ago, that the circuit is closed; otherwise it goes by the queue,
and the claim tells how things are. What attempts come to is gathered, and reported for all of them at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from pledger import errors
from pledger.engine.port.circuit import TEXT_MAX, Tally
from pledger.engine.port.dependencies import Stated, lets_more_through
from pledger.engine.verdicts import is_final
from pledger.history.failures import Failure, is_benign

if TYPE_CHECKING:
    from pledger.engine.attempt import Attempt
    from pledger.engine.port.circuit import Dependency
    from pledger.engine.port.lanes import Bounds
    from pledger.engine.port.verbs import Store

logger = logging.getLogger("pledger.engine")

#: What is known counts for so long, in seconds: so late at most a worker starts what has been stopped meanwhile.
FRESH_S: Final = 2.0
#: Between two reports. Of what is half open, each end is reported at once: everybody waits for it.
REPORT_S: Final = 0.25
#: A last report, of a worker that leaves, has so long.
LAST_REPORT_S: Final = 1.0

#: Kinds of failure that say nothing of what the attempt depended on.
_NOT_BY_THE_DEPENDENCY: Final = frozenset({"cancelled", "worker_lost", "terminated"})


class Budgets:
    """on_change: called when one lets more through than before, by what this worker has reported."""

    def __init__(
        self,
        store: Store,
        loop: asyncio.AbstractEventLoop,
        namespace: str,
        bounds: Bounds,
        on_change: Callable[[], None],
    ) -> None:
        self._store = store
        self._loop = loop
        self._namespace = namespace
        self._names = bounds.dependencies
        self._rules = bounds.budgets
        self._on_change = on_change
        self._known: dict[str, tuple[float, Dependency]] = {}
        self._tallies: dict[tuple[str, int], Tally] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._reporting: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Say what the code states. Raises StoreError."""
        types: dict[str, list[str]] = {name: [] for name in self._rules}
        for activity_type, name in self._names.items():
            types[name].append(activity_type)
        asked_at = self._loop.time()
        stated = {name: Stated(rule, tuple(sorted(types[name]))) for name, rule in self._rules.items()}
        self.learn(await self._store.state_dependencies(self._namespace, stated), asked_at)

    def learn(self, found: Mapping[str, Dependency], asked_at: float) -> None:
        """How some of them are. asked_at: when that was asked, by the loop's clock."""
        for name, row in found.items():
            known = self._known.get(name)
            if known is None or known[0] <= asked_at:
                self._known[name] = (asked_at, row)

    def may_start(self, activity_type: str) -> bool:
        """Whether a first attempt need not go by the queue."""
        name = self._names.get(activity_type)
        if name is None:
            return True
        known = self._known.get(name)
        return known is not None and known[1].phase == "closed" and self._loop.time() < known[0] + FRESH_S

    # What its attempts come to ----------------------------------------------------------------------------------------

    def began(self, attempt: Attempt) -> None:
        name = self._names.get(attempt.definition.name)
        if name is None:
            return
        known = self._known.get(name)
        attempt.opened = 0 if known is None else known[1].opened
        if attempt.number == 1:
            self._note(name, Tally(attempt.opened, calls=1))

    def ended(self, attempt: Attempt, failure: Failure | None) -> None:
        """Of an attempt that began here. failure: None for one that has brought a result."""
        name, opened = self._names.get(attempt.definition.name), attempt.opened
        if name is None or opened is None or (failure is not None and failure.kind in _NOT_BY_THE_DEPENDENCY):
            return
        # It has said no, and would say so again, or has said what its caller expects: it works.
        if failure is None or is_benign(failure) or is_final(attempt.command, failure):
            self._note(name, Tally(opened, succeeded=1))
        else:
            line = f"{failure.type}: {failure.message}".partition("\n")[0].rstrip(": ")[:TEXT_MAX]
            self._note(name, Tally(opened, failed=1, last_failure=line))

    def _note(self, name: str, more: Tally) -> None:
        there = self._tallies.get((name, more.opened))
        self._tallies[name, more.opened] = more if there is None else _sum(there, more)
        known = self._known.get(name)
        is_urgent = known is not None and known[1].phase != "closed" and not more.calls
        if self._timer is not None and is_urgent:
            self._timer.cancel()
            self._timer = None
        if self._timer is None and self._reporting is None:
            self._timer = self._loop.call_later(0 if is_urgent else REPORT_S, self._report)

    def _report(self) -> None:
        self._timer = None
        self._reporting = self._loop.create_task(self._write(), name="pledger-budgets")

    async def _write(self) -> None:
        """What cannot be written is dropped: it would be about a time that is long past when the store is back."""
        try:
            tallies, self._tallies = self._tallies, {}
            by_name: dict[str, list[Tally]] = {}
            for (name, _), tally in tallies.items():
                by_name.setdefault(name, []).append(tally)
            asked_at = self._loop.time()
            before = {name: known[1] for name, known in self._known.items()}
            found = await self._store.report_calls(self._namespace, by_name)
            self.learn(found, asked_at)
            if any(name not in before or lets_more_through(before[name], row) for name, row in found.items()):
                self._on_change()
        except errors.StoreError as error:
            logger.debug("what attempts have come to could not be reported: %s", error)
        finally:
            self._reporting = None
            if self._tallies and self._timer is None:
                self._timer = self._loop.call_later(REPORT_S, self._report)

    async def stop(self) -> None:
        """Report the last of it, if that is quickly done."""
        if self._timer is not None:
            self._timer.cancel()
            self._report()
        if self._reporting is not None:
            await asyncio.wait([self._reporting], timeout=LAST_REPORT_S)
        if self._timer is not None:
            self._timer.cancel()


def _sum(one: Tally, other: Tally) -> Tally:
    return Tally(
        one.opened,
        one.calls + other.calls,
        one.succeeded + other.succeeded,
        one.failed + other.failed,
        other.last_failure or one.last_failure,
    )
