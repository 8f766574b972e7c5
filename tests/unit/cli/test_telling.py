from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from pledger.cli import telling
from pledger.cli.timeline import timeline
from pledger.engine.port.records import Message
from pledger.history import events
from pledger.history.failures import Failure
from tests.unit.cli.runs import BEGIN_MS, START, TIMEOUT, Run, schedule, timer


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


def told(run: Run, *, at_s: float = 9, cell: int = 60, line: int = 100) -> list[tuple[str, str]]:
    """(what, outcome) of each entry."""
    found = timeline(run.transitions, run.attempts, run.pending)
    return [(telling.what(each, cell), telling.outcome(each, BEGIN_MS + at_s * 1000, cell, line)) for each in found]


def test_a_run_from_start_to_end() -> None:
    run = Run().then(0, START, schedule(), timer(3_600), events.RecordPatch("new-way"))
    run.then(1, events.ActivityCompleted(2, b'"receipt"', 2), events.SignalReceived("approve", b'["bob"]', "m"))
    run.then(2, events.CancelRequested("enough", "c"), events.CancelTimer(3), events.CancelRun(TIMEOUT))
    assert told(run) == [
        ('started fulfil({"id":3544790567247868102})', ""),
        ('charge_card("order")', '→ "receipt"  (attempt 2)'),
        ("timer 1 h", "cancelled"),
        ("patch new-way", ""),
        ('signal approve("bob")', ""),
        ("cancel requested: enough", ""),
        ("cancelled", ""),
    ]


def test_what_is_pending_says_when_it_goes_on() -> None:
    run = Run().then(0, START, schedule("queued"), schedule("started"), schedule("eager"), schedule("done"), timer(60))
    run.task(2, attempt=3, due_s=12).task(3, state="started", attempt=2).task(5, state="done", attempt=4)
    assert [outcome for _, outcome in told(run)[1:]] == [
        "attempt 3 due 18:40:12 (in 3.0 s)",
        "attempt 2 …",
        "attempt 1 …",
        "attempt 4 has ended",
        "due 18:41:00 (in 51 s)",
    ]


@pytest.mark.parametrize(
    ("retry_state", "outcome"),
    [
        ("maximum_attempts", "failed, no attempt left: CardTimeout: gateway did not answer"),
        ("non_retryable", "failed, not to be retried: CardTimeout: gateway did not answer"),
        ("timeout", "failed, no time left: CardTimeout: gateway did not answer"),
        ("cancelled", "cancelled: CardTimeout: gateway did not answer"),
    ],
)
def test_a_failed_activity_says_why_it_was_given_up(retry_state: str, outcome: str) -> None:
    run = Run().then(0, START, schedule()).then(1, events.ActivityFailed(2, TIMEOUT, retry_state))
    assert told(run)[1][1] == outcome


def test_what_the_run_left_open() -> None:
    run = Run().then(0, START, schedule()).then(1, events.RunTerminated(""))
    assert told(run)[1:] == [('charge_card("order")', "the run closed first"), ("terminated", "")]


def test_a_deadline_stands_beside_the_start() -> None:
    start = events.RunStarted("fulfil", b"[]", b"seed", "default", BEGIN_MS + 300_000)
    assert told(Run().then(0, start)) == [("started fulfil()", "must end by 18:45:00")]


def test_no_cell_is_longer_than_its_limit() -> None:
    args = b'["' + b"x" * 1_000 + b'"]'
    long = events.RunStarted("fulfil", args, b"seed")
    run = (
        Run(workflow_id="w").then(0, long, events.RecordPatch("p" * 500)).then(1, events.SignalReceived("s", args, "m"))
    )
    for what, _ in told(run, cell=30):
        assert len(what) <= 36  # a patch's name comes after "patch "


@pytest.mark.parametrize(
    ("outcome", "failure", "words"),
    [
        ("failed", TIMEOUT, "failed: CardTimeout: gateway did not answer"),
        ("timed_out", Failure("timeout", "TimeoutError", "after 5 s"), "timed out: TimeoutError: after 5 s"),
        ("lost", Failure("worker_lost", "WorkerLostError", "whatever"), "lost with its worker"),
        ("late", None, "too late to count"),
        ("cancelled", Failure("cancelled", "CancelledError", "the workflow let go"), "cancelled: the workflow let go"),
    ],
)
def test_attempts(outcome: str, failure: Failure | None, words: str) -> None:
    [record] = Run().attempt(2, 1, outcome, failure).attempts
    assert telling.attempt(record, 100) == words


def test_messages() -> None:
    assert telling.message(Message(1, "signal", "m", "approve", b'["bob"]', 0), 40) == 'signal approve("bob")'
    assert telling.message(Message(1, "cancel", "m", "", b"enough", 0), 40) == "request to cancel"


def test_how_a_run_ended() -> None:
    cause = Failure("application", "CardDeclined", "no money")
    failed = Failure("application", "OrderRefused", "order 7", cause=cause)
    for end, lines in (
        (events.CompleteRun(b'{"total":12.10}'), ["Completed after 7.0 s", '→ {"total":12.10}']),
        (events.FailRun(failed), ["Failed after 7.0 s", "OrderRefused: order 7", "caused by CardDeclined: no money"]),
        (events.RunTerminated("enough"), ["Terminated after 7.0 s: enough"]),
        (events.RunTimedOut(), ["Timed out after 7.0 s"]),
    ):
        assert [*telling.closing(Run().then(0, START).then(7, end).describe(9), 80)] == lines


def test_a_signal_that_no_handler_took_says_so() -> None:
    refused = Failure("application", "SignalNotHandled", "the workflow has no such signal; it has: none")
    run = Run().then(0, START, events.SignalReceived("go", b"[1]", "m1"), events.SignalReceived("went", b"[]", "m2"))
    run.attempt(2, 1, failure=refused)
    assert told(run)[1:] == [
        ("signal go(1)", "not handled: the workflow has no such signal; it has: none"),
        ("signal went()", ""),
    ]
