"""What an open run waits for, in the words that an operator reads. The times are on the reader's clock: UTC here."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from pledger.cli.waits import Wait, owner_and_deadline, waits
from pledger.client import Description, PauseSummary
from pledger.engine.port import circuit
from pledger.engine.port.records import Message, PlaceRow
from pledger.history import events
from pledger.history.budget import BudgetRule
from pledger.history.events import ActivityOptions
from pledger.history.failures import Failure
from pledger.history.transition import encode_event
from pledger.views import dependency_summary
from tests.unit.cli.runs import BEGIN_MS, START, TIMEOUT, Run, at, encoded, schedule, timer, worker


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


def texts(run: Description) -> list[str]:
    return [each.text for each in waits(run)]


def test_a_closed_run_waits_for_nothing() -> None:
    assert waits(Run().then(0, START, events.CompleteRun(b"1")).describe(5)) == []


def test_a_retry_tells_its_time_and_the_failure_before_it() -> None:
    run = Run().then(0, START, schedule()).task(2, attempt=3, due_s=12, last_failure=encoded(TIMEOUT))
    [wait] = waits(run.describe(9, workers=(worker(),), owner="4242@host"))
    assert wait == Wait(
        "activity",
        "waits for activity charge_card (attempt 3 at 18:40:12, in 3.0 s, after CardTimeout: gateway did not answer)",
        BEGIN_MS + 12_000,
        2,
    )


def test_a_first_attempt_runs_on_the_worker_that_owns_the_run() -> None:
    run = Run().then(0, START, schedule())
    [text] = texts(run.describe(9, workers=(worker(),), owner="4242@host"))
    assert text == "waits for activity charge_card (attempt 1 since 18:40:00 on worker 4242@host)"


def test_an_attempt_on_another_worker_shows_its_heartbeat() -> None:
    run = Run().then(0, START, schedule()).task(2, state="started", attempt=2, started_s=4, owner=8, heartbeat=b"[41]")
    [text] = texts(run.describe(9, workers=(worker(), worker("9@other", session_key=8)), owner="4242@host"))
    assert text == (
        "waits for activity charge_card (attempt 2 since 18:40:04 on worker 9@other; its last heartbeat said [41])"
    )


def test_an_attempt_whose_worker_is_gone_says_so() -> None:
    run = Run().then(0, START, schedule())
    dead = worker(live=False)
    for owner in ("4242@host", None):
        text = texts(run.describe(9, workers=(dead, worker("9@other", session_key=8)), owner=owner))[0]
        assert text.endswith(f"on worker {owner or 'unknown'}, which is gone; another one takes over)")


def test_an_outcome_that_the_run_has_not_taken_yet() -> None:
    run = Run().then(0, START, schedule()).task(2, state="done", outcome=b"x")
    [text] = texts(run.describe(9, workers=(worker(),), owner="4242@host"))
    assert text == "waits for activity charge_card (attempt 1 has ended; the run has still to take its outcome)"


def test_an_activity_that_was_asked_to_stop() -> None:
    run = Run().then(0, START, schedule(cancellation="wait")).then(1, events.CancelActivity(2))
    [text] = texts(run.describe(9, workers=(worker(),), owner="4242@host"))
    assert text.endswith("; it was asked to stop)")


def test_a_queue_of_an_activity_that_nobody_serves_needs_help() -> None:
    run = Run().then(0, START, schedule(task_queue="gpu")).task(2, task_queue="gpu")
    [wait] = waits(run.describe(9, workers=(worker(),), owner="4242@host"))
    assert wait.text.endswith("(attempt 1 due since 18:40:00; no live worker serves task queue 'gpu')")
    assert wait.needs_help


def test_an_activity_that_no_live_worker_takes_may_be_known_to_none() -> None:
    run = Run().then(0, START, schedule()).task(2)
    fresh, late = (texts(run.describe(after, workers=(worker(),), owner="4242@host"))[0] for after in (4, 9))
    assert fresh.endswith("(attempt 1 due since 18:40:00)")
    assert late.endswith("; no worker takes it: does any live worker of task queue 'default' know it?)")


def test_an_activity_in_a_line_tells_its_number_and_what_holds_it_up() -> None:
    place = PlaceRow(2, 7, (("courier-api", "", 1_000), ("customer", "ada", 3)))
    run = Run().then(0, START, schedule()).task(2)
    [wait] = waits(run.describe(9, workers=(worker(),), owner="4242@host", places=(place,)))
    assert wait.text.endswith(
        "(attempt 1 due since 18:40:00; number 7 in its line, "
        "within limit courier-api (1,000 in use) and limit customer of ada (3 in use))"
    )


def held_up(*, is_retry: bool, **fields: Any) -> list[Wait]:
    """What a run waits for whose activity a dependency holds up."""
    found = circuit.seen(circuit.new(BudgetRule(), BEGIN_MS), BEGIN_MS + 9_000)
    summary = dependency_summary("courier api", replace(found, since_ms=BEGIN_MS + 2_000, **fields))
    run = Run().then(0, START, schedule()).task(2)
    place = PlaceRow(2, 7, (), "courier api", is_retry)
    given = {"places": (place,), "dependencies": {"courier api": summary}}
    return waits(run.describe(9, workers=(worker(),), owner="4242@host", **given))


def test_an_activity_that_a_dependency_holds_up_says_why() -> None:
    line = "waits for activity charge_card (attempt 1 due since 18:40:00; number 7 in its line"
    [paused] = held_up(is_retry=False, phase="paused", by="ada", reason="it moves")
    assert paused.text == (
        f"{line}; dependency courier api is paused by ada since 18:40:02 (it moves). "
        "To go on: pledger dependency resume 'courier api')"
    )
    assert paused.needs_help
    [opened] = held_up(is_retry=False, phase="open", reason="4 of 4 failed", until_ms=BEGIN_MS + 14_000)
    assert opened.text == (
        f"{line}; the circuit of dependency courier api is open since 18:40:02 (4 of 4 failed); one tries at 18:40:14)"
    )
    assert not opened.needs_help
    [half] = held_up(is_retry=False, phase="half_open", limit=2)
    assert half.text == f"{line}; dependency courier api is tried with 2 at a time since 18:40:02)"
    [retry] = held_up(is_retry=True)
    assert retry.text == f"{line}; it waits for the retry budget of dependency courier api)"
    [first] = held_up(is_retry=False)
    assert first.text == f"{line})"


def test_a_retry_in_a_line_has_no_number_before_it_is_due() -> None:
    run = Run().then(0, START, schedule()).task(2, attempt=2, due_s=60)
    [wait] = waits(run.describe(9, workers=(worker(),), owner="4242@host", places=(PlaceRow(2, 1, ()),)))
    assert wait.text.endswith("(attempt 2 at 18:41:00, in 51 s)")


def test_timers_are_told_in_the_order_in_which_they_fire() -> None:
    run = Run().then(0, START, timer(7_200), timer(60))
    assert texts(run.describe(9, workers=(worker(),), owner="4242@host")) == [
        "sleeps until 18:41:00 (in 51 s)",
        "sleeps until 20:40:00 (in 1 h 59 min)",
    ]


def test_a_timer_that_is_overdue() -> None:
    run = Run().then(0, START, timer(5)).describe(9, workers=(worker(),), owner="4242@host")
    assert texts(run) == ["has slept until 18:40:05 (4.0 s ago)"]


def test_a_run_that_only_a_message_can_wake() -> None:
    run = Run().then(0, START)
    assert texts(run.describe(9, workers=(worker(),), owner="4242@host")) == [
        "waits for a message: nothing else can wake it, and has no deadline"
    ]


def test_a_deadline_is_a_wait_too() -> None:
    start = events.RunStarted("fulfil", b"[]", b"seed", "default", BEGIN_MS + 300_000)
    assert texts(Run().then(0, start).describe(9, workers=(worker(),), owner="4242@host")) == [
        "waits for a message: nothing else can wake it",
        "times out at 18:45:00 (in 4 min 51 s) if it is still open then",
    ]


def test_no_wait_outlasts_the_deadline_of_its_run() -> None:
    start = events.RunStarted("fulfil", b"[]", b"seed", "default", BEGIN_MS + 300_000)
    bound = events.ScheduleActivity("charge_card", b"[]", ActivityOptions(schedule_to_close_ms=60_000))
    run = Run().then(0, start, bound, schedule(), timer(120), timer(7_200))
    found = waits(run.describe(9, workers=(worker(),), owner="4242@host"))
    deadlines = {each.event_id: (each.deadline_ms or 0) - BEGIN_MS for each in found}
    assert deadlines == {2: 60_000, 3: 300_000, 4: 120_000, 5: 300_000, None: 300_000}
    [endless] = waits(Run().then(0, START, schedule()).describe(9, workers=(worker(),), owner="4242@host"))
    assert endless.deadline_ms is None


def test_what_is_said_at_the_start_holds_before_a_worker_takes_it() -> None:
    start = events.RunStarted("fulfil", b"[]", b"seed", "default", BEGIN_MS + 300_000, owner="fulfilment")
    inbox = [Message(1, "start", "s", "", encode_event(start), BEGIN_MS)]
    run = Run().describe(2, workers=(worker(),), inbox=inbox, due=at(0))
    assert owner_and_deadline(run) == ("fulfilment", BEGIN_MS + 300_000)
    assert texts(run)[-1] == "times out at 18:45:00 (in 4 min 58 s) if it is still open then"


def test_messages_that_the_run_has_still_to_take() -> None:
    inbox = [
        Message(1, "signal", "m1", "approve", b'["bob"]', BEGIN_MS + 6_000),
        Message(2, "cancel", "c1", "", b"enough", BEGIN_MS + 8_000),
    ]
    assert texts(Run().then(0, START).describe(9, inbox=inbox, workers=(worker(),), owner="4242@host")) == [
        "has still to take the signal approve, accepted 3.0 s ago",
        "has still to take the request to cancel, accepted 1.0 s ago",
    ]


def test_a_run_without_any_live_worker_needs_help() -> None:
    run = Run(task_queue="eu").then(0, START, timer(60))
    wait = waits(run.describe(9, workers=(worker(), worker(task_queue="eu", live=False))))[-1]
    assert wait.needs_help
    assert wait.text == (
        "goes on only once there is a worker: no live worker serves task queue 'eu'. "
        "Start one: pledger worker your_module --task-queue eu"
    )


def test_a_new_run_waits_for_a_worker() -> None:
    inbox = [Message(1, "start", "s", "", b"", BEGIN_MS)]
    run = Run().describe(2, workers=(worker(),), inbox=inbox, due=at(0))
    assert texts(run) == ["waits for a worker of task queue 'default' to start it"]


def test_a_run_that_no_live_worker_takes_needs_help() -> None:
    wait = waits(Run().describe(9, workers=(worker(),), due=at(0)))[-1]
    assert wait.needs_help
    assert wait.text == (
        "is due, and no worker takes it: does any live worker of task queue 'default' (4242@host) know "
        "workflow 'fulfil'?"
    )


def test_an_open_run_tells_which_signals_it_did_not_handle() -> None:
    refused = Failure("application", "SignalNotHandled", "the workflow has no such signal; it has: none")
    run = Run().then(0, START, events.SignalReceived("go", b"[1]", "m1"), events.SignalReceived("went", b"[]", "m2"))
    run.attempt(2, 1, failure=refused).attempt(3, 1, failure=refused)
    waits_for, told, _ = waits(run.describe(9))
    assert waits_for.text.startswith("waits for a message")
    assert told == Wait(
        "message",
        "did not handle the signal went (event 3) (1 signal before it neither): the workflow has no such signal; "
        "it has: none",
        event_id=3,
        needs_help=True,
    )


def block(reason: str, message: str, traceback: str = "") -> dict[str, object]:
    kinds = {"nondeterminism": "NondeterminismError", "bug": "ZeroDivisionError", "poison": "PoisonRun"}
    return {
        "reason": reason,
        "type": kinds[reason],
        "message": message,
        "traceback": traceback,
        "at_ms": BEGIN_MS,
        "event_id": 3,
    }


def test_a_blocked_run_says_what_holds_it_and_nothing_else() -> None:
    message = (
        "workflow 'order-7421' is blocked at event 3\n  recorded  ScheduleActivity 'charge_card'\n"
        "  replayed  ScheduleActivity 'reserve_stock'   orders.py:88, in fulfil\nRoll back, or guard the new branch"
    )
    run = Run().then(0, START, timer(60)).describe(9, blocked=block("nondeterminism", message, "Traceback ..."))
    [wait] = waits(run)
    assert wait == Wait(
        "block", f"is blocked by NondeterminismError since 18:40:00: {message}", event_id=3, needs_help=True
    )


def test_a_bug_is_shown_with_the_line_that_has_it_and_the_way_out() -> None:
    frame = '  File "shop.py", line 9, in fulfil\n    n / 0\n'
    traceback = f"Traceback (most recent call last):\n{frame}ZeroDivisionError: division\n"
    [text] = texts(Run().then(0, START).describe(9, blocked=block("bug", "division", traceback)))
    assert text.splitlines()[0] == "is blocked by ZeroDivisionError since 18:40:00: division"
    assert 'File "shop.py", line 9' in text
    assert text.endswith("a worker with other code takes the run and goes on.")


def test_a_poison_run_tells_the_ways_out() -> None:
    [text] = texts(Run().then(0, START).describe(9, blocked=block("poison", "5 workers in a row took this run")))
    assert "another --build-id" in text


def test_a_pause_says_who_why_since_when_and_how_it_ends() -> None:
    run = Run().then(0, START, schedule())
    alone = PauseSummary("run", "order-7421", "wait for the call", "ada@ops", at(3), "01J9X000000000000000000000")
    place = PauseSummary("queue", "g", "", "bob@ops", at(4))
    lifted = PauseSummary("type", "t", "why", "ada@ops", at(5), rate=1, backlog=4, released=1)
    found = waits(run.describe(9, workers=(worker(),), due=at(1), pauses=(alone, place, lifted)))
    assert [each.text for each in found[:3]] == [
        "is paused by ada@ops since 18:40:03 (wait for the call). To go on: pledger resume run order-7421",
        "waits: queue g is paused by bob@ops since 18:40:04 (no reason was given). To go on: pledger resume queue g",
        "waits: type t is paused by ada@ops since 18:40:05 (why), and that is being lifted: 1 of 4 went on, 1 a second",
    ]
    assert [each.needs_help for each in found[:3]] == [True, True, False]
    assert not any("no worker takes it" in each.text for each in found)


# Phases, named waits and the answer in one line -----------------------------------------------------------------------


def staged(*, deadline_s: int = 5) -> Run:
    phase = events.BeginPhase("picking", "phase", "warehouse", BEGIN_MS + deadline_s * 1000)
    wait = events.BeginPhase("a free table", "wait", "shift lead", BEGIN_MS + 60_000, raises=True)
    return Run().then(0, START, phase).then(1, events.SignalReceived("go", b"[]", "m1"), wait, timer(59, at_s=1))


def test_a_phase_says_who_must_act_and_a_late_one_asks_for_help() -> None:
    run = staged().describe(9, workers=(worker(),))
    picking, table, *_ = waits(run)
    assert picking.text == "is in phase picking since 18:40:00, overdue by 4.0 s; warehouse must act"
    assert (picking.needs_help, picking.owner, picking.deadline_ms) == (True, "warehouse", None)
    assert table.text == "waits for a free table since 18:40:01, due by 18:41:00; shift lead must act"
    assert (table.needs_help, table.deadline_ms) == (False, BEGIN_MS + 60_000)
    assert [each.begun.name for each in run.overdue] == ["picking"]


def test_a_deadline_of_a_block_is_no_sleep_and_wakes_nothing_that_is_waited_for() -> None:
    at_ms = BEGIN_MS + 60_000
    run = Run().then(0, START, events.StartDeadline(60_000, at_ms)).describe(9, workers=(worker(),))
    assert texts(run) == ["is in a block that must end by 18:41:00 (in 51 s)", "waits for a message"]


def in_short(run: Description) -> str:
    return str(run.waiting_for)


def test_in_one_line_what_since_when_who_and_what_wakes_it() -> None:
    open_ones = {
        "waits for a worker to start it since 2026-11-29 18:40:00Z; nobody is named to act; a worker wakes it; "
        "no deadline; no live worker serves task queue 'default'": Run().describe(1, due=at(0)),
        "waits for activity 'charge_card' since 2026-11-29 18:40:00Z; nobody is named to act; an activity wakes it at "
        "2026-11-29 18:40:12Z; no deadline": Run()
        .then(0, START, schedule())
        .task(2, due_s=12)
        .describe(9, workers=(worker(),)),
        "waits for its timer since 2026-11-29 18:40:00Z; nobody is named to act; a timer wakes it at "
        "2026-11-29 18:41:00Z; no deadline": Run().then(0, START, timer(60)).describe(9, workers=(worker(),)),
        "waits for a message since 2026-11-29 18:40:00Z; nobody is named to act; a message wakes it; no deadline; "
        "no live worker serves task queue 'default' since 2026-11-29 18:41:00Z": Run()
        .then(0, START)
        .describe(90, workers=(worker(live=False),)),
        "waits for 'a free table' since 2026-11-29 18:40:01Z; in phase 'picking'; shift lead must act; a timer "
        "wakes it at 2026-11-29 18:41:00Z; due by 2026-11-29 18:41:00Z": staged().describe(9, workers=(worker(),)),
    }
    for told, run in open_ones.items():
        assert in_short(run) == told
    assert Run().then(0, START, events.CompleteRun(b"1")).describe(5).waiting_for is None


def test_what_stands_still_waits_for_a_person() -> None:
    block = {"reason": "bug", "type": "KeyError", "message": "x", "traceback": "", "at_ms": BEGIN_MS, "event_id": 2}
    blocked = Run().then(0, START, schedule()).describe(9, blocked=block).waiting_for
    assert blocked is not None
    assert (blocked.what, blocked.waker) == ("a person: it is blocked by KeyError", "person")
    pause = PauseSummary("queue", "default", "the model is wrong", "ada", at(3))
    paused = Run().then(0, START, schedule()).describe(9, pauses=(pause,)).waiting_for
    assert paused is not None
    assert paused.what == "a person: it is paused by ada (the model is wrong)"
