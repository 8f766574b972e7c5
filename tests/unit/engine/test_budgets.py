"""What a worker knows of dependencies, for how long that counts, and when it reports."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, cast

from pledger.engine.attempt import Attempt
from pledger.engine.budgets import FRESH_S, REPORT_S, Budgets
from pledger.engine.port import circuit
from pledger.engine.port.circuit import Dependency, Tally
from pledger.engine.port.lanes import Bounds
from pledger.errors import StoreUnavailableError
from pledger.history.budget import BudgetRule
from pledger.history.events import ActivityOptions, ScheduleActivity
from pledger.history.failures import Failure
from pledger.history.retry import RetryPolicyRecord

RULE = BudgetRule(minimum_calls=1)
BOUNDS = Bounds({}, {}, (), {"pay": "bank"}, {"bank": RULE})
REFUSED = Failure("application", "ConnectionError", "refused\nby the bank")


def in_a_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    @functools.wraps(test)
    def run() -> None:
        asyncio.run(test())

    return run


class Timer:
    """What `call_later` gives."""

    def __init__(self, loop: Loop, at_s: float, act: Callable[[], None]) -> None:
        self.loop = loop
        self.at_s = at_s
        self.act = act

    def cancel(self) -> None:
        self.loop.timers.remove(self)


class Loop:
    """Its time is the test's."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.timers: list[Timer] = []

    def time(self) -> float:
        return self.now_s

    def call_later(self, delay_s: float, act: Callable[[], None]) -> Timer:
        timer = Timer(self, self.now_s + delay_s, act)
        self.timers.append(timer)
        return timer

    def create_task(self, work: Any, name: str) -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(work, name=name)

    async def run_timers(self) -> None:
        while self.timers:
            timer = self.timers.pop(0)
            self.now_s = max(self.now_s, timer.at_s)
            timer.act()
            for _ in range(5):
                await asyncio.sleep(0)


class Store:
    """It applies the rules to one row. away: it cannot be reached."""

    def __init__(self, row: Dependency) -> None:
        self.row = row
        self.away = False
        self.reports: list[Mapping[str, Sequence[Tally]]] = []

    async def report_calls(self, _: str, tallies: Mapping[str, Sequence[Tally]]) -> Mapping[str, Dependency]:
        self.reports.append(tallies)
        if self.away:
            raise StoreUnavailableError("away")
        self.row = circuit.noted(self.row, tallies["bank"], 0)
        return {"bank": self.row}


class Bench:
    def __init__(self, row: Dependency | None = None) -> None:
        self.loop, self.store = Loop(), Store(row or circuit.new(RULE, 0))
        self.told = 0
        self.budgets = Budgets(cast("Any", self.store), cast("Any", self.loop), "default", BOUNDS, self._tell)
        self.budgets.learn({"bank": self.store.row}, 0.0)

    def _tell(self) -> None:
        self.told += 1

    def attempt(self, number: int = 1, retry: RetryPolicyRecord | None = None) -> Attempt:
        definition = cast("Any", type("Definition", (), {"name": "pay"}))
        command = ScheduleActivity("pay", b"[]", ActivityOptions(None, None, None, None, retry, "try"), None)
        attempt = Attempt(definition, cast("Any", None), 1, 1, command, number, 1, 0, 0, None, cast("Any", None))
        self.budgets.began(attempt)
        return attempt


def test_what_is_not_known_goes_by_the_queue() -> None:
    bench = Bench()
    fresh = Budgets(cast("Any", None), cast("Any", bench.loop), "default", BOUNDS, lambda: None)
    assert not fresh.may_start("pay")
    assert fresh.may_start("pack")
    assert bench.budgets.may_start("pay")


def test_what_is_known_counts_for_a_while() -> None:
    bench = Bench()
    bench.loop.now_s = FRESH_S - 0.01
    assert bench.budgets.may_start("pay")
    bench.loop.now_s = FRESH_S
    assert not bench.budgets.may_start("pay")
    bench.budgets.learn({"bank": bench.store.row}, FRESH_S)
    assert bench.budgets.may_start("pay")


def test_what_was_asked_earlier_is_not_news() -> None:
    bench = Bench()
    shut = circuit.paused(bench.store.row, "", "ada", 0)
    bench.budgets.learn({"bank": shut}, 1.0)
    bench.budgets.learn({"bank": bench.store.row}, 0.5)
    assert not bench.budgets.may_start("pay")


@in_a_loop
async def test_all_is_reported_at_once() -> None:
    bench = Bench()
    for _ in range(3):
        bench.budgets.ended(bench.attempt(), None)
    bench.budgets.ended(bench.attempt(number=2), REFUSED)
    assert bench.store.reports == []
    assert [each.at_s for each in bench.loop.timers] == [REPORT_S]
    await bench.loop.run_timers()
    [report] = bench.store.reports
    assert report == {"bank": [Tally(0, 3, 3, 1, "ConnectionError: refused")]}


@in_a_loop
async def test_what_everybody_waits_for_is_reported_without_delay() -> None:
    row = circuit.resumed(circuit.paused(circuit.new(RULE, 0), "", "ada", 0), "", "ada", 0, at_once=False)
    bench = Bench(circuit.granted(row, is_retry=False, in_use=1))
    probe = bench.attempt()
    assert [each.at_s for each in bench.loop.timers] == [REPORT_S]
    bench.budgets.ended(probe, None)
    assert [each.at_s for each in bench.loop.timers] == [0]
    await bench.loop.run_timers()
    assert (bench.store.row.limit, bench.told) == (2, 1)


@in_a_loop
async def test_what_cannot_be_reported_is_dropped_and_the_next_is_not() -> None:
    bench = Bench()
    bench.store.away = True
    bench.budgets.ended(bench.attempt(), None)
    await bench.loop.run_timers()
    bench.store.away = False
    bench.budgets.ended(bench.attempt(), None)
    await bench.loop.run_timers()
    assert [report["bank"] for report in bench.store.reports] == [[Tally(0, 1, 1)], [Tally(0, 1, 1)]]
    assert bench.store.row.total.calls == 1


@in_a_loop
async def test_a_worker_that_leaves_reports_what_it_has() -> None:
    bench = Bench()
    bench.budgets.ended(bench.attempt(), None)
    await bench.budgets.stop()
    assert bench.store.row.total.succeeded == 1
    assert bench.loop.timers == []


@in_a_loop
async def test_attempts_are_of_the_opening_that_they_began_under() -> None:
    bench = Bench()
    early = bench.attempt()
    bench.budgets.learn({"bank": circuit.paused(bench.store.row, "", "ada", 0)}, 0.0)
    late = bench.attempt(number=2)
    bench.budgets.ended(early, REFUSED)
    bench.budgets.ended(late, None)
    await bench.loop.run_timers()
    [report] = bench.store.reports
    assert report == {"bank": [Tally(0, 1, 0, 1, "ConnectionError: refused"), Tally(1, 0, 1, 0)]}


@in_a_loop
async def test_what_counts_against_it() -> None:
    declined = RetryPolicyRecord(non_retryable_error_types=("Declined",))
    cases = [
        (Failure("application", "Declined", "no"), declined, (1, 0)),
        (Failure("application", "Declined", "no"), None, (0, 1)),
        (Failure("application", "Other", "no", non_retryable=True), None, (1, 0)),
        (Failure("timeout", "TimeoutError", "", attributes={"kind": "heartbeat"}), None, (0, 1)),
        (Failure("timeout", "TimeoutError", "", attributes={"kind": "start_to_close"}), None, (0, 1)),
        (Failure("worker_lost", "WorkerLostError", ""), None, (0, 0)),
        (Failure("cancelled", "CancelledError", ""), None, (0, 0)),
    ]
    for failure, retry, counts in cases:
        bench = Bench()
        bench.budgets.ended(bench.attempt(retry=retry), failure)
        await bench.loop.run_timers()
        [tally] = bench.store.reports[0]["bank"]
        assert (tally.succeeded, tally.failed) == counts, failure
