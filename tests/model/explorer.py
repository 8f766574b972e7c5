"""A small explicit-state model checker: every state that a model can reach, breadth first.

A state is `bytes`: cheap to hash, to compare and to keep a million of. Breadth first, so the trace to the first
violation is a shortest one. States that differ only by the names of equal parts (two workers) count as one: the model's
`canonical` chooses which of them stands for all.

Only canonical states are remembered, each with the one before it. A trace is found by walking the model again from the
start, taking at each step a move that leads to the next remembered state; so its parts keep their names throughout.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

State: TypeAlias = bytes
#: What happens, and the state after it. The words are put together only for a trace.
Move: TypeAlias = tuple[tuple[object, ...], State]


class Model(Protocol):
    """What the explorer needs of a model."""

    initial: State

    def moves(self, state: State) -> Iterable[Move]:
        """All that can happen next. Whoever stands still takes no move; a fault is a move like any other."""
        ...

    def wrong(self, state: State) -> str | None:
        """The invariant that the state breaks, in words, or None."""
        ...

    def canonical(self, state: State) -> State:
        """The one that stands for this state and those that differ from it by names only."""
        ...

    def tell(self, state: State) -> str:
        """The state for people."""
        ...


@dataclass(frozen=True)
class Violation:
    """what: the invariant in words. trace: a shortest way there, each step with the state after it."""

    what: str
    trace: list[tuple[str, str]]

    def __str__(self) -> str:
        steps = (f"{number:3}. {step}\n     {state}" for number, (step, state) in enumerate(self.trace))
        return "\n".join([self.what, *steps])


@dataclass(frozen=True)
class Explored:
    """states: how many distinct ones. depth: steps to the farthest. steps: the kinds of move that were taken.

    complete: no state was left out for `states_max`. violation: the first one found.
    """

    states: int
    depth: int
    steps: frozenset[str]
    complete: bool
    violation: Violation | None = None


def explore(model: Model, states_max: int = 10_000_000) -> Explored:
    """Look at every state that the model can reach, nearest first, until one is wrong or `states_max` are known."""
    moves, wrong, canonical = model.moves, model.wrong, model.canonical
    first = canonical(model.initial)
    before: dict[State, State] = {first: first}
    steps: set[object] = set()
    frontier, depth = [first], 0
    complete = True
    while frontier and complete:
        following: list[State] = []
        for state in frontier:
            for step, reached in moves(state):
                key = canonical(reached)
                if key in before:
                    continue
                before[key] = state
                steps.add(step[0])
                if (what := wrong(key)) is not None:
                    trace = _trace(model, before, key)
                    return Explored(len(before), depth + 1, _names(steps), complete, Violation(what, trace))
                following.append(key)
            if len(before) >= states_max:
                complete = False
                break
        depth += bool(following)
        frontier = following
    return Explored(len(before), depth, _names(steps), complete)


def _names(steps: set[object]) -> frozenset[str]:
    return frozenset(str(step) for step in steps)


def _trace(model: Model, before: dict[State, State], last: State) -> list[tuple[str, str]]:
    way = [last]
    while (earlier := before[way[-1]]) != way[-1]:
        way.append(earlier)
    state = model.initial
    told = [("the start", model.tell(state))]
    for key in way[-2::-1]:
        step, state = next(move for move in model.moves(state) if model.canonical(move[1]) == key)
        told.append((" ".join(map(str, step)), model.tell(state)))
    return told
