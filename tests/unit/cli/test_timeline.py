from __future__ import annotations

import pytest

from pledger.cli.timeline import Entry, timeline
from pledger.history import events
from pledger.history.events import Command, Input
from tests.unit.cli.runs import BEGIN_MS, START, TIMEOUT, Run, schedule, timer


def entries(run: Run) -> list[Entry]:
    return timeline(run.transitions, run.attempts, run.pending)


def test_an_activity_is_one_entry_from_its_schedule_to_its_outcome() -> None:
    run = Run().then(0, START, schedule()).then(2.5, events.ActivityCompleted(2, b'"receipt"', 3))
    run.attempt(2, 1).attempt(2, 2)
    start, charge = entries(run)
    assert (start.event_id, start.kind, start.name) == (1, "start", "fulfil")
    assert (charge.event_id, charge.kind, charge.name, charge.outcome) == (2, "activity", "charge_card", "completed")
    assert (charge.at_ms, charge.ended_ms) == (BEGIN_MS, BEGIN_MS + 2_500)
    assert (charge.result, charge.attempt) == (b'"receipt"', 3)
    assert [each.attempt for each in charge.attempts] == [1, 2]


def test_entries_stand_where_they_began() -> None:
    run = Run().then(0, START, schedule("slow"), schedule("quick"))
    run.then(1, events.ActivityCompleted(3, b"1"), timer(5, at_s=1)).then(2, events.ActivityCompleted(2, b"2"))
    assert [(each.event_id, each.name or each.kind) for each in entries(run)] == [
        (1, "fulfil"),
        (2, "slow"),
        (3, "quick"),
        (5, "timer"),
    ]


def test_a_failed_activity_says_why_there_was_no_further_attempt() -> None:
    run = Run().then(0, START, schedule()).then(9, events.ActivityFailed(2, TIMEOUT, "maximum_attempts", 3))
    charge = entries(run)[1]
    assert (charge.outcome, charge.failure, charge.retry_state) == ("failed", TIMEOUT, "maximum_attempts")


def test_what_is_pending_has_its_task_and_no_end() -> None:
    run = Run().then(0, START, schedule(), timer(60)).task(2, attempt=2)
    _, charge, sleep = entries(run)
    assert charge.is_pending
    assert charge.task is not None
    assert charge.task.attempt == 2
    assert sleep.is_pending
    assert (sleep.delay_ms, sleep.due_ms, sleep.ended_ms) == (60_000, BEGIN_MS + 60_000, None)


@pytest.mark.parametrize(
    ("happened", "outcome"), [(events.TimerFired(2), "fired"), (events.CancelTimer(2), "cancelled")]
)
def test_timers_fire_or_are_cancelled(happened: Input | Command, outcome: str) -> None:
    sleep = entries(Run().then(0, START, timer(60)).then(20, happened))[1]
    assert (sleep.outcome, sleep.ended_ms) == (outcome, BEGIN_MS + 20_000)


def test_a_cancelled_activity_ends_where_the_code_let_go_of_it() -> None:
    run = Run().then(0, START, schedule()).then(3, events.CancelRequested("enough", "c1"), events.CancelActivity(2))
    _, charge, cancel = entries(run)
    assert (charge.outcome, charge.ended_ms) == ("cancelled", BEGIN_MS + 3_000)
    assert (cancel.kind, cancel.name) == ("cancel", "enough")


def test_a_cancelled_activity_that_is_waited_for_ends_with_its_outcome() -> None:
    run = Run().then(0, START, schedule(cancellation="wait")).then(3, events.CancelActivity(2))
    assert entries(run)[1].is_pending
    run.then(5, events.ActivityCompleted(2, b"1"))
    assert (entries(run)[1].outcome, entries(run)[1].ended_ms) == ("completed", BEGIN_MS + 5_000)


def test_an_outcome_after_the_code_let_go_changes_nothing() -> None:
    run = Run().then(0, START, schedule()).then(3, events.CancelActivity(2)).then(4, events.ActivityCompleted(2, b"1"))
    charge = entries(run)[1]
    assert (charge.outcome, charge.result) == ("cancelled", None)


def test_what_is_open_when_the_run_closes_is_abandoned() -> None:
    run = Run().then(0, START, schedule(), timer(60)).then(7, events.RunTerminated("enough"))
    _, charge, sleep, end = entries(run)
    assert [charge.outcome, sleep.outcome] == ["abandoned", "abandoned"]
    assert (end.kind, end.outcome, end.name, end.event_id) == ("end", "terminated", "enough", 4)


def test_messages_patches_and_deployments_are_entries() -> None:
    run = Run().then(0, START, code="aaa").then(1, events.SignalReceived("approve", b'["bob"]', "m1"), code="aaa")
    run.then(3, events.SignalReceived("approve", b"[]", "m2"), events.RecordPatch("new-way"), code="bbb")
    told = [(each.event_id, each.kind, each.name) for each in entries(run)]
    assert told == [
        (1, "start", "fulfil"),
        (2, "signal", "approve"),
        (3, "code", "bbb"),
        (3, "signal", "approve"),
        (4, "patch", "new-way"),
    ]


@pytest.mark.parametrize(
    ("end", "outcome"),
    [
        (events.CompleteRun(b"1"), "completed"),
        (events.FailRun(TIMEOUT), "failed"),
        (events.CancelRun(TIMEOUT), "cancelled"),
        (events.RunTerminated("x"), "terminated"),
        (events.RunTimedOut(), "timed_out"),
    ],
)
def test_every_end_is_an_entry(end: Input | Command, outcome: str) -> None:
    assert entries(Run().then(0, START).then(1, end))[-1].outcome == outcome


def test_of_an_empty_history_there_is_nothing_to_tell() -> None:
    assert timeline([]) == []
