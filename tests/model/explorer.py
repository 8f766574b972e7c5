"""A small explicit-state model checker: every state that a model can reach, breadth first.

A state is `bytes`: cheap to hash, to compare and to keep a million of. Breadth first, so the trace to the first
violation is a shortest one. States that differ only by the names of equal parts (two workers) count as one: the model's
`canonical` chooses which of them stands for all.

Only canonical states are remembered, each with the one before it. A trace is found by walking the model again from the
start, taking at each step a move that leads to the next remembered state; so its parts keep their names throughout.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
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


class Lively(Model, Protocol):
    """A model that also says what has to happen once nothing hinders it."""

    def goes_on(self, step: tuple[object, ...], state: State) -> bool:
        """Whether the move happens by itself, sooner or later: no fault, and nobody's free decision."""
        ...

    def unsettled(self, state: State) -> str | None:
        """Of a state in which nothing goes on by itself any more: what should not have been left so, or None."""
        ...


def explore(model: Model, states_max: int = 10_000_000) -> Explored:
    """Look at every state that the model can reach, nearest first, until one is wrong or `states_max` are known."""
    return _explore(model, states_max)[0]


def explore_to_the_end(model: Lively, states_max: int = 10_000_000) -> Explored:
    """The same, and then how it goes on from each of the states if only what comes by itself happens: it must come to
    rest, and rest only where nothing is left unsettled."""
    leads_to: dict[State, list[State]] = {}
    explored, before = _explore(_Noting(model, leads_to), states_max)
    if explored.violation is None and explored.complete:
        explored = replace(explored, violation=_unsettled(model, before, leads_to) or _endless(model, before, leads_to))
    return explored


class _Noting:
    """A model that notes where each state leads by itself."""

    def __init__(self, model: Lively, leads_to: dict[State, list[State]]) -> None:
        self.initial = model.initial
        self.wrong, self.canonical, self.tell = model.wrong, model.canonical, model.tell
        self._model = model
        self._leads_to = leads_to

    def moves(self, state: State) -> Iterable[Move]:
        goes_on, canonical = self._model.goes_on, self.canonical
        own = self._leads_to[canonical(state)] = []
        for step, reached in self._model.moves(state):
            key = canonical(reached)
            if goes_on(step, state):
                own.append(key)
            yield step, reached


def _unsettled(model: Lively, before: dict[State, State], leads_to: dict[State, list[State]]) -> Violation | None:
    for state, following in leads_to.items():  # nearest first
        if not following and (what := model.unsettled(state)) is not None:
            return Violation(what, _trace(model, before, state))
    return None


def _endless(model: Model, before: dict[State, State], leads_to: dict[State, list[State]]) -> Violation | None:
    """A way on that never ends. Taking out again and again what leads only to what was taken out leaves just these."""
    led_from: dict[State, list[State]] = {}
    for state, following in leads_to.items():
        for each in following:
            led_from.setdefault(each, []).append(state)
    left = {state: len(following) for state, following in leads_to.items()}
    ended = [state for state, count in left.items() if not count]
    for state in ended:
        for each in led_from.get(state, ()):
            left[each] -= 1
            if not left[each]:
                ended.append(each)
    endless = [state for state, count in left.items() if count]
    if not endless:
        return None
    # The nearest of them that comes again: on from the first one, wherever there is no end.
    way = [endless[0]]
    while (onward := next(each for each in leads_to[way[-1]] if left[each])) not in way:
        way.append(onward)
    circle = [*way[way.index(onward) :], onward]
    trace = _trace(model, before, circle[0])
    told = [("and again", model.tell(state)) for state in circle[1:]]
    return Violation("it comes to rest: it goes round for ever", [*trace, *told])


def _explore(model: Model, states_max: int) -> tuple[Explored, dict[State, State]]:
    """What was found, and each state with the one before it."""
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
                    return Explored(len(before), depth + 1, _names(steps), complete, Violation(what, trace)), before
                following.append(key)
            if len(before) >= states_max:
                complete = False
                break
        depth += bool(following)
        frontier = following
    return Explored(len(before), depth, _names(steps), complete), before


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
