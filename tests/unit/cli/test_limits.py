"""Limits as they are written on a command line."""

from __future__ import annotations

from datetime import timedelta

import pytest
import typer

from pledger.cli.limits import parse_limit, parse_rate, rate_words
from pledger.errors import InvalidPolicyError, UsageError
from pledger.history.placement import Limit


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("api=10", Limit("api", concurrency=10)),
        ("api=50/s", Limit("api", rate=50)),
        ("api=10,200/m", Limit("api", concurrency=10, rate=200, per=timedelta(minutes=1))),
        ("api=0.5/1m30s,2", Limit("api", concurrency=2, rate=0.5, per=timedelta(seconds=90))),
    ],
)
def test_what_can_be_said(text: str, limit: Limit) -> None:
    assert parse_limit(text) == limit


@pytest.mark.parametrize("text", ["api", "api=", "api=ten", "api=1,2", "api=1/s,2/s", "api=x/s", "api=1,"])
def test_what_is_no_limit(text: str) -> None:
    with pytest.raises(UsageError, match=f"{text!r} is no limit: write api=10"):
        parse_limit(text)


def test_a_duration_that_is_none() -> None:
    with pytest.raises(typer.BadParameter, match="'fortnight' is no duration"):
        parse_limit("api=1/fortnight")


@pytest.mark.parametrize("text", ["api=0", "api=-1", "api=0/s", "api=nan/s", "=1"])
def test_numbers_out_of_range(text: str) -> None:
    with pytest.raises(InvalidPolicyError):
        parse_limit(text)


@pytest.mark.parametrize("text", ["50/s", "200/m", "5000/h", "0.5/90s"])
def test_rates_are_written_as_they_are_read(text: str) -> None:
    assert rate_words(*parse_rate(text)) == text
