"""Ready-made views: questions that everybody has who operates runs."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, get_args

from pledger.engine.limits import Limits
from pledger.engine.port.records import RunRow
from pledger.engine.search.meaning import OVERDUE_MS
from pledger.errors import InvalidFilterError

View: TypeAlias = Literal["needs-attention", "oldest-open"]
VIEWS: Final[tuple[View, ...]] = get_args(View)

#: A history that has come so far towards its bound is something to look at.
EVENTS_WARN: Final = Limits().history_events_max // 4

#: Each is a filter that anybody could have written.
_FILTERS: Final[dict[View, str]] = {
    "needs-attention": "status = 'running' and (blocked or retrying or overdue "
    f"or events >= {EVENTS_WARN}) order by started_at",
    "oldest-open": "status = 'running' order by started_at",
}


def filter_of(view: str) -> str:
    """Raises InvalidFilterError for a view that there is not."""
    for name in VIEWS:
        if name == view:
            return _FILTERS[name]
    raise InvalidFilterError(f"there is no view {view!r}; they are {', '.join(VIEWS)}")


def attention(row: RunRow, now_ms: int) -> str:
    """Why a run is in `needs-attention`, in a few words."""
    found = []
    if row.blocked is not None:
        found.append("blocked")
    elif row.owner is None and row.due_ms is not None and row.due_ms < now_ms - OVERDUE_MS:
        found.append("overdue")
    if row.last_event >= EVENTS_WARN:
        found.append(f"{row.last_event:,} events")
    return ", ".join(found) or "retrying"
