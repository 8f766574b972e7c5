"""What open runs are at, from what indices know of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pledger.engine.port.records import OpenRow


def open_rows(rows: Iterable[tuple[Any, ...]]) -> list[OpenRow]:
    """rows: the columns of OpenRow, where the state "free" counts all that nobody holds and nothing blocks. What is not
    ready of them waits."""
    found = {row[:3]: row[3:] for row in rows}
    told = []
    for (task_queue, workflow_type, state), (count, oldest_ms) in found.items():
        if state != "free":
            told.append(OpenRow(task_queue, workflow_type, state, count, oldest_ms))
            continue
        ready, _ = found.get((task_queue, workflow_type, "ready"), (0, None))
        if count > ready:
            told.append(OpenRow(task_queue, workflow_type, "waiting", count - ready))
    return sorted(told, key=OpenRow.place)
