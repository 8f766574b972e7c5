"""Values under annotations: what comes back, how it is written, what is refused when it is written."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal, TypedDict
from uuid import UUID

import pydantic
import pytest

from pledger.history.payloads import decode, encode
from tests.unit.history.models import (
    NOON,
    ORDER,
    Bounded,
    Box,
    Cents,
    Colour,
    Corner,
    Counting,
    Doubling,
    Forgetful,
    Hidden,
    Holder,
    Level,
    Line,
    Lost,
    Marked,
    Model,
    Order,
    Parcel,
    Person,
    Point,
    Positive,
    Refund,
    Right,
    Rush,
    Settings,
    Span,
    T,
    Tags,
    Total,
    Tree,
    Trimmed,
    assert_same,
    refusal,
    round_trip,
)


def miscounted() -> Total:
    total = Total([1, 2])
    total.sum = 99
    return total


FITTING: list[tuple[object, Any]] = [
    ("a", str),
    (3, int),
    (True, bool),
    (None, None),
    (1.5, float),
    (3, float),
    (b"\xff", bytes),
    ([1, 2], list[int]),
    ([(1, "a")], list),
    ((1, 2), tuple[int, ...]),
    ((1, "a"), tuple[int, str]),
    ((3, 1.5), tuple[float, float]),
    ((), tuple[()]),
    ((1, "a"), tuple),
    ({1, 2}, set[int]),
    ({(1, 2)}, set[tuple[int, int]]),
    (frozenset({UUID(int=1)}), frozenset[UUID]),
    ({1: "a", -2: "b"}, dict[int, str]),
    ({date(2024, 1, 1): 1}, dict[date, int]),
    ({Colour.RED: 1}, dict[Colour, int]),
    ({Level.LOW: 1}, dict[Level, int]),
    ({(1, 2): "a"}, dict[tuple[int, int], str]),
    ({1: 1, None: 2, "a": 3}, dict[int | str | None, int]),
    ({"$type": 1}, dict[str, int]),
    (Colour.RED, Colour),
    (Level.HIGH, Level),
    (Corner.FAR, Corner),
    (Right.READ | Right.WRITE, Right),
    (ORDER, Order),
    (Tree("a", [Tree("b", [Tree("c")])]), Tree),
    (Box(Decimal(1), [Decimal(2)]), Box[Decimal]),
    (Box((1, 2)), Box),
    (Total([1, 2]), Total),
    (miscounted(), Total),
    (Positive(1), Positive),
    (Parcel(1.5, 7, {"a"}), Parcel),
    (Trimmed(" a "), Trimmed),
    (Point(1, Decimal("0.10")), Point),
    (Span(date(2024, 1, 1), 3), Span),
    ({"name": "a", "born": date(2000, 1, 1)}, Person),
    ({"nick": "b", "name": "a", "born": date(2000, 1, 1)}, Person),
    ({"id": 1, "colour": Colour.BLUE}, Settings),
    (Model(amount=Decimal("0.10"), at=NOON, renamed=3), Model),
    (Tags(["a"]), Tags),
    ([Model(amount=Decimal(1))], list[Model]),
    ("a", Literal["a", "b"]),
    (1, Literal[1, True]),
    (True, Literal[1, True]),
    (Colour.RED, Literal[Colour.RED, "red"]),
    ("red", Literal[Colour.RED, "red"]),
    (5, Cents),
    (5, Bounded),
    (NOON, T),
    (5, Annotated[int, "metadata"]),
    (5, Annotated[int, ["unhashable"]]),
    ([1], Sequence[int]),
    ((1,), Sequence[int]),
    ({1}, Iterable[int]),
    ({"a": 1}, Mapping[str, int]),
    (None, Order | None),
    (ORDER, Order | None),
    (ORDER, Order | Refund),
    (Refund(UUID(int=2), "late"), Order | Refund),
    (NOON, str | datetime),
    ("2024-05-01T12:00:00+00:00", str | datetime),
    (Decimal(1), int | Decimal | None),
    (1, int | float),
    (1.0, int | float),
    ([1], list[int] | list[str]),
    (["a"], list[int] | list[str]),
    ((1, 2, 3), tuple[int, int] | tuple[int, int, int]),
    ({"$type": "Order", "value": 1}, dict[str, Any] | Order),
    (Marked("Colour", "red"), Marked | Colour | None),
    (Marked("Colour", "red"), Marked),
    (ORDER, dict[str, Any] | Order),
    ({"id": 1}, Settings | Person),
    (Tags(["a"]), Tags | list[str]),
    (["a"], Tags | list[str]),
    ({"a": [1]}, dict[str, Sequence[int] | None]),
]


@pytest.mark.parametrize(("value", "hint"), FITTING, ids=[f"{hint}-{value!r}"[:80] for value, hint in FITTING])
def test_an_annotated_value_comes_back_equal_and_of_equal_type(value: object, hint: Any) -> None:
    assert_same(round_trip(value, hint), value)


def test_annotated_values_are_plain_json() -> None:
    assert json.loads(encode(ORDER, Order)) == {
        "id": "00000000-0000-0000-0000-000000000001",
        "lines": [{"sku": "a", "price": "1.50", "count": 1}, {"sku": "b", "price": "2", "count": 3}],
        "placed": "2024-05-01T12:00:00+00:00",
        "note": None,
        "extra": {"t": {"$type": "tuple", "value": [1, {"$type": "datetime", "value": "2024-05-01T12:00:00+00:00"}]}},
    }
    assert encode(Point(1), Point) == b'{"xAxis":1,"yAxis":"0"}'
    assert encode(Parcel(1.5), Parcel) == b'{"weight":1.5,"_private":0,"tags":[]}'
    assert encode({2: "a"}, dict[int, str]) == b'{"2":"a"}'
    assert json.loads(encode(Model(amount=Decimal(1)), Model))["otherName"] == 0


def test_only_the_members_of_a_union_that_need_it_are_marked() -> None:
    assert encode(NOON, datetime | None) == b'"2024-05-01T12:00:00+00:00"'
    assert encode("a", str | datetime) == b'"a"'
    assert json.loads(encode(NOON, str | datetime))["$type"] == "datetime"
    assert json.loads(encode(ORDER, Order | Refund))["$type"] == "Order"
    assert encode(1, int | float) == b"1"
    assert json.loads(encode([1], list[int] | list[str]))["$type"] == "list[int]"


def test_the_order_of_a_union_never_matters() -> None:
    data = encode(ORDER, Order | Refund)
    assert encode(ORDER, Refund | Order) == data
    assert decode(data, Refund | Order | None) == ORDER


MISFITS: list[tuple[object, Any, str, str, str]] = [
    (3, str, "$", "str", "int"),
    ("3", int, "$", "int", "str"),
    ("3", Bounded, "$", "int", "str"),
    (True, int, "$", "int", "bool"),
    (True, float, "$", "float", "bool"),
    (1, bool, "$", "bool", "int"),
    (Level.LOW, int, "$", "int", "Level"),
    (None, str, "$", "str", "None"),
    ("a", None, "$", "None", "str"),
    ((1,), list[int], "$", "list[int]", "tuple"),
    ([1], tuple[int, ...], "$", "tuple[int, ...]", "list"),
    ([1, "a"], list[int], "$[1]", "int", "str"),
    ([1, 2], tuple[int, int], "$", "tuple[int, int]", "list"),
    (("x",), tuple[float], "$[0]", "float", "str"),
    ([], Person, "$", "Person", "list"),
    ([], dict[str, int], "$", "dict[str, int]", "list"),
    ({1.5: "x"}, dict[float, int], '$["key of type float"]', "int", "str"),
    ((1, 2), tuple[int, str], "$[1]", "str", "int"),
    ({"a": "b"}, dict[str, int], "$.a", "int", "str"),
    ({"a": 1}, dict[int, int], "$.a", "int", "str"),
    ({1: 1}, dict[str, int], "$[1]", "str", "int"),
    ({1: "x"}, dict[int, int], "$[1]", "int", "str"),
    ({(1, 2): "x"}, dict[tuple[int, int], int], '$["key of type tuple"]', "int", "str"),
    ({1}, set[str], "$", "str", "int"),
    (1.5, Decimal, "$", "Decimal", "float"),
    (Refund(UUID(int=1), "x"), Order, "$", "Order", "Refund"),
    (Line("a", 1.5), Line, "$.price", "Decimal", "float"),  # type: ignore[arg-type]
    ([Line("a", Decimal(1), "2")], list[Line], "$[0].count", "int", "str"),  # type: ignore[arg-type]
    (Tree("a", [Tree("b", [Tree(3)])]), Tree, "$.children[0].children[0].name", "str", "int"),  # type: ignore[arg-type]
    (Point("1"), Point, "$.xAxis", "int", "str"),  # type: ignore[arg-type]
    (Parcel("1"), Parcel, "$.weight", "float", "str"),  # type: ignore[arg-type]
    (Span("x"), Span, "$.start", "date", "str"),  # type: ignore[arg-type]
    ({"name": 1, "born": date(2000, 1, 1)}, Person, "$.name", "str", "int"),
    (NOON, date, "$", "date", "datetime"),
    ("red", Colour, "$", "Colour", "str"),
    (1.5, int | str, "$", "int | str", "float"),
    ("a", Sequence[str], "$", "list[str]", "str"),
    (Box("x"), Box[int], "$.content", "int", "str"),
    ({"a": "x"}, Model, "$", "Model", "dict"),
    ([1], Literal["a"], "$", "Literal['a']", "list"),
]


@pytest.mark.parametrize(
    ("value", "hint", "path", "annotated", "actual"), MISFITS, ids=[f"{m[1]}-{m[0]!r}"[:60] for m in MISFITS]
)
def test_a_value_of_another_type_is_refused_with_path_and_both_types(
    value: object, hint: Any, path: str, annotated: str, actual: str
) -> None:
    error = refusal(value, hint)
    assert error.path == path
    assert f"annotated as {annotated}" in str(error)
    assert actual in str(error).split("but the value is of ")[1]
    assert "change the annotation" in str(error)


def test_a_subclass_is_refused_because_its_fields_would_be_lost() -> None:
    error = refusal(Rush(UUID(int=1), [], NOON, fee=5), Order)
    assert "subclass" in str(error)
    assert "or a union of the two" in str(error)


@pytest.mark.parametrize(
    ("value", "hint", "path", "says"),
    [
        ((1, 2, 3), tuple[int, int], "$", "there are 3 elements. Pass 2"),
        ("c", Literal["a", "b"], "$", "none of Literal['a', 'b']. Pass one of them"),
        (1, Literal[0, True], "$", "the int is none of Literal[0, True]"),
        (Counting(1), Counting, "$.n", "gives another one"),
        (True, Literal[0, "x"] | None, "$", "annotated as"),
        (
            ["a", 1],
            list[int] | list[str],
            "$",
            "annotated as list[int] | list[str], but this list fits no member of it",
        ),
        ({"name": "a"}, Person, "$.born", "the key born of Person is missing"),
        ({"id": 1, "size": 2}, Settings, "$.size", "no such key, so it would be lost"),
        ({"colour": Colour.RED}, Settings, "$.id", "the key id of Settings is missing"),
        (Doubling(1), Doubling, "$.n", "Let its validators, converters and __post_init__ leave values alone"),
        (Forgetful(1, "x"), Forgetful, "$", "Forgetful does not take these values (TypeError"),
        (Hidden(password=pydantic.SecretStr("x")), Hidden, "$.password", "gives another one"),
        (Model(amount=Decimal(1), anything=(1, 2)), Model, "$.anything", "type tuple and would come back as list"),
        (Model(amount=Decimal(1), anything="\ud83d"), Model, "$.anything", "surrogate"),
        (Model.model_construct(amount="x"), Model, "$.amount", "Model does not take this value"),
        (Model(amount=Decimal(1), anything=object()), Model, "$", "Model does not take these values"),
        (Line.__new__(Line), Line, "$.sku", "has no value for this field. Set it"),
        (Lost(1), Lost, "$", "'Nowhere' is not defined). Define or import"),
        (Holder(iter([])), Holder, "$.stream", "cannot be kept. Annotate a supported type"),
        (1, "int", "$", "refers to itself or to an unknown name"),
        (1, memoryview, "$", "cannot be kept. Annotate a supported type"),
    ],
)
def test_what_would_not_come_back_equal_is_refused_when_written(value: object, hint: Any, path: str, says: str) -> None:
    error = refusal(value, hint)
    assert error.path == path
    assert says in str(error)


def test_two_classes_of_one_name_in_a_union_are_refused() -> None:
    other = type("Order", (), {"__annotations__": {"n": int}})
    assert "both called Order. Rename one" in str(refusal(ORDER, Order | dataclass(other)))


Envelope = TypedDict("Envelope", {"$type": str, "value": int})


@pytest.mark.parametrize("hint", [Envelope, Envelope | None, list[Envelope]])
@pytest.mark.parametrize("mark", ["Envelope", "Order", "list"])
def test_a_typed_dict_that_looks_like_an_envelope_comes_back(hint: Any, mark: str) -> None:
    value: Any = {"$type": mark, "value": 3}
    value = [value] if hint == list[Envelope] else value
    assert decode(encode(value, hint), hint) == value
