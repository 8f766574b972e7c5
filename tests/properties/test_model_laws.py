"""Laws of pydantic models: nothing of one is lost, and an older version reads what it always read, or refuses."""

from __future__ import annotations

from datetime import UTC, datetime, time
from typing import Any
from zoneinfo import ZoneInfo

import pydantic
from hypothesis import given
from hypothesis import strategies as st

from pledger.history.payloads import decode, digest, encode
from tests.unit.history.pydantic_models import Leaf, Open, Pair, Patch, Slot, Strict, facts, read_before_notes

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(["$type", "value", "unset"])
ZONES = st.sampled_from([*map(ZoneInfo, ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "UTC")), UTC])
#: With the hours around a change of the clock, which random ones hardly ever hit.
MOMENTS = st.builds(
    lambda moment, zone, fold: moment.replace(tzinfo=zone, fold=fold if isinstance(zone, ZoneInfo) else 0),
    st.datetimes(datetime(1971, 1, 1), datetime(2037, 1, 1))  # noqa: DTZ001 - the zone comes with the next argument
    | st.builds(
        lambda day, minute: day.replace(hour=minute // 60, minute=minute % 60),
        st.sampled_from([datetime(2024, 3, 31), datetime(2024, 10, 27), datetime(2024, 11, 3)]),  # noqa: DTZ001
        st.integers(0, 239),
    ),
    ZONES,
    st.integers(0, 1),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=6,
)


def _some_of(cls: Any, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """With any choice of its fields left unset."""
    return st.fixed_dictionaries({}, optional=fields).map(lambda given: cls(**given))


LEAVES = _some_of(Leaf, a=st.integers(), b=st.none() | TEXT)
PATCHES = _some_of(
    Patch,
    name=st.none() | TEXT,
    at=st.none() | MOMENTS,
    opens=st.none() | st.times(timezones=st.none() | ZONES).map(lambda at: at.replace(fold=0)),
    leaf=st.none() | LEAVES,
    leaves=st.lists(LEAVES, max_size=3),
    by_day=st.dictionaries(TEXT, LEAVES, max_size=3),
    pair=st.none() | st.builds(Pair, MOMENTS, st.integers()),
    slots=st.lists(st.builds(Slot, MOMENTS, LEAVES), max_size=2).map(tuple),
    anything=JSON,
)
MODELS = (
    LEAVES
    | PATCHES
    | _some_of(Strict, at=MOMENTS, n=st.integers())
    | st.dictionaries(TEXT.filter(lambda key: key != "n"), JSON, max_size=3).map(Open.model_validate)
)


@given(MODELS)
def test_every_model_comes_back_with_all_that_can_be_seen_of_it(model: Any) -> None:
    for hint in (type(model), type(model) | None, type(model) | list[Any]):
        data = encode(model, hint)
        again = decode(data, hint)
        assert again == model
        assert facts(again) == facts(model)
        assert encode(again, hint) == data


@given(MODELS)
def test_an_older_version_reads_the_same_values_or_refuses(model: Any) -> None:
    try:
        again = read_before_notes(encode(model, type(model)), type(model))
    except pydantic.ValidationError:
        return
    assert again == model
    assert _zones(again) == _zones(model)


@given(MODELS)
def test_notes_do_not_count_in_the_digest(model: Any) -> None:
    older = model.model_dump_json(round_trip=True).encode()
    assert digest(encode(model, type(model))) == digest(encode(model, type(model) | None)) == digest(older)


@given(MODELS)
def test_who_has_no_annotation_reads_the_plain_value(model: Any) -> None:
    if isinstance(model, Open) and "$type" in model.model_dump():
        return  # its own JSON may look like anything
    assert decode(encode(model, type(model))) == decode(model.model_dump_json().encode())


def _zones(model: Any) -> list[Any]:
    found = []
    for value in [*vars(model).values()]:
        parts = value if isinstance(value, (list, tuple)) else [value]
        for part in parts:
            moment = part.at if isinstance(part, Slot) else part
            if isinstance(moment, (datetime, time)):
                found.append(moment.tzinfo if isinstance(moment.tzinfo, ZoneInfo) else None)
    return found
