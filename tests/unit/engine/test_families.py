"""What a run does to others, from its commands on; and how its payloads are sealed for those who read them."""

from __future__ import annotations

import pytest

from pledger.engine.families import child_run_id, input_of, report_of
from pledger.engine.port.operations import Append
from pledger.engine.port.posts import Post, StartChild, notice_id
from pledger.engine.port.records import Message
from pledger.engine.sealed_records import Pass
from pledger.history import events, transition
from pledger.history.failures import Failure
from pledger.history.sealing import Place
from pledger.history.transition import StoredTransition
from tests.conformance.harness import start

RUN_ID = "06H2WVTRRWA33WW40TVW8DM0W4"


def notice(name: str, body: bytes, event_id: int = 7, run_id: str = RUN_ID) -> Message:
    return Message(1, "notice", notice_id(run_id, event_id, "start"), name, body, 0)


def test_the_id_of_a_child_is_of_its_parent_and_its_place() -> None:
    ids = {child_run_id(RUN_ID, event_id) for event_id in range(1, 100)}
    assert len(ids) == 99
    assert {len(each) for each in ids} == {26}
    assert {each[:10] for each in ids} == {RUN_ID[:10]}
    assert child_run_id(RUN_ID, 7) == child_run_id(RUN_ID, 7) != child_run_id(RUN_ID[:-1] + "X", 7)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (notice("started", b"01K"), events.ChildStarted(7, "01K")),
        (notice("taken", b"01K"), events.ChildStartFailed(7, "01K")),
        (notice("sent", b""), events.MessageDelivered(7)),
        (notice("closed", b""), events.MessageRefused(7, "closed")),
        (notice("ended", report_of("completed", events.CompleteRun(b"1"))), events.ChildClosed(7, "completed", b"1")),
        # Meant for a run of the chain that has ended: no event of this one.
        (notice("started", b"01K", run_id="another"), events.ChildStarted(0, "01K")),
    ],
)
def test_what_a_notice_tells(found: Message, expected: events.Input) -> None:
    assert input_of(found, RUN_ID) == expected


@pytest.mark.parametrize("found", [notice("ended", b"\xc1"), notice("unheard of", b""), notice("started", b"\xff")])
def test_a_notice_that_cannot_be_read_says_so(found: Message) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - of several kinds
        input_of(found, RUN_ID)


def test_every_end_has_its_failure() -> None:
    failure = Failure("application", "Why", "because")
    reports = [
        report_of("failed", events.FailRun(failure)),
        report_of("timed_out", None),
        report_of("terminated", None, "enough"),
    ]
    closed = [transition.decode_closed(each) for each in reports]
    assert [each.failure and each.failure.kind for each in closed] == ["application", "timeout", "terminated"]
    assert [each.failure and each.failure.message for each in closed][::2] == ["because", "enough"]


def test_what_goes_to_others_is_sealed_for_where_it_is_read() -> None:
    seen: list[Place] = []

    def seal(data: bytes, place: Place) -> bytes:
        seen.append(place)
        return b"\xc1Pl" + data

    def unseal(data: bytes, place: Place) -> bytes:
        assert place in seen
        return data.removeprefix(b"\xc1Pl")

    started = transition.encode_event(events.RunStarted("parcel", b'["secret"]', b"seed"))
    child = StartChild(7, start("parcel-1", started=started), "abandon", "")
    signal = Post(8, "default", "order-2", None, "signal", "m-1", "note", b'["secret"]')
    cancel = Post(9, "default", "order-2", None, "cancel", "m-2", "", b"why")
    report = report_of("completed", events.CompleteRun(b'"secret"'))
    parent = events.Parent("order-0", "01J", 3)
    operation = Append(
        *(1, 1, 2, StoredTransition(3, b"", b""), 4, None, 0),
        posts=[child, signal, cancel],
        report=report,
        report_to=parent,
    )
    sealed = Pass(seal, lambda _: True).for_others(operation, Place("default", "order-1", "01K", ""))
    assert isinstance(sealed, Append)
    sealed_child, sealed_signal, sealed_cancel = sealed.posts
    assert isinstance(sealed_child, StartChild)
    assert isinstance(sealed_signal, Post)
    assert sealed_cancel == cancel
    assert operation.posts[0] == child, "the operation itself may be written again"
    opening = Pass(unseal, lambda data: b"\xc1Pl" in data)
    # Each as the one who has it in its inbox reads it: of its own chain, under the id of the message.
    for workflow_id, message, plain in (
        ("parcel-1", Message(1, "start", "", "", sealed_child.start.started, 0), started),
        ("order-2", Message(1, "signal", "m-1", "note", sealed_signal.body, 0), b'["secret"]'),
        ("order-0", Message(1, "notice", notice_id("01J", 3, "end"), "ended", sealed.report or b"", 0), report),
    ):
        assert b"\xc1Pl" in message.body
        assert opening.message(message, Place("default", workflow_id, "whatever run", "")).body == plain
