"""The ledger's time between two samples of it, and the beats that bring them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from pledger.engine.port.records import SessionRow
from pledger.engine.session import DRIFT_MAX, LedgerClock, Session
from pledger.errors import UsageError

PERIOD_S = 2.0
STORE_MS = 1_700_000_000_000


class Monotonic:
    """A clock of a machine, in seconds from any start. rate: its seconds in one true second."""

    def __init__(self, rate: float = 1.0) -> None:
        self.rate = rate
        self.shown_s = 5_000.0

    def __call__(self) -> float:
        return self.shown_s

    def passes(self, true_s: float) -> None:
        self.shown_s += true_s * self.rate


@pytest.mark.parametrize("rate", [1 - DRIFT_MAX, 1.0, 1 + DRIFT_MAX])
def test_time_is_never_ahead_of_the_stores(rate: float) -> None:
    monotonic = Monotonic(rate)
    clock = LedgerClock(monotonic)
    clock.sample(STORE_MS)
    for _ in range(100):
        monotonic.passes(PERIOD_S / 100)
    passed_ms = clock.now_ms() - STORE_MS
    assert PERIOD_S * 1000 * (1 - 3 * DRIFT_MAX) <= passed_ms <= PERIOD_S * 1000


def test_time_never_goes_back() -> None:
    monotonic = Monotonic()
    clock = LedgerClock(monotonic)
    clock.sample(STORE_MS)
    monotonic.passes(1)
    before = clock.now_ms()
    clock.sample(STORE_MS - 60_000)
    assert clock.now_ms() == before
    clock.sample(STORE_MS + 60_000)
    assert clock.now_ms() == STORE_MS + 60_000


@pytest.mark.parametrize(("jump_s", "told_s"), [(0, 0), (600, 600), (-3_600, -3_600), (0.5, 0.5)])
def test_STO_09_a_step_of_the_stores_clock_is_measured(jump_s: float, told_s: float) -> None:
    monotonic = Monotonic()
    clock = LedgerClock(monotonic)
    clock.sample(STORE_MS)
    monotonic.passes(PERIOD_S)
    skew_s = clock.skew_s(STORE_MS + int((PERIOD_S + jump_s) * 1000), clock.read_s())
    assert skew_s == pytest.approx(told_s, abs=2 * PERIOD_S * DRIFT_MAX)


@pytest.mark.parametrize("read_after_s", [0.0, 4.0, 8.0])
def test_a_slow_answer_is_no_skew(read_after_s: float) -> None:
    """Whenever within it the store has read its clock."""
    monotonic = Monotonic()
    clock = LedgerClock(monotonic)
    clock.sample(STORE_MS)
    monotonic.passes(PERIOD_S)
    asked_s = clock.read_s()
    monotonic.passes(8.0)
    assert clock.skew_s(STORE_MS + int((PERIOD_S + read_after_s) * 1000), asked_s) == 0.0


def test_drift_is_no_skew_however_long_the_store_was_away() -> None:
    monotonic = Monotonic(1 + DRIFT_MAX / 2)
    clock = LedgerClock(monotonic)
    clock.sample(STORE_MS)
    monotonic.passes(86_400)
    assert clock.skew_s(STORE_MS + 86_400_000, clock.read_s()) == 0.0


def test_before_the_first_sample_there_is_nothing_to_compare() -> None:
    clock = LedgerClock(Monotonic())
    assert clock.skew_s(STORE_MS, clock.read_s()) == 0.0


# Beats ----------------------------------------------------------------------------------------------------------------


class HandHeart:
    """Beats when it is told to."""

    def start(self, beat: Callable[[], None], _: float) -> None:
        self.beat = beat

    def stop(self) -> None: ...


class Store:
    """As much of a store as a session asks. failing: what the next renewals raise."""

    def __init__(self) -> None:
        self.failing: list[Exception] = []
        self.renewed = 0

    async def now_ms(self) -> int:
        return STORE_MS

    async def open_session(self, *_: object) -> SessionRow:
        return SessionRow(7, "host:1", "default", "default", "code", STORE_MS, STORE_MS + 10_000)

    def renew_session(self, *_: object) -> int:
        if self.failing:
            raise self.failing.pop()
        self.renewed += 1
        return STORE_MS


def test_a_beat_that_fails_in_whatever_way_is_not_the_last_one() -> None:
    """A certificate that is being replaced is no failure of the store, and would have left a worker without a lease."""

    async def play() -> None:
        store, heart = Store(), HandHeart()
        told: list[Exception | None] = []
        session = Session(
            cast("Any", store),
            LedgerClock(Monotonic()),
            heart,
            lease_ms=6_000,
            on_lost=lambda: told.append(AssertionError()),
            on_store=told.append,
        )
        await session.open("host:1", "default", "default", "code")
        missing = UsageError("root certificate file does not exist")
        store.failing.append(missing)
        heart.beat()
        heart.beat()
        await asyncio.sleep(0)
        assert (store.renewed, told) == (1, [missing, None])

    asyncio.run(play())
