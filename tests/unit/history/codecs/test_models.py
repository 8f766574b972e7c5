"""pydantic models: what comes back besides equal values, what an older version makes of it, and what is refused."""

from __future__ import annotations

import json
from collections import OrderedDict
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pydantic
import pytest
from pydantic import BaseModel, Field

from pledger.errors import PayloadError
from pledger.history.payloads import Signature, decode, digest, encode
from tests.unit.history.models import NOON, refusal, unreadable
from tests.unit.history.pydantic_models import (
    AGAIN,
    BERLIN,
    SUMMER,
    Aliased,
    Anything,
    Grade,
    Leaf,
    Moments,
    Open,
    Pair,
    Patch,
    Slot,
    Strict,
    Word,
    facts,
    read_before_notes,
)

FAITHFUL: list[Any] = [
    Patch(),
    Patch(name=None),
    Patch(name="a", at=None),
    Patch(leaf=Leaf()),
    Patch(leaf=Leaf(b=None), leaves=[Leaf(), Leaf(a=1), Leaf(a=0, b=None)]),
    Patch(by_day={"mon": Leaf(), "tue": Leaf(a=2)}),
    Patch(at=SUMMER),
    Patch(at=AGAIN, opens=time(9, tzinfo=BERLIN)),
    Patch(pair=Pair(SUMMER), slots=(Slot(NOON, Leaf(a=1)), Slot(SUMMER, Leaf()))),
    Patch.model_construct(name="a", at=SUMMER),
    Patch(name="a").model_copy(update={"at": SUMMER}),
    Strict(),
    Strict(at=SUMMER, n=1),
    Open(n=1),
    Open(),
    Open.model_validate({"more": {"deep": [1]}}),
    Aliased(),
    Aliased.model_validate({"kind": {"unset": [[[], ["kind"]]]}, "at": NOON}),
    Aliased.model_validate({"at": SUMMER}),
    Moments([NOON, SUMMER]),
    Anything({"a": [1]}),
]
#: Their reprs would differ between processes: some have ids and times of their own.
NAMES: list[str] = [f"{type(value).__name__}-{number}" for number, value in enumerate(FAITHFUL)]


@pytest.mark.parametrize("value", FAITHFUL, ids=NAMES)
def test_a_model_comes_back_with_its_fields_set_and_its_zones(value: Any) -> None:
    again = decode(encode(value, type(value)), type(value))
    assert again == value
    assert facts(again) == facts(value)
    assert again.model_dump(exclude_unset=True) == value.model_dump(exclude_unset=True)
    assert encode(again, type(value)) == encode(value, type(value))


@pytest.mark.parametrize("value", FAITHFUL, ids=NAMES)
@pytest.mark.parametrize("wrap", ["list", "union", "union with list", "parameter"])
def test_it_does_so_wherever_it_stands(value: Any, wrap: str) -> None:
    cls: Any = type(value)
    hint: Any = {"list": list[cls], "union": cls | None, "union with list": cls | list[int] | str, "parameter": cls}[
        wrap
    ]
    given = [value] if wrap == "list" else value

    def fn(one: Any) -> Any: ...

    fn.__annotations__ = {"one": hint, "return": hint}
    signature = Signature(fn, skip_self=False)
    assert facts(signature.decode_args(signature.encode_args((given,), {}))) == facts([given])
    assert facts(signature.decode_result(signature.encode_result(given))) == facts(given)


def test_the_same_time_tomorrow_is_that_where_the_clock_changes() -> None:
    saturday = Patch(at=datetime(2031, 10, 25, 12, tzinfo=BERLIN))
    again = decode(encode(saturday, Patch), Patch)
    assert (again.at + timedelta(days=1)).utcoffset() == timedelta(hours=1)


def test_a_default_that_changes_later_does_not_change_what_was_recorded() -> None:
    recorded = encode(Leaf(), Leaf)
    later = pydantic.create_model("Leaf", a=(int, 7), b=(str | None, "b"), c=(int, 3))
    again: Any = decode(recorded, later)
    assert (again.a, again.b, again.c) == (0, None, 3)
    assert again.model_fields_set == set()


def test_what_the_class_no_longer_has_is_skipped() -> None:
    recorded = encode(Patch(name="a", at=SUMMER, leaf=Leaf(), leaves=[Leaf()]), Patch)
    later = pydantic.create_model("Patch", name=(str, ...), at=(str, ""), leaves=(list[Any], []))
    again: Any = decode(recorded, later)
    assert again.model_dump(exclude_unset=True) == {
        "name": "a",
        "at": "2031-07-01T12:00:00+02:00",
        "leaves": [{"a": 0, "b": None}],
    }


# Older versions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", FAITHFUL, ids=NAMES)
def test_an_older_version_reads_every_value_as_it_was_or_refuses(value: Any) -> None:
    cls = type(value)
    for hint in (cls, cls | None):
        try:
            again = read_before_notes(encode(value, hint), cls)
        except pydantic.ValidationError:
            continue
        assert again == value
        assert "Berlin" not in str(facts(value))


def test_an_older_version_reads_unset_fields_and_refuses_zones() -> None:
    assert read_before_notes(encode(Leaf(a=1), Leaf), Leaf) == Leaf(a=1)
    assert json.loads(encode(Leaf(a=1), Leaf)) == {"a": 1, "b": None, "$type": {"unset": [[[], ["b"]]]}}
    for value in (Patch(at=SUMMER), Strict(), Open()):
        with pytest.raises(pydantic.ValidationError):
            read_before_notes(encode(value, type(value)), type(value))


def test_a_union_marks_a_zone_where_an_older_version_would_take_it_for_a_list() -> None:
    whole = Patch(at=SUMMER)
    assert json.loads(encode(whole, Patch | list[Any]))["$type"] == "Patch"
    assert json.loads(encode(whole, Patch | None))[1]["at"] == "2031-07-01T12:00:00+02:00"


def test_what_has_nothing_to_note_is_written_as_ever() -> None:
    assert encode(Leaf(a=1, b="x"), Leaf) == b'{"a":1,"b":"x"}'
    old = decode(b'{"a":1,"b":null}', Leaf)
    assert (old, old.model_fields_set) == (Leaf(a=1), {"a", "b"})


def test_the_same_input_is_the_same_to_an_older_version() -> None:
    for value in (Leaf(), Patch(at=SUMMER, leaf=Leaf()), Strict(), Open()):
        older = value.model_dump_json(by_alias=True, round_trip=True).encode()
        cls: Any = type(value)
        assert digest(encode(value, cls)) == digest(encode(value, cls | None)) == digest(older)
        assert digest(encode([value], list[cls])) == digest(b"[" + older + b"]")


def test_who_has_no_annotation_reads_the_plain_value() -> None:
    for value in (Leaf(a=1), Strict(at=SUMMER), Open(n=1)):
        data = encode([value], list[type(value)])  # type: ignore[misc]
        bare = [json.loads(value.model_dump_json(by_alias=True))]
        assert decode(data) == decode(data, list[dict[str, Any]]) == decode(data, Any) == bare


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b'{"a":1,"$type":{"later":[]}}', "does not know (later)"),
        (b'[{"$type":{"unset":[],"later":1}},{"a":1}]', "does not know (later)"),
        (b'{"a":1,"$type":{"unset":5}}', "not of their shape"),
        (b'{"a":1,"$type":{"unset":[[5,["a"]]]}}', "not of their shape"),
        (b'{"a":1,"$type":{"unset":[[[],[1]]]}}', "not of their shape"),
        (b'{"a":1,"$type":{"zones":[[[],["x"]]]}}', "not of their shape"),
    ],
)
def test_notes_that_are_unknown_or_none_are_refused(data: bytes, says: str) -> None:
    assert says in str(unreadable(data, Leaf))


def test_a_zone_that_is_none_is_refused() -> None:
    for zone in ("[No/Where]", "Berlin"):
        data = json.dumps([{"$type": {"zones": [[["at"], zone]]}}, {"at": NOON.isoformat()}]).encode()
        assert "zone" in str(unreadable(data, Strict))


# Refused --------------------------------------------------------------------------------------------------------------


class Loose(BaseModel):
    one: Any = None
    level: Grade | int = 1
    leaves: set[Any] = set()


class Holder(BaseModel):
    several: set[datetime] = set()
    keyed: dict[datetime, int] = {}


@pytest.mark.parametrize(
    ("value", "path", "says"),
    [
        (Loose(one=Grade.LOW), "$.one", "Grade and would come back as int"),
        (Loose(one=[0, {"x": Word.YES}]), "$.one[1].x", "Word and would come back as str"),
        (Loose(level=Grade.LOW), "$.level", "Grade and would come back as int. Annotate the field with"),
        (Loose(one=OrderedDict(a=1)), "$.one", "OrderedDict and would come back as dict"),
        (Loose(one=(1, 2)), "$.one", "tuple and would come back as list"),
        (Loose(one={1, 2}), "$.one", "set and would come back as list"),
        (Loose(one=Decimal("1.0")), "$.one", "Decimal and would come back as str"),
        (Loose(one=SUMMER), "$.one", "datetime and would come back as str"),
        (Loose(one=timedelta(1)), "$.one", "timedelta and would come back as str"),
        (Loose(one=b"x"), "$.one", "bytes and would come back as str"),
        (Loose(one=Leaf()), "$.one", "Leaf and would come back as dict"),
        (Loose(one=Pair(NOON)), "$.one", "Pair and would come back as list"),
        (Loose(leaves={Grade.LOW}), "$.leaves", "Grade and would come back as int"),
        (Holder(several={SUMMER}), "$.several", "lose its zone. Keep it in a list"),
        (Holder(keyed={SUMMER: 1}), "$.keyed[0]", "lose its zone. Keep it in a list"),
        (Anything([{"$type": {"unset": [[[], ["root"]]]}}, 1]), "$.root", "list and would come back as int"),
    ],
    ids=repr,
)
def test_what_would_come_back_as_something_else_is_refused(value: Any, path: str, says: str) -> None:
    error = refusal(value, type(value))
    assert error.path == path
    assert says in str(error)


class Moment(pydantic.RootModel[datetime | list[Any]]):
    pass


def test_a_zone_is_refused_where_an_older_version_would_read_something_else() -> None:
    assert "takes any array" in str(refusal(Moment(SUMMER), Moment))


def test_an_int_under_float_stays_accepted() -> None:
    model = pydantic.create_model("Rate", rate=(float, ...)).model_construct(rate=3)
    assert decode(encode(model, type(model)), type(model)) == model


def test_a_default_that_pydantic_leaves_a_member_comes_back_as_its_value() -> None:
    """Where the model asks for values of enums: whoever reads the field is told to expect one."""

    class Kept(BaseModel):
        model_config = pydantic.ConfigDict(use_enum_values=True)
        word: Word = Word.YES

    again = decode(encode(Kept(), Kept), Kept)
    assert (again.word, type(again.word), again.model_fields_set) == ("yes", str, set())


# Sets -----------------------------------------------------------------------------------------------------------------


class Tagged(BaseModel):
    tags: set[str] = set()
    more: list[dict[str, frozenset[int]]] = Field([], alias="More")


def test_a_set_in_a_model_is_written_in_one_order() -> None:
    one = Tagged(tags={"b", "a", "c"}, More=[{"x": frozenset({8, 0})}])
    other = Tagged(tags={"c", "a", "b"}, More=[{"x": frozenset({0, 8})}])
    assert encode(one, Tagged) == encode(other, Tagged) == b'{"tags":["a","b","c"],"More":[{"x":[0,8]}]}'


# Other records of the same values -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value", [Grade.LOW, Word.YES, [Grade.LOW], {"a": Word.YES}, {Word.YES: 1}, Pair(NOON)], ids=repr
)
def test_what_no_annotation_names_is_refused_outside_of_models_too(value: Any) -> None:
    with pytest.raises(PayloadError, match="without annotation"):
        encode(value)


def test_a_zone_without_a_key_is_written_as_an_offset_or_refused(tmp_path: Any) -> None:
    import importlib.resources  # noqa: PLC0415 - for this file only

    with importlib.resources.files("tzdata").joinpath("zoneinfo/Europe/Berlin").open("rb") as file:
        keyless = ZoneInfo.from_file(file)
    assert decode(encode(SUMMER.replace(tzinfo=keyless), datetime), datetime) == SUMMER
    assert "would not come back" in str(refusal(AGAIN.replace(tzinfo=keyless), datetime))


def test_utc_is_utc() -> None:
    again = decode(encode(Strict(at=NOON, n=1), Strict), Strict)
    assert again.at.tzinfo == UTC
