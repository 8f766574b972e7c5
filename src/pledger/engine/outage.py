"""What the log says of an outage of the store: that it began, now and then how long it lasts and who waits, its end.

A full disk fails every write of every run, several times a second. One line says that as well as a thousand do.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Literal, TypeAlias

logger = logging.getLogger("pledger.engine")

#: Between two reminders.
REMINDER_S: Final = 60.0

Subject: TypeAlias = Literal["writes", "reads", "lease"]


class Outage:
    """Told of every failure of the store, and of the first success after one. It is over once all that failed works.

    A disk may be full and still readable: that the next read comes through says nothing of the writes.

    waiting: how many runs wait for the store now.
    """

    def __init__(self, monotonic: Callable[[], float], waiting: Callable[[], int]) -> None:
        self._monotonic = monotonic
        self._waiting = waiting
        self._failing: set[Subject] = set()
        self._since = 0.0
        self._told = 0.0
        self._waited = 0

    def failed(self, subject: Subject, error: BaseException) -> None:
        now = self._monotonic()
        if not self._failing:
            self._since = self._told = now
            self._waited = 0
            logger.warning("the store is unavailable; runs wait, and go on by themselves once it is back: %s", error)
        elif now - self._told >= REMINDER_S:
            self._told = now
            logger.warning(
                "the store has been unavailable for %.0f s; %s: %s",
                now - self._since,
                _runs(self._waiting(), "waits", "wait"),
                error,
            )
        self._failing.add(subject)
        self._waited = max(self._waited, self._waiting())

    def works(self, subject: Subject) -> None:
        if subject not in self._failing:
            return
        self._failing.remove(subject)
        if not self._failing:
            # As loud as the beginning: whoever saw that is to see the end.
            logger.warning(
                "the store is back after %.1f s; %s",
                self._monotonic() - self._since,
                _runs(self._waited, "goes on", "go on"),
            )


def _runs(number: int, one: str, many: str) -> str:
    return f"{number:,} run {one}" if number == 1 else f"{number:,} runs {many}"
