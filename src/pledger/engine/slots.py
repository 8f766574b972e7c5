"""How many attempts may run at a time on one worker: of any kind, and of those that take a thread or a process.

An activity that has no room waits in the store, where another worker may take it, and not in this worker's memory: its
start-to-close time begins with its attempt, and must not pass in a line for a thread.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from pledger.machine.definitions import ActivityDefinition

Kind: TypeAlias = tuple[bool, bool]
"""(takes a thread, takes a connection for transactions): those of one kind have the same room."""


class Slots:
    """definitions: the activities of the worker, which a test may add to. transactions_max: attempts that may hold one
    of the worker's connections for transactions.

    freed: called when there is room for a kind of attempt after there was none. refill: called before that, whenever a
    slot is given, while there is somebody who waits for one; else None.
    """

    def __init__(
        self,
        definitions: Mapping[str, ActivityDefinition[Any, Any]],
        *,
        attempts_max: int,
        threads_max: int,
        transactions_max: int = 1,
    ) -> None:
        self._definitions = definitions
        self._attempts = attempts_max
        self._threads = threads_max
        self._transactions = transactions_max
        self._max = (attempts_max, threads_max, transactions_max)
        self._kinds: list[tuple[Kind, list[str]]] = []
        self._known = 0
        self.freed: Callable[[], None] = lambda: None
        self.refill: Callable[[], None] | None = None

    def has_room(self, activity_type: str) -> bool:
        """Whether one more of this activity may start; False for one that is not known here."""
        definition = self._definitions.get(activity_type)
        if definition is None or self._attempts <= 0:
            return False
        if definition.transaction is not None and self._transactions <= 0:
            return False
        return self._threads > 0 or definition.executor == "async"

    def try_take(self, activity_type: str) -> bool:
        """Take room for one more of this activity next to its run, if there is any. It is on every step's path. One
        with a transaction never runs there: its row is what that is committed with."""
        definition = self._definitions.get(activity_type)
        if definition is None or self._attempts <= 0 or definition.transaction is not None:
            return False
        if definition.executor != "async":
            if self._threads <= 0:
                return False
            self._threads -= 1
        self._attempts -= 1
        return True

    def take(self, activity_type: str) -> None:
        definition = self._definitions[activity_type]
        self._attempts -= 1
        if definition.executor != "async":
            self._threads -= 1
        if definition.transaction is not None:
            self._transactions -= 1

    def give(self, activity_type: str) -> None:
        definition = self._definitions[activity_type]
        self._attempts += 1
        was_full = self._attempts == 1
        if definition.executor != "async":
            self._threads += 1
            was_full = was_full or self._threads == 1
        if definition.transaction is not None:
            self._transactions += 1
            was_full = was_full or self._transactions == 1
        if self.refill is not None:
            self.refill()
        if was_full:
            self.freed()

    @contextlib.contextmanager
    def kept(self, types: Sequence[str], count: int) -> Iterator[None]:
        """While a claim of so many of these is on its way, nobody else takes their room, of whatever kind they are."""
        is_threaded = any(self._definitions[each].executor != "async" for each in types)
        has_transaction = any(self._definitions[each].transaction is not None for each in types)
        threads, transactions = count * is_threaded, count * has_transaction
        self._attempts -= count
        self._threads -= threads
        self._transactions -= transactions
        try:
            yield
        finally:
            self._attempts += count
            self._threads += threads
            self._transactions += transactions

    def claimable(self) -> Iterator[tuple[list[str], int]]:
        """(activity types, how many of them may start) of each kind: ask for the next once the one before is taken."""
        for kind, names in self._by_kind():
            yield names, self._room(kind)

    def together(self) -> tuple[list[str], int]:
        """The activity types of several kinds, and how many of them may start whatever kind they are; none where one
        kind is all there is. Without those that take a connection: there are few of those, which would hold up the
        others."""
        kinds = [(kind, names) for kind, names in self._by_kind() if not kind[1]]
        if len(kinds) < 2:  # noqa: PLR2004 - several
            return [], 0
        return [name for _, names in kinds for name in names], min(self._room(kind) for kind, _ in kinds)

    def _by_kind(self) -> list[tuple[Kind, list[str]]]:
        if self._known != len(self._definitions):
            kinds: dict[Kind, list[str]] = {}
            for name in self._definitions:
                kinds.setdefault(self.kind(name), []).append(name)
            self._kinds, self._known = sorted(kinds.items()), len(self._definitions)
        return self._kinds

    def _room(self, kind: Kind) -> int:
        is_threaded, has_transaction = kind
        room = min(self._attempts, self._threads) if is_threaded else self._attempts
        return min(room, self._transactions) if has_transaction else room

    def free(self) -> tuple[int, int, int]:
        """How many attempts may start now; how many of those in threads and processes; and with transactions."""
        return self._attempts, self._threads, self._transactions

    @property
    def all(self) -> tuple[int, int, int]:
        """The same of a worker with nothing to do."""
        return self._max

    def kind(self, activity_type: str) -> Kind:
        definition = self._definitions[activity_type]
        return definition.executor != "async", definition.transaction is not None

    def most(self, kind: Kind) -> int:
        """How many of a kind there are, free or not."""
        attempts, threads, transactions = self._max
        is_threaded, has_transaction = kind
        return min(attempts, threads if is_threaded else attempts, transactions if has_transaction else attempts)
