"""How long a history may grow, in events and in bytes, and what is done about it before it is too long.

From a fifth of the bound on the code is told that a successor had better go on, and a checkpoint has it go on. At 25,
50 and 75 % the log warns, and so does the attempt log, and names the line of the code that causes the most of it. From
90 % on a run that comes to checkpoints gets its messages one by one, and none while something of it is in flight: so
it comes to a checkpoint at which nothing is. At the bound any other run is parked, its state intact; that one has a
tenth more.

A step costs two comparisons: `look` is called where one of the marks of a run is reached.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pledger import errors
from pledger.engine.port.records import GROWTH_EVENT
from pledger.engine.task_rows import record_of
from pledger.history import failures
from pledger.history.events import Input, SignalReceived

if TYPE_CHECKING:
    from pledger.engine.active_run import ActiveRun
    from pledger.engine.port.records import AttemptRecord

logger = logging.getLogger("pledger.engine")

#: Shares of the bound. Far below the first warning: a loop with a checkpoint never comes to one, and a short history is
#: brought back into memory sooner.
SUGGESTED: Final = 0.2
WARNINGS: Final = (25, 50, 75)
DRAINED: Final = 0.9
#: Where messages are let in one by one until a checkpoint comes, that may take some more.
HARD: Final = 1.1
_MARKS: Final = (SUGGESTED, *(each / 100 for each in WARNINGS), DRAINED, 1.0)

#: The type of the failure by which the attempt log tells a warning from an attempt.
GROWTH: Final = "HistoryGrowth"

Inputs = list[Input]


class Growth:
    """events_max, bytes_max: of one history. worker: this one's name, for the attempt log. first: the marks of a run
    that begins."""

    def __init__(self, events_max: int, bytes_max: int, worker: str) -> None:
        self._events_max = events_max
        self._bytes_max = bytes_max
        self._worker = worker
        self.first = math.ceil(SUGGESTED * events_max), math.ceil(SUGGESTED * bytes_max)

    def look(self, run: ActiveRun, inputs: Inputs, origins: list[int], now_ms: int) -> tuple[Inputs, list[int]]:
        """Before an activation whose run has reached a mark: those of the inputs that it is to have now, with their
        origins. The others are kept with the run. Raises HistoryFullError."""
        if not (inputs or run.held_back):
            return inputs, origins
        machine = run.machine
        share = self._share(run.last_event, machine.size)
        rolls = machine.has_checkpoint
        if share >= (HARD if rolls else 1.0):
            raise self._full(run)
        machine.suggests = share >= SUGGESTED
        self._warn(run, share, now_ms)
        if machine.suggests:
            machine.trace()  # which line causes how many events: for the next warning
        is_drained = rolls and share >= DRAINED
        self._mark(run, 0.0 if is_drained else next((each for each in _MARKS if each > share), 1.0))
        return _let_in(run, inputs, origins) if is_drained or run.held_back else (inputs, origins)

    def _share(self, events: int, size: int) -> float:
        return max(events / self._events_max, size / self._bytes_max)

    def _mark(self, run: ActiveRun, share: float) -> None:
        run.event_mark = math.ceil(share * self._events_max)
        run.byte_mark = math.ceil(share * self._bytes_max)

    def _warn(self, run: ActiveRun, share: float, now_ms: int) -> None:
        """Once for each level. A run that was loaded has been told of what it had reached before its newest
        transition."""
        told = run.warned
        if told is None:
            told = _level(self._share(*run.machine.before))
        run.warned = max(told, _level(share))
        if run.warned == told:
            return
        text = self._in_words(run, share)
        logger.warning("%s", text)
        failure = failures.Failure("application", GROWTH, failures.cut(text))
        run.growth = record_of((run.run_key, GROWTH_EVENT, run.warned), "failed", None, now_ms, self._worker, failure)

    def _in_words(self, run: ActiveRun, share: float) -> str:
        cause = _cause(run.machine.context.traced)
        return (
            f"{run.identity} has used {math.floor(share * 100)} % of its history: {self._sizes(run)}.{cause} At the "
            f"bound it is parked. End the run from time to time and have a successor go on: workflow.checkpoint(state) "
            f"in its loop does it, or workflow.continue_as_new(...)"
        )

    def _sizes(self, run: ActiveRun) -> str:
        return f"{run.last_event:,} of {self._events_max:,} events, {run.machine.size:,} of {self._bytes_max:,} bytes"

    def _full(self, run: ActiveRun) -> errors.HistoryFullError:
        by_bytes = run.machine.size / self._bytes_max > run.last_event / self._events_max
        what, option = ("bytes", "max_history_bytes") if by_bytes else ("events", "max_history_events")
        late = (
            "; it comes to checkpoints, and never while nothing of it is in flight"
            if run.machine.has_checkpoint
            else ""
        )
        return errors.HistoryFullError(
            f"{run.identity} has reached the bound of its history in {what}: {self._sizes(run)}{late}; it is parked "
            f"and nothing is lost. Start the worker with a higher {option} and another build_id, or end the run",
            events_max=self._events_max,
            bytes_max=self._bytes_max,
        )


def take_warning(run: ActiveRun) -> list[AttemptRecord]:
    """What is to be written of a warning, once."""
    told, run.growth = run.growth, None
    return [] if told is None else [told]


def _let_in(run: ActiveRun, inputs: Inputs, origins: list[int]) -> tuple[Inputs, list[int]]:
    """What is no message; without any such, and with nothing in flight, the oldest message."""
    waiting = [*run.held_back, *zip(inputs, origins, strict=True)]
    # What a reset gives again is in no inbox that it could wait in.
    now = [each for each in waiting if not (each[1] and isinstance(each[0], SignalReceived))]
    held = [each for each in waiting if each[1] and isinstance(each[0], SignalReceived)]
    if not now and held and not run.machine.is_busy():
        now, held = held[:1], held[1:]
    run.held_back = tuple(held)
    return [each for each, _ in now], [origin for _, origin in now]


def _level(share: float) -> int:
    return max((each for each in WARNINGS if share * 100 >= each), default=0)


def _cause(traced: Counter[str] | None) -> str:
    if not traced:
        return ""
    [(what, count)] = traced.most_common(1)
    return f" Lately {round(100 * count / traced.total())} % of what it records is caused by {what}."


def warnings_of(log: Sequence[AttemptRecord]) -> tuple[list[AttemptRecord], list[str]]:
    """The attempt log without the warnings, and these."""
    attempts, told = [], []
    for record in log:
        failure = None if record.failure is None or record.event_id != GROWTH_EVENT else failures.decode(record.failure)
        if failure is not None and failure.type == GROWTH:
            told.append(failure.message)
        else:
            attempts.append(record)
    return attempts, told
