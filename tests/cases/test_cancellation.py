"""The cases about cancelled waits: what nobody waits for any more leaves no timer, and wakes nobody."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from pledger import activity, workflow
from pledger.testing import Environment
from tests.cases.harness import BEGAN, moments, recorded, transition_at

Virtual = Callable[..., Environment]
DAY_S = 86_400.0


@activity.defn
async def step(name: str) -> str:
    return name


def complaints(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the engine, or asyncio, had to say."""
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]


# CAN-02 ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sleep", [asyncio.sleep, workflow.sleep], ids=["asyncio.sleep", "workflow.sleep"])
def test_CAN_02_cancelling_a_task_that_sleeps_cancels_the_durable_timer(
    virtual: Virtual, sleep: Callable[[float], Awaitable[None]], caplog: pytest.LogCaptureFixture
) -> None:
    @workflow.defn
    class Waits:
        hit = False

        @workflow.run
        async def run(self) -> str:
            task = asyncio.ensure_future(sleep(3_600))
            await workflow.wait_condition(lambda: self.hit)
            task.cancel()
            await step("done")
            await sleep(7_200)
            return "rested"

        @workflow.signal
        def strike(self) -> None:
            self.hit = True

    env = virtual(workflows=[Waits], activities=[step], now=BEGAN)
    handle = env.start(Waits, id="order-1")
    env.sleep(timedelta(minutes=1))
    handle.signal(Waits.strike)
    assert handle.result() == "rested"
    history = handle.history()
    # In the very transition of the signal.
    assert transition_at(history, timedelta(minutes=1))[:3] == ["SignalReceived", "ActivityScheduled", "TimerCancelled"]
    assert recorded(history).count("TimerFired") == 1
    # Nothing happens between the step's end and that of the second sleep: no wake-up after an hour.
    assert [at for at in moments(history) if at > 61] == [pytest.approx(7_260, abs=1)]
    assert complaints(caplog) == []


# CAN-03 ---------------------------------------------------------------------------------------------------------------


def test_CAN_03_a_condition_that_becomes_true_after_its_wait_timed_out_is_harmless(
    virtual: Virtual, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[int] = []

    @workflow.defn
    class Waits:
        def __init__(self) -> None:
            self.n = 0
            self.late = False

        def holds(self) -> bool:
            asked.append(self.n)
            return self.n > 0

        @workflow.run
        async def run(self) -> bool:
            try:
                await workflow.wait_condition(self.holds, timeout=1)
            except TimeoutError:
                self.late = True
            await asyncio.sleep(5)
            return self.late

        @workflow.signal
        def set(self, n: int) -> None:
            self.n = n

    env = virtual(workflows=[Waits], now=BEGAN)
    handle = env.start(Waits, id="order-1")
    env.sleep(timedelta(seconds=3))
    assert asked
    handle.signal(Waits.set, 1)
    assert handle.result() is True
    # The predicate is not called any more: it never saw what the signal brought.
    assert set(asked) == {0}
    events = [
        "RunStarted",
        "TimerStarted",
        "TimerFired",
        "TimerStarted",
        "SignalReceived",
        "TimerFired",
        "RunCompleted",
    ]
    assert recorded(handle.history()) == events
    assert complaints(caplog) == []


# CAN-04 ---------------------------------------------------------------------------------------------------------------


@workflow.defn
class Approval:
    def __init__(self) -> None:
        self.approved = False

    @workflow.run
    async def run(self) -> str:
        await workflow.wait_condition(lambda: self.approved, timeout=30 * DAY_S)
        await workflow.wait_condition(lambda: True, timeout=5)
        await asyncio.sleep(40 * DAY_S)
        return "approved"

    @workflow.signal
    def approve(self) -> None:
        self.approved = True


def test_CAN_04_a_satisfied_wait_cancels_its_timer_and_one_that_holds_already_starts_none(virtual: Virtual) -> None:
    env = virtual(workflows=[Approval], now=BEGAN)
    handle = env.start(Approval, id="order-1")
    env.sleep(timedelta(seconds=2))
    handle.signal(Approval.approve)
    assert handle.result() == "approved"
    history = handle.history()
    assert transition_at(history, timedelta()) == ["RunStarted", "TimerStarted"]
    # The first wait's timer goes with the signal. The one that is started is the sleep's: the second wait has none.
    assert sorted(transition_at(history, timedelta(seconds=2))) == ["SignalReceived", "TimerCancelled", "TimerStarted"]
    [started] = [each for each in history.events if each.type == "TimerStarted" and each.event_id > 2]
    assert started.attributes["delay_ms"] == 40 * DAY_S * 1000
    # Three transitions in all: nothing wakes the run on day 30.
    assert moments(history) == [0, 2, pytest.approx(40 * DAY_S + 2, abs=1)]
    assert recorded(history)[-2:] == ["TimerFired", "RunCompleted"]
