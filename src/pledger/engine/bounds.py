"""What a worker's code says of limits, as its claims need it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from pledger.engine.port.lanes import Bounds
from pledger.errors import UsageError
from pledger.history.budget import BudgetRule, RetryBudget
from pledger.history.placement import Limit, LimitRule

if TYPE_CHECKING:
    from pledger.machine.definitions import ActivityDefinition


def bounds_of(activities: Iterable[ActivityDefinition[Any, Any]], queue_limits: Sequence[Limit] = ()) -> Bounds:
    """Raises UsageError for what has one name and different numbers, and for a limit of a queue that has a key."""
    rules: dict[str, LimitRule] = {}
    standing = {}
    dependencies: dict[str, str] = {}
    budgets: dict[str, BudgetRule] = {}
    for each in activities:
        if each.retry_budget is not None:
            dependencies[each.name] = each.retry_budget.name
            _add_budget(budgets, each.retry_budget)
        for limit in each.limits:
            _add(rules, limit)
        # Whoever schedules an activity by its name alone cannot say what it counts for; without a key, this can.
        if uses := tuple((limit.name, "") for limit in each.limits if limit.key is None):
            standing[each.name] = uses
    for limit in queue_limits:
        if limit.key is not None:
            raise UsageError(
                f"Worker(queue_limits=[Limit({limit.name!r}, key=...)]): a queue knows no arguments that a key could "
                "be taken from; give the limit to the activities: @activity.defn(limits=[...])"
            )
        _add(rules, limit)
    return Bounds(rules, standing, tuple((limit.name, "") for limit in queue_limits), dependencies, budgets)


def _add_budget(budgets: dict[str, BudgetRule], budget: RetryBudget) -> None:
    rule = budget.rule()
    if budgets.setdefault(budget.name, rule) != rule:
        raise UsageError(
            f"the retry budget {budget.name!r} is stated twice, with different numbers: {budgets[budget.name]} and "
            f"{rule}. Activities that depend on the same system state the same one: define it once, as a constant"
        )


def _add(rules: dict[str, LimitRule], limit: Limit) -> None:
    rule = limit.rule()
    if rules.setdefault(limit.name, rule) != rule:
        raise UsageError(
            f"the limit {limit.name!r} is stated twice, with different numbers: {rules[limit.name]} and {rule}. "
            "Activities that share a limit state the same one: define it once, as a constant"
        )
