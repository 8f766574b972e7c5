"""How each reference workflow must end when nothing goes wrong but its processes: they may die at any instant, twice.

The outside works at once and never refuses. So a result is known almost to the letter, and so is what was done outside:
exactly once where the outside knows the idempotency key, at most once where an activity may begin only once.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from tests.reference import shop


@dataclass(frozen=True)
class Ending:
    """Of one run. effects: how often each thing was done outside."""

    status: str
    value: Any
    effects: Counter[str]


#: What is wrong with an ending, in words.
Truth: TypeAlias = Callable[[Ending], Iterable[str]]


def done(receipt: str) -> str:
    """What a receipt is for."""
    return receipt.rpartition("-")[0]


def _differs(what: str, found: object, *expected: object) -> Iterator[str]:
    if found not in expected:
        yield f"{what} is {found!r}, not {' or '.join(map(repr, expected))}"


def _each(names: Iterable[str]) -> Counter[str]:
    return Counter(dict.fromkeys(names, 1))


def ends(value: Any, *effects: str, status: str = "completed") -> Truth:
    """The one right ending: its result, and what was done exactly once."""

    def truth(ending: Ending) -> Iterator[str]:
        yield from _differs("the status", ending.status, status)
        yield from _differs("the result", ending.value, value)
        yield from _differs("what was done", ending.effects, _each(effects))

    return truth


def ends_with_receipts(*effects: str, also: Iterable[str] = ()) -> Truth:
    """Its result is the receipts of these effects, in order; `also`: other effects. Each was done once."""

    def truth(ending: Ending) -> Iterator[str]:
        receipts = ending.value if isinstance(ending.value, list) else [str(ending.value)]
        yield from _differs("the result", [done(each) for each in receipts], list(effects))
        yield from _differs("what was done", ending.effects, _each([*effects, *also]))

    return truth


def either(*truths: Truth) -> Truth:
    """One of several endings."""

    def truth(ending: Ending) -> Iterator[str]:
        told = [list(each(ending)) for each in truths]
        if all(told):
            yield " -- or else ".join("; ".join(each) for each in told)

    return truth


def between(low: Iterable[str], high: Iterable[str], *statuses: str) -> Truth:
    """All of `low` was done once, and nothing but `high`, none of it twice; it ended in one of the states."""

    def truth(ending: Ending) -> Iterator[str]:
        yield from _differs("the status", ending.status, *statuses)
        least, most = _each(low), _each(high)
        if not least <= ending.effects <= most:
            yield f"what was done is {ending.effects}, not between {least} and {most}"

    return truth


def both(*truths: Truth) -> Truth:
    return lambda ending: (told for each in truths for told in each(ending))


# Those that need words of their own -----------------------------------------------------------------------------------


def _slept(ending: Ending) -> Iterator[str]:
    if ending.status != "completed" or ending.value < 0.5 + 3.0 + 8.0 + 8.0:
        yield f"timers fired early: it slept for {ending.value} s"


def _drew(ending: Ending) -> Iterator[str]:
    yield from _differs("the effects of what was drawn", ending.effects, _each(map(done, ending.value)))
    yield from _differs("the number of effects", len(ending.effects), 3)


def _at_most_once(ending: Ending) -> Iterator[str]:
    """A receipt says that it was done; that nobody knows says that it may have been."""
    for n, outcome in enumerate(ending.value):
        times = ending.effects[f"single {n}"]
        if outcome == "WorkerLostError":
            yield from _differs(f"the effect of an unknown outcome ({n})", times, 0, 1)
        else:
            yield from _differs(f"outcome {n}", done(outcome), f"single {n}")
            yield from _differs(f"the effect of a known outcome ({n})", times, 1)
    yield from _differs("the number of outcomes", len(ending.value), 4)


def _mended(ending: Ending) -> Iterator[str]:
    receipt, beside = ending.value
    yield from _differs("the activity beside", beside, "lingered")
    if receipt == "WorkerLostError":
        yield from between([], ["one"], "completed")(ending)
    else:
        yield from _differs("what was done", ending.effects, _each(["one"]))


def _overfull(ending: Ending) -> Iterator[str]:
    texts = [f"text {n}" for n in range(6)]
    yield from _differs("the result", ending.value, *(texts[:length] for length in range(3, 7)))
    yield from _differs("what was done", ending.effects, _each(["collected 3"]))


def _undone(ending: Ending) -> Iterator[str]:
    """However far it came before it was cancelled: nothing twice, and nothing undone that was not done."""
    yield from _differs("the status", ending.status, "completed", "cancelled")
    for n in range(3):
        did, undid = ending.effects[f"do {n}"], ending.effects[f"undo do {n}"]
        if not undid <= did <= 1:
            yield f"do {n} was done {did} times and undone {undid} times"
    if ending.status == "completed":
        undid = sum(times for what, times in ending.effects.items() if what.startswith("undo "))
        yield from _differs("the result", ending.value, f"undone {undid}")


def _stopped(ending: Ending) -> Iterator[str]:
    """However far it came before it was terminated: one step after the other, none twice."""
    yield from _differs("the status", ending.status, "completed", "terminated")
    yield from _differs("what was done", ending.effects, *(_each(_steps(n)) for n in range(21)))


def _one_by_one(ending: Ending) -> Iterator[str]:
    """In any order: what slept through its time with its process goes on together."""
    yield from _differs("the result", sorted(ending.value), _numbered("turn", 3))
    yield from _differs("what was done", ending.effects, _each(_numbered("turn", 3)))


def _ledgered(lines: int) -> Truth:
    """In any order: each line is entered by a step of its own, and one that died with its process comes later."""

    def truth(ending: Ending) -> Iterator[str]:
        effects = ["open", f"close after {lines}", *_numbered("enter line", lines)]
        yield from _differs("the result", sorted(ending.value), _numbered("line", lines))
        yield from _differs("what was done", ending.effects, _each(effects))

    return truth


def _sold_in_time(ending: Ending) -> Iterator[str]:
    """Both attempts may have died with their process."""
    sold = [done(each) for each in ending.value if each != "none"]
    yield from _differs("the number of outcomes", len(ending.value), 2)
    yield from _differs("what was done", ending.effects, _each(sold))


def _gave_up(ending: Ending) -> Iterator[str]:
    """Each was cancelled, or had just failed or died."""
    yield from _differs("the result", set(ending.value) | {"CancelledError"}, {"CancelledError"}, _BOTH_ENDS)
    yield from _differs("the number of outcomes", len(ending.value), 5)


def _delivered(ending: Ending) -> Iterator[str]:
    """Each parcel was signed for once, by whoever was accepted."""
    signed = [re.sub(r"signed for (\d+) by [abc]-\d+", r"\1", each) for each in ending.value]
    yield from _differs("the number of parcels", len(set(signed)), 3)
    yield from _differs("what was done", ending.effects, _each(map(done, ending.value)))


def _steps(count: int) -> list[str]:
    return [f"step {n}" for n in range(count)]


def _numbered(name: str, count: int) -> list[str]:
    return [f"{name} {n}" for n in range(count)]


#: How long the bank's key is, and nothing else of it, may be told.
_PAID = f"rent with {len(shop.VALUE)} characters"

#: By the name of the case.
TRUTHS: dict[str, Truth] = {
    "sequence": ends_with_receipts(*_steps(5)),
    "fan-out": ends(8, *_numbered("part", 8)),
    "plain": ends(3, *_numbered("plain", 3)),
    "sleeper": both(_slept, between([], [], "completed")),
    "race-lost": ends_with_receipts("after the time-out"),
    "race-won": either(ends("lingered"), ends_with_receipts("after the time-out")),
    "collector": ends(_numbered("text", 3), "collected 3"),
    "overfull": _overfull,
    "twins": ends_with_receipts(*_steps(3)),
    "across": ends_with_receipts("first", "second", *_numbered("far", 3), "near"),
    "in-vain": ends_with_receipts("unheard: TimeoutError"),
    "approval": either(ends("yes", "carried out yes"), ends("nobody answered", "escalated")),
    "handlers": ends(2, "begin", *_numbered("act", 2)),
    "cancellable": either(
        ends("done", "reserve"),
        ends(None, "reserve", "undo reserve", status="cancelled"),
        between([], ["reserve"], "cancelled"),
    ),
    "tidying": ends("tidy", "untidy", "undo untidy"),
    "stubborn": either(
        ends("undisturbed"), ends_with_receipts("finish anyway"), between([], ["finish anyway"], "cancelled")
    ),
    "retrying": ends_with_receipts("one"),
    "at-most-once": _at_most_once,
    "hurried": ends_with_receipts("one"),
    "beating": ends(10),
    "grouped": both(
        between(["part 3"], _numbered("part", 4), "completed"),
        lambda ending: _differs("the result", ending.value, "1 failed"),
    ),
    "patched": ends_with_receipts("old one", also=["new one"]),
    "drawing": _drew,
    "doomed": ends(None, "one", status="timed_out"),
    "abandoning": either(ends_with_receipts("cancelled one"), ends_with_receipts("lost one")),
    "giving-up": _gave_up,
    "compensating": ends("undone 3", *_numbered("do", 3), *_numbered("undo do", 3)),
    "compensating-cancelled": _undone,
    "stumbling": ends_with_receipts("one"),
    "timing-out": lambda ending: (
        told
        for found, kind in zip(
            ending.value, ("start_to_close", "heartbeat", "schedule_to_close", "schedule_to_start"), strict=True
        )
        for told in _differs("the time-out", found, kind, *["WorkerLostError"] * (kind in _ONCE))
    ),
    "bulky": ends(100_000, "measure 100000"),
    "conversing": ends(["said 0", "said 1", *(f"reply {n}" for n in (2, 3, 4))], *(f"reply {n}" for n in (2, 3, 4))),
    "in-context": ends([*_numbered("task", 3), "the run"], *_numbered("for task", 3)),
    "streaming": ends(sum(range(7)), "closed the source"),
    "workshop": ends(_numbered("job", 3), *_numbered("job", 3)),
    "labelled": ends([0, 2, ["done", "names"], ["by", "left", "right"]], "left", "right"),
    "rationed": ends_with_receipts(*(f"desk-{n % 3} {n}" for n in range(6))),
    "one-by-one": _one_by_one,
    "failing": ends(None, "one", status="failed"),
    "outlasted": ends(None, "one", status="timed_out"),
    "early-mail": _ledgered(3),
    "asked": _ledgered(2),
    "bounded": both(
        between(["after one", "undo one"], ["in time one", "after one", "undo one"], "completed"),
        lambda ending: _differs("the result", ending.value, _BLOCKS),
    ),
    "rolling": ends([f"text {n}" for n in range(5)], "collected 5"),
    "rolling-early": ends([f"text {n}" for n in range(5)], "collected 5"),
    "reciting": ends("recited", *(f"recite {chapter}.{part}" for chapter in (2, 1) for part in (0, 1))),
    "relay": ends("three", "one", "two", "three"),
    "counting": ends_with_receipts(*(f"round {n}" for n in range(4, 0, -1))),
    "relay-cancelled": either(ends("three", "one", "two", "three"), between([], ["one", "two", "three"], "cancelled")),
    "family": ends(
        [
            *_numbered("part", 2),
            *["failed: NoMember: no member -1", "taken", "first", "second", "to first", "closed", "woken", "woken"],
        ],
        *_numbered("part", 2),
    ),
    "family-cut-short": between([], _numbered("part", 3), "completed", "terminated"),
    "till": ends(_numbered("thing", 3), "open", *_numbered("sell thing", 3)),
    "booking": ends_with_receipts(*_numbered("book", 5), *_numbered("track", 5)),
    "selling": ends_with_receipts("before", "stubborn", *_numbered("article", 2)),
    "selling-in-time": _sold_in_time,
    "paying": ends(
        ["rent-row", f"{_PAID}-1", "secret://bank-key"],
        "rent",
        _PAID,
    ),
    "ordered": ends("lamp-row", "order", "lamp"),
    "delivering": _delivered,
    "terminated": _stopped,
    "mended": _mended,
    "extended": between(["first one", "last one"], ["first one", "between one", "last one"], "completed"),
    "set-apart": lambda ending: (
        *_differs("the result", [done(ending.value[0]), ending.value[1], done(ending.value[2])], _SET_APART),
        *_differs("what was done", ending.effects, _each(_SET_APART)),
    ),
}
_BOTH_ENDS = {"ActivityError", "CancelledError"}
_ONCE = ("start_to_close", "heartbeat")
_BLOCKS = ["deadline", "won", "cancelled", "completed_late", "cancelled", "deadline"]
_SET_APART = ["before", "apart", "after"]
