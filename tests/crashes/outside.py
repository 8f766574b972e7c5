"""The outside world of processes that are killed: that of the simulations, kept in the diary."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from typing import Any

from pledger.engine.attempt import Attempt, running
from pledger.testing import Faults, World
from pledger.testing.world import Activity, AttemptSeen
from tests.crashes.diary import Diary, Line


class KeptWorld(World):
    """The world as the lines say that it is. diary: where it keeps what happens from now on; None for who only looks.

    began: called as an attempt begins.
    """

    def __init__(
        self, lines: list[Line], diary: Diary | None = None, *, began: Callable[[Attempt], None] = lambda _: None
    ) -> None:
        super().__init__(
            random.Random(0),  # it draws how long things take, and nothing takes real time here
            faults=Faults,
            hit=lambda _: None,
            began=lambda attempt, _: began(attempt),
            crowded=lambda worker, most: None,
        )
        self._diary = diary
        for kind, *values in lines:
            if kind == "effect":
                self._remember_effect(*values)
            elif kind == "began":
                self._remember_beginning(*values)
            elif kind == "returned":
                self._remember_end(*values)

    def _remember_effect(self, what: str, key: str, receipt: str) -> None:
        self.effects[f"{what} {key}".rstrip()] += 1
        self.asked[what].append(receipt)
        if key:
            self.receipts[key] = receipt

    def _remember_beginning(
        self, run_id: str, event_id: int, activity_type: str, maximum: int, key: str, number: int, worker: str
    ) -> None:
        activity = self.activities.setdefault((run_id, event_id), Activity(activity_type, maximum))
        activity.keys.add(key)
        activity.attempts.append(AttemptSeen(number, worker))

    def _remember_end(self, run_id: str, event_id: int, number: int, result: Any) -> None:
        [seen] = [each for each in self.activities[run_id, event_id].attempts if each.number == number]
        seen.end(result)

    # Writing it down --------------------------------------------------------------------------------------------------

    def _do(self, what: str, key: str | None, *, refused: bool, lost: bool) -> str:
        if key is None:
            key = running.get().idempotency_key
        done = self.effects.total()
        receipt = super()._do(what, key, refused=refused, lost=lost)
        if self.effects.total() > done:
            self._note("effect", what, key, receipt)
        return receipt

    def _begin(self, worker: str) -> AttemptSeen:
        attempt = running.get()
        seen = super()._begin(worker)
        run_id, event_id = attempt.identity.run_id, attempt.event_id
        activity = self.activities[run_id, event_id]
        self._note(
            "began",
            run_id,
            event_id,
            activity.activity_type,
            activity.maximum,
            attempt.idempotency_key,
            seen.number,
            worker,
        )
        return seen

    @contextlib.contextmanager
    def _attempt(self, worker: str, most: int) -> Iterator[AttemptSeen]:
        attempt = running.get()
        with super()._attempt(worker, most) as seen:
            yield seen
            self._note("returned", attempt.identity.run_id, attempt.event_id, seen.number, seen.result)

    def _note(self, kind: str, *values: Any) -> None:
        assert self._diary is not None, "who only looks changes nothing"
        self._diary.write(kind, *values)
