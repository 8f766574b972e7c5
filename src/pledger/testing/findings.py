"""What the checks of a simulation have found, and how often each was made: what was never looked at is not proven."""

from __future__ import annotations

from collections import Counter


class Findings:
    """violations: in words, oldest first. checked: how often each rule was held against what had happened, by name."""

    def __init__(self) -> None:
        self.violations: list[str] = []
        self.checked: Counter[str] = Counter()

    def checks(self, *rules: str) -> None:
        """These are looked at, for one thing that they are about. Said where that is done, whatever comes of it."""
        for rule in rules:
            self.checked[rule] += 1

    def violated(self, rule: str, what: str) -> None:
        self.violations.append(f"{rule}: {what}")
