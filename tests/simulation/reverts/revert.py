"""A planted bug, and how many seeds it takes to find it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from pledger.testing import Faults, SimulationFailedError
from tests.reference.cases import Case
from tests.simulation.running import case, simulate

DEATHS: Final = Faults(kill=0.3, kill_at_commit=0.05, pause=0.3, restart=0.1)
ANSWERS_LOST: Final = Faults(reply_lost=0.1, store_unavailable=0.1)
RETRIES_LOST: Final = Faults(reply_lost=0.1, effect_refused=0.5)
JUMPS: Final = Faults(clock_jump=0.3)
STANDSTILLS: Final = Faults(pause=0.6, slow_store=0.3)


@dataclass(frozen=True)
class Revert:
    """take_out: patches the defence away. broken: one of these promises must be found broken. store: where.

    faults, cases, options, settings: what it takes to need the defence. cases: by name, or of its own; options: of the
    simulation; settings: of
    its parts, by their full names.
    """

    take_out: Callable[[pytest.MonkeyPatch], None]
    broken: tuple[str, ...]
    faults: Faults = field(default_factory=Faults)
    cases: tuple[str | Case, ...] = ()
    store: str = "memory"
    options: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.take_out.__name__

    def run(self, seed: int) -> None:
        """Raises SimulationFailedError."""
        cases = [case(each) if isinstance(each, str) else each for each in self.cases]
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self.settings.items():
                patch.setattr(name, value)
            simulate(seed, self.faults, cases, store=self.store, **self.options)

    def find(self, seeds: range) -> Found | None:
        """The first of the seeds that finds it."""
        with pytest.MonkeyPatch.context() as patch:
            self.take_out(patch)
            for seed in seeds:
                try:
                    self.run(seed)
                except SimulationFailedError as error:
                    return Found(seed, error.violations)
        return None


@dataclass(frozen=True)
class Found:
    """violations: in words, the first one first."""

    seed: int
    violations: list[str]


def several(name: str, runs: int, **changes: Any) -> tuple[Case, ...]:
    """So many runs of one case, with changes."""
    return (dataclasses.replace(case(name), **changes),) * runs
