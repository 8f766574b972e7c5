"""Filters and orders of lists to SQL, for both databases. Every piece of text is of a table of constants; what a user
has given is only ever bound.

The queries are of `run`, joined with its `chain`. A search attribute is asked for by its run where that can lead to the
runs (a condition that must hold), and looked up of each run elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol

from pledger.engine.port.filters import AllOf, AnyOf, Filter, Match, Not, Order, is_newest_first
from pledger.engine.port.records import GROWTH_EVENT

#: Statuses of runs that may need somebody; an index leads to them.
ENDED_BADLY: Final = ("cancelled", "compensated", "failed", "terminated", "timed_out")
#: Word for word the conditions of partial indexes: a database uses them where the query says the same.
_IS_OPEN: Final = "run.status = 'running'"
_IS_ENDED_BADLY: Final = "run.status IN ('cancelled', 'compensated', 'failed', 'terminated', 'timed_out')"
#: What was forgotten is in no list: RunRow.is_forgotten.
_REMEMBERED: Final = "NOT (run.last_event = 0 AND run.status <> 'running')"

_SIGNS: Final = {each: each for each in ("=", "<", "<=", ">", ">=")}
#: Where the values of a kind stand.
_PLACES: Final = {
    "keyword": "words",
    "text": "words",
    "keyword_list": "words",
    "int": "whole",
    "bool": "whole",
    "datetime": "whole",
    "float": "real",
}
_COLUMNS: Final = {
    "run_key": "run.run_key",
    "workflow_id": "chain.workflow_id",
    "run_id": "run.run_id",
    "workflow_type": "run.workflow_type",
    "task_queue": "run.task_queue",
    "status": "run.status",
    "started_ms": "run.started_ms",
    "closed_ms": "run.closed_ms",
    "duration_ms": "(run.closed_ms - run.started_ms)",
    "events": "run.last_event",
    "answers_for": "run.answers_for",
    "deadline_ms": "run.deadline_ms",
}
#: The columns of RunRow.
COLUMNS_OF_ROW: Final = (
    "run.run_key, run.chain_key, run.namespace, chain.workflow_id, run.run_id, run.workflow_type, run.task_queue, "
    "run.status, run.input_digest, run.started_ms, run.closed_ms, run.last_event, run.head, run.fence, run.owner, "
    "{due_ms}, run.claims, run.blocked, run.blocked_code"
)
_FLAGS: Final = {
    "owned": "run.owner IS NOT NULL",
    "blocked": "run.blocked IS NOT NULL",
}


class Dialect(Protocol):
    """What differs: the names of the tables, the expression of due_ms, and how values are bound.

    bind: the text that stands for a value, a str, int or float. member: the condition that it is one of several.
    """

    run: str
    chain: str
    child: str
    task: str
    attribute: str
    phase: str
    attempt: str
    due_ms: str

    def bind(self, value: Any) -> str: ...
    def member(self, expression: str, values: Sequence[Any]) -> str: ...


def conditions(dialect: Dialect, namespace: str, where: Filter) -> str:
    """What follows WHERE."""
    parts = where.parts if isinstance(where, AllOf) else (where,)
    terms = ["run.namespace = " + dialect.bind(namespace)]
    terms += _implied(parts)
    terms += [_required(dialect, namespace, each) for each in parts]
    return " AND ".join([*terms, _REMEMBERED])


def order_by(dialect: Dialect, namespace: str, order: Sequence[Order]) -> str:
    """What follows ORDER BY; equals as `filters.is_newest_first` says."""
    terms = []
    for each in order:
        expression, may_be_missing = _ordered(dialect, namespace, each)
        direction = " DESC" if each.descending else ""
        terms.append(f"{expression}{direction}{' NULLS LAST' if may_be_missing else ''}")
    return ", ".join([*terms, f"run.run_key{' DESC' if is_newest_first(order) else ''}"])


def _ordered(dialect: Dialect, namespace: str, order: Order) -> tuple[str, bool]:
    if order.kind is None:
        return _COLUMNS[order.field], order.field in {"closed_ms", "duration_ms", "answers_for", "deadline_ms"}
    place = _PLACES[order.kind]
    bound = _bound_name(dialect, namespace, order.field, order.kind)
    of_run = f"FROM {dialect.attribute} AS found WHERE found.run_key = run.run_key AND {bound}"
    return f"(SELECT found.{place} {of_run} LIMIT 1)", True


def _implied(parts: Iterable[Filter]) -> list[str]:
    """What the conditions say of the status, as partial indexes have it."""
    found = []
    for part in parts:
        match part:
            case Match("status", None, (("=", value),)):
                among = (value,)
            case Match("status", None, (("in", values),)):
                among = tuple(values)
            case _:
                continue
        if set(among) == {"running"}:
            found.append(_IS_OPEN)
        elif set(among) <= set(ENDED_BADLY):
            found.append(_IS_ENDED_BADLY)
    return found


def _required(dialect: Dialect, namespace: str, part: Filter) -> str:
    """A condition that must hold: where it is of an attribute, or of the workflow id, that leads to the runs."""
    match part:
        case Match("workflow_id", None, (("=", value),)):
            bound = dialect.bind(namespace), dialect.bind(value)
            return (
                f"run.chain_key IN (SELECT of_id.chain_key FROM {dialect.chain} AS of_id "  # noqa: S608 - as above
                f"WHERE of_id.namespace = {bound[0]} AND of_id.workflow_id = {bound[1]})"
            )
        case Match("parent", None, (("=", value),)):
            bound = dialect.bind(namespace), dialect.bind(value)
            return (
                f"run.chain_key IN (SELECT child.chain_key FROM {dialect.chain} AS of_id "  # noqa: S608 - as above
                f"JOIN {dialect.run} AS above ON above.chain_key = of_id.chain_key "
                f"JOIN {dialect.child} AS child ON child.parent_key = above.run_key "
                f"WHERE of_id.namespace = {bound[0]} AND of_id.workflow_id = {bound[1]})"
            )
        case Match(field, str(kind), tests):
            bound_name = _bound_name(dialect, namespace, field, kind)
            met = _met_by_value(dialect, kind, tests)
            return (
                f"run.run_key IN (SELECT found.run_key FROM {dialect.attribute} AS found "  # noqa: S608 - as above
                f"WHERE {bound_name} AND {met})"
            )
        case _:
            return _condition(dialect, namespace, part)


def _condition(dialect: Dialect, namespace: str, part: Filter) -> str:
    match part:
        case AllOf(parts):
            inner = [_condition(dialect, namespace, each) for each in parts]
            return f"({' AND '.join(inner)})" if inner else "(1 = 1)"
        case AnyOf(parts):
            inner = [_condition(dialect, namespace, each) for each in parts]
            return f"({' OR '.join(inner)})" if inner else "(1 = 0)"
        case Not(inside):
            return f"(NOT {_condition(dialect, namespace, inside)})"
        case Match(field, str(kind), tests):
            bound_name = _bound_name(dialect, namespace, field, kind)
            met = _met_by_value(dialect, kind, tests)
            return (
                f"(EXISTS (SELECT 1 FROM {dialect.attribute} AS found "  # noqa: S608 - pieces of constants
                f"WHERE found.run_key = run.run_key AND {bound_name} AND {met}))"
            )
        case Match("act_by_ms", _, tests):
            met = _met(dialect, "phase.deadline_ms", tests)
            return (
                f"({_IS_OPEN} AND EXISTS (SELECT 1 FROM {dialect.phase} AS phase "  # noqa: S608 - as above
                f"WHERE phase.run_key = run.run_key AND {met}))"
            )
        case Match("warned", _, tests):
            is_so = (
                f"EXISTS (SELECT 1 FROM {dialect.attempt} AS attempt "  # noqa: S608 - as above
                f"WHERE attempt.run_key = run.run_key AND attempt.event_id = {GROWTH_EVENT})"
            )
            return _flag(dialect, is_so, tests)
        case Match("retrying", _, tests):
            is_so = (
                f"EXISTS (SELECT 1 FROM {dialect.task} AS task WHERE task.run_key = run.run_key "  # noqa: S608 - as above
                "AND task.attempt > 1 AND task.state <> 'done')"
            )
            return _flag(dialect, is_so, tests)
        case Match(field, _, tests) if field in _FLAGS:
            return _flag(dialect, _FLAGS[field], tests)
        case Match(field, _, tests):
            expression = _expression(dialect, field)
            # Of a column without a value that is false, and not unknown: NOT makes it true.
            return f"({expression} IS NOT NULL AND {_met(dialect, expression, tests)})"


def _expression(dialect: Dialect, field: str) -> str:
    match field:
        case "due_ms":
            return dialect.due_ms
        case "parent":
            return (
                f"(SELECT its_id.workflow_id FROM {dialect.child} AS child "  # noqa: S608 - as above
                f"JOIN {dialect.run} AS above ON above.run_key = child.parent_key "
                f"JOIN {dialect.chain} AS its_id ON its_id.chain_key = above.chain_key "
                "WHERE child.chain_key = run.chain_key)"
            )
        case _:
            return _COLUMNS[field]


def _flag(dialect: Dialect, expression: str, tests: Sequence[tuple[str, Any]]) -> str:
    return f"({_met(dialect, f'(CASE WHEN {expression} THEN 1 ELSE 0 END)', tests)})"


def _met(dialect: Dialect, expression: str, tests: Sequence[tuple[str, Any]]) -> str:
    return " AND ".join(_meets(dialect, expression, sign, value) for sign, value in tests) or "1 = 1"


def _meets(dialect: Dialect, expression: str, sign: str, value: Any) -> str:
    if sign != "in":
        return f"{expression} {_SIGNS[sign]} {dialect.bind(value)}"
    return dialect.member(expression, value) if value else "1 = 0"


def _met_by_value(dialect: Dialect, kind: str, tests: Sequence[tuple[str, Any]]) -> str:
    """By the one index of all values, whose columns come one after the other."""
    place = _PLACES[kind]
    absent = {
        "words": "",
        "whole": "found.words IS NULL AND ",
        "real": "found.words IS NULL AND found.whole IS NULL AND ",
    }
    return absent[place] + _met(dialect, f"found.{place}", tests)


def _bound_name(dialect: Dialect, namespace: str, name: str, kind: str) -> str:
    bound = dialect.bind(namespace), dialect.bind(name), dialect.bind(kind)
    return f"found.namespace = {bound[0]} AND found.name = {bound[1]} AND found.kind = {bound[2]}"
