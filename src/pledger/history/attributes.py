"""Search attributes: typed values of a run by which runs are found, as users state them and as a history keeps them.

A key has a name and a kind, and both make the attribute: `SearchAttributeKey.for_int("amount")`. Nothing is declared
beforehand; a ledger knows the attributes that its runs have.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar, get_args

import msgspec

from pledger.errors import UsageError
from pledger.history.names import check_str
from pledger.history.times import utc

T = TypeVar("T")

Kind: TypeAlias = Literal["keyword", "text", "int", "float", "bool", "datetime", "keyword_list"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
#: Kinds of which a value is a text.
TEXTS: Final = frozenset({"keyword", "text", "keyword_list"})

#: Attributes of one run. Each is a row or more, and a row of every index that leads to it.
ATTRIBUTES_MAX: Final = 100
#: Texts in one list.
LIST_MAX: Final = 100
#: UTF-8 bytes: an index entry of PostgreSQL has 2,700 at most, and the namespace and the name are in it too.
KEYWORD_BYTES_MAX: Final = 255
TEXT_BYTES_MAX: Final = 1_024
NAME_CHARACTERS_MAX: Final = 64

#: Names of what every run has anyway, in a filter; no attribute can be called so.
RESERVED: Final = frozenset(
    {
        "id",
        "workflow_id",
        "run_id",
        "type",
        "workflow_type",
        "task_queue",
        "status",
        "started",
        "started_at",
        "closed",
        "closed_at",
        "duration",
        "events",
        "blocked",
        "retrying",
        "overdue",
        "paused",
        "owner",
        "deadline",
        "parent",
        "act_by",
        "warned",
    }
)

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_INT_MAX: Final = 2**63 - 1

#: A value as a history keeps it: a datetime as milliseconds, a list as a tuple.
Kept: TypeAlias = int | float | bool | str | tuple[str, ...]


class AttributeRecord(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One attribute in a history. value: as `Kept`; None takes it away."""

    name: str
    kind: str
    value: int | float | bool | str | tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class SearchAttributeKey(Generic[T]):
    """The name and the kind of an attribute. Made by `for_keyword` and its kin, which check the name.

    keyword: an exact text, of 255 bytes at most; text: one of 1,024, for remarks; keyword_list: several keywords.
    """

    name: str
    kind: Kind

    @staticmethod
    def for_keyword(name: str) -> SearchAttributeKey[str]:
        return SearchAttributeKey(_check_name(name), "keyword")

    @staticmethod
    def for_text(name: str) -> SearchAttributeKey[str]:
        return SearchAttributeKey(_check_name(name), "text")

    @staticmethod
    def for_int(name: str) -> SearchAttributeKey[int]:
        return SearchAttributeKey(_check_name(name), "int")

    @staticmethod
    def for_float(name: str) -> SearchAttributeKey[float]:
        return SearchAttributeKey(_check_name(name), "float")

    @staticmethod
    def for_bool(name: str) -> SearchAttributeKey[bool]:
        return SearchAttributeKey(_check_name(name), "bool")

    @staticmethod
    def for_datetime(name: str) -> SearchAttributeKey[datetime]:
        return SearchAttributeKey(_check_name(name), "datetime")

    @staticmethod
    def for_keyword_list(name: str) -> SearchAttributeKey[Sequence[str]]:
        return SearchAttributeKey(_check_name(name), "keyword_list")

    def value_set(self, value: T) -> SearchAttributeUpdate:
        """For `workflow.upsert_search_attributes`. Raises UsageError for a value that is not of the kind."""
        return SearchAttributeUpdate(_record(self, value))

    def value_unset(self) -> SearchAttributeUpdate:
        """For `workflow.upsert_search_attributes`: the run has it no more."""
        return SearchAttributeUpdate(AttributeRecord(self.name, self.kind, None))


@dataclass(frozen=True, slots=True)
class SearchAttributePair(Generic[T]):
    """A key with its value."""

    key: SearchAttributeKey[T]
    value: T


@dataclass(frozen=True, slots=True)
class SearchAttributeUpdate:
    """What is to become of one attribute: see `SearchAttributeKey.value_set`."""

    record: AttributeRecord


@dataclass(frozen=True, slots=True)
class TypedSearchAttributes:
    """The attributes of a run, in the order of their names.

    Raises UsageError for a name that stands there twice, for too many, and for a value that is not of its key's kind.
    """

    search_attributes: Sequence[SearchAttributePair[Any]] = ()

    def __post_init__(self) -> None:
        pairs = tuple(self.search_attributes)
        for pair in pairs:
            given: object = pair
            if not (isinstance(given, SearchAttributePair) and isinstance(given.key, SearchAttributeKey)):
                raise UsageError(
                    f"{pair!r} is no search attribute; "
                    "give SearchAttributePair(SearchAttributeKey.for_int('amount'), 7)"
                )
            kept(pair.key, pair.value)
        names = [pair.key.name for pair in pairs]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise UsageError(f"the search attribute {twice!r} is given twice")
        check_number(len(pairs), "a run")
        shown = [
            SearchAttributePair(pair.key, tuple(pair.value)) if pair.key.kind == "keyword_list" else pair
            for pair in pairs
        ]
        object.__setattr__(self, "search_attributes", tuple(sorted(shown, key=lambda pair: pair.key.name)))

    def __iter__(self) -> Iterator[SearchAttributePair[Any]]:
        return iter(self.search_attributes)

    def __len__(self) -> int:
        return len(self.search_attributes)

    def __contains__(self, key: object) -> bool:
        return any(pair.key == key for pair in self.search_attributes)

    def __getitem__(self, key: SearchAttributeKey[T]) -> T:
        for pair in self.search_attributes:
            if pair.key == key:
                value: T = pair.value
                return value
        raise KeyError(key)

    def get(self, key: SearchAttributeKey[T], default: T | None = None) -> T | None:
        found: T | None = next((pair.value for pair in self.search_attributes if pair.key == key), default)
        return found


def records_of(given: object) -> tuple[AttributeRecord, ...]:
    """What a start keeps of it. Raises UsageError."""
    if given is None:
        return ()
    if isinstance(given, Mapping) or not isinstance(given, Iterable):
        raise UsageError(
            f"search_attributes is {given!r}, of type {type(given).__name__}; give "
            "TypedSearchAttributes([SearchAttributePair(SearchAttributeKey.for_int('amount'), 7)])"
        )
    pairs = given if isinstance(given, TypedSearchAttributes) else TypedSearchAttributes(tuple(given))
    records = (_record(each.key, each.value) for each in pairs)
    return tuple(record for record in records if record.value is not None)


def _record(key: SearchAttributeKey[Any], value: object) -> AttributeRecord:
    """Of a list without a text nothing is kept: it is no value that anybody could look for."""
    found = kept(key, value)
    return AttributeRecord(key.name, key.kind, None if found == () else found)


def typed(records: Iterable[AttributeRecord]) -> TypedSearchAttributes:
    """What a history or a store keeps, as users see it. A record without a value, or of a kind that a later version
    has brought, is left out."""
    found = []
    for record in records:
        if record.value is not None and record.kind in KINDS:
            key: SearchAttributeKey[Any] = SearchAttributeKey(record.name, record.kind)
            found.append(SearchAttributePair(key, shown(record)))
    return TypedSearchAttributes(found)


def shown(record: AttributeRecord) -> Any:
    """The value of a record, as its kind says. A datetime with zone (UTC)."""
    if record.kind == "datetime" and isinstance(record.value, int):
        return utc(record.value)
    if record.kind == "float" and type(record.value) is int:
        return float(record.value)
    return record.value


def merged(before: Mapping[str, AttributeRecord], changes: Iterable[AttributeRecord]) -> dict[str, AttributeRecord]:
    """The attributes after the changes, by name; one without a value goes."""
    after = dict(before)
    for change in changes:
        if change.value is None:
            after.pop(change.name, None)
        else:
            after[change.name] = change
    return after


def check_number(number: int, whose: str) -> None:
    if number > ATTRIBUTES_MAX:
        raise UsageError(
            f"{whose} has {number} search attributes, the most is {ATTRIBUTES_MAX}; keep what nobody searches for in "
            "the memo"
        )


def kept(key: SearchAttributeKey[Any], value: object) -> Kept:
    """The value as it is kept. Raises UsageError for one that is not of the key's kind."""
    found: Kept = _KEPT[key.kind](value, f"the search attribute {key.name!r} ({key.kind})")
    return found


def _kept_int(value: object, what: str) -> int:
    if type(value) is not int:
        raise _wrong(what, value, "an int")
    if not -_INT_MAX - 1 <= value <= _INT_MAX:
        raise UsageError(f"{what} is {value}, which has more than 64 bits")
    return value


def _kept_float(value: object, what: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise _wrong(what, value, "a float")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise UsageError(f"{what} is {value}, which cannot be compared with")
    return number + 0.0  # there is no -0.0 to be found


def _kept_bool(value: object, what: str) -> bool:
    if not isinstance(value, bool):
        raise _wrong(what, value, "True or False")
    return value


def _kept_datetime(value: object, what: str) -> int:
    if not isinstance(value, datetime):
        raise _wrong(what, value, "a datetime")
    if value.tzinfo is None:
        raise UsageError(f"{what} is {value!r}, without a time zone: say datetime(..., tzinfo=UTC)")
    return round(value.astimezone(UTC).timestamp() * 1000)


def _kept_list(value: object, what: str) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise _wrong(what, value, "a list of texts")
    if len(value) > LIST_MAX:
        raise UsageError(f"{what} has {len(value)} texts, the most is {LIST_MAX}")
    return tuple(dict.fromkeys(_check_text(each, f"a text of {what}", KEYWORD_BYTES_MAX) for each in value))


def _check_text(value: object, what: str, bytes_max: int) -> str:
    text = check_str(value, what)
    if "\0" in text:
        raise UsageError(f"{what}, {text!r}, holds a NUL character, which PostgreSQL does not keep")
    size = len(text.encode())
    if size > bytes_max:
        raise UsageError(f"{what} has {size:,} bytes, the most is {bytes_max:,}; keep longer texts in the memo")
    return text


def _check_name(name: object) -> str:
    text = check_str(name, "the name of a search attribute")
    if not _NAME.match(text) or len(text) > NAME_CHARACTERS_MAX:
        raise UsageError(
            f"{text!r} cannot be the name of a search attribute: it has to stand in a filter, so letters, digits and "
            f"underscores, {NAME_CHARACTERS_MAX} of them at most, and no digit first"
        )
    if text.lower() in RESERVED:
        raise UsageError(f"{text!r} cannot be the name of a search attribute: in a filter it means what every run has")
    return text


def _wrong(what: str, value: object, right: str) -> UsageError:
    return UsageError(f"{what} is {value!r}, of type {type(value).__name__}; it must be {right}")


_KEPT: Final[Mapping[Kind, Callable[[object, str], Kept]]] = {
    "keyword": lambda value, what: _check_text(value, what, KEYWORD_BYTES_MAX),
    "text": lambda value, what: _check_text(value, what, TEXT_BYTES_MAX),
    "int": _kept_int,
    "float": _kept_float,
    "bool": _kept_bool,
    "datetime": _kept_datetime,
    "keyword_list": _kept_list,
}
