"""Where a history can be cut: at the end of what was decided as a whole, or between what reached the run and that."""

from __future__ import annotations

import pytest

from pledger.history import events
from pledger.history.events import Command, Input
from pledger.history.failures import Failure
from pledger.history.prefix import Cut, activations, cut_after, cut_before_failure
from pledger.history.transition import FORMAT, Transition

START = events.RunStarted("fulfil", b"[]", bytes(16))
FAILURE = Failure("application", "Refused", "no")


def schedule(name: str = "pay") -> events.ScheduleActivity:
    return events.ScheduleActivity(name, b"[]", events.ActivityOptions())


def completed(event_id: int) -> events.ActivityCompleted:
    return events.ActivityCompleted(event_id, b"1")


def failed(event_id: int) -> events.ActivityFailed:
    return events.ActivityFailed(event_id, FAILURE, "maximum_attempts", 3)


def signal(message_id: str) -> events.SignalReceived:
    return events.SignalReceived("note", b"[]", message_id)


def of_activity(event_id: int, kind: str = "activity") -> Failure:
    attributes = {"activity_type": "pay", "scheduled_event_id": event_id, "attempt": 3, "retry_state": "timeout"}
    return Failure(kind, "ActivityError", "failed", cause=FAILURE, attributes=attributes)


def history(*parts: tuple[list[Input], list[Command]], continues: frozenset[int] = frozenset()) -> list[Transition]:
    return [
        Transition(FORMAT, number, None, tuple(inputs), tuple(commands), number in continues)
        for number, (inputs, commands) in enumerate(parts)
    ]


#: Events 1 to 9: a start with two steps, the first of them done with a signal, a timer, and the end.
PLAIN = history(
    ([START], [schedule(), schedule()]),
    ([completed(2), signal("m1")], [events.StartTimer(5, 5)]),
    ([events.TimerFired(6), completed(3)], [events.CompleteRun(b"1")]),
)


def told(cut: Cut) -> tuple[int, list[str], int, list[int]]:
    return cut.kept, [type(each).__name__ for each in cut.carried], cut.event_id, [each.event_id for each in cut.beyond]


@pytest.mark.parametrize(
    ("event_id", "kept", "carried", "point"),
    [
        (1, 0, ["RunStarted"], 1),
        (2, 0, ["RunStarted"], 1),
        (3, 3, [], 3),
        (4, 3, ["ActivityCompleted"], 4),
        (5, 3, ["ActivityCompleted", "SignalReceived"], 5),
        (6, 6, [], 6),
        (7, 6, ["TimerFired"], 7),
        (8, 6, ["TimerFired", "ActivityCompleted"], 8),
        (9, 6, ["TimerFired", "ActivityCompleted"], 8),
    ],
)
def test_the_last_decision_before_the_event_stands_and_inputs_before_it_count(
    event_id: int, kept: int, carried: list[str], point: int
) -> None:
    cut = cut_after(PLAIN, event_id)
    assert told(cut) == (kept, carried, point, list(range(point + 1, 10)))


def test_a_decision_that_was_written_in_parts_is_one() -> None:
    parts = history(
        ([START], [schedule()]),
        ([], [schedule()]),
        ([], [schedule()]),
        ([completed(2)], []),
        continues=frozenset({0, 1}),
    )
    assert [(each.first, each.last) for each in activations(parts)] == [(1, 4), (5, 5)]
    assert told(cut_after(parts, 3))[:3] == (0, ["RunStarted"], 1)
    assert told(cut_after(parts, 4))[:3] == (4, [], 4)


def test_a_decision_that_was_never_written_whole_is_made_anew() -> None:
    """The run was ended from outside meanwhile."""
    parts = history(
        ([START], [schedule()]),
        ([completed(2)], [schedule()]),
        ([events.RunTerminated("enough")], []),
        continues=frozenset({1}),
    )
    for event_id in (4, 5):
        assert told(cut_after(parts, event_id))[:3] == (2, ["ActivityCompleted"], 3)
    found = cut_before_failure(parts)
    assert found is not None
    assert told(found)[:3] == (2, ["ActivityCompleted"], 3)


def test_a_failed_activity_is_pending_again_and_what_came_with_its_failure_counts() -> None:
    run = history(
        ([START], [schedule(), schedule()]),
        ([failed(2), completed(3)], [schedule("undo")]),
        ([signal("m1")], []),
        ([completed(6)], [events.FailRun(Failure("application", "Sorry", "sorry", cause=of_activity(2)))]),
    )
    cut = cut_before_failure(run)
    assert cut is not None
    assert told(cut) == (3, ["ActivityCompleted"], 5, [4, 6, 7, 8, 9])


def test_where_no_activity_failed_it_the_code_decides_anew() -> None:
    run = history(([START], [schedule()]), ([completed(2)], [events.FailRun(FAILURE)]))
    cut = cut_before_failure(run)
    assert cut is not None
    assert told(cut) == (2, ["ActivityCompleted"], 3, [4])


def test_the_failure_of_another_run_names_no_activity_of_this_one() -> None:
    failure = Failure("child_workflow", "ChildWorkflowError", "failed", cause=of_activity(2))
    run = history(([START], [schedule()]), ([failed(2)], [schedule()]), ([completed(4)], [events.FailRun(failure)]))
    cut = cut_before_failure(run)
    assert cut is not None
    assert cut.kept == 4


def test_a_cancelled_run_goes_on_as_if_nobody_had_asked() -> None:
    asked = events.CancelRequested("enough", "c1")
    run = history(
        ([START], [schedule()]),
        ([asked, signal("m1")], [schedule("undo")]),
        ([completed(5)], [events.CancelRun(Failure("cancelled", "CancelledError", ""))]),
    )
    cut = cut_before_failure(run)
    assert cut is not None
    assert told(cut) == (2, ["SignalReceived"], 4, [3, 5, 6, 7])


def test_a_run_that_ended_well_or_is_open_has_no_failure() -> None:
    assert cut_before_failure(PLAIN) is None
    assert cut_before_failure(PLAIN[:2]) is None
    assert cut_before_failure([]) is None
