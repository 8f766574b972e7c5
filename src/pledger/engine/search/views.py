"""Ready-made views: questions that everybody has who operates runs."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, get_args

from pledger.engine.port.filters import Labels
from pledger.engine.port.records import RunRow
from pledger.engine.search.meaning import OVERDUE_MS
from pledger.errors import InvalidFilterError

View: TypeAlias = Literal["needs-attention", "oldest-open"]
VIEWS: Final[tuple[View, ...]] = get_args(View)

#: Each is a filter that anybody could have written.
_FILTERS: Final[dict[View, str]] = {
    "needs-attention": "status = 'running' and (blocked or retrying or overdue or warned) order by started_at",
    "oldest-open": "status = 'running' order by started_at",
}


def filter_of(view: str) -> str:
    """Raises InvalidFilterError for a view that there is not."""
    for name in VIEWS:
        if name == view:
            return _FILTERS[name]
    raise InvalidFilterError(f"there is no view {view!r}; they are {', '.join(VIEWS)}")


def attention(row: RunRow, labels: Labels, now_ms: int) -> str:
    """Why a run is in `needs-attention`, in a few words."""
    found = []
    if row.blocked is not None:
        found.append("blocked")
    elif row.owner is None and row.due_ms is not None and row.due_ms < now_ms - OVERDUE_MS:
        found.append("overdue")
    found += [
        f"{each.kind} {each.name} is overdue{f' ({each.owner})' if each.owner else ''}"
        for each in labels.phases
        if each.deadline_ms < now_ms
    ]
    if labels.is_retrying:
        found.append("retrying")
    if labels.is_warned:
        found.append(f"its history has {row.last_event:,} events")
    return ", ".join(found)
