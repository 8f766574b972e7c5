"""What carries an open run on, and where nothing does: a verdict on rows and a history."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from msgspec.structs import replace

from pledger.engine.port.records import Message, RunRow, StoredRun
from pledger.engine.wakers import LATE_MS, overdue_of, verdict_on
from pledger.history import events, transition
from pledger.history.transition import FORMAT, StoredTransition, Transition
from tests.unit.cli.runs import BEGIN_MS, START, Run, schedule, timer

NOW_MS = BEGIN_MS + 10_000
ROW = RunRow(
    run_key=1,
    chain_key=1,
    namespace="default",
    workflow_id="a",
    run_id="r",
    workflow_type="fulfil",
    task_queue="default",
    status="running",
    input_digest=b"",
    started_ms=BEGIN_MS,
    closed_ms=None,
    last_event=2,
    head=b"",
    fence=1,
    owner=None,
    due_ms=None,
    claims=0,
    blocked=None,
    blocked_code=None,
)
MESSAGE = Message(1, "signal", "m", "say", b"[]", BEGIN_MS)


def stored(*commands: Any, **rows: Any) -> StoredRun:
    body = transition.encode(Transition(FORMAT, BEGIN_MS, None, (START,), commands))
    return StoredRun(1, (StoredTransition(1, body, b""),), **rows)


def told(row: RunRow, run: StoredRun, *, is_paused: bool = False, now_ms: int = NOW_MS) -> tuple[str, str | None]:
    found = verdict_on(row, run, now_ms, is_paused=is_paused, sessions={7})
    return found.waker, found.problem


TASK = Run().task(2).pending[0]


@pytest.mark.parametrize(
    ("row", "run", "waker", "problem"),
    [
        ({"due_ms": BEGIN_MS + 60_000}, stored(timer(60)), "timer", None),
        ({"due_ms": BEGIN_MS + 60_000}, stored(events.StartDeadline(60_000, BEGIN_MS + 60_000)), "deadline", None),
        ({"due_ms": None}, stored(timer(60)), "timer", "its timer, or its deadline, is not what it is due by"),
        ({"due_ms": BEGIN_MS + 61_000}, stored(timer(60)), "timer", "its timer, or its deadline, is not"),
        ({"due_ms": BEGIN_MS}, stored(timer(5)), "worker", None),
        ({"last_event": 1}, stored(), "message", None),
        ({"last_event": 1}, stored(messages=(MESSAGE,)), "message", "a message that waits for it, and nothing wakes"),
        ({}, stored(schedule(), tasks=(TASK,)), "activity", None),
        ({}, stored(schedule()), "activity", "activity 'charge_card' (event 2) is nowhere"),
        ({}, stored(schedule(), tasks=(replace(TASK, state="done"),)), "activity", "the outcome of an activity waits"),
        ({"owner": 7}, stored(timer(60), messages=(MESSAGE,)), "lease", None),
        ({"owner": 8}, stored(timer(60)), "lease", "it is held by a worker that is not there"),
        ({"blocked": b"{}"}, stored(timer(60)), "person", None),
        ({"last_event": 900}, stored(timer(60)), "message", None),
    ],
)
def test_what_carries_it_on(row: dict[str, Any], run: StoredRun, waker: str, problem: str | None) -> None:
    found = told(replace(ROW, **row), run)
    assert found[0] == waker
    assert (found[1] or "").startswith(problem or "")
    assert (found[1] is None) == (problem is None)


def test_a_worker_that_is_not_told_for_long_was_not_told() -> None:
    owned = replace(ROW, owner=7)
    late_ms = BEGIN_MS + LATE_MS + 1
    waits = stored(timer(600), messages=(MESSAGE,))
    assert told(owned, waits, now_ms=late_ms)[1] == "its worker has not taken a message that waits: it was not told"
    done = stored(schedule(), tasks=(replace(TASK, state="done"),))
    assert told(owned, done, now_ms=late_ms)[1] == (
        "its worker has not taken the outcome of an activity: it was not told"
    )
    assert told(owned, waits, now_ms=late_ms, is_paused=True) == ("person", None)


def test_what_is_overdue_by_its_history() -> None:
    begun = events.BeginPhase("picking", deadline_ms=BEGIN_MS + 5)
    state = verdict_on(ROW, stored(begun), NOW_MS, is_paused=False, sessions=()).state
    assert state is not None
    assert (overdue_of(state, BEGIN_MS + 4), overdue_of(state, BEGIN_MS + 5)) == ([], ["picking"])
    assert dataclasses.is_dataclass(state)
