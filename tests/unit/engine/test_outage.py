"""The log of an outage: one line when it begins, a reminder a minute, one line when it is over."""

from __future__ import annotations

import pytest

from pledger.engine.outage import REMINDER_S, Outage
from pledger.errors import StoreUnavailableError

FULL = StoreUnavailableError("the disk is full")


class Watched:
    """An outage with a clock and a number of waiting runs that the test sets."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.waiting = 2
        self.outage = Outage(lambda: self.now_s, lambda: self.waiting)


def test_one_line_when_it_begins_and_one_when_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    watched = Watched()
    for _ in range(50):
        watched.outage.failed("writes", FULL)
        watched.now_s += 0.2
    watched.waiting = 0
    watched.outage.works("writes")
    watched.outage.works("writes")
    assert caplog.messages == [
        "the store is unavailable; runs wait, and go on by themselves once it is back: the disk is full",
        "the store is back after 10.0 s; 2 runs go on",
    ]
    assert {each.levelname for each in caplog.records} == {"WARNING"}


def test_a_reminder_a_minute_with_the_runs_that_wait(caplog: pytest.LogCaptureFixture) -> None:
    watched = Watched()
    for _ in range(10):
        watched.outage.failed("writes", FULL)
        watched.now_s += REMINDER_S / 4
    watched.waiting = 1
    for _ in range(3):
        watched.outage.failed("lease", FULL)
        watched.now_s += REMINDER_S / 4
    assert caplog.messages[1:] == [
        "the store has been unavailable for 60 s; 2 runs wait: the disk is full",
        "the store has been unavailable for 120 s; 2 runs wait: the disk is full",
        "the store has been unavailable for 180 s; 1 run waits: the disk is full",
    ]


def test_it_is_over_once_all_that_failed_works(caplog: pytest.LogCaptureFixture) -> None:
    """A full disk can be read."""
    watched = Watched()
    watched.outage.failed("writes", FULL)
    watched.outage.failed("lease", FULL)
    watched.outage.works("reads")
    watched.outage.works("writes")
    assert len(caplog.messages) == 1
    watched.outage.works("lease")
    assert len(caplog.messages) == 2


def test_a_second_outage_is_told_anew(caplog: pytest.LogCaptureFixture) -> None:
    watched = Watched()
    for _ in range(2):
        watched.outage.failed("writes", FULL)
        watched.outage.works("writes")
    assert len(caplog.messages) == 4
