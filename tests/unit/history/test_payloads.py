"""The door: the cases of the field, the limits, the digest."""

from __future__ import annotations

import json
import sys
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, TypedDict
from uuid import UUID

import pytest

from pledger.errors import PayloadError, PayloadTooLargeError, UsageError
from pledger.history import payloads
from pledger.history.payloads import INT_DIGITS_MAX, NESTING_MAX, check_size, decode, digest, encode
from tests.unit.history.models import (
    NEW_YORK,
    Model,
    Parcel,
    Tree,
    assert_same,
    refusal,
    round_trip,
    unreadable,
)

# Cases ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["a\x00b", "\U0001f600", "\x01\x7f"], ids=ascii)
def test_STO_04_control_characters_and_emoji_round_trip(text: str) -> None:
    assert_same(round_trip(text), text)
    assert_same(round_trip({text: [text]}), {text: [text]})
    assert b"\x00" not in encode(text)


def test_STO_04_a_key_with_nul_round_trips() -> None:
    assert_same(round_trip({"k\x00": 1}), {"k\x00": 1})


@pytest.mark.parametrize(
    ("value", "hint", "path"),
    [
        ("\ud83d", Any, "$"),
        ("\ud83d", str, "$"),
        ({"log": ["ok", "half \udc00"]}, Any, "$.log[1]"),
        ({"log": {"half \ud83d": 1}}, Any, '$.log["half \\ud83d"]'),
        (Tree("a", [Tree("\ud83d")]), Tree, "$.children[0].name"),
    ],
)
def test_STO_04_a_lone_surrogate_is_refused_with_its_path_and_never_stripped(
    value: object, hint: Any, path: str
) -> None:
    error = refusal(value, hint)
    assert error.path == path
    assert "surrogate" in str(error)
    assert "nothing is stripped" in str(error)
    assert isinstance(error, UsageError)  # the caller's fault: trying again does not help


def test_STO_04_an_escaped_lone_surrogate_is_not_read_either() -> None:
    assert "strict JSON" in str(unreadable(b'"\\ud83d"'))


def test_STO_05_integers_and_decimals_keep_every_digit() -> None:
    text = b'{"id":3544790567247868102,"small":9007199254740991,"dec":0.2345678901234568}'
    assert encode(decode(text)) == text
    assert decode(text)["id"] == 3544790567247868102


@pytest.mark.parametrize(
    "number",
    [2**64, -(2**63) - 1, 10**100, 10**INT_DIGITS_MAX - 1, 1 - 10 ** (INT_DIGITS_MAX - 1)],
    ids=["2**64", "-2**63-1", "10**100", "longest", "longest-negative"],
)
def test_STO_05_integers_beyond_64_bits_are_exact(number: int) -> None:
    assert_same(round_trip(number), number)
    assert_same(round_trip([number], list[int]), [number])
    assert_same(round_trip({number: 1}, dict[int, int]), {number: 1})


@pytest.mark.parametrize("number", [10**INT_DIGITS_MAX, -(10 ** (INT_DIGITS_MAX - 1))], ids=["positive", "negative"])
def test_STO_05_an_integer_over_the_digit_limit_is_refused_both_ways(number: int) -> None:
    error = refusal({"n": [1, number]})
    assert error.path == "$.n[1]"
    assert "4,300 digits" in str(error)
    assert "4,300 digits" in str(unreadable(b"9" * (INT_DIGITS_MAX + 1)))


def test_STO_05_the_digit_limit_holds_where_the_interpreter_has_lifted_its_own() -> None:
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        assert refusal([10**INT_DIGITS_MAX]).path == "$[0]"
        unreadable(b"9" * (INT_DIGITS_MAX + 1))
    finally:
        sys.set_int_max_str_digits(before)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize(
    ("wrap", "hint", "path"),
    [
        (lambda n: n, Any, "$"),
        (lambda n: n, float, "$"),
        (lambda n: {"rate": [0.5, n]}, Any, "$.rate[1]"),
        (lambda n: [None, n], list[float | None], "$[1]"),
        (Parcel, Parcel, "$.weight"),
        (lambda n: Model(amount=Decimal(1), rate=n), Model, "$.rate"),
        (lambda n: Model(amount=Decimal(1), anything=[n]), Model, "$.anything[0]"),
    ],
    ids=["bare", "float", "untyped", "optional", "attrs", "pydantic", "pydantic-any"],
)
def test_STO_06_nan_and_infinities_are_refused_with_the_path(number: float, wrap: Any, hint: Any, path: str) -> None:
    error = refusal(wrap(number), hint)
    assert error.path == path
    assert "RFC 8259" in str(error)
    assert "Pass None" in str(error)


def test_STO_06_negative_zero_keeps_its_sign() -> None:
    assert str(round_trip(-0.0)) == "-0.0"
    assert str(round_trip(-0.0, float)) == "-0.0"
    assert str(round_trip(Decimal("-0.0"))) == "-0.0"


@pytest.mark.parametrize(
    "text", [b"1e400", b"NaN", b"Infinity", b"[1,]", b"'a'", b"", b"1 2", b'"\xff"', b"\xef\xbb\xbf1"]
)
def test_STO_06_text_that_is_not_strict_json_is_refused(text: bytes) -> None:
    assert "strict JSON" in str(unreadable(text))


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "sNaN"])
def test_STO_06_decimals_that_are_no_numbers_are_refused(number: str) -> None:
    assert refusal([Decimal(number)]).path == "$[0]"
    unreadable(json.dumps(number).encode(), Decimal)


AT = datetime(2024, 11, 3, 1, 30, tzinfo=NEW_YORK, fold=1)
STO_07 = {
    "at": AT,
    "amt": Decimal("0.10"),
    "big": Decimal("1E+30"),
    "raw": b"\x00\xff",
    "id": UUID(int=5),
    "t": (1, 2),
    "keys": {1: "a"},
}


@pytest.mark.parametrize("hint", [Any, dict, dict[str, Any], object], ids=str)
def test_STO_07_the_replayed_value_has_equal_values_of_equal_types(hint: Any) -> None:
    back = round_trip(STO_07, hint)
    assert_same(back, STO_07)
    assert str(back["amt"]) == "0.10"
    assert str(back["big"]) == "1E+30"
    assert (back["at"].fold, back["at"].tzinfo, back["at"].utcoffset()) == (1, NEW_YORK, timedelta(hours=-5))


class Typed(TypedDict):
    at: datetime
    amt: Decimal
    big: Decimal
    raw: bytes
    id: UUID
    t: tuple[int, int]
    keys: dict[int, str]


def test_STO_07_the_same_under_annotations_and_without_envelopes() -> None:
    assert_same(round_trip(STO_07, Typed), STO_07)
    assert b"$type" not in encode(STO_07, Typed)


def test_STO_07_encoding_what_was_decoded_gives_the_same_text() -> None:
    for hint in (Any, Typed):
        assert encode(decode(encode(STO_07, hint), hint), hint) == encode(STO_07, hint)


@pytest.mark.parametrize("hint", [Any, Typed], ids=["untyped", "typed"])
def test_STO_07_a_naive_datetime_is_refused_by_path(hint: Any) -> None:
    error = refusal({**STO_07, "at": datetime(2024, 1, 1)}, hint)  # noqa: DTZ001 - that is the point
    assert error.path == "$.at"
    assert "naive" in str(error)
    assert "timezone.utc" in str(error)


def test_STO_07_a_naive_datetime_is_refused_in_a_pydantic_model_and_when_read() -> None:
    error = refusal(Model(amount=Decimal(1), at=datetime(2024, 1, 1)), Model)  # noqa: DTZ001 - that is the point
    assert error.path == "$.at"
    assert "no zone" in str(unreadable(b'"2024-01-01T00:00:00"', datetime))


# Limits ---------------------------------------------------------------------------------------------------------------


def nested(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = [value]
    return value


def test_nesting_is_allowed_up_to_the_limit() -> None:
    assert round_trip(nested(NESTING_MAX)) == nested(NESTING_MAX)
    assert round_trip(["[{" * NESTING_MAX]) == ["[{" * NESTING_MAX]
    assert round_trip([[{}]] * NESTING_MAX) == [[{}]] * NESTING_MAX


def test_nesting_beyond_the_limit_is_refused_both_ways_with_the_path() -> None:
    error = refusal({"a": nested(NESTING_MAX)})
    assert error.path == "$.a" + "[0]" * (NESTING_MAX - 1)
    assert "deeper than 100 levels" in str(error)
    assert "Flatten it" in str(error)
    text = b"[" * (NESTING_MAX + 1) + b"]" * (NESTING_MAX + 1)
    assert unreadable(text).path == "$" + "[0]" * NESTING_MAX


@pytest.mark.parametrize("text", [b"[" * 100_000, b'{"a":' * 100_000, b"[" * 5000 + b"]" * 5000])
def test_very_deep_text_is_refused_and_never_a_recursion_error(text: bytes) -> None:
    assert "deeper than 100 levels" in str(unreadable(text))


def test_envelopes_count_as_the_json_levels_that_they_are() -> None:
    def tuples(levels: int) -> object:
        return (tuples(levels - 1),) if levels else 1

    assert round_trip(tuples(NESTING_MAX // 2)) == tuples(NESTING_MAX // 2)
    error = refusal(tuples(NESTING_MAX // 2 + 1))
    assert "deeper" in str(error)
    assert error.path == "$" + "[0]" * (NESTING_MAX // 2)

    def pairs(levels: int) -> object:
        return {1: pairs(levels - 1)} if levels else 1

    assert round_trip(pairs(NESTING_MAX // 3)) == pairs(NESTING_MAX // 3)
    error = refusal(pairs(NESTING_MAX // 3 + 1))
    assert "deeper" in str(error)
    assert error.path == "$" + "[1]" * (NESTING_MAX // 3)


def test_values_that_contain_themselves_are_refused() -> None:
    ring: list[object] = []
    ring.append(ring)
    loop: dict[str, object] = {}
    loop["again"] = loop
    tree = Tree("a")
    tree.children.append(tree)
    for value, hint, start in [
        (ring, Any, "$[0][0]"),
        (loop, Any, "$.again.again"),
        (tree, Tree, "$.children[0].children"),
    ]:
        error = refusal(value, hint)
        assert error.path.startswith(start)
        assert "contains itself" in str(error)


def test_a_payload_over_the_size_limit_is_refused_with_both_numbers() -> None:
    check_size(b"x" * payloads.PAYLOAD_BYTES_MAX, "the result of charge()")
    with pytest.raises(
        PayloadTooLargeError, match=r"the result of charge\(\) has 262,145 bytes; the limit is 262,144"
    ) as caught:
        check_size(b"x" * (payloads.PAYLOAD_BYTES_MAX + 1), "the result of charge()")
    assert (caught.value.size_bytes, caught.value.size_bytes_max) == (262_145, 262_144)
    assert "pass a reference" in str(caught.value)
    with pytest.raises(PayloadTooLargeError):
        check_size(b"xx", "it", limit=1)


# Digest ---------------------------------------------------------------------------------------------------------------


def test_a_digest_has_16_bytes_that_never_change() -> None:
    # Pinned: stored digests outlive releases.
    assert digest(b'[{"a":1,"b":[null,true,"x"]}]').hex() == "69c1c16c89eefb36da951c32cafd93d3"
    assert len(digest(b"null")) == 16


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b'{"a":1,"b":{"c":2,"d":3}}', b' { "b" : {"d":3,"c":2}, "a" : 1 } '),
        (b'"\\u00e9"', '"é"'.encode()),
        (b"1e2", b"100.0"),
        (encode({1: "a", 2: (1,)}), encode({2: (1,), 1: "a"})),
        (encode({"x": [{1: {2: 3, 4: 5}}]}), encode({"x": [{1: {4: 5, 2: 3}}]})),
        (encode({2**70: 1, "a": 2}), encode({"a": 2, 2**70: 1})),
        (encode({"b", "a"}), encode({"a", "b"})),
    ],
)
def test_a_digest_takes_equal_json_for_equal(one: bytes, other: bytes) -> None:
    assert digest(one) == digest(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b"1", b"1.0"),
        (b"0.0", b"-0.0"),
        (b"[1,2]", b"[2,1]"),
        (b"null", b"false"),
        (b'"1"', b"1"),
        (encode((1, 2)), encode((2, 1))),
        (encode((1, 2)), encode([1, 2])),
        (encode({1: "a"}), encode({1: "b"})),
        (b"9007199254740993", b"9007199254740992"),
    ],
)
def test_a_digest_tells_different_values_apart(one: bytes, other: bytes) -> None:
    assert digest(one) != digest(other)


def test_a_digest_of_what_is_no_json_is_refused() -> None:
    with pytest.raises(PayloadError, match="strict JSON"):
        digest(b"{")
