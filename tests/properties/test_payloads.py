"""Laws of the payload codec, for every value: it round-trips, it is strict JSON, equal inputs have equal digests."""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st

from pledger.errors import PayloadError
from pledger.history.payloads import Signature, decode, digest, encode, encode_args_untyped

# Values ---------------------------------------------------------------------------------------------------------------

TEXT = st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(["$type", "value", "tuple", "\x00"])
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
DECIMALS = st.decimals(allow_nan=False, allow_infinity=False)
ZONES = st.sampled_from(["America/New_York", "Europe/Berlin", "Asia/Kathmandu", "UTC"]).map(ZoneInfo) | st.sampled_from(
    [UTC, timezone(timedelta(hours=-3, minutes=-30, seconds=-1))]
)
FOLDS = st.integers(0, 1)


def _zoned(moment: datetime, zone: tzinfo, fold: int) -> datetime:
    return moment.replace(tzinfo=zone, fold=fold)


MOMENTS = st.builds(_zoned, st.datetimes(), ZONES, FOLDS)
# The hours around a change of the clock, which random ones hardly ever hit.
CHANGES = st.builds(
    _zoned,
    st.builds(
        lambda day, minutes: day + timedelta(minutes=minutes),
        st.sampled_from([datetime(2024, 3, 10, 2), datetime(2024, 11, 3, 1), datetime(2024, 10, 27, 2)]),  # noqa: DTZ001
        st.integers(-90, 90),
    ),
    ZONES,
    FOLDS,
)
KEYS = (
    TEXT | st.integers() | st.booleans() | st.none() | FLOATS | st.binary() | DECIMALS | st.uuids() | MOMENTS | CHANGES
)
LEAVES = KEYS | st.dates() | st.times(timezones=st.none() | ZONES) | st.timedeltas()


def _nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return (
        st.lists(inner, max_size=4)
        | st.dictionaries(TEXT, inner, max_size=4)
        | st.dictionaries(KEYS | st.tuples(KEYS, KEYS), inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.sets(KEYS, max_size=4)
        | st.frozensets(KEYS, max_size=4)
    )


VALUES = st.recursive(LEAVES, _nested, max_leaves=20)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Span(NamedTuple):
    start: date
    length: timedelta


@dataclass(frozen=True)
class Line:
    sku: str
    price: Decimal
    count: int


@dataclass
class Order:
    id: UUID
    placed: datetime
    lines: list[Line]
    by_day: dict[date, list[int]]
    by_number: dict[int, Colour]
    shape: tuple[int, str, bytes]
    tags: frozenset[str]
    span: Span | None
    due: datetime | date | str | None
    parts: dict[str, Line | Span]
    opens: time
    rate: float
    extra: Any
    children: list[Order] = field(default_factory=list)


LINES = st.builds(Line, TEXT, DECIMALS, st.integers())
SPANS = st.builds(Span, st.dates(), st.timedeltas())


def _orders(children: st.SearchStrategy[list[Order]]) -> st.SearchStrategy[Order]:
    return st.builds(
        Order,
        id=st.uuids(),
        placed=MOMENTS | CHANGES,
        lines=st.lists(LINES, max_size=3),
        by_day=st.dictionaries(st.dates(), st.lists(st.integers(), max_size=2), max_size=3),
        by_number=st.dictionaries(st.integers(), st.sampled_from(Colour), max_size=3),
        shape=st.tuples(st.integers(), TEXT, st.binary()),
        tags=st.frozensets(TEXT, max_size=3),
        span=st.none() | SPANS,
        due=st.none() | MOMENTS | st.dates() | TEXT,
        parts=st.dictionaries(TEXT, LINES | SPANS, max_size=3),
        opens=st.times(),
        rate=FLOATS,
        extra=VALUES,
        children=children,
    )


ORDERS = _orders(st.lists(_orders(st.just([])), max_size=2))


def same(one: Any, other: Any) -> bool:
    """Equal, of equal types all the way down, with signs of zero, exponents, zones and folds."""
    if type(one) is not type(other) or one != other:
        return False
    match one:
        case dict():
            return same([*one.items()], [*other.items()])
        case list() | tuple():
            return all(map(same, one, other))
        case set() | frozenset():
            # Equal elements may still differ in type (1 and True), so each is looked for by its representation.
            return sorted(map(repr, one)) == sorted(map(repr, other))
        case datetime() | time():
            return (one.tzinfo, one.fold, one.utcoffset()) == (other.tzinfo, other.fold, other.utcoffset())
        case Order() | Line():
            return same(vars(one), vars(other))
        case _:
            return repr(one) == repr(other)


def strict(data: bytes) -> Any:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(data.decode("utf-8", "strict"), parse_constant=refuse)


# Laws -----------------------------------------------------------------------------------------------------------------


@given(VALUES)
def test_every_supported_value_round_trips_without_annotation(value: Any) -> None:
    data = encode(value)
    strict(data)
    assert same(decode(data), value)
    assert encode(decode(data)) == data


@given(ORDERS)
def test_every_typed_record_round_trips(order: Order) -> None:
    data = encode(order, Order)
    strict(data)
    assert same(decode(data, Order), order)
    assert encode(decode(data, Order), Order) == data


@given(VALUES)
def test_a_value_means_the_same_under_annotations_that_say_nothing(value: Any) -> None:
    async def fn(one: Any, two: object, *rest: Any) -> Any: ...

    by_name = encode_args_untyped([value, value, value])
    assert Signature.of(fn).encode_args((value, value, value), {}) == by_name
    assert same(Signature.of(fn).decode_args(by_name), [value, value, value])


@given(st.dictionaries(st.integers(), st.lists(MOMENTS | DECIMALS.map(lambda d: (d,)))))
def test_what_was_written_without_annotation_is_read_with_it(
    value: dict[int, list[datetime | tuple[Decimal, ...]]],
) -> None:
    assert same(decode(encode(value), dict[int, list[datetime | tuple[Decimal, ...]]]), value)


def _reversed(value: Any) -> Any:
    match value:
        case dict():
            return {key: _reversed(item) for key, item in reversed(value.items())}
        case list():
            return [_reversed(item) for item in value]
        case tuple():
            return tuple(_reversed(item) for item in value)
        case _:
            return value


@given(VALUES)
def test_a_digest_is_independent_of_the_order_of_keys(value: Any) -> None:
    assert digest(encode(_reversed(value))) == digest(encode(value))


@given(VALUES)
def test_a_digest_is_independent_of_blanks_and_escapes(value: Any) -> None:
    data = encode(value)
    assert digest(json.dumps(json.loads(data), indent=1, ensure_ascii=True).encode()) == digest(data)


@given(VALUES, VALUES)
def test_a_digest_tells_different_values_apart(one: Any, other: Any) -> None:
    assert (digest(encode(one)) == digest(encode(other))) == same(
        decode(encode(_sorted(one))), decode(encode(_sorted(other)))
    )


def _sorted(value: Any) -> Any:
    match value:
        case dict():
            return {key: _sorted(value[key]) for key in sorted(value, key=encode)}
        case list():
            return [_sorted(item) for item in value]
        case tuple():
            return tuple(_sorted(item) for item in value)
        case _:
            return value


class Unsupported:
    pass


def _around(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.builds(lambda item, rest: [*rest, item], inner, st.lists(LEAVES, max_size=2)) | st.builds(
        lambda key, item: {key: item}, KEYS, inner
    )


@given(st.recursive(st.builds(Unsupported), _around, max_leaves=5))
def test_one_unsupported_value_anywhere_refuses_the_whole(value: Any) -> None:
    try:
        encode(value)
    except PayloadError as error:
        assert "Unsupported" in str(error)  # noqa: PT017 - hypothesis shrinks this better than pytest.raises
    else:
        raise AssertionError("it was kept")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | FLOATS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
)


@given(
    JSON, st.sampled_from([Any, Order, Line, Span, list[int], dict[int, str], tuple[int, ...], Line | Span, set[Any]])
)
def test_any_json_is_read_or_refused_with_a_payload_error(tree: Any, hint: Any) -> None:
    try:
        value = decode(json.dumps(tree).encode(), hint)
    except PayloadError:
        return
    assert same(decode(encode(value, hint), hint), value)


@given(st.binary())
def test_any_bytes_are_read_or_refused_with_a_payload_error(data: bytes) -> None:
    try:
        decode(data)
    except PayloadError:
        return
    strict(data)
