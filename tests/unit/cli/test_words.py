from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from pledger.cli import words
from pledger.history.failures import Failure

NOW_MS = round(datetime(2026, 11, 29, 18, 40, 12, 345_000, tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize(
    ("ms", "told"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1_000, "1.0 s"),
        (9_949, "9.9 s"),
        (10_000, "10 s"),
        (59_999, "59 s"),
        (60_000, "1 min"),
        (200_000, "3 min 20 s"),
        (3_600_000, "1 h"),
        (7_500_000, "2 h 5 min"),
        (86_400_000, "1 d"),
        (273_600_000, "3 d 4 h"),
        (0.4, "0 ms"),
    ],
)
def test_a_duration_has_at_most_two_units(ms: float, told: str) -> None:
    assert words.duration(ms) == told


def test_a_moment_of_today_needs_no_date() -> None:
    assert words.moment(NOW_MS - 60_000, NOW_MS, zone=UTC) == "18:39:12"
    assert words.moment(NOW_MS - 86_400_000, NOW_MS, zone=UTC) == "2026-11-28 18:40:12"
    assert words.fine_moment(NOW_MS, NOW_MS, zone=UTC) == "18:40:12.345"


def test_today_is_the_readers_day() -> None:
    tokyo = timezone(timedelta(hours=9))
    before_midnight_there = NOW_MS - timedelta(hours=4) // timedelta(milliseconds=1)
    assert words.moment(before_midnight_there, NOW_MS, zone=UTC) == "14:40:12"
    assert words.moment(before_midnight_there, NOW_MS, zone=tokyo) == "2026-11-29 23:40:12"


@pytest.mark.parametrize(
    ("place", "options"),
    [
        (("default", "default"), ""),
        (("eu", "default"), " --task-queue eu"),
        (("default", "b"), " --namespace b"),
        (("eu", "b"), " --task-queue eu --namespace b"),
    ],
)
def test_the_command_that_starts_a_worker(place: tuple[str, str], options: str) -> None:
    assert words.worker_command(*place) == f"pledger worker your_module{options}"


@pytest.mark.parametrize(("offset_ms", "told"), [(3_000, "in 3.0 s"), (-12_000, "12 s ago"), (0, "now")])
def test_distance(offset_ms: int, told: str) -> None:
    assert words.distance(NOW_MS + offset_ms, NOW_MS) == told


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Größe 日本 🎉", "Größe 日本 🎉"),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
        ("\x1b[2Jgone", "\\x1b[2Jgone"),
        ("\x9b31m", "\\x9b31m"),
        ("\u202efdp.exe", "\\u202efdp.exe"),
        ("a\rb\x00", "a\\rb\\x00"),
        ("half \ud83d", "half \\ud83d"),
    ],
)
def test_nothing_printable_steers_a_terminal(text: str, shown: str) -> None:
    assert words.printable(text) == shown


def test_long_text_is_cut_at_the_limit_and_says_so() -> None:
    assert words.one_line("a" * 10, 10) == "a" * 10
    assert words.one_line("a" * 11, 10) == "a" * 9 + "…"
    assert words.one_line("first\nsecond", 20) == "first …"


def test_a_preview_shows_the_json_as_it_is() -> None:
    assert words.preview(b'{"id":3544790567247868102}', 40) == '{"id":3544790567247868102}'
    assert words.preview(b'"' + b"x" * 100 + b'"', 10) == '"xxxxxxxx…'


def test_a_preview_of_megabytes_reads_only_its_beginning() -> None:
    cut_within_a_character = "é".encode() * 1_000_000
    assert words.preview(cut_within_a_character, 11) == "é" * 10 + "…"


def test_a_call_fits_its_limit_as_a_whole() -> None:
    assert words.call("charge", b'[{"id":7},"x"]', 40) == 'charge({"id":7},"x")'
    assert words.call("charge", b"[]", 40) == "charge()"
    told = words.call("charge_the_card", b'["' + b"x" * 100 + b'"]', 30)
    assert told == 'charge_the_card("xxxxxxxxxxx…)'
    assert len(told) == 30


def test_a_failure_is_its_type_and_message() -> None:
    assert words.failure_line(Failure("application", "CardTimeout", "no answer"), 100) == "CardTimeout: no answer"
    assert words.failure_line(Failure("application", "CardTimeout", ""), 100) == "CardTimeout"


def test_causes_are_told_once() -> None:
    card = Failure("application", "CardDeclined", "no money")
    activity = Failure("activity", "ActivityError", "activity 'charge' failed: CardDeclined: no money", cause=card)
    assert [*words.cause_lines(activity, "", 100)] == ["activity 'charge' failed: CardDeclined: no money"]
    refused = Failure("application", "OrderRefused", "not paid", cause=activity)
    assert [*words.cause_lines(refused, "", 100)] == [
        "OrderRefused: not paid",
        "activity 'charge' failed: CardDeclined: no money",
    ]
    assert [*words.cause_lines(None, "", 100)] == []


def test_counts_agree_with_their_noun() -> None:
    assert words.count(1, "run") == "1 run"
    assert words.count(2_000, "run") == "2,000 runs"
    assert words.count(2, "activity", "activities") == "2 activities"
