"""Classes of every kind that can be annotated, and what the tests of payloads say about values."""

from __future__ import annotations

import enum
import json
from collections.abc import Iterator
from dataclasses import InitVar, dataclass, field
from datetime import UTC, date, datetime, timedelta, tzinfo
from decimal import Decimal
from typing import Any, Generic, NamedTuple, NewType, NotRequired, Required, TypedDict, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import attrs
import msgspec
import pydantic
import pytest

from pledger.errors import PayloadError
from pledger.history.payloads import decode, encode

NEW_YORK = ZoneInfo("America/New_York")
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
T = TypeVar("T")
Bounded = TypeVar("Bounded", bound=int)
Cents = NewType("Cents", int)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Corner(enum.Enum):
    ORIGIN = (0, 0)
    FAR = (1, 1)


class Right(enum.Flag):
    READ = 1
    WRITE = 2


@dataclass(frozen=True)
class Line:
    sku: str
    price: Decimal
    count: int = 1


@dataclass
class Order:
    id: UUID
    lines: list[Line]
    placed: datetime
    note: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass
class Rush(Order):
    fee: int = 0


@dataclass
class Refund:
    id: UUID
    reason: str


@dataclass
class Dispute(Refund):
    amount: int = 0


@dataclass
class Tree:
    name: str
    children: list[Tree] = field(default_factory=list)


@dataclass
class Box(Generic[T]):
    content: T
    more: list[T] = field(default_factory=list)


@dataclass
class Total:
    parts: list[int]
    sum: int = field(init=False)

    def __post_init__(self) -> None:
        self.sum = sum(self.parts)


@dataclass
class Doubling:
    n: int

    def __post_init__(self) -> None:
        self.n *= 2


@dataclass
class Positive:
    n: int

    def __post_init__(self) -> None:
        if self.n <= 0:
            raise ValueError("n must be positive")


@dataclass
class Forgetful:
    n: int
    secret: InitVar[str]

    def __post_init__(self, secret: str) -> None:
        pass


@dataclass
class Lost:
    part: Nowhere  # type: ignore[name-defined]  # noqa: F821 - that is the point


@dataclass
class Holder:
    stream: Iterator[int]


@attrs.define
class Parcel:
    weight: float
    _private: int = 0
    tags: set[str] = attrs.field(factory=set)


@attrs.define
class Trimmed:
    text: str = attrs.field(converter=str.strip)


def one_more(n: int) -> int:
    return n + 1


@attrs.define
class Counting:
    n: int = attrs.field(converter=one_more)


class Point(msgspec.Struct, rename="camel"):
    x_axis: int
    y_axis: Decimal = Decimal(0)


class Marked(msgspec.Struct):
    kind: str = msgspec.field(name="$type")
    value: str


class Span(NamedTuple):
    start: date
    days: int = 1


class Person(TypedDict):
    name: str
    born: date
    nick: NotRequired[str]


class Settings(TypedDict, total=False):
    id: Required[int]
    colour: Colour


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(populate_by_name=True)
    amount: Decimal
    at: datetime | None = None
    rate: float | None = None
    anything: Any = None
    renamed: int = pydantic.Field(0, alias="otherName")


class Tags(pydantic.RootModel[list[str]]):
    pass


class Hidden(pydantic.BaseModel):
    password: pydantic.SecretStr


class Handmade(tzinfo):
    """A zone as other libraries make them: the clock goes back by an hour on the second of January 2024."""

    def utcoffset(self, when: datetime | None) -> timedelta:
        return timedelta(hours=2 if when is not None and not when.fold and when.date() == date(2024, 1, 2) else 1)

    def dst(self, when: datetime | None) -> timedelta:
        return timedelta(0)

    def tzname(self, when: datetime | None) -> str:
        return "handmade"


def round_trip(value: object, hint: Any = Any) -> Any:
    data = encode(value, hint)
    assert_strict(data)
    return decode(data, hint)


def assert_strict(data: bytes) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    json.loads(data.decode("utf-8", "strict"), parse_constant=refuse)


def assert_same(one: object, other: object) -> None:
    """Equal, and of equal types all the way down."""
    assert type(one) is type(other)
    assert one == other
    match one, other:
        case dict(), dict():
            assert [*one] == [*other]
            for key, other_key in zip(one, other, strict=True):
                assert_same(key, other_key)
                assert_same(one[key], other[other_key])
        case ((list() | tuple()), (list() | tuple())):
            for item, other_item in zip(one, other, strict=True):
                assert_same(item, other_item)


def refusal(value: object, hint: Any = Any) -> PayloadError:
    with pytest.raises(PayloadError) as caught:
        encode(value, hint)
    assert_tells_its_path(caught.value)
    return caught.value


def unreadable(data: bytes, hint: Any = Any) -> PayloadError:
    with pytest.raises(PayloadError) as caught:
        decode(data, hint)
    assert_tells_its_path(caught.value)
    return caught.value


def assert_tells_its_path(error: PayloadError) -> None:
    """In its message, where an endless one is cut in the middle."""
    start, *rest = str(error).split(": at ", 1)[1].split(": ", 1)[0].split(" ... ")
    assert error.path.startswith(start)
    assert error.path == start if not rest else error.path.endswith(rest[0])


ORDER = Order(UUID(int=1), [Line("a", Decimal("1.50")), Line("b", Decimal(2), 3)], NOON, extra={"t": (1, NOON)})
