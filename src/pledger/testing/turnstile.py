"""Watches the limits that hold over all workers: no more attempts than slots, and none that did not pass the queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pledger.engine.port.lane_text import limits_of
from pledger.engine.port.lanes import Claim

if TYPE_CHECKING:
    from pledger.engine.attempt import Attempt
    from pledger.history.placement import LimitRule
    from pledger.testing.findings import Findings
    from pledger.testing.views import View


class Turnstile:
    """rules: the numbers of the limits, by name. findings: where to say what was looked at and what broke it."""

    def __init__(self, rules: Mapping[str, LimitRule], findings: Findings) -> None:
        self._rules = rules
        self._findings = findings

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
            if rule is None or rule.concurrency is None:
                continue
            self._findings.checks("limits hold over all workers")
            if count > rule.concurrency:
                self._findings.violated(
                    "limits hold over all workers",
                    f"{count} attempts count for {name} {key!r} in {namespace}, which allows {rule.concurrency}",
                )

    def attempt_began(self, attempt: Attempt, what: str) -> None:
        placement = attempt.command.placement
        # Of a row the attempt has no fence: it is not its run's owner who makes it.
        if placement is None or not placement.limits:
            return
        self._findings.checks("what is limited starts from the queue")
        if attempt.fence:
            self._findings.violated("what is limited starts from the queue", f"{what} began beside its run")
