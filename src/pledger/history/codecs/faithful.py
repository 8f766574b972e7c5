"""What a model has lost on its way through JSON, and how it gets it back.

pydantic calls two models equal whatever fields somebody set, an IntEnum equals its int, and a datetime the same one at
another offset. So both are walked side by side. Misfit says where what is lost could not come back.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Final, TypeAlias
from uuid import UUID

import msgspec

from pledger.history.codecs.codec import NoneType, type_name
from pledger.history.codecs.json_tree import Misfit, Step
from pledger.history.codecs.notes import KINDS, SET, UNSET, ZONES, Notes
from pledger.history.codecs.records import changed
from pledger.history.codecs.scalars import in_zone, zone_suffix

_SIMPLE: Final = frozenset({NoneType, bool, int, float, str, bytes, Decimal, UUID, date, timedelta})


def is_model(cls: type) -> bool:
    return hasattr(cls, "__pydantic_validator__") and hasattr(cls, "model_validate_json")


class Comparison:
    """value: what is to be kept. again: what its JSON gives.

    notes: what has to be put back into `again`. unequal: what to say of the first part that differs, or None. Raises
    Misfit where an equal part has lost its type, and where a note could not say which part it is about.
    """

    def __init__(self, name: str, value: object, again: object) -> None:
        self.notes: Notes = {}
        self.unequal: Misfit | None = None
        self._name = name
        self._compare(value, again, (), ())

    def _compare(self, value: Any, again: Any, path: tuple[Step, ...] | None, steps: tuple[Step, ...]) -> None:
        """path: as notes have it; None inside of what has no places, as sets and keys. steps: as errors have it."""
        cls = type(value)
        if type(again) is not cls:
            if value == again and (cls is not int or type(again) is not float):
                raise _changes_type(cls, type(again), steps)
            self._check_equal(value, again, steps)
        elif cls in _SIMPLE:
            self._check_equal(value, again, steps)
        elif isinstance(value, (datetime, time)):
            suffix = zone_suffix(value)
            if suffix and suffix != zone_suffix(again):
                self._note(ZONES, path, suffix, steps)
            else:
                self._check_equal(value, again, steps)
        elif isinstance(value, (set, frozenset)):
            others = {item: item for item in again}
            for item in value:
                self._compare(item, others.get(item), None, steps)
        elif (parts := _parts(value)) is None:
            self._check_equal(value, again, steps)
        else:
            self._compare_parts(value, again, parts, path, steps)

    def _compare_parts(
        self, value: Any, again: Any, parts: dict[Step, Any], path: tuple[Step, ...] | None, steps: tuple[Step, ...]
    ) -> None:
        others = _parts(again) or {}
        keys, other_keys = _keys(value), _keys(again)
        if is_model(type(value)) and type(value).model_config.get("use_enum_values"):
            # pydantic keeps a member of a default as it is; whoever reads the field is told to expect the value.
            parts = {step: part.value if isinstance(part, Enum) else part for step, part in parts.items()}
        for step, part in parts.items():
            key = keys[step] if keys else step
            within = (key if isinstance(key, (str, int)) else step, *steps)
            if step not in others:
                self._check_equal(value, again, within)
                continue
            if keys:
                self._compare(key, other_keys[step], None, within)
            self._compare(part, others[step], None if path is None else (*path, step), within)
        if len(parts) != len(others):
            self._check_equal(value, again, steps)
        if is_model(type(value)):
            ours, theirs = value.__pydantic_fields_set__, again.__pydantic_fields_set__
            for kind, names in ((UNSET, theirs - ours), (SET, ours - theirs)):
                if names:
                    self._note(kind, path, sorted(names), steps)

    def _check_equal(self, value: object, again: object, steps: tuple[Step, ...]) -> None:
        if self.unequal is None and value != again:
            cls, other = type(value), type(again)
            self.unequal = changed(self._name, steps) if cls is other else _changes_type(cls, other, steps)

    def _note(self, kind: str, path: tuple[Step, ...] | None, what: object, steps: tuple[Step, ...]) -> None:
        if path is None:
            lost = "its zone" if kind == ZONES else "which of its fields were set"
            raise Misfit(
                f"inside of a set or a key a value would lose {lost}. Keep it in a list, or as the value of a key.",
                steps,
            )
        self.notes.setdefault(kind, []).append((path, what))


def _changes_type(cls: type, other: type, steps: tuple[Step, ...]) -> Misfit:
    name = type_name(cls)
    return Misfit(
        f"the value is of type {name} and would come back as {type_name(other)}. Annotate the field with {name}, or "
        "convert the value to a plain one.",
        steps,
    )


# Putting back ---------------------------------------------------------------------------------------------------------

#: What is to be done at a place.
_Change: TypeAlias = Callable[[Any], object]


class _Place:
    __slots__ = ("below", "changes")

    def __init__(self) -> None:
        self.changes: list[_Change] = []
        self.below: dict[Step, _Place] = {}


def restored(value: object, notes: Mapping[str, object]) -> object:
    """The value with what the notes say, which changes it. Places that its class no longer has are skipped.

    Raises Misfit for notes that are none, or of a later version.
    """
    if unknown := ", ".join(sorted(notes.keys() - KINDS)):
        raise Misfit(
            f"it has notes that this version of Pledger does not know ({unknown[:80]}). Let the version read it that "
            "wrote it, or a later one."
        )
    root = _Place()
    for kind in (ZONES, UNSET, SET):
        for path, what in _pairs(notes.get(kind, [])):
            place = root
            for step in path:
                place = place.below.setdefault(step, _Place())
            place.changes.append(_change(kind, what))
    return _changed(value, root)


def _pairs(listed: object) -> Iterator[tuple[Sequence[Step], object]]:
    for pair in listed if type(listed) is list else [listed]:
        match pair:
            case [path, what] if isinstance(path, (list, tuple)) and all(type(step) in (str, int) for step in path):
                yield path, what
            case _:
                raise _no_notes()


def _no_notes() -> Misfit:
    return Misfit('its notes are not of their shape. Send it without "$type", or as it was recorded.')


def _change(kind: str, what: object) -> _Change:
    if kind == ZONES and type(what) is str:
        return lambda moment: in_zone(moment, what) if isinstance(moment, (datetime, time)) else moment
    if kind != ZONES and type(what) is list and all(type(name) is str for name in what):
        return lambda model: _with_fields_set(model, what, are_set=kind == SET)
    raise _no_notes()


def _with_fields_set(model: Any, names: list[str], *, are_set: bool) -> object:
    if is_model(type(model)):
        fields: set[str] = model.__pydantic_fields_set__
        fields = fields | set(names) if are_set else fields - set(names)
        object.__setattr__(model, "__pydantic_fields_set__", fields)
    return model


def _changed(value: object, place: _Place) -> object:
    parts = (place.below and _parts(value)) or {}
    value = _with_parts(
        value, {step: _changed(parts[step], below) for step, below in place.below.items() if step in parts}
    )
    for change in place.changes:
        value = change(value)
    return value


# Parts ----------------------------------------------------------------------------------------------------------------


def _parts(value: Any) -> dict[Step, Any] | None:
    """The parts of a value by the step to each, or None for one that has none. Not those of sets, and no keys."""
    cls = type(value)
    if is_model(cls):  # what code has cached in the instance is no part of it
        fields = cls.model_fields
        parts = {name: item for name, item in value.__dict__.items() if name in fields}
        return {**parts, **(value.__pydantic_extra__ or {})}
    if isinstance(value, dict):
        return dict(enumerate(value.values()))
    if isinstance(value, (list, tuple)):
        return dict(enumerate(value))
    names = _record_fields(cls)
    return None if names is None else {name: getattr(value, name) for name in names if hasattr(value, name)}


def _with_parts(value: Any, parts: dict[Step, Any]) -> object:
    """The value with other parts: itself, unless it is a tuple."""
    if not parts:
        return value
    if isinstance(value, tuple):
        items = [parts.get(position, item) for position, item in enumerate(value)]
        return type(value)._make(items) if hasattr(value, "_make") else tuple(items)
    cls, keys = type(value), _keys(value)
    for step, part in parts.items():
        if keys:
            value[keys[step]] = part
        elif issubclass(cls, list):
            value[step] = part
        elif not is_model(cls):
            object.__setattr__(value, str(step), part)  # also where the class is frozen
        elif step in value.__dict__:
            value.__dict__[step] = part
        else:
            value.__pydantic_extra__[step] = part
    return value


def _keys(value: object) -> dict[Step, Any]:
    return dict(enumerate(value)) if isinstance(value, dict) else {}


def _record_fields(cls: Any) -> Sequence[str] | None:
    """Of a dataclass, an attrs class or a Struct; None for another class."""
    if hasattr(cls, "__attrs_attrs__"):
        return [member.name for member in cls.__attrs_attrs__]
    if dataclasses.is_dataclass(cls):
        return [field.name for field in dataclasses.fields(cls)]
    return cls.__struct_fields__ if issubclass(cls, msgspec.Struct) else None
