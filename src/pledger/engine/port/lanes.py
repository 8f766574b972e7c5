"""Lanes: the queued rows that state something of their own about who comes next. Pure.

They stand apart from the others: the rows of one activity type with the same priority, fairness key and limits are a
*lane*. Within a lane the oldest comes first, so that whoever claims needs only the heads of the lanes: a backlog of a
hundred thousand rows in one of them, or one whose limit is exhausted, costs no more than a row. Rows that state nothing
are one lane more for each type, of the default priority.

A store reads the heads, and asks `choosing` which of them start.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from pledger.engine.port.circuit import Dependency
from pledger.engine.port.lane_text import CALLS, Share, limits_of, read_lane
from pledger.engine.port.records import Record, TaskRow
from pledger.history.budget import BudgetRule
from pledger.history.placement import LimitRule, LimitUse

SlotKey: TypeAlias = tuple[str, str, int]
"""(limit, key, number of the slot, from 1)."""

#: A row in a lane bears this as its due time in the database (the last second of the year 9999; its own stands beside
#: it): so those who look for rows that are due, workers of older code among them, do not meet it.
APART_MS: Final = 253_402_300_799_000

#: Lanes that one claim looks at. Beyond that many, claims look at them by turns.
LANES_MAX: Final = 500


class Slot(NamedTuple):
    """A slot that some attempt has taken. live: whether that attempt still runs, as far as its row says. One that does
    not is free: of a worker that died, say."""

    limit: str
    key: str
    number: int
    session_key: int
    run_key: int
    event_id: int
    attempt: int
    live: bool


class Head(NamedTuple):
    """A due row near the front of its lane. lane: None for a row that states nothing. attempt: see TaskRow. is_over: it
    will not run (its attempt was lost, or is cancelled), and so needs neither a turn nor a slot."""

    run_key: int
    event_id: int
    attempt: int
    activity_type: str
    lane: str | None
    ready_ms: int
    weight: float
    is_over: bool


class Line:
    """The heads of one lane, oldest first. Of what has a dependency: of retries, or of first attempts."""

    __slots__ = ("dependency", "heads", "is_retry", "uses")

    def __init__(
        self, uses: tuple[LimitUse, ...], heads: Iterable[Head], dependency: str | None, *, is_retry: bool
    ) -> None:
        self.uses = uses
        self.heads = deque(sorted(heads, key=age))
        self.dependency = dependency
        self.is_retry = is_retry


def age(head: Head) -> tuple[int, int, int]:
    """What the older one has less of."""
    return head.ready_ms, head.run_key, head.event_id


class Bounds(Record, frozen=True):
    """What a worker knows of limits. rules: their numbers, by name. standing: what every activity of a type counts for,
    by type; queue: what every activity counts for. dependencies: what activities of a type depend on, by type; budgets:
    its numbers, by its name."""

    rules: Mapping[str, LimitRule]
    standing: Mapping[str, tuple[LimitUse, ...]]
    queue: tuple[LimitUse, ...] = ()
    dependencies: Mapping[str, str] = {}
    budgets: Mapping[str, BudgetRule] = {}

    @property
    def has_standing(self) -> bool:
        """Whether rows that state nothing have limits too."""
        return bool(self.standing or self.queue or self.dependencies)


class Served(Record, frozen=True):
    """What a worker takes from: the activities that it knows, in its queue. lifted: pauses, by their keys, that do not
    stand in its way. ahead: so many of the rows, the last ones, will wait for it: none of them may hold a slot."""

    namespace: str
    task_queue: str
    activity_types: Sequence[str]
    lifted: Sequence[int] = ()
    ahead: int = 0


class Claim(Record, frozen=True):
    """What a claim gave. due_ms: when more may be claimed without anybody saying so, or None. waits: rows wait for a
    slot to become free, of which whoever waits is told. dependencies: as they are now, of those that it looked at.
    has_moved: rows were set aside, so that others may be the next ones due."""

    tasks: list[TaskRow]
    due_ms: int | None = None
    waits: bool = False
    dependencies: Mapping[str, Dependency] = {}
    has_moved: bool = False


def claimed(claims: Sequence[Claim]) -> Claim:
    """Several claims as one."""
    due = [each.due_ms for each in claims if each.due_ms is not None]
    tasks = [task for each in claims for task in each.tasks]
    dependencies = {name: row for each in claims for name, row in each.dependencies.items()}
    has_moved = any(each.has_moved for each in claims)
    return Claim(tasks, min(due, default=None), any(each.waits for each in claims), dependencies, has_moved)


def took_nothing(result: object) -> bool:
    """Whether it is what a verb that claims gives where there was nothing: then it has changed nothing either."""
    return result == [] or (isinstance(result, Claim) and not result.tasks and not result.has_moved)


class Grant(NamedTuple):
    """A row that may start, and the slots that it takes."""

    head: Head
    slots: tuple[SlotKey, ...]


@dataclass(slots=True)
class Situation:
    """What a claim has found. now_ms: by the claimer, of what is due; store_ms: by the store, of rates. heads: in any
    order, some not due yet. overrides: numbers that operators have set, by limit. slots: those of the limits in use, by
    their keys. full_ms: of each rate, when its tokens will all be back. passes, clocks: of shares and of priorities;
    missing where nobody has had a turn yet. dependencies: by name; missing where nobody has stated it."""

    now_ms: int
    store_ms: int
    heads: Sequence[Head]
    overrides: Mapping[str, LimitRule] = field(default_factory=dict)
    slots: Mapping[SlotKey, Slot] = field(default_factory=dict)
    full_ms: Mapping[LimitUse, float] = field(default_factory=dict)
    passes: Mapping[Share, float] = field(default_factory=dict)
    clocks: Mapping[int, float] = field(default_factory=dict)
    dependencies: Mapping[str, Dependency] = field(default_factory=dict)


@dataclass(slots=True)
class Choice:
    """grants: in the order of their turns. full_ms, passes, clocks, dependencies: what has changed. aside: rows to be
    set aside, each with the lane that it shall be in. due_ms, waits: see Claim. seen: dependencies as they are now."""

    grants: list[Grant] = field(default_factory=list)
    aside: list[tuple[Head, str]] = field(default_factory=list)
    dependencies: dict[str, Dependency] = field(default_factory=dict)
    seen: dict[str, Dependency] = field(default_factory=dict)
    full_ms: dict[LimitUse, float] = field(default_factory=dict)
    passes: dict[Share, float] = field(default_factory=dict)
    clocks: dict[int, float] = field(default_factory=dict)
    due_ms: int | None = None
    waits: bool = False

    @property
    def is_nothing(self) -> bool:
        """Whether nothing is to be written."""
        return not (self.grants or self.aside or self.full_ms or self.dependencies)

    def claim(self, tasks: list[TaskRow]) -> Claim:
        """What the claimer is told. tasks: those of the grants, as they have been started."""
        return Claim(tasks, self.due_ms, self.waits, self.seen, bool(self.aside))

    def is_due_by(self, due_ms: int) -> None:
        """There may be more to claim then."""
        if self.due_ms is None or due_ms < self.due_ms:
            self.due_ms = due_ms


def is_apart(task: TaskRow) -> bool:
    """Whether the row waits in a lane. An attempt that was lost only waits to be judged, which takes no slot."""
    return task.lane is not None and task.state == "queued" and not task.lost


def heads_of_each(room: int, lanes: int) -> int:
    """How many heads of each lane a claim reads: all that it may take of a single one, some of each of many."""
    return min(room, max(4, 2 * room // max(1, lanes)))


def lanes_of_each(types: Sequence[str]) -> int:
    """How many lanes of each of these types a claim looks at."""
    return max(1, LANES_MAX // max(1, len(types)))


# What a claim has to read ---------------------------------------------------------------------------------------------


def uses_of(activity_type: str, lane: str | None, bounds: Bounds) -> tuple[LimitUse, ...]:
    """What a row counts for, each once, where a claimer knows the limit or anybody has stated it."""
    uses = tuple(dict.fromkeys((*limits_of(lane), *bounds.standing.get(activity_type, ()), *bounds.queue)))
    dependency = bounds.dependencies.get(activity_type)
    return uses if dependency is None else (*uses, (CALLS, dependency))


def uses_of_all(heads: Iterable[Head], bounds: Bounds) -> list[LimitUse]:
    """In the one order in which everybody asks for them."""
    lanes = {(head.activity_type, head.lane) for head in heads if not head.is_over}
    return sorted({use for lane in lanes for use in uses_of(*lane, bounds)})


def shares_of_all(heads: Iterable[Head]) -> list[Share]:
    """Those who take turns, of the priorities where anybody has a key of its own. Sorted."""
    shares = {read_lane(lane)[0] for lane in {head.lane for head in heads if not head.is_over}}
    fair = {priority for priority, key in shares if key}
    return sorted(share for share in shares if share[0] in fair)
