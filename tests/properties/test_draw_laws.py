"""Laws of draws: a value depends on the seed, the place and the ordinal there, and on nothing else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pledger.machine.draws import Draws

seeds = st.binary(min_size=1, max_size=80)
paths = st.lists(st.integers(0, 3), max_size=3).map(tuple)
callers = st.sampled_from(["", "f", "g", "f.g", "Order.run"])
names = st.none() | st.sampled_from(["", "f", "child"])
kinds = st.sampled_from(["key", "uuid4", "generator", "entropy"])
draws_asked = st.tuples(paths, callers, names, kinds)

Asked = tuple[tuple[int, ...], str, str | None, str]
Place = tuple[object, ...]


def place_of(asked: Asked) -> Place:
    path, caller, name, kind = asked
    return (kind, path, caller) if name is None else (kind, name)


def values_by_place(seed: bytes, asked: list[Asked]) -> dict[Place, list[bytes]]:
    draws = Draws(seed)
    found: dict[Place, list[bytes]] = {}
    for one in asked:
        path, caller, name, kind = one
        found.setdefault(place_of(one), []).append(draws.key(path, caller, name, kind=kind))
    return found


@given(seed=seeds, asked=st.lists(draws_asked, max_size=30))
def test_the_same_draws_give_the_same_values(seed: bytes, asked: list[Asked]) -> None:
    assert values_by_place(seed, asked) == values_by_place(seed, asked)


@given(seed=seeds, asked=st.lists(draws_asked, max_size=20), more=draws_asked, at=st.integers(0, 20))
def test_one_more_draw_shifts_only_its_own_place(seed: bytes, asked: list[Asked], more: Asked, at: int) -> None:
    before = values_by_place(seed, asked)
    after = values_by_place(seed, [*asked[:at], more, *asked[at:]])
    for place, values in before.items():
        assert after[place][: len(values)] == values
        assert len(after[place]) == len(values) + (place == place_of(more))


@given(seed=seeds, data=st.data(), asked=st.lists(draws_asked, max_size=20))
def test_the_order_between_places_carries_no_meaning(seed: bytes, data: st.DataObject, asked: list[Asked]) -> None:
    assert values_by_place(seed, data.draw(st.permutations(asked))) == values_by_place(seed, asked)


@given(seed=seeds, asked=st.lists(draws_asked, max_size=30))
def test_no_two_draws_of_a_run_have_the_same_value(seed: bytes, asked: list[Asked]) -> None:
    values = [value for values in values_by_place(seed, asked).values() for value in values]
    assert len(set(values)) == len(values)


@given(one=seeds, other=seeds, asked=draws_asked)
def test_runs_of_different_seeds_share_no_value(one: bytes, other: bytes, asked: Asked) -> None:
    same = values_by_place(one, [asked]) == values_by_place(other, [asked])
    assert same == (one == other)


@given(seed=seeds, one=st.text(max_size=3), middle=st.text(min_size=1, max_size=3), other=st.text(max_size=3))
def test_parts_do_not_run_into_each_other(seed: bytes, one: str, middle: str, other: str) -> None:
    assert Draws(seed).key((), middle + other, kind=one) != Draws(seed).key((), other, kind=one + middle)
    assert Draws(seed).key((), other) != Draws(seed).key((), "", other)
    assert Draws(seed).key((0,), other) != Draws(seed).key((0, 0), other)
