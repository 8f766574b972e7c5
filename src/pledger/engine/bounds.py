"""What a worker's code says of limits, as its claims need it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pledger.engine.port.lanes import Bounds
from pledger.errors import UsageError
from pledger.history.budget import BudgetRule
from pledger.history.placement import Limit, LimitRule

if TYPE_CHECKING:
    from pledger.machine.definitions import ActivityDefinition

Rule = TypeVar("Rule", LimitRule, BudgetRule)


def bounds_of(activities: Iterable[ActivityDefinition[Any, Any]], queue_limits: Sequence[Limit] = ()) -> Bounds:
    """Raises UsageError for what has one name and different numbers, and for a limit of a queue that has a key."""
    limits: _Stated[LimitRule] = _Stated("limit")
    budgets: _Stated[BudgetRule] = _Stated("retry budget")
    standing = {}
    dependencies: dict[str, str] = {}
    for each in activities:
        by = f"activity {each.name!r}"
        if each.retry_budget is not None:
            dependencies[each.name] = each.retry_budget.name
            budgets.add(each.retry_budget.name, each.retry_budget.rule(), by)
        for limit in each.limits:
            limits.add(limit.name, limit.rule(), by)
        # Whoever schedules an activity by its name alone cannot say what it counts for; without a key, this can.
        if uses := tuple((limit.name, "") for limit in each.limits if limit.key is None):
            standing[each.name] = uses
    for limit in queue_limits:
        if limit.key is not None:
            raise UsageError(
                f"Worker(queue_limits=[Limit({limit.name!r}, key=...)]): a queue knows no arguments that a key could "
                "be taken from; give the limit to the activities: @activity.defn(limits=[...])"
            )
        limits.add(limit.name, limit.rule(), "queue_limits")
    queue = tuple((limit.name, "") for limit in queue_limits)
    return Bounds(limits.rules, standing, queue, dependencies, budgets.rules)


class _Stated(Generic[Rule]):
    """The numbers of what is shared by its name, with who has stated them first."""

    def __init__(self, what: str) -> None:
        self.rules: dict[str, Rule] = {}
        self._what = what
        self._by: dict[str, str] = {}

    def add(self, name: str, rule: Rule, by: str) -> None:
        first, first_by = self.rules.setdefault(name, rule), self._by.setdefault(name, by)
        if first != rule:
            raise UsageError(
                f"{first_by} and {by} state the {self._what} {name!r} with different numbers: "
                f"{_differences(first, rule)}. Whoever shares it states the same one: define it once, as a constant"
            )


def _differences(one: Rule, other: Rule) -> str:
    pairs = [(name, getattr(one, name), getattr(other, name)) for name in one.__struct_fields__]
    return ", ".join(f"{name} {_shown(a)} and {_shown(b)}" for name, a, b in pairs if a != b)


def _shown(number: float | None) -> str:
    return "none" if number is None else f"{number:,}"
