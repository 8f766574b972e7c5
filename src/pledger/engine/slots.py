"""How many attempts may run at a time on one worker: of any kind, and of those that take a thread or a process.

An activity that has no room waits in the store, where another worker may take it, and not in this worker's memory: its
start-to-close time begins with its attempt, and must not pass in a line for a thread.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pledger.machine.definitions import ActivityDefinition


class Slots:
    """definitions: the activities of the worker, which a test may add to.

    freed: called when there is room for a kind of attempt after there was none.
    """

    def __init__(
        self, definitions: Mapping[str, ActivityDefinition[Any, Any]], *, attempts_max: int, threads_max: int
    ) -> None:
        self._definitions = definitions
        self._attempts = attempts_max
        self._threads = threads_max
        self.freed: Callable[[], None] = lambda: None

    def has_room(self, activity_type: str) -> bool:
        """Whether one more of this activity may start; False for one that is not known here."""
        definition = self._definitions.get(activity_type)
        if definition is None or self._attempts <= 0:
            return False
        return self._threads > 0 or definition.executor == "async"

    def try_take(self, activity_type: str) -> bool:
        """Take room for one more of this activity, if there is any. `has_room` and `take` in one: it is on every step's
        path."""
        definition = self._definitions.get(activity_type)
        if definition is None or self._attempts <= 0:
            return False
        if definition.executor != "async":
            if self._threads <= 0:
                return False
            self._threads -= 1
        self._attempts -= 1
        return True

    def take(self, activity_type: str) -> None:
        self._attempts -= 1
        if self._definitions[activity_type].executor != "async":
            self._threads -= 1

    def give(self, activity_type: str) -> None:
        self._attempts += 1
        was_full = self._attempts == 1
        if self._definitions[activity_type].executor != "async":
            self._threads += 1
            was_full = was_full or self._threads == 1
        if was_full:
            self.freed()

    @contextlib.contextmanager
    def kept(self, types: list[str], count: int) -> Iterator[None]:
        """While a claim of so many of these is on its way, nobody else takes their room."""
        threads = count if types and self._is_threaded(types[0]) else 0
        self._attempts -= count
        self._threads -= threads
        try:
            yield
        finally:
            self._attempts += count
            self._threads += threads

    def claimable(self) -> Iterator[tuple[list[str], int]]:
        """(activity types, how many of them may start) of each kind: ask for the second once the first is taken."""
        threaded = [name for name in self._definitions if self._is_threaded(name)]
        if len(threaded) < len(self._definitions):
            yield [name for name in self._definitions if not self._is_threaded(name)], self._attempts
        if threaded:
            yield threaded, min(self._attempts, self._threads)

    def _is_threaded(self, activity_type: str) -> bool:
        return self._definitions[activity_type].executor != "async"
