"""Figures, their targets, and whether those are met. The targets are those that the project has set itself."""

import statistics
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from benchmarks.bench import Bench
    from benchmarks.ground import StoreName

#: What one repeat found: the key of a figure, its value in the figure's unit.
Values: TypeAlias = dict[str, float]

Verdict: TypeAlias = Literal["met", "missed", "not measured", "disturbed", ""]


@dataclass(frozen=True, slots=True)
class Figure:
    """One number. unit: "ms" is compared with the durable commit measured beside it. target: in that unit, a bound from
    above, or from below with at_least; None where there is none. on_postgres: the target there."""

    key: str
    label: str
    unit: str
    target: float | None = None
    at_least: bool = False
    on_postgres: float | None = None

    def verdict(self, values: Sequence[float]) -> Verdict:
        """Of the median."""
        if self.target is None:
            return ""
        if not values:
            return "not measured"
        median = statistics.median(values)
        return "met" if (median >= self.target if self.at_least else median <= self.target) else "missed"

    def share_of_target(self, value: float) -> float:
        """1.0 is the target; below is better, whichever way the target points."""
        assert self.target is not None
        return self.target / value if self.at_least else value / self.target

    @property
    def bound(self) -> str:
        """The target in words."""
        if self.target is None:
            return ""
        return f"{'≥' if self.at_least else '≤'} {shown(self.target, self.unit)}"


@dataclass(frozen=True, slots=True)
class Workload:
    """measure: one repeat, in a process and on a ledger of its own. stores: where it says something. repeats_max: of
    one whose preparation takes a minute."""

    name: str
    title: str
    figures: tuple[Figure, ...]
    measure: Callable[["Bench"], Awaitable[Values]]
    stores: frozenset["StoreName"] = frozenset({"sqlite", "postgres"})
    repeats_max: int | None = None

    def figures_on(self, store: "StoreName") -> tuple[Figure, ...]:
        """With the targets of that store."""
        if store == "sqlite":
            return self.figures
        return tuple(replace(figure, target=figure.on_postgres) for figure in self.figures)


#: Decimals of what is below these bounds; what is larger has none.
_DECIMALS: Final = ((0.0995, 3), (9.95, 2), (99.5, 1))


def shown(value: float, unit: str = "") -> str:
    """Three digits or so, with the unit: 0.083 s, 1.25 ms, 15,000 steps/s."""
    decimals = next((decimals for bound, decimals in _DECIMALS if abs(value) < bound), 0)
    text = f"{value:,.{decimals}f}"
    if "." in text and float(text.replace(",", "")) == value:
        text = text.rstrip("0").rstrip(".")
    return f"{text} {unit}".rstrip()


def percentile(values: Sequence[float], percent: float) -> float:
    """The nearest value: no interpolation between two that were measured."""
    ordered = sorted(values)
    return ordered[round(percent / 100 * (len(ordered) - 1))]
