"""Revert tests: with one defence taken out, the simulation must find what it defends against; with it in, nothing.

A check that has never failed proves nothing about what it checks. Each defence here was once missing, or is one of the
promises themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from msgspec.structs import replace

from pledger.engine.active_run import ActiveRun
from pledger.engine.activities import Activities
from pledger.engine.attempt import Attempt
from pledger.engine.building import InFlight
from pledger.engine.committer import Committer
from pledger.engine.intake import Intake
from pledger.engine.loading import Loader
from pledger.engine.port.answers import Answer, Reply, Sent
from pledger.engine.port.operations import Append, Operation, PutTask, Send, Terminate
from pledger.engine.port.records import RunRow, TaskRow
from pledger.engine.runs import Runs
from pledger.engine.session import LedgerClock
from pledger.engine.task_rows import queued_row
from pledger.history.events import ScheduleActivity
from pledger.history.transition import StoredTransition
from pledger.store.memory import State, mailbox, sessions, store, tasks
from pledger.testing import Faults, SimulationFailedError
from pledger.testing.handles import SimulatedStore
from tests.simulation.running import case, simulate

#: Within so many seeds it must be found.
SEEDS = 300


@dataclass(frozen=True)
class Revert:
    """take_out: patches the defence away. faults and cases: what it takes to need it. broken: one of these promises."""

    take_out: Callable[[pytest.MonkeyPatch], None]
    broken: set[str]
    faults: Faults
    cases: tuple[str, ...] = ()


# The store ------------------------------------------------------------------------------------------------------------


def no_fence(patch: pytest.MonkeyPatch) -> None:
    def owned_run(self: State, run_key: int, fence: int) -> RunRow | None:
        run = self.runs.get(run_key)
        return run if run is not None and run.owner is not None else None

    patch.setattr(State, "owned_run", owned_run)


def no_compare_and_set(patch: pytest.MonkeyPatch) -> None:
    rule = store._RULES[Append]

    def append(state: State, operation: Append) -> Answer:
        run = state.owned_run(operation.run_key, operation.fence)
        if run is not None:
            operation.expected_event = run.last_event
        return rule(state, operation)

    patch.setitem(store._RULES, Append, append)


def terminated_whatever_it_is(patch: pytest.MonkeyPatch) -> None:
    def terminate(state: State, operation: Terminate) -> Answer:
        run = state.runs[operation.run_key]
        state.histories[run.run_key].append(operation.transition)
        run = replace(run, last_event=operation.last_event, head=operation.transition.checksum)
        state.close_run(run, operation.status, operation.time_ms)
        return Reply.WON

    patch.setitem(store._RULES, Terminate, terminate)


def messages_are_not_known_again(patch: pytest.MonkeyPatch) -> None:
    def send(state: State, operation: Send) -> Answer:
        run = state.run(operation.run_key)
        state.message_keys.pop((run.chain_key, operation.message_id), None)
        return mailbox.send(state, operation)

    patch.setitem(store._RULES, Send, send)


def no_look_at_the_mail_when_letting_go(patch: pytest.MonkeyPatch) -> None:
    rule = State.let_go

    def let_go(self: State, run: RunRow, due_ms: int | None) -> RunRow:
        return replace(rule(self, run, due_ms), due_ms=due_ms)

    patch.setattr(State, "let_go", let_go)


def retries_overwrite_what_is_there(patch: pytest.MonkeyPatch) -> None:
    def put_task(state: State, operation: PutTask) -> Answer:
        if state.owned_run(operation.task.run_key, operation.fence) is None:
            return Reply.LOST
        tasks.change_tasks(state, operation.task.run_key, (operation.task,), (), ())
        return Reply.WON

    patch.setitem(store._RULES, PutTask, put_task)


def claims_know_no_namespace(patch: pytest.MonkeyPatch) -> None:
    def ownerless(state: State, namespace: str, task_queue: str) -> list[RunRow]:
        runs = [state.runs[run_key] for run_key in state.open_runs]
        return [run for run in runs if (run.owner, run.task_queue) == (None, task_queue)]

    patch.setattr(sessions, "_ownerless", ownerless)


def task_claims_know_no_namespace(patch: pytest.MonkeyPatch) -> None:
    def queued(state: State, namespace: str) -> list[TaskRow]:
        rows = [task for each in state.tasks.values() for task in each.values()]
        return [task for task in rows if task.state == "queued"]

    patch.setattr(tasks, "_queued", queued)


# Attempts -------------------------------------------------------------------------------------------------------------


def lost_attempts_do_not_count(patch: pytest.MonkeyPatch) -> None:
    def start_claimed(self: Activities, row: TaskRow, identity: Any) -> None:
        self._start(self._claimed(row, identity))

    patch.setattr(Activities, "start_claimed", start_claimed)


def lost_eager_attempts_do_not_count(patch: pytest.MonkeyPatch) -> None:
    def lost(self: Loader, run: ActiveRun, event_id: int, command: ScheduleActivity, scheduled_ms: int) -> None:
        now_ms = self._clock.now_ms()
        row = queued_row(
            run.identity, run.run_key, event_id, command, number=1, due_ms=now_ms, scheduled_ms=scheduled_ms
        )
        self._activities.rows.put(PutTask(run.fence, row, []))

    patch.setattr(Loader, "_lost", lost)


def effects_before_their_intent(patch: pytest.MonkeyPatch) -> None:
    def activate(self: Runs, run: ActiveRun, now_ms: int) -> None:
        built = self._transition(run, now_ms)
        if built is not None:
            run.in_flight = True
            for event_id, command in built.eager:
                self.activities.start_eager(run.run_key, run.fence, run.identity, event_id, command, run.time_ms)
            built.eager.clear()
            self._committer.submit(built.append, built.settle)

    patch.setattr(Runs, "_activate", activate)


def outcomes_of_an_earlier_lease_count(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Activities, "stop_claimed", lambda self, reason: None)
    outcome_rule = Runs.outcome

    def outcome(self: Runs, attempt: Attempt, outcome: Any, *, fence: int | None, row: bool) -> bool:
        return outcome_rule(self, attempt, outcome, fence=None, row=row)

    patch.setattr(Runs, "outcome", outcome)
    rule = Activities._deliver

    def deliver(self: Activities, attempt: Attempt, outcome: Any, records: Any) -> None:
        before, row = self._session_key, attempt.row
        self._session_key = before if row is None else lambda: row.owner
        try:
            rule(self, attempt, outcome, records)
        finally:
            self._session_key = before

    patch.setattr(Activities, "_deliver", deliver)


def retries_are_put_back_after_their_outcome(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Runs, "awaits", lambda self, run_key, fence, event_id: True)


def cancelled_attempts_are_put_back(patch: pytest.MonkeyPatch) -> None:
    rule = tasks.change_tasks

    def change_tasks(state: State, run_key: int, put: Any, dropped: Any, cancelled: Any) -> None:
        for row in put:
            state.tasks.get(run_key, {}).pop(row.event_id, None)
        rule(state, run_key, put, dropped, cancelled)

    patch.setattr(tasks, "change_tasks", change_tasks)


def cancelled_attempts_without_a_row_get_none(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Activities, "unwritten_row", lambda self, run_key, fence, event_id: None)


# Runs -----------------------------------------------------------------------------------------------------------------


def outcomes_go_to_a_run_that_is_handed_back(patch: pytest.MonkeyPatch) -> None:
    def outcome(self: Runs, attempt: Attempt, outcome: Any, *, fence: int | None, row: bool) -> bool:
        run = self.active.get(attempt.run_key)
        if run is None or run.gone or (fence is not None and run.fence != fence):
            return False
        run.add(outcome, -attempt.event_id if row else 0)
        self.make_ready(run)
        return True

    patch.setattr(Runs, "outcome", outcome)


def runs_may_leave_with_what_is_known_here_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Activities, "has_eager", lambda self, run_key, event_ids: False)


def an_earlier_lease_counts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Runs, "holds", lambda self, owner: True)


def a_late_read_delivers_again(patch: pytest.MonkeyPatch) -> None:
    rule = Runs.won

    def won(self: Runs, built: InFlight) -> None:
        rule(self, built)
        built.run.forget_delivered()

    patch.setattr(Runs, "won", won)


def lost_answers_are_not_looked_for(patch: pytest.MonkeyPatch) -> None:
    async def nothing(self: Intake) -> None: ...

    patch.setattr(Intake, "_look_for_lost_answers", nothing)


def acknowledged_before_it_is_durable(patch: pytest.MonkeyPatch) -> None:
    rule = Committer.submit

    def submit(self: Committer, operation: Operation, done: Callable[[Answer], None]) -> None:
        if isinstance(operation, Send):
            done(Sent(None))
            rule(self, operation, lambda _: None)
        else:
            rule(self, operation, done)

    patch.setattr(Committer, "submit", submit)


def a_passed_deadline_rings_on(patch: pytest.MonkeyPatch) -> None:
    rule = Runs._ring

    def ring(self: Runs, run_keys: list[int]) -> None:
        rule(self, run_keys)
        for run_key in run_keys:
            if run_key in self.active:
                self.arm(self.active[run_key])

    patch.setattr(Runs, "_ring", ring)


def a_termination_by_the_clock_alone(patch: pytest.MonkeyPatch) -> None:
    rule = SimulatedStore.read_last_transitions

    async def of_a_closed_run(self: SimulatedStore, run_key: int) -> list[StoredTransition]:
        return [] if run_key in self.state.open_runs else await rule(self, run_key)

    patch.setattr(SimulatedStore, "read_last_transitions", of_a_closed_run)


def timers_by_a_clock_that_is_ahead(patch: pytest.MonkeyPatch) -> None:
    rule = LedgerClock.now_ms
    patch.setattr(LedgerClock, "now_ms", lambda self: rule(self) + 20)


# The tests ------------------------------------------------------------------------------------------------------------

DEATHS = Faults(kill=0.3, kill_at_commit=0.05, pause=0.3, restart=0.1)
LOST = Faults(reply_lost=0.1, store_unavailable=0.1)
RETRIES_LOST = Faults(reply_lost=0.1, effect_refused=0.5)
JUMPS = Faults(clock_jump=0.3)
CANCELLING = ("giving-up",) * 6
TRIED_AGAIN = {"what is cancelled is not tried again"}
STANDSTILLS = Faults(pause=0.6, slow_store=0.3)

REVERTS = [
    Revert(no_fence, {"no write with an old fence", "one writer per run"}, STANDSTILLS, ("sleeper",) * 6),
    Revert(no_compare_and_set, {"compare-and-set", "facts are immutable"}, LOST),
    Revert(terminated_whatever_it_is, {"compare-and-set", "terminal states absorb"}, LOST, ("terminated",) * 6),
    Revert(messages_are_not_known_again, {"messages are delivered once"}, Faults(duplicate_message=0.5)),
    Revert(no_look_at_the_mail_when_letting_go, {"every open run has a waker"}, DEATHS),
    Revert(retries_overwrite_what_is_there, {"attempts are counted"}, RETRIES_LOST),
    Revert(claims_know_no_namespace, {"namespaces and queues are apart"}, Faults()),
    Revert(task_claims_know_no_namespace, {"namespaces and queues are apart"}, Faults()),
    Revert(lost_attempts_do_not_count, {"attempts are counted", "never more than maximum_attempts"}, DEATHS),
    Revert(lost_eager_attempts_do_not_count, {"attempts are counted"}, DEATHS),
    Revert(effects_before_their_intent, {"intent before effect"}, Faults()),
    Revert(outcomes_of_an_earlier_lease_count, {"late outcomes are refused"}, JUMPS, ("beating", "race-won")),
    Revert(
        retries_are_put_back_after_their_outcome, {"attempts are counted", "one outcome per position"}, RETRIES_LOST
    ),
    Revert(cancelled_attempts_are_put_back, TRIED_AGAIN, Faults(), CANCELLING),
    Revert(cancelled_attempts_without_a_row_get_none, TRIED_AGAIN, Faults(slow_store=0.3), CANCELLING),
    Revert(outcomes_go_to_a_run_that_is_handed_back, {"everything finishes"}, Faults(slow_store=0.3)),
    Revert(runs_may_leave_with_what_is_known_here_alone, {"every open run has a waker"}, Faults()),
    Revert(an_earlier_lease_counts, {"everything finishes"}, STANDSTILLS, ("collector",) * 6),
    Revert(a_late_read_delivers_again, {"messages are delivered once", "no run blocks"}, Faults()),
    Revert(lost_answers_are_not_looked_for, {"everything finishes"}, LOST),
    Revert(acknowledged_before_it_is_durable, {"nothing acknowledged is lost"}, DEATHS),
    Revert(a_passed_deadline_rings_on, {"nobody is busy for ever"}, Faults(), ("doomed",) * 3),
    Revert(a_termination_by_the_clock_alone, {"time goes forward"}, Faults(clock_jump=0.5), ("terminated",) * 6),
    Revert(timers_by_a_clock_that_is_ahead, {"timers never early"}, Faults()),
]


@pytest.mark.parametrize("revert", REVERTS, ids=lambda revert: revert.take_out.__name__)
def test_a_missing_defence_is_found(revert: Revert, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [case(name) for name in revert.cases]
    with monkeypatch.context() as patch:
        revert.take_out(patch)
        found_at, violations = first_violation(revert.faults, cases)
    assert any(violation.startswith(tuple(revert.broken)) for violation in violations), violations
    # With the defence in, the seed that found it holds.
    simulate(found_at, revert.faults, cases)


def first_violation(faults: Faults, cases: list[Any]) -> tuple[int, list[str]]:
    for seed in range(SEEDS):
        try:
            simulate(seed, faults, cases)
        except SimulationFailedError as error:
            return seed, error.violations
    pytest.fail(f"nothing was found in {SEEDS} seeds")
