"""A fail-over that loses the tail: the ledger, and what is known of it, as of the moment when a replica stopped to
follow."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from pledger.store.memory import State, losses

if TYPE_CHECKING:
    from pledger.testing.handles import Witness

#: What a ledger holds, without what those need who have opened it.
_ROWS: Final = [each.name for each in fields(State) if each.name not in {"clock", "keys", "lock", "listeners"}]


class Tail:
    """What was written since `Tail(...)` is gone after `cut`."""

    def __init__(self, state: State, marks: Mapping[str, int], witnesses: Sequence[Witness]) -> None:
        self.marks = dict(marks)
        self._known = [(each, each.remember()) for each in witnesses]
        self._kept = copy_of(state)

    def cut(self, state: State) -> None:
        """The ledger as it was then, and the loss declared, as whoever comes first does it."""
        for each in _ROWS:
            setattr(state, each, getattr(self._kept, each))
        state.keys = self._kept.keys
        losses.declare_loss(state)
        for witness, known in self._known:
            witness.went_back(known, state)


def copy_of(state: State) -> State:
    """The ledger as it is now, for itself."""
    key = next(state.keys)
    state.keys = itertools.count(key)
    copied = {each: _copy(getattr(state, each)) for each in _ROWS}
    return State(state.clock, itertools.count(key), **copied)


def _copy(value: Any) -> Any:
    """Of the containers; what is in them never changes."""
    if isinstance(value, dict):
        return {key: _copy(each) for key, each in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{each.name: _copy(getattr(value, each.name)) for each in fields(value)})
    if isinstance(value, list):
        return list(value)
    return set(value) if isinstance(value, set) else value
