"""What stores do about dependencies: they keep a row of each, and change it by the rules of `circuit`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from pledger.engine.port import circuit
from pledger.engine.port.circuit import Dependency, Tally
from pledger.engine.port.records import Record
from pledger.history.budget import BudgetRule

DependencyRows: TypeAlias = Mapping[str, Dependency]
"""Dependencies by name."""


class Stated(NamedTuple):
    """What the code of a worker says of a dependency."""

    rule: BudgetRule
    activity_types: tuple[str, ...]


class Ask(Record, frozen=True):
    """What an operator asks for. is_pause: or to resume. at_once: of a resume, let all attempts begin."""

    is_pause: bool
    reason: str
    by: str
    at_once: bool = False


def asked(found: Dependency, ask: Ask, now_ms: int) -> Dependency:
    """With what an operator asks for."""
    if ask.is_pause:
        return circuit.paused(found, ask.reason, ask.by, now_ms)
    return circuit.resumed(found, ask.reason, ask.by, now_ms, at_once=ask.at_once)


class Dependencies(Protocol):
    """Systems that activities depend on, of a namespace. All times are the store's."""

    async def state_dependencies(self, namespace: str, stated: Mapping[str, Stated]) -> DependencyRows:
        """What a worker says that starts. As they are now."""
        ...

    async def report_calls(self, namespace: str, tallies: Mapping[str, Sequence[Tally]]) -> DependencyRows:
        """What a worker has seen of them since it reported last. As they are now; those that nobody has stated are left
        out. Whoever waits for one of them is told when it lets more through than before.

        Not durable: what a crash takes concerned the last moments before it.
        """
        ...

    async def read_dependencies(self, namespace: str) -> DependencyRows:
        """As they are now, in the order of their names."""
        ...

    async def ask_dependency(self, namespace: str, name: str, ask: Ask) -> tuple[Dependency, Dependency] | None:
        """Pause or resume it: before and after. None when nobody has stated such a one. Durable before it returns."""
        ...


def lets_more_through(before: Dependency, after: Dependency) -> bool:
    """Whether those who wait for it should look."""
    if before == after or after.concurrency == 0:
        return False
    return (before.phase, before.limit) != (after.phase, after.limit) or after.tokens > before.tokens
