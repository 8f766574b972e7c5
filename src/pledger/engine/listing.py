"""The list filter: one line in the field's SQL-like form, parsed by sqlglot into conditions, never spliced into SQL."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NoReturn

from pledger.engine.port.records import TERMINAL, Condition
from pledger.errors import InvalidFilterError

if TYPE_CHECKING:
    from sqlglot import Expr

#: Rows read at a time.
PAGE: Final = 200

#: Names in a filter, and the columns they mean.
FIELDS: Final = {
    "workflow_id": "workflow_id",
    "id": "workflow_id",
    "run_id": "run_id",
    "type": "workflow_type",
    "workflow_type": "workflow_type",
    "task_queue": "task_queue",
    "status": "status",
    "started": "started_ms",
    "closed": "closed_ms",
    "blocked": "blocked",
}
_TIMES: Final = frozenset({"started_ms", "closed_ms"})
_STATUSES: Final = frozenset(TERMINAL | {"running"})


def parse(text: str) -> list[Condition]:
    """The conditions of a filter, all of which must hold; [] for an empty one.

    Raises InvalidFilterError naming what is wrong and what would be right.
    """
    if not text.strip():
        return []
    # Imported at the first filter: it is big, and most programs never list.
    import sqlglot  # noqa: PLC0415
    from sqlglot import errors, exp  # noqa: PLC0415

    try:
        tree = sqlglot.parse_one(text, into=exp.Condition)
    except errors.ParseError as error:
        raise InvalidFilterError(
            f"the filter {text!r} does not parse: {str(error).splitlines()[0]}. Write it like: "
            f"status = 'running' and type = 'fulfil'"
        ) from error
    return (
        [_condition(part, text) for part in tree.flatten()] if isinstance(tree, exp.And) else [_condition(tree, text)]
    )


def _condition(part: Expr, text: str) -> Condition:
    from sqlglot import exp  # noqa: PLC0415 - see parse

    operators = {exp.EQ: "=", exp.NEQ: "!=", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
    part = part.unnest()
    if isinstance(part, exp.In):
        column = _column(part.this, text)
        return Condition(column, "in", tuple(_value(column, each, text) for each in part.expressions))
    operator = next((sign for kind, sign in operators.items() if isinstance(part, kind)), None)
    if operator is None or not isinstance(part, exp.Binary):
        _refuse(text, f"{part.sql()!r} is not a comparison; use = != < <= > >= in, joined by `and`")
    column = _column(part.left, text)
    return Condition(column, operator, _value(column, part.right, text))


def _column(found: Expr, text: str) -> str:
    name = found.name.lower()
    column = FIELDS.get(name)
    if column is None:
        _refuse(text, f"there is no field {found.sql()!r}; the fields are {', '.join(FIELDS)}")
    return column


def _value(column: str, found: Expr, text: str) -> Any:
    from sqlglot import exp  # noqa: PLC0415 - see parse

    if column == "blocked":
        if not isinstance(found, exp.Boolean):
            _refuse(text, "blocked is compared with true or false")
        return bool(found.this)
    if not (isinstance(found, exp.Literal) and found.is_string):
        _refuse(text, f"{found.sql()!r} is not a quoted text")
    value = str(found.this)
    if column in _TIMES:
        return _time_ms(value, text)
    if column == "status" and value not in _STATUSES:
        _refuse(text, f"there is no status {value!r}; they are {', '.join(sorted(_STATUSES))}")
    return value


def _time_ms(value: str, text: str) -> int:
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        _refuse(text, f"{value!r} is not a time; write it like '2026-11-29T18:00:00+01:00'")
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return round(time.timestamp() * 1000)


def _refuse(text: str, why: str) -> NoReturn:
    raise InvalidFilterError(f"the filter {text!r} cannot be used: {why}")
