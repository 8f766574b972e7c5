"""What users give as names, keys and reasons: kept as plain text, or refused in words that say what it was."""

from __future__ import annotations

import enum
import re

import pytest

from pledger.errors import InvalidPolicyError, UsageError
from pledger.history.names import check_id, check_str, check_text, clean


class Colour(str, enum.Enum):  # noqa: UP042 - its str() is "Colour.RED", unlike that of a StrEnum
    RED = "red"


class OrderId(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "an order"


@pytest.mark.parametrize("check", [check_str, check_id, check_text])
@pytest.mark.parametrize("given", [OrderId("red"), Colour.RED, "red"])
def test_a_subclass_of_str_is_kept_as_its_text(check: object, given: str) -> None:
    found = check(given, "the id")  # type: ignore[operator]
    assert (type(found), found) == (str, "red")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (7421, "the id is 7421, of type int; it must be a str"),
        (None, "the id is None, of type NoneType; it must be a str"),
        ("a\ud800", r"the id, 'a\ud800', holds half of a surrogate pair"),
        ("a\0b", r"the id, 'a\x00b', holds a NUL character"),
        ("a" * 1_001, "the id has 1001 characters, the most is 1000"),
    ],
)
def test_what_is_no_id_is_refused(given: object, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        check_id(given, "the id")


def test_a_key_may_be_long_and_is_text() -> None:
    assert check_str("a" * 5_000, "the key") == "a" * 5_000
    with pytest.raises(UsageError, match="of type bytes"):
        check_str(b"a", "the key")


def test_a_name_in_an_index_is_text() -> None:
    with pytest.raises(InvalidPolicyError, match="the fairness_key is 42, of type int; it must be a str"):
        check_text(42, "fairness_key")


def test_a_reason_is_cleaned_and_not_refused() -> None:
    assert clean("half \ud800 and \0", "the reason") == "half \\ud800 and \\x00"
    with pytest.raises(UsageError, match="the reason is None, of type NoneType; it must be a str"):
        clean(None, "the reason")
