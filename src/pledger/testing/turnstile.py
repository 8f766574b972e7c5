"""Watches the limits that hold over all workers: no more attempts than slots, and none that did not pass the queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from pledger.engine.port.lane_text import limits_of
from pledger.engine.port.lanes import Claim

if TYPE_CHECKING:
    from pledger.engine.attempt import Attempt
    from pledger.history.placement import LimitRule
    from pledger.testing.views import View


class Turnstile:
    """rules: the numbers of the limits, by name. violated: called with a rule and what broke it."""

    def __init__(self, rules: Mapping[str, LimitRule], violated: Callable[[str, str], None]) -> None:
        self._rules = rules
        self._violated = violated

    def look_at_claim(self, claim: Claim, view: View) -> None:
        """Just after it: what a dead worker had counts no more, and neither does what waits for its next attempt."""
        if not any(task.lane is not None for task in claim.tasks):
            return
        used = Counter(
            (task.namespace, name, key)
            for run_key in view.open_runs()
            for task in view.tasks(run_key).values()
            # One that was lost, or is cancelled, may only have been taken to be judged.
            if task.state == "started" and not task.lost and not task.cancel_requested
            for name, key in limits_of(task.lane)
        )
        for (namespace, name, key), count in used.items():
            rule = self._rules.get(name)
            if rule is not None and rule.concurrency is not None and count > rule.concurrency:
                self._violated(
                    "limits hold over all workers",
                    f"{count} attempts count for {name} {key!r} in {namespace}, which allows {rule.concurrency}",
                )

    def attempt_began(self, attempt: Attempt, what: str) -> None:
        placement = attempt.command.placement
        # Of a row the attempt has no fence: it is not its run's owner who makes it.
        if placement is not None and placement.limits and attempt.fence:
            self._violated("what is limited starts from the queue", f"{what} began beside its run")
