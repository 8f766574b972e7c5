"""Transitions as stored: their bytes, and the chain of checksums that finds what was changed, lost or swapped."""

from __future__ import annotations

import msgspec
import pytest

from pledger.history import events, transition
from pledger.history.transition import CHAIN_START, FORMAT, Transition

FIRST = Transition(
    FORMAT, 1_000, "c0de", (events.RunStarted("fulfil", b"[]", b"seed"),), (events.StartTimer(500, 1_500),)
)
SECOND = Transition(FORMAT, 1_500, None, (events.TimerFired(2),), (events.CompleteRun(b"1"),))


def heads(*transitions: Transition) -> list[bytes]:
    found, head, first = [], CHAIN_START, 1
    for each in transitions:
        head = transition.checksum(head, first, transition.encode(each))
        first += len(each.events())
        found.append(head)
    return found


def test_a_transition_comes_back_from_its_bytes() -> None:
    assert transition.decode(transition.encode(FIRST)) == FIRST


def test_its_events_are_its_inputs_then_its_commands() -> None:
    assert FIRST.events() == (*FIRST.inputs, *FIRST.commands)


@pytest.mark.parametrize("body", [b"", b"\x00", transition.encode(FIRST)[:-1], transition.encode(FIRST) + b"\x00"])
def test_damaged_bytes_do_not_decode(body: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        transition.decode(body)


def test_the_bytes_of_this_format_are_fixed() -> None:
    """Old histories must still decode: a change here is a new FORMAT with a step in `decode`, never an edit."""
    assert transition.encode(SECOND).hex() == "9501cd05dcc09192040291921fc40131"
    assert heads(FIRST, SECOND)[-1].hex() == "38afb91749de15e2"


BEFORE = {
    "activities had a place in their queue": "9501cd03e8a463306465919601a666756c66696cc4025b5dc40473656564a764656661756"
    "c74c0929615a6636861726765c4025b5d96c0c0c0c0c0a3747279c0c09317cd01f4cd05dc",
    "runs had an owner": "9501cd03e8a463306465919701a666756c66696cc4025b5dc40473656564a764656661756c74c0c0929715a66368"
    "61726765c4025b5d97c0c0c0c0c0a3747279c0c0c0c09317cd01f4cd05dc",
}


@pytest.mark.parametrize("before", BEFORE)
def test_the_bytes_of_earlier_versions_of_this_format_decode(before: str) -> None:
    body = bytes.fromhex(BEFORE[before])
    schedule = events.ScheduleActivity("charge", b"[]", events.ActivityOptions())
    assert transition.decode(body) == Transition(FORMAT, 1_000, "c0de", FIRST.inputs, (schedule, *FIRST.commands))


def test_a_field_that_a_later_version_adds_is_skipped() -> None:
    later = msgspec.msgpack.encode(
        [FORMAT, 1_500, None, [[4, 2, "added later"]], [[31, b"1", "too"]], False, False, "and here"]
    )
    assert transition.decode(later) == SECOND


def test_a_field_that_an_earlier_version_had_not_takes_its_default() -> None:
    earlier = msgspec.msgpack.encode([FORMAT, 1_500, None, [[2, 2, b"1"]]])
    assert transition.decode(earlier) == Transition(FORMAT, 1_500, None, (events.ActivityCompleted(2, b"1", 1),), ())


def test_tags_are_unique_and_never_reused() -> None:
    tags = {
        cls.__name__: msgspec.inspect.type_info(cls).tag  # type: ignore[union-attr]
        for cls in (*events.Input.__args__, *events.Command.__args__)  # type: ignore[attr-defined]
    }
    assert tags == {
        "RunStarted": 1,
        "ActivityCompleted": 2,
        "ActivityFailed": 3,
        "TimerFired": 4,
        "SignalReceived": 5,
        "CancelRequested": 6,
        "RunTerminated": 7,
        "RunTimedOut": 8,
        "RunReset": 18,
        "UpdateAccepted": 9,
        "ScheduleActivity": 21,
        "CancelActivity": 22,
        "StartTimer": 23,
        "CancelTimer": 24,
        "RecordPatch": 25,
        "CompleteUpdate": 26,
        "UpsertSearchAttributes": 71,
        "UpsertMemo": 72,
        "CompleteRun": 31,
        "FailRun": 32,
        "CancelRun": 33,
        "ContinueAsNew": 34,
        "ChildStarted": 41,
        "ChildStartFailed": 42,
        "ChildClosed": 43,
        "MessageDelivered": 44,
        "MessageRefused": 45,
        "StartChild": 51,
        "CancelChild": 52,
        "SendSignal": 53,
        "SendCancel": 54,
        "BeginPhase": 61,
        "EndPhase": 62,
        "StartDeadline": 63,
    }


def test_the_chain_tells_every_change_of_content_order_and_place() -> None:
    expected = heads(FIRST, SECOND)[-1]
    assert heads(FIRST, SECOND)[-1] == expected
    changed = Transition(FORMAT, 1_501, None, SECOND.inputs, SECOND.commands)
    assert heads(FIRST, changed)[-1] != expected
    assert heads(SECOND, FIRST)[-1] != expected
    assert heads(SECOND)[-1] != expected
    body = transition.encode(SECOND)
    assert transition.checksum(CHAIN_START, 3, body) != transition.checksum(CHAIN_START, 4, body)
