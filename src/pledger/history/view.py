"""Histories for people and for export: events with their numbers, and the JSON form that can be read back.

The JSON form holds payloads as JSON (not as text in text), so that a history can be searched and read as it is.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, get_args, get_origin

import msgspec

from pledger.errors import PayloadError
from pledger.history import events
from pledger.history.attributes import AttributeRecord
from pledger.history.events import Event
from pledger.history.times import utc
from pledger.history.transition import FORMAT, Transition

#: Fields whose bytes are JSON.
_JSON_FIELDS: Final = frozenset({"args", "result", "details", "memo"})
_BY_NAME: Final = {cls.__name__: cls for cls in (*get_args(events.Input), *get_args(events.Command))}


@dataclass(frozen=True, slots=True)
class HistoryEvent:
    """event_id: from 1. time: with zone (UTC). type: in the past tense, like `ActivityScheduled`."""

    event_id: int
    time: datetime
    type: str
    event: Event

    @property
    def attributes(self) -> dict[str, Any]:
        """Its fields as plain JSON values."""
        return to_plain(self.event)


def numbered(transitions: Iterable[Transition]) -> list[HistoryEvent]:
    """Every event with its number and time."""
    found: list[HistoryEvent] = []
    for transition in transitions:
        time = utc(transition.time_ms)
        for event in transition.events():
            found.append(HistoryEvent(len(found) + 1, time, events.event_type(event), event))
    return found


def to_plain(event: Event) -> dict[str, Any]:
    """An event's fields as plain JSON values; payloads as the JSON they hold. None and empty fields are left out."""
    plain: dict[str, Any] = {}
    for name, field in _named(event):
        value = _plain(name, field)
        if value not in (None, [], {}, ""):
            plain[name] = value
    return plain


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, bytes):
        return msgspec.json.decode(value) if name in _JSON_FIELDS else value.hex()
    if isinstance(value, msgspec.Struct):
        fields = {each: _plain(each, field) for each, field in _named(value)}
        return {each: found for each, found in fields.items() if found is not None}
    if isinstance(value, tuple):
        named = [each for each in value if isinstance(each, AttributeRecord)]
        return {each.name: each.value for each in named} if named else list(value)
    return value


def export(transitions: Iterable[Transition], run: dict[str, Any] | None = None) -> bytes:
    """A history as JSON text. run: what identifies it, kept as it is. Integers of any size and decimals stay exact."""
    document = {
        "format": FORMAT,
        "run": run or {},
        "transitions": [
            {
                "time_ms": each.time_ms,
                "code": each.code,
                "inputs": [_exported(one) for one in each.inputs],
                "commands": [_exported(one) for one in each.commands],
                **({"continues": True} if each.continues else {}),
                **({"suggests": True} if each.suggests else {}),
            }
            for each in transitions
        ],
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2)


def _exported(event: Event) -> dict[str, Any]:
    fields = {name: _raw(name, field) for name, field in _named(event)}
    return {"type": type(event).__name__, **{name: value for name, value in fields.items() if value is not None}}


def _raw(name: str, value: Any) -> Any:
    if isinstance(value, bytes):
        return msgspec.Raw(value) if name in _JSON_FIELDS else value.hex()
    if isinstance(value, msgspec.Struct):
        fields = {each: _raw(each, field) for each, field in _named(value)}
        return {each: found for each, found in fields.items() if found is not None}
    return value


class _Document(msgspec.Struct):
    format: int
    transitions: list[_Exported]
    run: dict[str, Any] = {}


class _Exported(msgspec.Struct):
    time_ms: int
    inputs: list[dict[str, msgspec.Raw]]
    commands: list[dict[str, msgspec.Raw]]
    code: str | None = None
    continues: bool = False
    suggests: bool = False


def read_export(data: bytes) -> tuple[dict[str, Any], tuple[Transition, ...]]:
    """(run, transitions) of an exported history. Raises PayloadError when it is none."""
    try:
        document = msgspec.json.decode(data, type=_Document)
        transitions = tuple(
            Transition(
                document.format,
                each.time_ms,
                each.code,
                tuple(_read(one) for one in each.inputs),
                tuple(_read(one) for one in each.commands),
                each.continues,
                each.suggests,
            )
            for each in document.transitions
        )
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError) as error:
        raise PayloadError(f"this is no exported history: {error}; `pledger history --json` writes one") from error
    return document.run, transitions


def _read(fields: dict[str, msgspec.Raw]) -> Any:
    cls = _BY_NAME[msgspec.json.decode(fields.pop("type"), type=str)]
    return _struct(cls, fields)


def _struct(cls: Any, fields: dict[str, msgspec.Raw]) -> Any:
    known = _fields(cls)
    found = [(known[name], raw) for name, raw in fields.items() if name in known]
    return cls(**{field.name: _value(field.encode_name, field.type, bytes(raw)) for field, raw in found})


@functools.cache
def _fields(cls: Any) -> dict[str, msgspec.structs.FieldInfo]:
    """By the names that they are exported by."""
    return {each.encode_name: each for each in msgspec.structs.fields(cls)}


def _named(record: msgspec.Struct) -> Iterator[tuple[str, Any]]:
    """Its fields, by the names that they are exported by."""
    for name, field in zip(record.__struct_encode_fields__, record.__struct_fields__, strict=True):
        yield name, getattr(record, field)


def _value(name: str, hint: Any, raw: bytes) -> Any:
    if _takes_bytes(hint):
        if name in _JSON_FIELDS:
            return msgspec.json.format(raw, indent=-1)  # an export is indented; what a replay compares with is not
        return bytes.fromhex(msgspec.json.decode(raw, type=str))
    nested = _nested(hint)
    if nested is not None:
        return _struct(nested, msgspec.json.decode(raw, type=dict[str, msgspec.Raw]))
    return msgspec.json.decode(raw, type=hint)


def _takes_bytes(hint: Any) -> bool:
    return hint is bytes or bytes in getattr(hint, "__args__", ())


def _nested(hint: Any) -> Any:
    if get_origin(hint) is tuple:
        return None  # an array of records is one already
    for each in (hint, *getattr(hint, "__args__", ())):
        if isinstance(each, type) and issubclass(each, msgspec.Struct):
            return each
    return None
