from __future__ import annotations

from datetime import timedelta

import pytest
import typer

from pledger.cli.durations import parse_duration


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("500ms", timedelta(milliseconds=500)),
        ("30s", timedelta(seconds=30)),
        ("1h30m", timedelta(hours=1, minutes=30)),
        ("1h 30m", timedelta(hours=1, minutes=30)),
        ("2d", timedelta(days=2)),
        ("0.5s", timedelta(milliseconds=500)),
        ("45", timedelta(seconds=45)),
        ("0", timedelta(0)),
    ],
)
def test_durations(text: str, duration: timedelta) -> None:
    assert parse_duration(text) == duration


def test_a_default_passes_through() -> None:
    assert parse_duration(timedelta(seconds=5)) == timedelta(seconds=5)


@pytest.mark.parametrize("text", ["", "soon", "5x", "-5s", "s", "5s!", "1e9d", "9" * 30 + "d"])
def test_what_is_no_duration_is_told_how_to_be_one(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="write it like"):
        parse_duration(text)
