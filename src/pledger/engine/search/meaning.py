"""From a filter as it is written to what it asks of the store: names, values and operators are checked here.

The names are those of every run (`FIELDS`), and those of the search attributes that the ledger has. Of an attribute
that was given with several kinds, each is asked that the value can be of.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, NoReturn, TypeAlias, get_args

from pledger.engine.port.filters import EVERY, AllOf, AnyOf, Filter, Match, Not, Operator, Order, Test
from pledger.engine.port.records import TERMINAL, RunStatus
from pledger.engine.search import literals
from pledger.engine.search.errors import refuse
from pledger.engine.search.text import Word, Written, place, word
from pledger.history.attributes import TEXTS

if TYPE_CHECKING:
    from sqlglot import Expr

FieldKind: TypeAlias = Literal["text", "status", "time", "duration", "number", "flag"]

#: Names in a filter: the column that each means, and its kind.
FIELDS: Final[Mapping[str, tuple[str, FieldKind]]] = {
    "workflow_id": ("workflow_id", "text"),
    "run_id": ("run_id", "text"),
    "type": ("workflow_type", "text"),
    "task_queue": ("task_queue", "text"),
    "status": ("status", "status"),
    "started_at": ("started_ms", "time"),
    "closed_at": ("closed_ms", "time"),
    "duration": ("duration_ms", "duration"),
    "events": ("events", "number"),
    "owner": ("answers_for", "text"),
    "deadline": ("deadline_ms", "time"),
    "parent": ("parent", "text"),
    "act_by": ("act_by_ms", "time"),
    "blocked": ("blocked", "flag"),
    "retrying": ("retrying", "flag"),
    "overdue": ("due_ms", "flag"),
    "paused": ("run_key", "flag"),
    "warned": ("warned", "flag"),
}
#: Other names of the same, ours of old and the field's.
ALIASES: Final[Mapping[str, str]] = {
    "id": "workflow_id",
    "workflow_type": "type",
    "started": "started_at",
    "closed": "closed_at",
    "workflowid": "workflow_id",
    "runid": "run_id",
    "workflowtype": "type",
    "taskqueue": "task_queue",
    "executionstatus": "status",
    "starttime": "started_at",
    "closetime": "closed_at",
    "executionduration": "duration",
    "historylength": "events",
    "parentworkflowid": "parent",
}
STATUSES: Final = frozenset(TERMINAL | {"running"})
assert frozenset(get_args(RunStatus)) == STATUSES

#: A run that is due for so long, and that nobody has, is overdue; so is one in a phase whose deadline is past.
OVERDUE_MS: Final = 60_000


class Known(NamedTuple):
    """What a filter may refer to. kinds: of the attributes that the ledger has, by name. paused: the runs that are, as
    long as they are open."""

    kinds: Mapping[str, Sequence[str]]
    now_ms: int
    paused: Filter


_SIGNS: Final[Mapping[str, Operator]] = {"EQ": "=", "LT": "<", "LTE": "<=", "GT": ">", "GTE": ">="}
_FLIPPED: Final[Mapping[Operator, Operator]] = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def is_field(name: str) -> bool:
    return name.lower() in FIELDS or name.lower() in ALIASES


def conditions(written: Written, known: Known) -> Filter:
    """Raises InvalidFilterError naming what is wrong, where, and what would be right."""
    return EVERY if written.tree is None else _Reader(written.text, known).read(written.tree)


def order(written: Written, known: Known) -> tuple[Order, ...]:
    """Raises InvalidFilterError."""
    reader = _Reader(written.text, known)
    return tuple(reader.order(each.word, descending=each.descending) for each in written.order)


class _Reader:
    def __init__(self, text: str, known: Known) -> None:
        from sqlglot import exp  # noqa: PLC0415 - loaded by who has parsed the filter

        self._exp = exp
        self._text = text
        self._known = known
        self._kinds = known.kinds
        self._now_ms = known.now_ms

    def read(self, found: Expr) -> Filter:
        exp = self._exp
        if isinstance(found, exp.Connector | exp.Not | exp.Paren | exp.Boolean):
            return self._joined(found)
        match found:
            case exp.NEQ():
                return Not(self._compare("=", found.left, found.right))
            case exp.EQ() | exp.LT() | exp.LTE() | exp.GT() | exp.GTE():
                return self._compare(_SIGNS[type(found).__name__], found.left, found.right)
            case exp.Between():
                low = self._compare(">=", found.this, found.args["low"])
                return _both(low, self._compare("<=", found.this, found.args["high"]))
            case exp.In() if found.expressions and not found.args.get("query"):
                return AnyOf(tuple(self._compare("=", found.this, each) for each in found.expressions))
            case exp.Is():
                return self._is(found)
            case exp.Like():
                return self._like(found)
            case exp.Glob() | exp.StartsWith():
                return self._prefix(found.this, literals.text_of(found.expression, self._text, "a prefix"))
            case exp.Column():
                return self._flag(found)
            case _:
                return self._is_no_comparison(found)

    def _joined(self, found: Expr) -> Filter:
        exp = self._exp
        match found:
            case exp.Paren():
                return self.read(found.this)
            case exp.And():
                return AllOf(tuple(self.read(each) for each in found.flatten()))
            case exp.Or():
                return AnyOf(tuple(self.read(each) for each in found.flatten()))
            case exp.Not():
                return Not(self.read(found.this))
            case exp.Boolean():
                return EVERY if found.this else AnyOf()
            case _:
                return self._is_no_comparison(found)

    def _is_no_comparison(self, found: Expr) -> NoReturn:
        refuse(
            self._text,
            f"{found.sql()!r} is not a comparison; use = != < <= > >= in, between, is null, like 'prefix%', "
            "joined by `and`, `or` and `not`",
            place(found),
        )

    def order(self, name: Word, *, descending: bool) -> Order:
        found = self._name(name)
        if isinstance(found, str):
            column, kind = FIELDS[found]
            if kind == "flag":
                refuse(self._text, f"a list cannot go by {found}, which is true or false", name.at)
            if column in {"parent", "act_by_ms"}:
                refuse(self._text, f"a list cannot go by {found}; it can only ask for it", name.at)
            return Order(column, None, descending)
        if len(found) > 1 or "keyword_list" in found:
            what = "which has many values" if "keyword_list" in found else f"which is of several kinds: {_words(found)}"
            refuse(self._text, f"a list cannot go by {name.name}, {what}", name.at)
        return Order(name.name, found[0], descending)

    # Names ------------------------------------------------------------------------------------------------------------

    def _name(self, given: Word) -> str | Sequence[str]:
        """A field, or the kinds of an attribute."""
        if given.name in self._kinds:
            return self._kinds[given.name]
        name = given.name.lower()
        name = ALIASES.get(name, name)
        if name in FIELDS:
            return name
        return self._is_unknown(given)

    def _is_unknown(self, given: Word) -> NoReturn:
        known = [*FIELDS, *self._kinds]
        [near, *_] = [*difflib.get_close_matches(given.name, known, 1), ""]
        attributes = [f"{each} ({_words(kinds)})" for each, kinds in sorted(self._kinds.items())]
        refuse(
            self._text,
            f"there is no field {given.name!r}{f'; is it {near}?' if near else ''}; the fields are "
            f"{', '.join(FIELDS)}; "
            + (f"the search attributes are {', '.join(attributes)}" if attributes else "no run has search attributes"),
            given.at,
        )

    def _column(self, found: Expr) -> Word:
        exp = self._exp
        found = found.unnest()
        if not isinstance(found, exp.Column) or found.args.get("table"):
            refuse(self._text, f"{found.sql()!r} is not the name of a field", place(found))
        return word(found)

    # Comparisons ------------------------------------------------------------------------------------------------------

    def _compare(self, sign: Operator, left: Expr, right: Expr) -> Filter:
        exp = self._exp
        left, right = left.unnest(), right.unnest()
        if isinstance(right, exp.Column) and not isinstance(left, exp.Column):
            return self._compare(_FLIPPED.get(sign, sign), right, left)
        name = self._column(left)
        if isinstance(right, exp.Column):
            refuse(
                self._text, f"{right.sql()!r} is not a value; a text has single quotes: '{right.name}'", place(right)
            )
        if isinstance(right, exp.Null):
            refuse(self._text, f"write it as: {name.name} is null, or {name.name} is not null", place(right))
        found = self._name(name)
        if isinstance(found, str):
            return self._compare_field(found, sign, right)
        return self._compare_attribute(name, found, sign, right)

    def _compare_field(self, name: str, sign: Operator, value: Expr) -> Filter:
        column, kind = FIELDS[name]
        text = self._text
        match kind:
            case "text":
                return Match(column, None, ((sign, literals.text_of(value, text, name)),))
            case "status":
                return Match(column, None, ((sign, self._status(sign, value)),))
            case "time":
                return Match(column, None, ((sign, literals.time_of(value, text, name, self._now_ms)),))
            case "duration":
                return Match(column, None, ((sign, literals.duration_of(value, text, name)),))
            case "number":
                test = literals.whole_tests(sign, literals.number_of(value, text, name))
                return Match(column, None, () if test is None else (test,))
            case _:
                if sign != "=":
                    refuse(text, f"{name} is true or false, and nothing else: {name} = true", place(value))
                holds = self._flagged(name)
                return holds if literals.bool_of(value, text, name) else Not(holds)

    def _status(self, sign: Operator, value: Expr) -> str:
        if sign != "=":
            refuse(self._text, "statuses have no order; use = != and in", place(value))
        given = literals.text_of(value, self._text, "status")
        status = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", given).lower()
        if status not in STATUSES:
            hint = f": say {status} = true" if status in {"blocked", "retrying", "overdue"} else ""
            refuse(self._text, f"there is no status {given!r}{hint}; they are {_words(sorted(STATUSES))}", place(value))
        return status

    def _compare_attribute(self, name: Word, kinds: Sequence[str], sign: Operator, value: Expr) -> Filter:
        fit = [kind for kind in kinds if literals.suits(kind, value)]
        if not fit:
            refuse(
                self._text,
                f"the search attribute {name.name} is {_words(kinds)}, and {value.sql()} is none",
                place(value),
            )
        return _any_of([self._compare_kind(name.name, kind, sign, value) for kind in fit])

    def _compare_kind(self, name: str, kind: str, sign: Operator, value: Expr) -> Filter:
        text = self._text
        if kind in TEXTS:
            if kind == "keyword_list" and sign != "=":
                refuse(text, f"{name} is a list: ask for what is in it by = or in", place(value))
            return Match(name, kind, ((sign, literals.text_of(value, text, name)),))
        test: Test | None
        match kind:
            case "int":
                test = literals.whole_tests(sign, literals.number_of(value, text, name))
            case "float":
                test = sign, float(literals.number_of(value, text, name))
            case "datetime":
                test = sign, literals.time_of(value, text, name, self._now_ms)
            case _:
                if sign != "=":
                    refuse(text, f"{name} is true or false, and nothing else: {name} = true", place(value))
                test = sign, literals.bool_of(value, text, name)
        return Match(name, kind, () if test is None else (test,))

    # The others -------------------------------------------------------------------------------------------------------

    def _is(self, found: Expr) -> Filter:
        exp = self._exp
        if isinstance(found.expression, exp.Boolean):
            return self._compare("=", found.this, found.expression)
        if not isinstance(found.expression, exp.Null):
            refuse(
                self._text, f"{found.sql()!r} is not a comparison; `is` goes with null, true and false", place(found)
            )
        name = self._column(found.this)
        return Not(self._each(name, Match))

    def _like(self, found: Expr) -> Filter:
        pattern = literals.text_of(found.expression, self._text, "like")
        prefix = pattern.removesuffix("%")
        if pattern == prefix or "%" in prefix or "_" in prefix:
            refuse(
                self._text,
                "`like` asks for a prefix, a text with one % at its end; where that text has a % or _ of its own, "
                "write starts_with(workflow_id, 'order_')",
                place(found.expression),
            )
        return self._prefix(found.this, prefix)

    def _prefix(self, found: Expr, prefix: str) -> Filter:
        name = self._column(found)
        tests = literals.prefix_tests(prefix) if prefix else ()

        def begins(field: str, kind: str | None) -> Filter:
            is_text = kind in TEXTS if kind is not None else field in _TEXT_COLUMNS
            if not is_text:
                refuse(self._text, f"{name.name} is no text, which alone has a beginning", name.at)
            return Match(field, kind, tests)

        return self._each(name, begins)

    def _each(self, name: Word, make: Callable[[str, str | None], Filter]) -> Filter:
        """Of a field, or of every kind of an attribute."""
        found = self._name(name)
        if not isinstance(found, str):
            return _any_of([make(name.name, kind) for kind in found])
        column, kind = FIELDS[found]
        if kind == "flag":
            refuse(self._text, f"{found} is true or false, and nothing else: {found} = true", name.at)
        return make(column, None)

    def _flag(self, found: Expr) -> Filter:
        """A name that stands alone."""
        name = self._column(found)
        meant = self._name(name)
        if isinstance(meant, str) and FIELDS[meant][1] == "flag":
            return self._flagged(meant)
        if not isinstance(meant, str) and "bool" in meant:
            return Match(name.name, "bool", (("=", 1),))
        return refuse(self._text, f"{name.name} is not compared with anything", name.at)

    def _flagged(self, name: str) -> Filter:
        is_open = Match("status", None, (("=", "running"),))
        match name:
            case "paused":
                return AllOf((is_open, self._known.paused))
            case "overdue":
                due = Match("due_ms", None, (("<", self._now_ms - OVERDUE_MS),))
                nobody_has_it = Match("owned", None, (("=", 0),)), Match("blocked", None, (("=", 0),))
                waits = AllOf((due, *nobody_has_it, Not(self._known.paused)))
                somebody_is_late = Match("act_by_ms", None, (("<", self._now_ms),))
                return AllOf((is_open, AnyOf((waits, somebody_is_late))))
            case _:
                return Match(FIELDS[name][0], None, (("=", 1),))


_TEXT_COLUMNS: Final = {column for column, kind in FIELDS.values() if kind == "text"}


def needs_now(names: frozenset[str]) -> bool:
    return any(name.lower() == "overdue" for name in names)


def needs_pauses(names: frozenset[str]) -> bool:
    return any(name.lower() in {"overdue", "paused"} for name in names)


def _any_of(parts: Sequence[Filter]) -> Filter:
    return parts[0] if len(parts) == 1 else AnyOf(tuple(parts))


def _both(low: Filter, high: Filter) -> Filter:
    """Between two values: one value of the run is, where it has several."""
    if isinstance(low, Match) and isinstance(high, Match):
        return Match(low.field, low.kind, (*low.tests, *high.tests))
    return AllOf((low, high))


def _words(kinds: Sequence[Any]) -> str:
    return ", ".join(map(str, kinds))
