"""What a list asks of its runs: a tree of conditions, and an order. Each store makes SQL of it; memory is the model.

The logic has two values. A `Match` is true of a run when some value of the field meets all of its tests; of a run that
has no such value it is false, and `Not` of it is true. So no store needs NULL as a third one.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from pledger.engine.port.records import Record, RunRow
from pledger.history.attributes import AttributeRecord

#: Columns of a run, and what their values are. owned, retrying, blocked: 0 or 1. duration_ms: of a closed run.
#: retrying: an activity of it is about to begin again, or has. answers_for: who, see RunStarted.owner. parent: the
#: workflow id of the run that started it. act_by_ms: by when somebody must act, of each phase and named wait that an
#: open run is in and that has a deadline. warned: the attempt log has a warning of how its history grows.
COLUMNS: Final[Mapping[str, Literal["text", "int"]]] = {
    "run_key": "int",
    "workflow_id": "text",
    "run_id": "text",
    "workflow_type": "text",
    "task_queue": "text",
    "status": "text",
    "started_ms": "int",
    "closed_ms": "int",
    "duration_ms": "int",
    "events": "int",
    "due_ms": "int",
    "owned": "int",
    "blocked": "int",
    "retrying": "int",
    "answers_for": "text",
    "deadline_ms": "int",
    "parent": "text",
    "act_by_ms": "int",
    "warned": "int",
}

Operator: TypeAlias = Literal["=", "<", "<=", ">", ">=", "in"]
Test: TypeAlias = tuple[Operator, Any]
"""An operator and its value, of the type of the field; a tuple of them for `in`."""


class Match(Record, frozen=True):
    """field: one of COLUMNS, or with a kind the name of a search attribute. No tests: there is a value."""

    field: str
    kind: str | None = None
    tests: tuple[Test, ...] = ()


class AllOf(Record, frozen=True):
    """Of none of them: true."""

    parts: tuple[Filter, ...] = ()


class AnyOf(Record, frozen=True):
    """Of none of them: false."""

    parts: tuple[Filter, ...] = ()


class Not(Record, frozen=True):
    part: Filter


Filter: TypeAlias = Match | AllOf | AnyOf | Not

EVERY: Final = AllOf()
NONE: Final = AnyOf()


class Order(Record, frozen=True):
    """One thing that a list goes by; field and kind as in `Match`. Runs without a value come last, either way."""

    field: str
    kind: str | None = None
    descending: bool = False


class Attribute(Record, frozen=True):
    """A search attribute of a run, as a store is told it. values: of its kind; none takes the attribute away."""

    name: str
    kind: str
    values: tuple[int | float | str, ...]


class PhaseRow(Record, frozen=True):
    """A phase or a named wait that has a deadline, and that a run is in: see `events.BeginPhase`."""

    event_id: int
    kind: str
    name: str
    owner: str | None
    deadline_ms: int


class Labels(Record, frozen=True):
    """What a store keeps with a run for lists. attributes: in the order of their names. memo: JSON object.
    answers_for, deadline_ms: as the run started. phases: in the order of their deadlines. is_retrying, is_warned: see
    COLUMNS."""

    attributes: tuple[AttributeRecord, ...] = ()
    memo: bytes | None = None
    answers_for: str | None = None
    deadline_ms: int | None = None
    phases: tuple[PhaseRow, ...] = ()
    is_retrying: bool = False
    is_warned: bool = False


NO_LABELS: Final = Labels()


def attribute_of(record: AttributeRecord) -> Attribute:
    value = record.value
    if value is None:
        return Attribute(record.name, record.kind, ())
    if isinstance(value, tuple):
        return Attribute(record.name, record.kind, value)
    if isinstance(value, str):
        return Attribute(record.name, record.kind, (value,))
    return Attribute(record.name, record.kind, (float(value) if record.kind == "float" else int(value),))


def record_of(name: str, kind: str, values: Sequence[int | float | str]) -> AttributeRecord:
    """The other way."""
    if kind == "keyword_list":
        return AttributeRecord(name, kind, tuple(str(each) for each in values))
    [value] = values
    return AttributeRecord(name, kind, bool(value) if kind == "bool" else value)


# The reference --------------------------------------------------------------------------------------------------------

_COMPARE: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda value, choices: value in choices,
}


class Seen(NamedTuple):
    """All that is known of a run. attributes: by name. parent: see COLUMNS."""

    row: RunRow
    attributes: Mapping[str, Attribute]
    is_retrying: bool = False
    answers_for: str | None = None
    deadline_ms: int | None = None
    parent: str | None = None
    act_by_ms: Sequence[int] = ()
    is_warned: bool = False


def holds(found: Filter, run: Seen) -> bool:
    match found:
        case AllOf(parts):
            return all(holds(each, run) for each in parts)
        case AnyOf(parts):
            return any(holds(each, run) for each in parts)
        case Not(part):
            return not holds(part, run)
        case Match(field, kind, tests):
            return any(
                all(_COMPARE[sign](value, given) for sign, given in tests) for value in _values(field, kind, run)
            )


def place(order: Sequence[Order], run: Seen) -> tuple[Any, ...]:
    """What a list of runs is sorted by."""
    key = run.row.run_key
    return (*(_rank(each, run) for each in order), -key if is_newest_first(order) else key)


def is_newest_first(order: Sequence[Order]) -> bool:
    """How runs come that are equal in the order: by their keys, in the direction of its last part."""
    return not order or order[-1].descending


class _Falling:
    """A value that sorts the other way round."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __lt__(self, other: _Falling) -> bool:
        return bool(other.value < self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Falling) and bool(self.value == other.value)

    __hash__ = None  # type: ignore[assignment] # only sorted


def value_of(order: Order, run: Seen) -> Any:
    """The value that a run has for it, or None."""
    return next(iter(_values(order.field, order.kind, run)), None)


def _rank(order: Order, run: Seen) -> tuple[bool, Any]:
    value = value_of(order, run)
    if value is None:
        return True, 0
    return False, _Falling(value) if order.descending else value


def _values(field: str, kind: str | None, run: Seen) -> Sequence[Any]:
    row = run.row
    if kind is not None:
        found = run.attributes.get(field)
        return found.values if found is not None and found.kind == kind else ()
    value: Any
    match field:
        case "events":
            value = row.last_event
        case "duration_ms":
            value = None if row.closed_ms is None else row.closed_ms - row.started_ms
        case "owned":
            value = int(row.owner is not None)
        case "blocked":
            value = int(row.blocked is not None)
        case "retrying":
            value = int(run.is_retrying)
        case "warned":
            value = int(run.is_warned)
        case "act_by_ms":
            return run.act_by_ms if row.status == "running" else ()
        case "answers_for" | "deadline_ms" | "parent":
            value = getattr(run, field)
        case _:
            value = getattr(row, field)
    return () if value is None else (value,)
