"""What an auditor sees of a ledger at one instant, whatever kind of ledger it is."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pledger.engine.port.pauses import Pause
    from pledger.engine.port.records import RunRow, TaskRow
    from pledger.history.transition import StoredTransition
    from pledger.store.memory import State


class View(Protocol):
    def run(self, run_key: int) -> RunRow | None: ...
    def current(self, run_key: int) -> RunRow | None:
        """The newest run of its chain."""
        ...

    def tasks(self, run_key: int) -> Mapping[int, TaskRow]:
        """By event id."""
        ...

    def has_mail(self, chain_key: int) -> bool:
        """Whether a message waits for the run."""
        ...

    def children(self, run_key: int) -> Sequence[tuple[int, str]]:
        """Key and run id of the first run of each child of the run."""
        ...

    def history(self, run_key: int) -> Sequence[StoredTransition]:
        """Of a run that has just been reset."""
        ...

    def open_runs(self) -> Iterable[int]: ...
    def sessions(self) -> Collection[int]: ...
    def pauses(self) -> Collection[Pause]: ...


class StateView:
    """Of a ledger in memory."""

    def __init__(self, state: State) -> None:
        self._state = state

    def run(self, run_key: int) -> RunRow | None:
        return self._state.runs.get(run_key)

    def current(self, run_key: int) -> RunRow | None:
        run = self._state.runs.get(run_key)
        return None if run is None else self._state.current_of(run)

    def tasks(self, run_key: int) -> Mapping[int, TaskRow]:
        return self._state.tasks.get(run_key, {})

    def has_mail(self, chain_key: int) -> bool:
        return bool(self._state.waiting(chain_key))

    def children(self, run_key: int) -> Sequence[tuple[int, str]]:
        state = self._state
        chains = state.children.get(run_key, ())
        runs = (state.runs[key] for each in chains for key in state.newest[state.links[each].child])
        return [(run.run_key, run.run_id) for run in runs if run.chain_key in chains]

    def history(self, run_key: int) -> Sequence[StoredTransition]:
        return self._state.histories[run_key]

    def open_runs(self) -> Iterable[int]:
        return sorted(self._state.open_runs)

    def sessions(self) -> Collection[int]:
        return self._state.sessions.keys()

    def pauses(self) -> Collection[Pause]:
        return self._state.pauses.values()
