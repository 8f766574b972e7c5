"""How many attempts may run at a time, of any kind and of those that take a thread or a process."""

from __future__ import annotations

import pytest

from pledger import activity
from pledger.engine.slots import Slots


@activity.defn
async def on_the_loop() -> None: ...


@activity.defn
def in_a_thread() -> None: ...


@activity.defn(executor="process")
def in_a_process() -> None: ...


DEFINITIONS = {each.name: each for each in (on_the_loop, in_a_thread, in_a_process)}


@pytest.fixture
def freed() -> list[str]:
    return []


@pytest.fixture
def slots(freed: list[str]) -> Slots:
    slots = Slots(DEFINITIONS, attempts_max=3, threads_max=2)
    slots.freed = lambda: freed.append("freed")
    return slots


def test_there_are_so_many_and_no_more(slots: Slots) -> None:
    for _ in range(3):
        assert slots.has_room("on_the_loop")
        slots.take("on_the_loop")
    assert not slots.has_room("on_the_loop")
    slots.give("on_the_loop")
    assert slots.has_room("on_the_loop")


@pytest.mark.parametrize("kind", ["in_a_thread", "in_a_process"])
def test_threads_and_processes_are_fewer(slots: Slots, kind: str) -> None:
    slots.take("in_a_thread")
    slots.take("in_a_process")
    assert not slots.has_room(kind)
    assert slots.has_room("on_the_loop")
    slots.give(kind)
    assert slots.has_room("in_a_thread")
    assert slots.has_room("in_a_process")


def test_kinds_are_asked_for_together_while_all_have_room(slots: Slots) -> None:
    assert slots.together() == (["on_the_loop", "in_a_thread", "in_a_process"], 2)
    types, count = slots.together()
    with slots.kept(types, count):
        assert not slots.has_room("in_a_thread")
        assert slots.has_room("on_the_loop")
    slots.take("in_a_thread")
    slots.take("in_a_thread")
    assert slots.together()[1] == 0


def test_one_kind_is_asked_for_by_itself() -> None:
    assert Slots({"on_the_loop": on_the_loop}, attempts_max=3, threads_max=2).together() == ([], 0)


def test_an_activity_that_is_not_known_has_no_room(slots: Slots) -> None:
    assert not slots.has_room("of another program")


def test_each_kind_is_claimed_as_far_as_there_is_room(slots: Slots) -> None:
    claims = slots.claimable()
    assert next(claims) == (["on_the_loop"], 3)
    slots.take("on_the_loop")
    slots.take("on_the_loop")
    # Asked after the first claim has taken its slots.
    assert next(claims) == (["in_a_thread", "in_a_process"], 1)
    assert list(claims) == []


def test_a_kind_without_definitions_is_not_asked_for() -> None:
    slots = Slots({"on_the_loop": on_the_loop}, attempts_max=3, threads_max=2)
    assert list(slots.claimable()) == [(["on_the_loop"], 3)]


def test_whoever_waits_is_told_when_there_is_one_after_there_was_none(slots: Slots, freed: list[str]) -> None:
    slots.take("in_a_thread")
    slots.give("in_a_thread")
    assert freed == []
    slots.take("in_a_thread")
    slots.take("in_a_thread")
    slots.give("in_a_thread")  # the threads were all taken
    assert freed == ["freed"]
    for _ in range(2):
        slots.take("on_the_loop")
    slots.give("on_the_loop")  # all were taken
    assert freed == ["freed"] * 2
