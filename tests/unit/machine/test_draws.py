from __future__ import annotations

import random
import uuid

import pytest

from pledger.machine.draws import Draws

HERE = ((0, 2), "shop.fulfil")


def test_the_values_are_those_that_histories_were_made_with() -> None:
    # Golden: another value here breaks every run that sleeps on a drawn id. The methods of the generator are in it
    # because the standard library promises `random()` alone across versions.
    draws = Draws(bytes(range(16)))
    assert draws.key(*HERE).hex() == "991be44d6e0117adb6344e4f0fdef73beb9a743c7ffa889448a654924d5a933d"
    assert str(draws.uuid4(*HERE)) == "e81fe135-8664-4bca-bebf-739cee3f7a98"
    assert str(draws.uuid4(*HERE, "child")) == "0c0be66f-bb4f-45a5-923f-2b978c5005b4"
    assert draws.entropy(8, *HERE).hex() == "6388a35ff1340ca6"
    chance = draws.generator(*HERE)
    shuffled = list(range(5))
    chance.shuffle(shuffled)
    drawn = (
        chance.random(),
        chance.getrandbits(64),
        chance.randint(1, 6),
        chance.randrange(10**12),
        chance.choice("abcdef"),
        chance.choices("abc", weights=[1, 2, 3], k=3),
        chance.sample(range(100), 3),
        shuffled,
        chance.uniform(1, 2),
        chance.gauss(0, 1),
        chance.expovariate(1.0),
        chance.randbytes(4).hex(),
    )
    assert drawn == (
        0.29527126688817673,
        647231975059134941,
        5,
        770585917476,
        "e",
        ["b", "c", "a"],
        [58, 38, 69],
        [1, 3, 4, 0, 2],
        1.7010757603506579,
        pytest.approx(-0.7401318792938808),  # these two ask the platform's mathematics
        pytest.approx(0.22567950728352412),
        "ccc8eae2",
    )


def test_an_id_has_the_form_of_version_4() -> None:
    drawn = Draws(b"seed").uuid4(*HERE)
    assert drawn.version == 4
    assert drawn.variant == uuid.RFC_4122


def test_drawing_again_at_the_same_place_gives_another_value() -> None:
    draws = Draws(b"seed")
    assert len({draws.uuid4(*HERE) for _ in range(100)}) == 100
    assert len({draws.uuid4(*HERE, "child") for _ in range(100)}) == 100
    assert len({draws.generator(*HERE).random() for _ in range(100)}) == 100
    assert len({draws.entropy(16, *HERE) for _ in range(100)}) == 100


def test_a_name_keeps_its_value_when_the_code_moves() -> None:
    assert Draws(b"seed").uuid4((0,), "f", "child") == Draws(b"seed").uuid4((1, 2), "g", "child")


def test_a_name_counts_over_the_whole_run() -> None:
    draws, other = Draws(b"seed"), Draws(b"seed")
    assert [draws.key((0,), "f", "n"), draws.key((1,), "g", "n")] == [
        other.key((1,), "g", "n"),
        other.key((0,), "f", "n"),
    ]


def test_one_kind_does_not_shift_another() -> None:
    draws = Draws(b"seed")
    draws.generator(*HERE)
    draws.entropy(4, *HERE)
    assert draws.uuid4(*HERE) == Draws(b"seed").uuid4(*HERE)


def test_what_is_drawn_from_a_generator_shifts_nothing() -> None:
    draws, other = Draws(b"seed"), Draws(b"seed")
    first = draws.generator(*HERE)
    other.generator(*HERE)
    [first.random() for _ in range(10)]
    assert draws.generator(*HERE).random() == other.generator(*HERE).random()


def test_the_global_generator_is_not_touched() -> None:
    random.seed(1)
    before = random.getstate()
    Draws(b"seed").generator(*HERE).random()
    assert random.getstate() == before


@pytest.mark.parametrize("size", [0, 1, 32, 1000])
def test_entropy_has_the_size_that_was_asked_for(size: int) -> None:
    assert len(Draws(b"seed").entropy(size, *HERE)) == size


@pytest.mark.parametrize("seed", [b"", bytes(64), bytes(65), bytes(1000)])
def test_a_seed_may_have_any_length(seed: bytes) -> None:
    assert Draws(seed).key(*HERE) == Draws(seed).key(*HERE)
    assert Draws(seed).key(*HERE) != Draws(seed + b"\0").key(*HERE)
