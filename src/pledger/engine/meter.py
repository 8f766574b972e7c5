"""What is counted and measured of a process, and who is told: see `pledger.metrics`.

Nobody is told anything where there is no meter: then each place below costs a look at an attribute, and no call.
Whatever a replay does again is told once: a worker tells of what its own activations, commits and attempts come to, and
a history that is read says nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol, TypeAlias

from pledger.history.failures import Failure, is_benign

if TYPE_CHECKING:
    from pledger.engine.outage import Subject
    from pledger.engine.port.records import RunStatus

#: What an attempt has come to. "outside": its code has handed it out. "benign": it has failed as
#: was to be expected. The last three are failures, by their reason.
Ending: TypeAlias = Literal["completed", "outside", "cancelled", "benign", "application", "timeout", "worker_lost"]

_ENDINGS: Final[dict[str, Ending]] = {
    "cancelled": "cancelled",
    "timeout": "timeout",
    "worker_lost": "worker_lost",
}


def ending_of(failure: Failure) -> Ending:
    return _ENDINGS.get(failure.kind) or ("benign" if is_benign(failure) else "application")


class Slots(NamedTuple):
    """How many of one kind there are on a worker, and how many are free."""

    worker_type: str
    most: int
    free: int


class Standing(NamedTuple):
    """A worker as it is now. cached: runs in its memory."""

    cached: int
    slots: tuple[Slots, ...]


class WorkerMeter(Protocol):
    """Told of one worker. Times are in seconds; types are those that the worker has definitions of."""

    def begun(self, standing: Callable[[], Standing]) -> None:
        """The worker is at work. standing: how it stands, callable from any thread."""
        ...

    def activated(self, workflow_type: str, waited_s: float, took_s: float, *, cached: bool) -> None:
        """Code has gone on, waited_s after there was something for it. cached: not for the first time since the run
        came into memory."""
        ...

    def blocked(self, workflow_type: str, reason: str) -> None:
        """Code could not go on, see `blocks.reason`."""
        ...

    def replayed(self, workflow_type: str, took_s: float) -> None:
        """A run was not in memory, and is again."""
        ...

    def evicted(self) -> None:
        """A run at rest had to make room for others."""
        ...

    def closed(self, workflow_type: str, status: RunStatus, took_s: float) -> None:
        """A run has ended here, took_s after its start. Told after the commit, and by whom that was."""
        ...

    def warned(self, workflow_type: str) -> None:
        """A history has grown to another of the marks of `growth`."""
        ...

    def refused(self, workflow_type: str, signals: int) -> None:
        """So many signals found no handler that takes them."""
        ...

    def attempt_begun(self, activity_type: str, waited_s: float) -> None:
        """waited_s: since it was due."""
        ...

    def attempt_ended(self, activity_type: str, ending: Ending, took_s: float | None) -> None:
        """took_s: of its code; None if that did not run here."""
        ...

    def activity_completed(self, activity_type: str, took_s: float) -> None:
        """took_s: since it was scheduled, over all attempts."""
        ...

    def lease_lost(self) -> None: ...

    def stopped(self) -> None:
        """The worker is gone."""
        ...


class Meter(Protocol):
    """Told of one connection and the workers on it."""

    def worker(self, task_queue: str) -> WorkerMeter:
        """For a worker of this queue."""
        ...

    def committed(self, operations: int, took_s: float) -> None:
        """So many operations were written in one transaction."""
        ...

    def store_failed(self, subject: Subject) -> None: ...
