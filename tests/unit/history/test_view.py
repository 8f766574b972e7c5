"""Histories for people, and their JSON form, which reads back to exactly what it was written from."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from pledger.errors import PayloadError
from pledger.history import events, view
from pledger.history.attributes import AttributeRecord
from pledger.history.events import ActivityOptions
from pledger.history.failures import Failure
from pledger.history.placement import Placement
from pledger.history.retry import RetryPolicyRecord
from pledger.history.transition import FORMAT, Transition

FAILURE = Failure(
    "activity",
    "ActivityError",
    "failed",
    "Traceback...",
    cause=Failure(
        "application", "CardDeclined", "51", details=b'[{"code":51},0.10]', non_retryable=True, next_retry_delay_ms=7
    ),
    attributes={"activity_type": "charge", "scheduled_event_id": 2, "attempt": 3, "retry_state": "non_retryable"},
)
OPTIONS = ActivityOptions(30_000, 60_000, 5_000, 1_000, RetryPolicyRecord(non_retryable_error_types=("X",)), "wait")

#: One of every kind.
RESET = events.RunReset(
    "01J",
    7,
    "reset",
    "a bug",
    "ada@ops",
    "01J/1",
    1_000,
    9_000,
    (("charge", "0f", "charge-A1"), ("ship", "1e", "01J/1/9")),
)
TRANSITIONS = (
    Transition(
        FORMAT,
        1_000,
        "c0de",
        (
            events.RunStarted(
                "fulfil", b'[{"id":"A1","price":1.10,"big":123456789012345678901234567890}]', b"\x00\xff"
            ),
            events.SignalReceived("note", b'["\xc3\xa9",null]', "m1"),
        ),
        (
            events.ScheduleActivity("charge", b'["A1"]', OPTIONS, "payments", "charge-A1"),
            events.ScheduleActivity("ship", b"[]", ActivityOptions()),
            events.StartTimer(500, 1_500),
            events.RecordPatch("new"),
            events.UpsertSearchAttributes(
                (AttributeRecord("amount", "int", 7), AttributeRecord("tags", "keyword_list", ("a",)))
            ),
            events.UpsertMemo(b'{"note":1.10}'),
        ),
    ),
    Transition(
        FORMAT,
        2_000,
        None,
        (
            events.ActivityCompleted(3, b'"ok"', 2),
            events.ActivityFailed(4, FAILURE, "maximum_attempts", 10),
            events.TimerFired(5),
            events.CancelRequested("enough", "c1"),
            events.UpdateAccepted("add", b'["lamp"]', "u1"),
        ),
        (
            events.CancelActivity(3),
            events.CancelTimer(5),
            events.CompleteUpdate("u1", b"1"),
            events.CompleteUpdate("u2", None, FAILURE),
            events.CancelRun(FAILURE),
        ),
    ),
    Transition(FORMAT, 3_000, "c0de2", (events.RunTerminated("over"), events.RunTimedOut()), ()),
    Transition(FORMAT, 3_500, None, (RESET,), ()),
    Transition(
        FORMAT,
        3_600,
        None,
        (),
        (
            events.BeginPhase("picking", "phase", "warehouse", 9_000, raises=True),
            events.StartDeadline(500, 4_100),
            events.EndPhase(20),
            events.ContinueAsNew("fulfil", b'["A2"]', "default", 9_000),
        ),
    ),
    Transition(FORMAT, 4_000, None, (), (events.CompleteRun(b"null"), events.FailRun(FAILURE))),
    Transition(
        FORMAT,
        5_000,
        None,
        (
            events.RunStarted("ship", b"[1]", b"\x00", parent=events.Parent("A1", "01J", 7)),
            events.ChildStarted(7, "01K"),
            events.ChildStartFailed(8, "01L"),
            events.ChildClosed(7, "completed", b'{"kept":"as it is"}'),
            events.ChildClosed(9, "failed", failure=FAILURE),
            events.MessageDelivered(10),
            events.MessageRefused(11, "closed"),
        ),
        (
            events.StartChild("ship", b'["A1"]', "ship-A1", "elsewhere", timeout_ms=1_000, owner="shipping"),
            events.CancelChild(7, "ship-A1", "enough", is_acknowledged=True),
            events.SendSignal("B2", "note", b'["x"]', "01M", 7),
            events.SendCancel("B2", None, "enough"),
        ),
    ),
)


def test_an_export_reads_back_to_what_it_was_written_from() -> None:
    run = {"workflow_id": "A1", "run_id": "01J"}
    assert view.read_export(view.export(TRANSITIONS, run)) == (run, TRANSITIONS)


def test_every_kind_of_event_is_in_that_test() -> None:
    kinds = {type(event) for transition in TRANSITIONS for event in transition.events()}
    assert kinds == {*events.Input.__args__, *events.Command.__args__}  # type: ignore[attr-defined]


def test_payloads_are_json_in_the_json() -> None:
    document = json.loads(view.export(TRANSITIONS))
    first = document["transitions"][0]
    assert document["format"] == FORMAT
    assert first["inputs"][0]["args"][0]["id"] == "A1"
    assert first["commands"][0]["options"]["retry"]["non_retryable_error_types"] == ["X"]
    # As it was written, digit for digit: a big integer and a trailing zero survive.
    assert b"123456789012345678901234567890" in view.export(TRANSITIONS)
    assert b"1.10" in view.export(TRANSITIONS)


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"{}", b'{"format": 1}', b'{"format": 1, "transitions": [{"time_ms": 1}]}']
    + [
        json.dumps({"format": 1, "transitions": [{"time_ms": 1, "inputs": [event], "commands": []}]}).encode()
        for event in ({"type": "Nonsense"}, {"type": "TimerFired"}, {"args": []}, {"type": "RunStarted", "seed": "zz"})
    ],
)
def test_what_is_no_export_is_refused(data: bytes) -> None:
    with pytest.raises(PayloadError, match="this is no exported history"):
        view.read_export(data)


def test_what_a_later_version_adds_is_left_out() -> None:
    event = {"type": "TimerFired", "started_event_id": 2, "invented_later": {"a": 1}}
    document = {"format": 1, "transitions": [{"time_ms": 1, "inputs": [event], "commands": [], "later": 1}], "more": 2}
    _, transitions = view.read_export(json.dumps(document).encode())
    assert transitions == (Transition(1, 1, None, (events.TimerFired(2),), ()),)


def test_where_the_activities_of_a_run_stand_has_the_name_that_exports_have_always_had() -> None:
    started = events.RunStarted("fulfil", b"[]", b"", placement=Placement(1, "ada", 2.0, (("api", "eu"),)))
    transitions = (Transition(FORMAT, 1, None, (started,), ()),)
    stated = {"priority": 1, "fairness_key": "ada", "fairness_weight": 2.0, "limits": [["api", "eu"]]}
    assert json.loads(view.export(transitions))["transitions"][0]["inputs"][0]["priority"] == stated
    assert view.numbered(transitions)[0].attributes["priority"] == stated | {"limits": [("api", "eu")]}
    assert view.read_export(view.export(transitions))[1] == transitions


def test_events_are_numbered_from_one_through_all_transitions() -> None:
    numbered = view.numbered(TRANSITIONS)
    assert [each.event_id for each in numbered] == list(range(1, len(numbered) + 1))
    assert numbered[2].type == "ActivityScheduled"
    assert numbered[2].time == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)


def test_attributes_are_plain_and_leave_out_what_is_empty() -> None:
    numbered = view.numbered(TRANSITIONS)
    assert numbered[0].attributes == {
        "workflow_type": "fulfil",
        "args": [{"id": "A1", "price": 1.1, "big": 123456789012345678901234567890}],
        "seed": "00ff",
        "task_queue": "default",
    }
    assert numbered[3].attributes["activity_type"] == "ship"
    assert "args" not in numbered[3].attributes
    json.dumps([each.attributes for each in numbered])  # all of it is JSON
