"""The fold: from a history to what it amounts to, and what cannot follow."""

from __future__ import annotations

from typing import get_args

import pytest

from pledger.history import events
from pledger.history.events import ActivityOptions, Event
from pledger.history.failures import Failure
from pledger.history.state import _APPLY, ImpossibleEventError, RunState, fold
from pledger.history.transition import FORMAT, Transition

STARTED = events.RunStarted("fulfil", b'["A1"]', b"seed", deadline_ms=99)
CHARGE = events.ScheduleActivity("charge", b"[]", ActivityOptions())
TIMER = events.StartTimer(1_000, 2_000)
FAILURE = Failure("application", "CardDeclined", "declined")


def after(*steps: Event) -> RunState:
    """The state after these events, each in a transition of its own, at times 1, 2, 3..."""
    inputs, commands = get_args(events.Input), get_args(events.Command)
    state = RunState()
    for time_ms, event in enumerate(steps, 1):
        transition = Transition(
            FORMAT,
            time_ms,
            None,
            (event,) if isinstance(event, inputs) else (),
            (event,) if isinstance(event, commands) else (),
        )
        fold([transition], state)
    return state


def test_an_outcome_may_meet_its_cancellation_in_one_transition() -> None:
    """The code gave up on the activity, and what became of it arrived together with the reason."""
    state = after(STARTED, CHARGE)
    fold([Transition(FORMAT, 3, None, (events.ActivityCompleted(2, b"1"),), (events.CancelActivity(2),))], state)
    assert (state.activities, state.activities_done) == ({}, 1)
    with pytest.raises(ImpossibleEventError):
        fold([Transition(FORMAT, 4, None, (), (events.CancelActivity(2),))], state)


def test_every_kind_of_event_has_its_place() -> None:
    assert set(_APPLY) == {*get_args(events.Input), *get_args(events.Command)}


def test_commands_are_told_in_the_past_tense() -> None:
    for command in get_args(events.Command):
        assert command in events.PAST_TENSE
    assert events.event_type(CHARGE) == "ActivityScheduled"
    assert events.event_type(STARTED) == "RunStarted"


def test_a_started_run() -> None:
    state = after(STARTED)
    assert (state.status, state.workflow_type, state.args) == ("running", "fulfil", b'["A1"]')
    assert (state.started_ms, state.deadline_ms, state.last_event, state.closed_ms) == (1, 99, 1, None)


def test_pending_things_are_keyed_by_the_event_that_asked_for_them() -> None:
    state = after(STARTED, CHARGE, TIMER)
    assert {event_id: pending.command for event_id, pending in state.activities.items()} == {2: CHARGE}
    assert state.activities[2].scheduled_ms == 2
    assert {event_id: (pending.started_ms, pending.fire_at_ms) for event_id, pending in state.timers.items()} == {
        3: (3, 2_000)
    }


def test_outcomes_take_them_away_and_are_counted() -> None:
    state = after(
        STARTED,
        CHARGE,
        CHARGE,
        TIMER,
        events.ActivityCompleted(2, b"1"),
        events.ActivityFailed(3, FAILURE, "maximum_attempts"),
        events.TimerFired(4),
        events.SignalReceived("note", b"[]", "m1"),
    )
    assert (state.activities, state.timers) == ({}, {})
    assert (state.activities_done, state.activities_failed, state.timers_fired, state.signals) == (1, 1, 1, 1)


def test_an_outcome_of_what_is_no_longer_wanted_is_not_counted() -> None:
    state = after(STARTED, CHARGE, events.CancelActivity(2), events.ActivityCompleted(2, b"1"))
    assert (state.activities, state.activities_done) == ({}, 0)


@pytest.mark.parametrize(("cancellation", "pending"), [("try", False), ("wait", True)])
def test_a_cancelled_activity_is_pending_while_it_is_waited_for(cancellation: str, pending: bool) -> None:
    charge = events.ScheduleActivity("charge", b"[]", ActivityOptions(cancellation=cancellation))
    state = after(STARTED, charge, events.CancelActivity(2))
    assert (2 in state.activities) == pending
    if pending:
        assert state.activities[2].cancel_requested


def test_a_cancelled_timer_is_gone() -> None:
    assert after(STARTED, TIMER, events.CancelTimer(2)).timers == {}


def test_patches_and_cancel_requests_are_noted() -> None:
    request = events.CancelRequested("enough", "c1")
    state = after(STARTED, events.RecordPatch("new"), request)
    assert (state.patches, state.cancel_requests) == ({"new"}, [request])


def test_the_codes_that_made_it_are_listed_once_each_time_they_change() -> None:
    codes = ["a", None, "b", "b", "a"]
    transitions = [
        Transition(FORMAT, n, code, (STARTED,) if n == 1 else (events.TimerFired(9),), ())
        for n, code in enumerate(codes, 1)
    ]
    assert fold(transitions).codes == ["a", "b", "a"]


@pytest.mark.parametrize(
    ("end", "status"),
    [
        (events.CompleteRun(b'"ok"'), "completed"),
        (events.FailRun(FAILURE), "failed"),
        (events.CancelRun(FAILURE), "cancelled"),
        (events.RunTerminated("enough"), "terminated"),
        (events.RunTimedOut(), "timed_out"),
    ],
)
def test_the_end_leaves_nothing_pending_and_absorbs(end: Event, status: str) -> None:
    state = after(STARTED, CHARGE, TIMER, end)
    assert (state.status, state.closed_ms, state.activities, state.timers) == (status, 4, {}, {})
    for late in (end, events.SignalReceived("note", b"[]", "m"), events.ActivityCompleted(2, b"1"), STARTED):
        with pytest.raises(ImpossibleEventError, match=r"event 5 \(\w+\) follows the end of the run"):
            after(STARTED, CHARGE, TIMER, end, late)


def test_what_the_end_brought() -> None:
    assert after(STARTED, events.CompleteRun(b'"ok"')).result == b'"ok"'
    assert after(STARTED, events.FailRun(FAILURE)).failure == FAILURE
    assert after(STARTED, events.CancelRun(FAILURE)).failure == FAILURE
    assert after(STARTED, events.RunTerminated("enough")).reason == "enough"


@pytest.mark.parametrize("end", [events.RunTerminated("enough"), events.RunTimedOut()])
def test_a_run_may_end_before_it_began(end: Event) -> None:
    state = after(end)
    assert (state.last_event, state.closed_ms) == (1, 1)


@pytest.mark.parametrize("first", [CHARGE, TIMER, events.ActivityCompleted(1, b"1"), events.CompleteRun(b"1")])
def test_a_history_begins_with_its_start(first: Event) -> None:
    with pytest.raises(ImpossibleEventError, match=rf"event 1 is {events.event_type(first)}"):
        after(first)


def test_a_run_starts_once() -> None:
    with pytest.raises(ImpossibleEventError, match="event 2 is RunStarted"):
        after(STARTED, STARTED)


def test_a_cancel_of_what_is_not_pending_cannot_be() -> None:
    with pytest.raises(ImpossibleEventError, match="event 2 cancels event 7, not pending"):
        after(STARTED, events.CancelActivity(7))


def test_a_fold_goes_on_from_a_state() -> None:
    first = Transition(FORMAT, 1, "a", (STARTED,), (CHARGE,))
    second = Transition(FORMAT, 2, None, (events.ActivityCompleted(2, b"1"),), (events.CompleteRun(b"1"),))
    state = fold([first])
    assert fold([second], state) is state
    assert state == fold([first, second])
