"""Lists of runs, one page after the other: where one ends the next begins, whatever starts or ends meanwhile.

A page is asked for by the place of the last run of the one before, in the order of the list. A run that keeps its place
is told once. One whose place changes meanwhile (its attribute does) may be told again, or not at all.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from pledger.engine.port.filters import (
    EVERY,
    NO_LABELS,
    AllOf,
    AnyOf,
    Filter,
    Labels,
    Match,
    Not,
    Order,
    Seen,
    attribute_of,
    is_newest_first,
    value_of,
)
from pledger.engine.search import meaning, views
from pledger.engine.search.text import Written, parse

if TYPE_CHECKING:
    from pledger.engine.connection import Connection
    from pledger.engine.port.pauses import Pause
    from pledger.engine.port.records import RunRow

#: Rows read at a time.
PAGE: Final = 200

_NEWEST: Final = (Order("started_ms", None, descending=True),)


class Question(NamedTuple):
    """What a list asks of the store."""

    where: Filter
    order: Sequence[Order]
    now_ms: int = 0


async def question(
    connection: Connection, text: str, view: str | None, pauses: Sequence[Pause] | None = None
) -> Question:
    """The filter, and that of the view; the order of the view where the filter has none; the newest first where nobody
    says anything. Raises InvalidFilterError."""
    asked = [parse(text), *([] if view is None else [parse(views.filter_of(view))])]
    names = frozenset().union(*(each.names for each in asked))
    kinds: dict[str, list[str]] = {}
    if any(not meaning.is_field(name) for name in names):
        for name, kind in await connection.store.attribute_kinds(connection.namespace):
            kinds.setdefault(name, []).append(kind)
    uses_now = meaning.needs_now(names) or any(each.uses_now for each in asked)
    now_ms = await connection.now_ms() if uses_now else 0
    if pauses is None:
        needed = meaning.needs_pauses(names)
        pauses = await connection.store.read_pauses(connection.namespace) if needed else ()
    known = meaning.Known(kinds, now_ms, paused(pauses))
    parts = tuple(meaning.conditions(each, known) for each in asked)
    return Question(_all_of(parts), _order(asked, known), now_ms)


def _order(asked: Sequence[Written], known: meaning.Known) -> Sequence[Order]:
    for each in asked:
        if each.order:
            return meaning.order(each, known)
    return _NEWEST


def _all_of(parts: Sequence[Filter]) -> Filter:
    """Flat: what must hold leads to the runs."""
    flat: list[Filter] = []
    for part in parts:
        flat += part.parts if isinstance(part, AllOf) else [part]
    return AllOf(tuple(flat)) if flat else EVERY


def paused(pauses: Sequence[Pause]) -> Filter:
    """The runs that are paused, while they are open."""
    covered: list[Filter] = []
    for pause in pauses:
        scope = pause.scope
        match scope.kind:
            case "run":
                covered.append(Match("run_key", None, (("=", scope.run_key or 0),)))
            case "type":
                covered.append(Match("workflow_type", None, (("=", scope.name),)))
            case "queue":
                covered.append(Match("task_queue", None, (("=", scope.name),)))
            case "namespace":
                covered.append(EVERY)
    return AnyOf(tuple(covered))


async def pages(
    connection: Connection, asked: Question, limit: int | None
) -> AsyncIterator[list[tuple[RunRow, Labels]]]:
    """At most `limit` runs in all."""
    store, left = connection.store, limit
    where = asked.where
    while left is None or left > 0:
        size = PAGE if left is None else min(left, PAGE)
        rows = await store.list_runs(connection.namespace, where, size, asked.order)
        labels = await store.read_labels([row.run_key for row in rows]) if rows else {}
        page = [(row, labels.get(row.run_key, NO_LABELS)) for row in rows]
        if page:
            yield page
        if len(page) < size:
            return
        left = None if left is None else left - len(page)
        where = _all_of((asked.where, beyond(asked.order, *page[-1])))


def beyond(order: Sequence[Order], row: RunRow, labels: Labels) -> Filter:
    """The runs that come after this one."""
    attributes = {each.name: attribute_of(each) for each in labels.attributes}
    last = Seen(row, attributes, answers_for=labels.answers_for, deadline_ms=labels.deadline_ms)
    key = row.run_key
    found: Filter = Match("run_key", None, (("<" if is_newest_first(order) else ">", key),))
    for each in reversed(order):
        value = value_of(each, last)
        if value is None:
            # Those without a value are the last ones.
            found = AllOf((Not(Match(each.field, each.kind)), found))
            continue
        same = Match(each.field, each.kind, (("=", value),))
        after: Filter = Match(each.field, each.kind, (("<" if each.descending else ">", value),))
        if each.field != "started_ms":
            after = AnyOf((after, Not(Match(each.field, each.kind))))
        found = AnyOf((after, AllOf((same, found))))
    first = order[0] if order else None
    if first is not None and first.field == "started_ms":
        # It follows from the rest; an index knows a range, and not alternatives.
        return AllOf((Match("started_ms", None, (("<=" if first.descending else ">=", row.started_ms),)), found))
    return found
