"""What processes tell each other, and who listens."""

from __future__ import annotations

import pytest

from pledger.engine.port.lanes import Served
from pledger.store.postgres import news
from pledger.store.postgres.news import Interest


@pytest.fixture
def interest() -> Interest:
    interest = Interest()
    interest.sessions[7] = ("default", "orders")
    interest.streams = frozenset({5})
    interest.in_slots(Served("default", "orders", ["charge"]), waits=True)
    return interest


@pytest.mark.parametrize(
    ("said", "concerns"),
    [
        (news.for_session(7), True),
        (news.for_session(8), False),
        (news.for_queue("default", "orders"), True),
        (news.for_queue("default", "gpu"), False),
        (news.for_queue("other", "orders"), False),
        (news.for_limits("default"), True),
        (news.for_limits("other"), False),
        (news.for_stream(5), True),
        (news.for_stream(6), False),
        (news.OF_CLOSED, True),
        (news.OF_ANYTHING, True),
        ('["of a later version"]', True),
        ("no JSON", True),
    ],
)
def test_only_what_concerns_it_wakes_a_process(interest: Interest, said: str, concerns: bool) -> None:
    [signed] = Interest().signed([said])
    assert interest.concerns(signed) is concerns


def test_what_is_published_is_for_no_worker() -> None:
    assert news.is_of_stream(news.for_stream(5))
    assert not news.is_of_stream(news.for_queue("default", '["stream"'))


def test_a_process_does_not_listen_to_itself(interest: Interest) -> None:
    [signed] = interest.signed([news.OF_CLOSED])
    assert not interest.concerns(signed)


def test_what_is_too_long_to_say_is_for_everybody() -> None:
    assert news.for_queue("n" * 5_000, "q" * 5_000) == news.OF_ANYTHING
    assert len(news.for_queue("n" * 1_000, "ü" * 900)) < 8_000
