"""Payloads of another shape, from older code, from other hands."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal
from uuid import UUID

import pytest

from pledger.history.payloads import decode, encode
from tests.unit.history.models import (
    NOON,
    ORDER,
    Colour,
    Dispute,
    Line,
    Model,
    Order,
    Person,
    Point,
    Positive,
    Refund,
    Tree,
    assert_same,
    refusal,
    unreadable,
)


@pytest.mark.parametrize(
    ("data", "hint", "path", "says"),
    [
        (b"3", str, "$", "expected str, found an integer"),
        (b"true", int, "$", "expected int, found a boolean"),
        (b"1.0", int, "$", "expected int, found a number"),
        (b"null", str, "$", "expected str, found null"),
        (b"{}", list[int], "$", "expected list[int], found an object"),
        (b'[1,"a"]', list[int], "$[1]", "expected int, found a string"),
        (b'[1,"a"]', tuple[int, int], "$[1]", "expected int, found a string"),
        (b'["a"]', tuple[float], "$[0]", "expected float, found a string"),
        (b"{}", tuple[int, int], "$", "expected tuple[int, int], found an object"),
        (b"[]", dict[str, int], "$", "expected dict[str, int], found an array"),
        (b"[]", Person, "$", "expected Person, found an array"),
        (b"[]", Line, "$", "expected Line, found an array"),
        (b'{"name":1,"born":"2000-01-01"}', Person, "$.name", "expected str, found an integer"),
        (b'{"a":[]}', dict[str, str], "$.a", "expected str, found an array"),
        (b'{"x":1}', dict[int, int], "$.x", 'expected an int as key, found another string. Write it like "17"'),
        (b'"0.1.2"', Decimal, "$", 'expected Decimal, found another string. Write it like "12.50"'),
        (b'"a"', UUID, "$", "expected UUID, found another string. Write it like"),
        (b'"aGk=!"', bytes, "$", "expected bytes, found another string. Write it like base64"),
        (b'"2024-13-01"', date, "$", "expected date"),
        (b'"x"', datetime, "$", "expected datetime"),
        (b'"1 hour"', timedelta, "$", "expected timedelta, found another string"),
        (b"5", Decimal, "$", "expected Decimal, found an integer"),
        (b'"green"', Colour, "$", "it has RED, BLUE. Keep the members that open runs still hold"),
        (b'"c"', Literal["a"], "$", "none of Literal['a']"),
        (b"[1]", tuple[int, int], "$", "there are 1 elements"),
        (b"[1]", tuple[int, str] | None, "$", "there are 1 elements"),
        (b'{"price":"1"}', Line, "$.sku", "the field sku of Line is missing. Send it, or give the field a default"),
        (b'{"sku":"a","price":"x"}', Line, "$.price", "expected Decimal"),
        (b'{"children":[{"name":"b","children":[{}]}],"name":"a"}', Tree, "$.children[0].children[0].name", "missing"),
        (b'{"n":0}', Positive, "$", "Positive does not take these values (ValueError: n must be positive)"),
        (b'{"amount":"x"}', Model, "$.amount", "Model does not take this value"),
        (b'{"name":"a"}', Person, "$.born", "missing"),
        (b"1.5", int | str, "$", "expected int | str, found a number"),
        (b'{"$type":"Order","value":1}', Refund | Order, "$", "expected Order, found an integer"),
        (b'{"$type":"Other","value":1}', Refund | Order, "$", "marked $type 'Other'"),
        (b'{"$type":"tuple","value":1}', Any, "$", "expected tuple[Any, ...]"),
        (b'[{"$type":"Decimal","value":"x"}]', Any, "$[0]", "expected Decimal"),
        (b'{"$type":"set","value":[[1]]}', Any, "$", "cannot be hashed"),
        (b'{"$type":"dict","value":[[[1],2]]}', Any, "$", "cannot be hashed"),
        (b'{"$type":"dict","value":[[1]]}', Any, "$", "no array of pairs"),
        (b'{"$type":"dict","value":5}', Any, "$", "no array of pairs"),
        (b'{"$type":"dict","value":[["a",{"$type":"bytes","value":"x"}]]}', Any, "$.a", "expected bytes"),
    ],
)
def test_a_payload_of_another_shape_is_refused_with_path_expected_and_found(
    data: bytes, hint: Any, path: str, says: str
) -> None:
    error = unreadable(data, hint)
    assert error.path == path
    assert says in str(error)


def test_messages_do_not_quote_contents() -> None:
    secret = "hunter2"
    for data, hint in [(secret, Decimal), ({"amount": secret}, Model), ({"a": secret}, dict[str, int])]:
        assert secret not in str(unreadable(json.dumps(data).encode(), hint))
    assert secret not in str(refusal(secret, int))


def test_a_refused_constructor_is_the_cause() -> None:
    assert isinstance(unreadable(b'{"n":0}', Positive).__cause__, ValueError)


def test_old_payloads_survive_new_fields_and_removed_ones() -> None:
    assert decode(b'{"sku":"a","price":"1","gone":true}', Line) == Line("a", Decimal(1))
    assert decode(b'{"xAxis":1,"gone":true}', Point) == Point(1)
    assert decode(b'{"name":"a","born":"2000-01-01","gone":true}', Person) == {"name": "a", "born": date(2000, 1, 1)}


def test_old_payloads_survive_a_union_that_grows_or_shrinks() -> None:
    assert decode(encode(ORDER, Order), Order | Refund) == ORDER
    for hint, value in [(Order, ORDER), (Person, {"name": "a", "born": date(2000, 1, 1)}), (Colour, Colour.RED)]:
        assert decode(encode(value, hint | Refund | str), hint) == value
    assert decode(encode(Model(amount=Decimal(1)), Model | Refund), Model) == Model(amount=Decimal(1))


def test_a_bare_object_that_fits_several_members_is_not_guessed() -> None:
    error = unreadable(b'{"id":"00000000-0000-0000-0000-000000000001","reason":"x"}', Refund | Dispute)
    assert "fits several members of Dispute | Refund" in str(error)
    assert '{"$type": "Dispute", "value": ...}' in str(error)


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (Decimal("0.10"), Decimal),
        (Decimal("0.10"), Decimal | None),
        (NOON, datetime | str),
        ((Decimal(1), Decimal(2)), tuple[Decimal, ...]),
        ((1, Decimal(2)), tuple[int, Decimal]),
        ((1, 2), tuple[int, ...] | None | Order),
        ({b"a"}, set[bytes]),
        ({1: NOON}, dict[int, datetime]),
        ({1: 2}, dict[int, int] | None),
    ],
)
def test_what_was_written_without_annotation_is_read_with_it(value: object, hint: Any) -> None:
    assert_same(decode(encode(value), hint), value)


def test_a_plain_object_written_without_annotation_is_read_as_the_class() -> None:
    assert decode(encode({"sku": "a", "price": Decimal("1.50")}), Line) == Line("a", Decimal("1.50"))


class TooManyError(BaseException):
    """Past every `except Exception`."""


made = 0


def count() -> None:
    global made  # noqa: PLW0603 - how often a constructor runs, whoever calls it
    made += 1
    if made > 1_000:
        raise TooManyError


@dataclass
class And:
    child: And | Or | None = None
    weight: int = 0

    def __post_init__(self) -> None:
        count()


@dataclass
class Or:
    child: And | Or | None = None

    def __post_init__(self) -> None:
        count()


def deep(innermost: object, levels: int = 60) -> bytes:
    tree = innermost
    for _ in range(levels):
        tree = {"child": tree}
    return json.dumps(tree).encode()


@pytest.mark.parametrize("innermost", [None, {"child": None}, {"weight": "much"}, 5])
def test_what_fits_several_members_at_every_level_is_refused_in_few_steps(innermost: object) -> None:
    """Each level has two members that look at the next one: 2 to the power of 60, if each looked for itself."""
    global made  # noqa: PLW0603 - as above
    made = 0
    error = unreadable(deep(innermost), And)
    assert "child" in error.path
    assert made < 1_000


@dataclass
class Sum:
    child: Sum | Product | None
    sum: int

    def __post_init__(self) -> None:
        count()


@dataclass
class Product:
    child: Sum | Product | None
    product: int

    def __post_init__(self) -> None:
        count()


def test_what_fits_one_member_at_every_level_is_read() -> None:
    global made  # noqa: PLW0603 - as above
    made = 0
    tree: object = None
    for n in range(60):
        tree = {"child": tree, "sum" if n % 2 else "product": n}
    found: Any = decode(json.dumps(tree).encode(), Sum | Product)
    for n in range(59, -1, -1):
        assert (found.sum if n % 2 else found.product) == n
        found = found.child
    assert found is None
