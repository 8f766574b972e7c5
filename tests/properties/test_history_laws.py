"""Laws of what a ledger keeps of a history: it comes back as it was, and no damage passes."""

from __future__ import annotations

from typing import Any, get_args, get_origin

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pledger import errors
from pledger.engine.loading import HistoryReader
from pledger.history import events, transition
from pledger.history.attributes import AttributeRecord
from pledger.history.failures import Failure
from pledger.history.retry import RetryPolicyRecord
from pledger.history.transition import CHAIN_START, FORMAT, StoredTransition, Transition

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
BODY = st.binary(max_size=20)
NUMBERS = st.integers(0, 2**40)


def _failures(depth: int = 2) -> st.SearchStrategy[Failure]:
    cause = st.none() | _failures(depth - 1) if depth else st.none()
    return st.builds(Failure, TEXT, TEXT, TEXT, cause=cause)


POLICIES = st.builds(
    RetryPolicyRecord,
    NUMBERS,
    st.floats(1.0, 100.0),
    st.none() | NUMBERS,
    NUMBERS,
    st.lists(TEXT, max_size=2).map(tuple),
    st.floats(0.0, 1.0),
)
OPTIONS = st.builds(
    events.ActivityOptions,
    st.none() | NUMBERS,
    st.none() | NUMBERS,
    st.none() | NUMBERS,
    st.none() | NUMBERS,
    st.none() | POLICIES,
    st.sampled_from(["try", "wait", "abandon"]),
    st.none() | NUMBERS,
    st.none() | NUMBERS,
)


def _values(type_: Any) -> st.SearchStrategy[Any]:
    known: dict[Any, st.SearchStrategy[Any]] = {
        str: TEXT,
        bytes: BODY,
        int: NUMBERS,
        Failure: _failures(),
        events.ActivityOptions: OPTIONS,
        events.Parent: st.builds(events.Parent, TEXT, TEXT, NUMBERS),
        dict[str, str]: st.dictionaries(TEXT, TEXT, max_size=2),
        bool: st.booleans(),
        AttributeRecord: st.builds(AttributeRecord, TEXT, TEXT, st.none() | NUMBERS | st.booleans() | TEXT),
        type(None): st.none(),
        tuple[tuple[str, str, str], ...]: st.lists(st.tuples(TEXT, TEXT, TEXT), max_size=2).map(tuple),
    }
    if type_ in known:
        return known[type_]
    if get_origin(type_) is tuple:
        return st.lists(_values(get_args(type_)[0]), max_size=3).map(tuple)
    return st.one_of([_values(each) for each in get_args(type_)])


def _events(union: Any) -> st.SearchStrategy[Any]:
    """Any event of the union: a new one is in it by itself."""
    return st.one_of(
        [
            st.builds(each, **{field.name: _values(field.type) for field in msgspec.structs.fields(each)})
            for each in get_args(union)
        ]
    )


TRANSITIONS = st.builds(
    Transition,
    st.just(FORMAT),
    NUMBERS,
    st.none() | TEXT,
    st.lists(_events(events.Input), max_size=3).map(tuple),
    st.lists(_events(events.Command), max_size=3).map(tuple),
)
HISTORIES = st.lists(TRANSITIONS.filter(lambda each: bool(each.events())), min_size=1, max_size=4)


def stored(history: list[Transition]) -> list[StoredTransition]:
    rows: list[StoredTransition] = []
    head, first = CHAIN_START, 1
    for each in history:
        body = transition.encode(each)
        head = transition.checksum(head, first, body)
        rows.append(StoredTransition(first, body, head))
        first += len(each.events())
    return rows


def read(rows: list[StoredTransition]) -> tuple[list[Transition], HistoryReader]:
    reader = HistoryReader(None, 1, "run-1")  # type: ignore[arg-type]  # the rows are handed to it
    return [reader.take(row) for row in rows], reader


@given(each=TRANSITIONS)
def test_a_transition_comes_back_as_it_was(each: Transition) -> None:
    assert transition.decode(transition.encode(each)) == each
    assert transition.encode(transition.decode(transition.encode(each))) == transition.encode(each)


@given(history=HISTORIES)
def test_a_history_is_read_as_it_was_written(history: list[Transition]) -> None:
    found, reader = read(stored(history))
    assert found == history
    assert reader.last_event == sum(len(each.events()) for each in history)


@given(history=HISTORIES, data=st.data())
def test_a_changed_byte_is_found(history: list[Transition], data: st.DataObject) -> None:
    rows = stored(history)
    at = data.draw(st.integers(0, len(rows) - 1))
    body = bytearray(rows[at].body)
    body[data.draw(st.integers(0, len(body) - 1))] ^= data.draw(st.integers(1, 255))
    rows[at] = StoredTransition(rows[at].first_event_id, bytes(body), rows[at].checksum)
    with pytest.raises(errors.CorruptHistoryError) as caught:
        read(rows)
    assert caught.value.event_id == rows[at].first_event_id


@given(history=HISTORIES, data=st.data())
def test_a_lost_or_doubled_row_is_found(history: list[Transition], data: st.DataObject) -> None:
    rows = stored(history)
    at = data.draw(st.integers(0, len(rows) - 1))
    doubled = [*rows[: at + 1], *rows[at:]]
    with pytest.raises(errors.CorruptHistoryError):
        read(doubled)
    rest = [*rows[:at], *rows[at + 1 :]]
    if at < len(rows) - 1:  # of a lost end the row of the run knows
        with pytest.raises(errors.CorruptHistoryError):
            read(rest)
    else:
        assert read(rest)[1].head != rows[-1].checksum
