"""What carries an open run on, by its rows and its history; and where nothing does, though something must. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from pledger.history import transition
from pledger.history.state import RunState, fold

if TYPE_CHECKING:
    from pledger.engine.port.records import RunRow, StoredRun

Waker: TypeAlias = Literal["lease", "worker", "timer", "deadline", "activity", "message", "person"]

#: A worker takes a message within milliseconds; one that is slow, or cannot write, within its lease or not at all.
LATE_MS: Final = 30_000


@dataclass(frozen=True, slots=True)
class Verdict:
    """waker: what carries the run on. problem: why it will not, though it must; None where all is well. state: what its
    history amounts to, None where that was not read whole."""

    waker: Waker
    problem: str | None = None
    state: RunState | None = None


def verdict_on(row: RunRow, stored: StoredRun, now_ms: int, *, is_paused: bool, sessions: Collection[int]) -> Verdict:
    """stored: its rows and its history, or the beginning of it. sessions: those that the ledger has.

    What is read of a run is not of one moment: a problem is one only if it is there when the run is looked at again,
    and the run has not moved in between. Raises MsgspecError and ImpossibleEventError for a history that is damaged.
    """
    if row.blocked is not None or is_paused:
        return Verdict("person")
    state = _state(row, stored)
    if row.owner is not None:
        return Verdict("lease", _problem_of_owned(row, stored, now_ms, sessions), state)
    if row.due_ms is not None and row.due_ms <= now_ms:
        return Verdict("worker", None, state)
    return Verdict(_waker(row, state), _problem_of_resting(row, stored, state), state)


def _state(row: RunRow, stored: StoredRun) -> RunState | None:
    state = fold([transition.decode(each.body) for each in stored.transitions])
    return state if state.last_event == row.last_event else None


def _waker(row: RunRow, state: RunState | None) -> Waker:
    if state is None or not (state.activities or state.timers):
        return "message" if row.due_ms is None else "deadline"
    if state.activities:
        return "activity"
    return "timer" if any(not each.is_deadline for each in state.timers.values()) else "deadline"


def _problem_of_owned(row: RunRow, stored: StoredRun, now_ms: int, sessions: Collection[int]) -> str | None:
    if row.owner not in sessions:
        return "it is held by a worker that is not there, and whose lease nobody has ended"
    waiting = [each for each in stored.messages if each.verdict is None]
    if waiting and waiting[0].sent_ms + LATE_MS < now_ms:
        return f"its worker has not taken {_in_words(len(waiting))}: it was not told"
    if any(each.state == "done" and each.due_ms + LATE_MS < now_ms for each in stored.tasks):
        return "its worker has not taken the outcome of an activity: it was not told"
    return None


def _problem_of_resting(row: RunRow, stored: StoredRun, state: RunState | None) -> str | None:
    waiting = [each for each in stored.messages if each.verdict is None]
    if waiting:
        return f"{_in_words(len(waiting))} for it, and nothing wakes it"
    if any(each.state == "done" for each in stored.tasks):
        return "the outcome of an activity waits for it, and nothing wakes it"
    if state is None:
        return None
    rows = {each.event_id for each in stored.tasks}
    for event_id, pending in state.activities.items():
        if event_id not in rows:
            return f"activity {pending.command.activity_type!r} (event {event_id}) is nowhere, and nothing wakes it"
    times = [each.fire_at_ms for each in state.timers.values()]
    if state.deadline_ms is not None:
        times.append(state.deadline_ms)
    if times and (row.due_ms is None or row.due_ms > min(times)):
        return "its timer, or its deadline, is not what it is due by"
    return None


def _in_words(messages: int) -> str:
    return "a message that waits" if messages == 1 else f"{messages:,} messages that wait"


def overdue_of(state: RunState, now_ms: int) -> Sequence[str]:
    """The phases and named waits that are overdue."""
    return [each.begun.name for each in state.phases.values() if each.is_overdue(now_ms)]
