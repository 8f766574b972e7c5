"""The explorer itself, on a model whose states can be counted by hand."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.model.explorer import Move, State, explore, explore_to_the_end


class Jugs:
    """Two jugs of `sizes` litres: fill one, empty one, pour one into the other. wrong: one holds `unwanted` litres."""

    initial = bytes(2)

    def __init__(self, sizes: tuple[int, int], unwanted: int = 100) -> None:
        self.sizes = sizes
        self.unwanted = unwanted

    def moves(self, state: State) -> Iterator[Move]:
        for jug in (0, 1):
            other = 1 - jug
            poured = min(state[jug], self.sizes[other] - state[other])
            after = {jug: state[jug] - poured, other: state[other] + poured}
            yield ("fill", jug), bytes(self.sizes[jug] if i == jug else state[i] for i in (0, 1))
            yield ("empty", jug), bytes(0 if i == jug else state[i] for i in (0, 1))
            yield ("pour", jug), bytes(after[i] for i in (0, 1))

    def wrong(self, state: State) -> str | None:
        return f"a jug holds {self.unwanted}" if self.unwanted in state else None

    def canonical(self, state: State) -> State:
        return min(state, state[::-1]) if self.sizes[0] == self.sizes[1] else state

    def tell(self, state: State) -> str:
        return "{}+{}".format(*state)


def test_it_finds_every_state() -> None:
    explored = explore(Jugs((3, 5)))
    # One of the jugs is empty or full at any time: 2 * 4 + 2 * 6 states, of which four are counted twice.
    assert (explored.states, explored.complete, explored.violation) == (16, True, None)
    assert explored.steps == {"fill", "empty", "pour"}


def test_states_that_differ_by_names_count_once() -> None:
    assert explore(Jugs((3, 3))).states == 3  # both empty, one full, both full


def test_it_gives_a_shortest_trace_step_by_step() -> None:
    violation = explore(Jugs((3, 5), unwanted=4)).violation
    assert violation is not None
    assert violation.trace == [
        ("the start", "0+0"),
        ("fill 1", "0+5"),
        ("pour 1", "3+2"),
        ("empty 0", "0+2"),
        ("pour 1", "2+0"),
        ("fill 1", "2+5"),
        ("pour 1", "3+4"),
    ]
    assert str(violation).startswith("a jug holds 4\n  0. the start\n     0+0\n  1. fill 1\n     0+5\n")


def test_a_trace_keeps_the_names_of_its_parts() -> None:
    """Though one state stands for two, each step of a trace follows from the one before."""
    violation = explore(Jugs((3, 3), unwanted=3)).violation
    assert violation is not None
    assert [state for _, state in violation.trace] == ["0+0", "3+0"]


@pytest.mark.parametrize("bound", [1, 5])
def test_a_bound_is_told(bound: int) -> None:
    explored = explore(Jugs((3, 5)), states_max=bound)
    assert not explored.complete
    assert bound <= explored.states < 16


class Queue:
    """A few people before a counter, one of whom is served at a time; `comes_back` goes to the end again. One may be
    sent home, which nobody has to wait for."""

    def __init__(self, people: int, *, comes_back: int = 0, counter_open: bool = True) -> None:
        self.initial = bytes(range(1, people + 1))
        self.comes_back = comes_back
        self.counter_open = counter_open

    def moves(self, state: State) -> Iterator[Move]:
        if state and self.counter_open:
            yield ("serve", state[0]), state[1:] + state[:1] * (state[0] == self.comes_back)
        if len(state) > 1:
            yield ("send home", state[-1]), state[:-1]

    def wrong(self, _: State) -> str | None:
        return None

    def canonical(self, state: State) -> State:
        return state

    def tell(self, state: State) -> str:
        return str(list(state))

    def goes_on(self, step: tuple[object, ...], _: State) -> bool:
        return step[0] == "serve"

    def unsettled(self, state: State) -> str | None:
        return f"{len(state)} still wait" if state else None


def test_what_goes_on_and_comes_to_a_good_end_is_let_alone() -> None:
    assert explore_to_the_end(Queue(3)).violation is None


def test_what_ends_too_early_is_found() -> None:
    violation = explore_to_the_end(Queue(2, counter_open=False)).violation
    assert violation is not None
    assert (violation.what, violation.trace) == ("2 still wait", [("the start", "[1, 2]")])


def test_what_goes_round_for_ever_is_found_with_its_way_there() -> None:
    violation = explore_to_the_end(Queue(2, comes_back=2)).violation
    assert violation is not None
    assert violation.what == "it comes to rest: it goes round for ever"
    assert violation.trace == [("the start", "[1, 2]"), ("serve 1", "[2]"), ("and again", "[2]")]
