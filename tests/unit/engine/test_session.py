"""The ledger's time between two samples of it."""

from __future__ import annotations

import pytest

from pledger.engine.session import DRIFT_MAX, LedgerClock

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
