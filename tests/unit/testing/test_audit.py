"""The auditor finds a broken rule at the commit that breaks it, whatever the store answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from pledger.engine import blocks
from pledger.engine.attempt import Attempt
from pledger.engine.loading import SUSPECT_AGAIN_MS
from pledger.engine.port.answers import Answer, Reply, Started
from pledger.engine.port.lane_text import lane_of
from pledger.engine.port.lanes import Claim
from pledger.engine.port.operations import Append, Block, Operation, PutTask, Release, StartRun, Terminate
from pledger.engine.port.pauses import Scope
from pledger.engine.port.records import Outlook, SessionRow, TaskRow
from pledger.history import events, transition
from pledger.history.placement import LimitRule, Placement
from pledger.history.retry import RetryPolicyRecord
from pledger.history.transition import StoredTransition, Transition
from pledger.store.memory import State, losses, pauses, retention
from pledger.store.memory.store import commit
from pledger.testing.audit import Auditor
from pledger.testing.findings import Findings
from pledger.testing.tail import copy_of
from pledger.testing.turnstile import Turnstile
from pledger.testing.views import StateView
from pledger.testing.world import Activity, AttemptSeen

NOW = 1_000_000
SCHEDULE = events.ScheduleActivity("pay", b"[]", events.ActivityOptions(retry=RetryPolicyRecord(maximum_attempts=2)))


class Ledger:
    """One open run under audit: event 1 started it, 2 scheduled an activity, 3 began a timer."""

    def __init__(self, keep_ms: int = 0) -> None:
        self.now_ms = NOW
        self.state = State(lambda: self.now_ms)
        self.auditor = Auditor(self.state.clock, keep_ms=keep_ms)
        self.session = 7
        self.state.sessions[self.session] = SessionRow(
            self.session, "worker", "default", "default", "code", NOW, NOW + 10**6
        )
        started = events.RunStarted("pay", b"[]", bytes(16))
        first = self.transition([started], [SCHEDULE, events.StartTimer(500, NOW + 500)], first=1)
        append = Append(0, 0, 0, first, 3, None, NOW)
        start = StartRun("default", "w", "run", "pay", "default", b"", b"", NOW, owner=self.session, first=append)
        answer = self.judge(start)
        assert isinstance(answer, Started)
        self.run_key = answer.run_key
        assert self.violations == []

    @property
    def violations(self) -> list[str]:
        return self.auditor.violations

    def judge(self, operation: Operation, answer: Answer | None = None) -> Answer:
        """answer: of a store that is not asked; by default the real one."""
        apply: Callable[[], Answer] = lambda: commit(self.state, [operation])[0] if answer is None else answer  # noqa: E731
        return self.auditor.judge(operation, {self.session}, apply, StateView(self.state))

    def transition(
        self, inputs: list[Any], commands: list[Any], *, first: int = 4, time_ms: int = NOW
    ) -> StoredTransition:
        run = self.state.runs.get(getattr(self, "run_key", 0))
        head = transition.CHAIN_START if run is None else run.head
        body = transition.encode(Transition(transition.FORMAT, time_ms, None, tuple(inputs), tuple(commands)))
        return StoredTransition(first, body, transition.checksum(head, first, body))

    def append(self, *inputs: Any, commands: tuple[Any, ...] = (), time_ms: int = NOW, **changes: Any) -> Append:
        fields: dict[str, Any] = {
            "run_key": self.run_key,
            "fence": 1,
            "expected_event": 3,
            "transition": self.transition(list(inputs), list(commands), time_ms=time_ms),
            "last_event": 3 + len(inputs) + len(commands),
            "due_ms": 0,
            "time_ms": time_ms,
        }
        return Append(**fields | changes)

    def row(self, **changes: Any) -> TaskRow:
        return TaskRow(
            **{
                "run_key": self.run_key,
                "event_id": 2,
                "namespace": "default",
                "workflow_id": "w",
                "run_id": "run",
                "workflow_type": "pay",
                "task_queue": "default",
                "activity_type": "pay",
                "state": "queued",
                "attempt": 1,
                "due_ms": NOW,
                "command": b"",
                "scheduled_ms": NOW,
            }
            | changes
        )


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


def done(event_id: int = 2, attempt: int = 1) -> events.ActivityCompleted:
    return events.ActivityCompleted(event_id, b"1", attempt)


def test_what_is_right_is_not_reported(ledger: Ledger) -> None:
    ledger.now_ms = NOW + 500
    last = ledger.append(done(), events.TimerFired(3), commands=(events.CompleteRun(b"1"),), closed="completed")
    assert ledger.judge(last) is Reply.WON
    assert ledger.violations == []


def test_the_row_says_what_the_history_says(ledger: Ledger) -> None:
    ledger.judge(ledger.append(commands=(events.CompleteRun(b"1"),)))
    assert [each.partition(":")[0] for each in ledger.violations] == ["row and history agree"]


APPENDS: dict[str, Callable[[Ledger], Append]] = {
    "no write with an old fence": lambda on: on.append(done(), fence=0),
    "compare-and-set": lambda on: on.append(done(), expected_event=2),
    "gap-free history": lambda on: on.append(done(), transition=on.transition([done()], [], first=5)),
    "chained checksums": lambda on: on.append(done(), transition=_changed(on.transition([done()], []))),
    "time goes forward": lambda on: on.append(done(), time_ms=NOW - 1),
    "the fold accepts it": lambda on: on.append(commands=(events.CancelActivity(1),)),
    "one outcome per position": lambda on: on.append(done(), done()),
    "timers never early": lambda on: on.append(events.TimerFired(3)),
    "timers fire once": lambda on: on.append(events.TimerFired(2)),
    "messages are delivered once": lambda on: on.append(
        events.SignalReceived("hi", b"[]", "m"), events.SignalReceived("hi", b"[]", "m")
    ),
}


def _changed(row: StoredTransition) -> StoredTransition:
    return StoredTransition(row.first_event_id, row.body, bytes(8))


@pytest.mark.parametrize("rule", APPENDS)
def test_an_append_that_must_not_win(ledger: Ledger, rule: str) -> None:
    ledger.judge(APPENDS[rule](ledger), Reply.WON)
    assert [each.partition(":")[0] for each in ledger.violations].count(rule) == 1, ledger.violations


def test_an_outcome_of_what_was_never_scheduled(ledger: Ledger) -> None:
    ledger.judge(ledger.append(done(event_id=3)))
    assert ledger.violations[0].startswith("one outcome per position")


def test_only_the_owner_writes(ledger: Ledger) -> None:
    ledger.session = 8
    ledger.judge(ledger.append(done()))
    assert ledger.violations[0].startswith("one writer per run")


@pytest.mark.parametrize("place", [{"namespace": "other"}, {"task_queue": "other"}])
def test_a_claim_takes_what_is_of_its_namespace_and_queue(ledger: Ledger, place: dict[str, str]) -> None:
    run = ledger.state.runs[ledger.run_key]
    view = StateView(ledger.state)
    ledger.auditor.look_at_claim(ledger.state.sessions[ledger.session], [run, ledger.row()], view)
    assert ledger.violations == []
    ledger.auditor.look_at_claim(ledger.state.sessions[ledger.session], [msgspec.structs.replace(run, **place)], view)
    assert [each.partition(":")[0] for each in ledger.violations] == ["namespaces and queues are apart"]


def test_nothing_follows_the_end(ledger: Ledger) -> None:
    last = ledger.transition([events.RunTerminated("")], [])
    assert ledger.judge(Terminate(ledger.run_key, 3, ledger.state.runs[ledger.run_key].head, last, 4, NOW)) is Reply.WON
    ledger.judge(ledger.append(done(), expected_event=4), Reply.WON)
    assert "terminal states absorb" in {each.partition(":")[0] for each in ledger.violations}


def test_a_start_is_told_again_of_its_own_run_and_of_no_other(ledger: Ledger) -> None:
    start = StartRun("default", "w", "run", "pay", "default", b"", b"", NOW)
    ledger.judge(start, Started(ledger.run_key, 2))
    assert ledger.violations == []
    ledger.judge(start, Started(ledger.run_key + 1, 3))
    assert "created twice" in ledger.violations[0]


def test_a_repeated_append_changes_nothing(ledger: Ledger) -> None:
    operation = ledger.append(done())
    assert [ledger.judge(operation), ledger.judge(operation)] == [Reply.WON, Reply.WON]
    assert ledger.violations == []


def test_a_late_outcome_is_refused(ledger: Ledger) -> None:
    ledger.judge(PutTask(1, ledger.row(attempt=2)))
    ledger.judge(ledger.append(done(attempt=1)))
    assert [each.partition(":")[0] for each in ledger.violations] == ["late outcomes are refused"]


@pytest.mark.parametrize(
    ("due_ms", "has_row", "is_right"),
    [
        (NOW, False, True),
        (NOW + 500, False, False),  # somebody must count the lost attempt
        (NOW + 500, True, True),
        (NOW + 501, True, False),  # the timer is due before
        (None, True, False),
    ],
)
def test_whoever_lets_go_leaves_a_waker(ledger: Ledger, due_ms: int | None, has_row: bool, is_right: bool) -> None:
    if has_row:
        ledger.judge(PutTask(1, ledger.row()))
    ledger.judge(Release(ledger.run_key, 1, due_ms))
    assert [each.partition(":")[0] for each in ledger.violations] == (
        [] if is_right else ["every open run has a waker"]
    )


@pytest.mark.parametrize(("claims", "is_right"), [(blocks.CLAIMS_MAX - 1, False), (blocks.CLAIMS_MAX, True)])
def test_what_may_be_poison_is_due_a_little_later(ledger: Ledger, claims: int, is_right: bool) -> None:
    run = ledger.state.runs[ledger.run_key]
    ledger.state.runs[ledger.run_key] = msgspec.structs.replace(run, claims=claims)
    ledger.judge(Release(ledger.run_key, 1, NOW + SUSPECT_AGAIN_MS))
    assert (ledger.violations == []) is is_right


@pytest.mark.parametrize(("after_ms", "is_right"), [(2_000, False), (2_001, True)])
def test_retention_is_held_to_the_time_at_which_it_forgets(after_ms: int, is_right: bool) -> None:
    """Nothing may have been written since the end of the run, so that nobody has looked at the clock meanwhile."""
    ledger = Ledger(keep_ms=2_000)
    ledger.judge(ledger.append(done(), commands=(events.CompleteRun(b"1"),), closed="completed"))
    ledger.now_ms += after_ms
    retention._forget_run(ledger.state, ledger.state.runs[ledger.run_key])
    ledger.auditor.look_at_forgotten(StateView(ledger.state))
    assert (ledger.violations == []) is is_right
    assert ledger.auditor.records.forgotten == {ledger.run_key}


def test_what_is_paused_is_not_taken(ledger: Ledger) -> None:
    run, view = ledger.state.runs[ledger.run_key], StateView(ledger.state)
    session = ledger.state.sessions[ledger.session]
    scope = Scope("default", "queue", "default")
    pauses.pause(ledger.state, scope, "", "ada")
    ledger.auditor.look_at_claim(session, [run], view)
    assert [each.partition(":")[0] for each in ledger.violations] == ["what is paused is not taken"]
    ledger.violations.clear()
    pauses.resume(ledger.state, scope, None)
    ledger.auditor.look_at_claim(session, [run], view)
    assert ledger.violations == []


def test_an_owner_that_knows_of_a_pause_may_write_what_is_on_its_way_and_no_more(ledger: Ledger) -> None:
    pauses.pause(ledger.state, Scope("default", "type", "pay"), "", "ada")
    paused = Outlook(False, False, False, False, (), None, tuple(ledger.state.pauses.values()))
    ledger.auditor.stillness._knows(ledger.session, paused)
    first = ledger.append(commands=(SCHEDULE,))
    ledger.judge(first)
    ledger.judge(first)  # its answer was lost
    assert ledger.violations == []
    assert begin(ledger, 1, event_id=4) == ["what is paused stands still"]
    ledger.violations.clear()
    second = ledger.append(expected_event=4, transition=ledger.transition([], [SCHEDULE], first=5), last_event=5)
    ledger.judge(second)
    assert [each.partition(":")[0] for each in ledger.violations] == ["what is paused stands still"]
    ledger.violations.clear()
    ledger.auditor.stillness._knows(ledger.session, Outlook(False, False, False, False, (), None))
    ledger.judge(ledger.append(expected_event=5, transition=ledger.transition([], [SCHEDULE], first=6), last_event=6))
    assert begin(ledger, 1, event_id=6) == []


def test_a_block_is_a_violation_unless_its_code_changes(ledger: Ledger) -> None:
    block = Block(ledger.run_key, 1, b'{"reason": "bug", "message": "oh", "traceback": ""}', "code")
    ledger.judge(block, Reply.WON)
    assert ledger.violations[0].startswith("no run blocks")
    tolerant = Auditor(ledger.state.clock, may_block={"pay"})
    tolerant.judge(block, {7}, lambda: Reply.WON, StateView(ledger.state))
    assert tolerant.violations == []


def begin(
    ledger: Ledger, number: int, *earlier: int, event_id: int = 2, maximum: int = 2, placement: Placement | None = None
) -> list[str]:
    attempt = Attempt.__new__(Attempt)
    attempt.number, attempt.run_key, attempt.event_id = number, ledger.run_key, event_id
    attempt.fence = 1
    attempt.command = msgspec.structs.replace(SCHEDULE, placement=placement)
    attempt.identity = _Identity()  # type: ignore[assignment]
    activity = Activity("pay", maximum, {"key"}, [AttemptSeen(each, "worker") for each in (*earlier, number)])
    ledger.auditor.attempt_began(attempt, activity)
    return [each.partition(":")[0] for each in ledger.violations]


class _Identity:
    namespace, workflow_id, run_id, chain_id, segment = "default", "w", "run", "run", 1


def test_what_is_limited_does_not_begin_beside_its_run(ledger: Ledger) -> None:
    assert begin(ledger, 1, placement=Placement(priority=1)) == []
    assert begin(ledger, 2, 1, placement=Placement(limits=(("api", ""),))) == ["what is limited starts from the queue"]


def test_limits_are_counted_by_key() -> None:
    findings = Findings()
    violations = findings.violations
    turnstile = Turnstile({"api": LimitRule(1)}, findings)
    rows = [_started(2, "ada"), _started(3, "bob")]
    view = _View(rows)
    turnstile.look_at_claim(Claim(rows), view)  # type: ignore[arg-type]
    assert violations == []
    rows.append(msgspec.structs.replace(_started(4, "ada"), lost=True))
    turnstile.look_at_claim(Claim(rows), view)  # type: ignore[arg-type]
    assert violations == [], "it was only taken to be judged"
    rows.append(_started(5, "ada"))
    turnstile.look_at_claim(Claim(rows), view)  # type: ignore[arg-type]
    assert violations == ["limits hold over all workers: 2 attempts count for api 'ada' in default, which allows 1"]
    # Of each key, each time.
    assert findings.checked == {"limits hold over all workers": 6}


def _started(event_id: int, key: str) -> TaskRow:
    lane = lane_of(Placement(limits=(("api", key),)))
    place = (1, event_id, "default", "w", "r", "fulfil", "default", "pay", "started", 1, 0, b"", 0)
    return TaskRow(*place, owner=7, lane=lane)


class _View:
    def __init__(self, rows: list[TaskRow]) -> None:
        self._rows = rows

    def open_runs(self) -> list[int]:
        return [1]

    def tasks(self, run_key: int) -> dict[int, TaskRow]:
        return {each.event_id: each for each in self._rows}


def test_attempts_that_may_begin(ledger: Ledger) -> None:
    assert begin(ledger, 1) == begin(ledger, 2, 1) == begin(ledger, 9, *range(1, 9), maximum=0) == []


def test_attempts_that_may_not(ledger: Ledger) -> None:
    assert begin(ledger, 1, event_id=9) == ["intent before effect"]
    ledger.violations.clear()
    assert begin(ledger, 2, 1, 2, maximum=0) == ["attempts are counted"]
    ledger.violations.clear()
    assert begin(ledger, 3, 1, 2) == ["never more than maximum_attempts"]


def once(ledger: Ledger, number: int = 1, *, args: bytes = b"[]", fence: int = 1) -> list[str]:
    """As `begin`, of an activity that may run once, which the ledger may have forgotten meanwhile."""
    attempt = Attempt.__new__(Attempt)
    attempt.run_key, attempt.event_id, attempt.number, attempt.fence, attempt.row = (
        ledger.run_key,
        2,
        number,
        fence,
        None,
    )
    attempt.identity = _Identity()  # type: ignore[assignment]
    attempt.command = msgspec.structs.replace(SCHEDULE, args=args, idempotency_key=args.decode())
    ledger.auditor.attempt_began(attempt, Activity("pay", 1, {"key"}, [AttemptSeen(number, "worker")]))
    return [each.partition(":")[0] for each in ledger.violations]


def test_what_may_run_once_does_so_whatever_the_ledger_has_forgotten(ledger: Ledger) -> None:
    known = ledger.auditor.setbacks.remember()
    assert once(ledger) == once(ledger, args=b"[2]") == []
    losses.declare_loss(ledger.state)
    ledger.auditor.setbacks.went_back(known, ledger.state)
    assert once(ledger, args=b"[3]") == []  # of a worker that has not heard yet
    assert once(ledger, fence=ledger.state.runs[ledger.run_key].fence) == ["what may run once runs once"]


def test_after_a_loss_the_ledger_is_judged_by_what_it_still_has(ledger: Ledger) -> None:
    known = ledger.auditor.setbacks.remember()
    state = copy_of(ledger.state)
    ledger.judge(ledger.append(done()))
    ledger.state = state
    losses.declare_loss(state)
    ledger.auditor.setbacks.went_back(known, state)
    run = state.runs[ledger.run_key]
    state.sessions[ledger.session] = SessionRow(
        ledger.session, "worker", "default", "default", "code", NOW, NOW + 10**6
    )
    state.runs[ledger.run_key] = msgspec.structs.replace(run, owner=ledger.session)
    assert ledger.judge(ledger.append(done(), fence=1)) is Reply.LOST
    assert ledger.judge(ledger.append(done(), fence=run.fence)) is Reply.WON
    assert ledger.violations == []
