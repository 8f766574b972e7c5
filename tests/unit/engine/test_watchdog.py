"""What the watchdog interrupts is the code that runs too long, and nothing that comes after it."""

from __future__ import annotations

import logging
import threading

import pytest

from pledger.engine.watchdog import Watchdog
from pledger.errors import StuckError
from pledger.machine.identity import RunIdentity

RUN = RunIdentity(namespace="default", workflow_id="order-1", run_id="r", workflow_type="fulfil", task_queue="default")


def test_a_log_that_takes_its_time_does_not_put_the_interrupt_off(caplog: pytest.LogCaptureFixture) -> None:
    """Until after the code has ended by itself, and another run has its turn."""
    telling, ended = threading.Event(), threading.Event()

    class Slow(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "is interrupted" in record.getMessage():
                telling.set()
                ended.wait(10)

    slow = Slow()
    logging.getLogger("pledger.engine").addHandler(slow)
    watchdog = Watchdog(warn_s=0.01, limit_s=0.02)
    watchdog.start()

    def code() -> None:
        while not telling.is_set():
            pass

    try:
        with pytest.raises(StuckError):
            watchdog.watch(RUN, code)
    finally:
        ended.set()
        watchdog.stop()
        logging.getLogger("pledger.engine").removeHandler(slow)
    assert "'order-1'" in caplog.text


def test_an_interrupt_that_comes_as_the_code_ends_is_still_its_own() -> None:
    """It is raised where the call ends, and not in what the thread does next."""
    watchdog = Watchdog()
    watchdog._thread_id = threading.get_ident()
    with pytest.raises(StuckError):
        watchdog.watch(RUN, watchdog._interrupt, RUN, watchdog.activation + 1)
    assert not watchdog.interrupted


def test_one_that_comes_too_late_hits_nobody() -> None:
    watchdog = Watchdog()
    watchdog._thread_id = threading.get_ident()
    watchdog.watch(RUN, int)
    watchdog._interrupt(RUN, watchdog.activation)
    assert watchdog.watch(RUN, int) == 0
    assert not watchdog.interrupted
