"""The audit by hand: what carries each open run on, what nothing does, and what has no deadline and no owner.

Workers do the same by themselves, a little at a time (`pledger.engine.auditor`). Here all open runs are looked at, with
their whole histories.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Literal, TypeAlias

from pledger.client import Client
from pledger.engine import auditor
from pledger.engine.auditor import Looked
from pledger.engine.wakers import overdue_of

#: Runs that are looked at in one go, and transitions of each: more than a history's bound has.
PAGE: Final = 50
TRANSITIONS_MAX: Final = 1_000_000

Done: TypeAlias = Literal["found", "woken"]


@dataclass(frozen=True, slots=True)
class Problem:
    """An open run that nothing carries on. done: "woken", or "found" where nothing was to be changed."""

    workflow_id: str
    run_id: str
    workflow_type: str
    problem: str
    done: Done


@dataclass(slots=True)
class Report:
    """runs: how many were looked at. wakers: what carries them on, and how many of them. overdue: (workflow id, phase
    or wait). no_owner, no_deadline: of how many runs nobody is named, and nothing says when they must be over."""

    runs: int = 0
    wakers: Counter[str] = field(default_factory=Counter)
    problems: list[Problem] = field(default_factory=list)
    overdue: list[tuple[str, str]] = field(default_factory=list)
    no_owner: int = 0
    no_deadline: int = 0


async def audit(
    client: Client,
    *,
    repair: bool = True,
    again_after: timedelta = timedelta(seconds=2),
    progress: Callable[[], None] = lambda: None,
) -> Report:
    """Look at every open run of the namespace; wake those that nothing carries on.

    What seems wrong is looked at again after `again_after`: what moves meanwhile is well. repair: False changes
    nothing. progress: told of each run.
    """
    store, namespace = client.internals.store, client.internals.namespace
    report, suspects = Report(), list[Looked]()
    before: int | None = None
    now_ms = await store.now_ms()
    while page := await auditor.open_runs(store, namespace, before, PAGE):
        before = page[-1].run_key
        for looked in await auditor.look_at(store, namespace, page, transitions_max=TRANSITIONS_MAX):
            _count(report, looked, now_ms)
            progress()
            if looked.problem is not None:
                suspects.append(looked)
    if suspects:
        await asyncio.sleep(again_after.total_seconds())
    for looked in suspects:
        row = await store.read_run(looked.row.run_key)
        if row.status != "running":
            continue
        [found] = await auditor.look_at(store, namespace, [row], transitions_max=TRANSITIONS_MAX)
        if found.problem is None or not found.is_as_before(looked):
            continue
        if repair:
            await auditor.wake(store, found)
        done: Done = "woken" if repair else "found"
        report.problems.append(Problem(row.workflow_id, row.run_id, row.workflow_type, found.problem, done))
    return report


def _count(report: Report, looked: Looked, now_ms: int) -> None:
    report.runs += 1
    report.wakers[looked.verdict.waker] += 1
    state = looked.verdict.state
    if state is not None and state.last_event:
        report.no_owner += state.owner is None
        report.no_deadline += state.deadline_ms is None
        report.overdue += [(looked.row.workflow_id, name) for name in overdue_of(state, now_ms)]
