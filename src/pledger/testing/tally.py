"""What the workers of a simulation tell their meters, all of them together: to be held against the histories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pledger.engine.meter import Ending, Standing
    from pledger.engine.outage import Subject
    from pledger.engine.port.records import RunStatus


class Tally:
    """The meter of every process. ended: runs by (type, how they ended), as workers have counted them.

    is_void: the ledger has gone back behind what was counted.
    """

    def __init__(self) -> None:
        self.ended: Counter[tuple[str, str]] = Counter()
        self.is_void = False

    def worker(self, task_queue: str) -> _Worker:  # noqa: ARG002 - of all alike
        return _Worker(self)

    def committed(self, operations: int, took_s: float) -> None: ...

    def store_failed(self, subject: Subject) -> None: ...


class _Worker:
    def __init__(self, tally: Tally) -> None:
        self._tally = tally

    def closed(self, workflow_type: str, status: RunStatus, took_s: float) -> None:  # noqa: ARG002 - how many is all
        self._tally.ended[workflow_type, status] += 1

    def begun(self, standing: Callable[[], Standing]) -> None: ...

    def activated(self, workflow_type: str, waited_s: float, took_s: float, *, cached: bool) -> None: ...

    def blocked(self, workflow_type: str, reason: str) -> None: ...

    def replayed(self, workflow_type: str, took_s: float) -> None: ...

    def evicted(self) -> None: ...

    def warned(self, workflow_type: str) -> None: ...

    def refused(self, workflow_type: str, signals: int) -> None: ...

    def attempt_begun(self, activity_type: str, waited_s: float) -> None: ...

    def attempt_ended(self, activity_type: str, ending: Ending, took_s: float | None) -> None: ...

    def activity_completed(self, activity_type: str, took_s: float) -> None: ...

    def lease_lost(self) -> None: ...

    def stopped(self) -> None: ...
