"""Positions without annotation: what is plain, what is marked, what is refused."""

from __future__ import annotations

import json
from collections import OrderedDict
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from pledger.history.payloads import decode, encode
from tests.unit.history.models import (
    NOON,
    Colour,
    Level,
    Line,
    Point,
    Span,
    assert_same,
    refusal,
    round_trip,
)

PLAIN = [None, True, False, 0, -1, 2**63, 3.5, 1e300, "", "käse \U0001f9c0", [], {}, [1, [2, {"a": None}]], {"i": 3}]
MARKED = [
    (),
    (1, (2, [3])),
    b"\x00\xff",
    Decimal("0.10"),
    Decimal("1E+30"),
    Decimal("-0"),
    UUID(int=5),
    NOON,
    date(2024, 2, 29),
    time(1, 2, 3, 4),
    timedelta(days=-1, microseconds=1),
    set(),
    {1, "a", (2, 3)},
    frozenset({b"x"}),
    {1: "a", None: "b", (1, 2): "c"},
    {1.5: 1, True: 2},
]


@pytest.mark.parametrize("value", PLAIN, ids=repr)
def test_what_json_carries_exactly_is_written_plainly(value: object) -> None:
    assert json.loads(encode(value)) == value
    assert_same(round_trip(value), value)


@pytest.mark.parametrize("value", MARKED)  # no ids: the order of a set in its repr changes with the hash seed
def test_other_types_come_back_at_any_depth(value: object) -> None:
    assert_same(round_trip(value), value)
    assert_same(round_trip({"deep": [value]}), {"deep": [value]})


@pytest.mark.parametrize(
    "value",
    [
        {"$type": "tuple", "value": [1]},
        {"$type": 1},
        {"a": {"$type": (1,)}},
        {"$type": "dict", "value": [["a", 1]]},
        {"$type": {"$type": "bytes", "value": ""}},
    ],
    ids=repr,
)
def test_a_dict_with_the_reserved_key_is_escaped(value: object) -> None:
    assert_same(round_trip(value), value)
    assert_same(round_trip(value, dict[str, Any]), value)


def test_a_foreign_mark_comes_back_as_the_dict_that_it_is() -> None:
    foreign = b'{"$type":"Shop.Order, Shop","value":{"id":1}}'
    assert decode(foreign) == json.loads(foreign)
    assert_same(round_trip(decode(foreign)), decode(foreign))
    assert decode(b'{"$type":"Decimal","amount":1}') == {"$type": "Decimal", "amount": 1}


def test_a_set_is_written_in_one_order_whatever_the_order_of_its_hashes() -> None:
    # Small ints hash to themselves: 8 and 0 collide, so that these equal sets iterate in different orders.
    one, other = {8, 0}, {0, 8}
    assert [*one] != [*other]
    assert encode(one) == encode(other)
    assert json.loads(encode({"b", "a", "c"}))["value"] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (Line("a", Decimal(1)), "Line"),
        (Point(1), "Point"),
        (Span(date(2024, 1, 1)), "Span"),
        (Colour.RED, "Colour"),
        (Level.LOW, "Level"),
        (OrderedDict(a=1), "collections.OrderedDict"),
        (object(), "object"),
        (bytearray(b"x"), "bytearray"),
        (lambda: None, "function"),
        (1j, "complex"),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_anything_else_is_refused_with_path_and_remedy(value: object, name: str) -> None:
    error = refusal({"orders": [0, value]})
    assert error.path == "$.orders[1]"
    assert name in str(error)
    assert "Annotate" in str(error)


def test_a_path_quotes_what_is_no_identifier_and_is_cut_when_endless() -> None:
    assert refusal({"a b": {"c": {5: object()}}}).path == '$["a b"].c[5]'
    long = refusal({"k" * 10_000: object()})
    assert len(str(long)) < 500
