"""Watches the ledger of a simulation at every commit, with a memory of its own: it trusts nothing that it checks.

The auditor knows what each history was when it last looked, who was given which fence, and what the store's clock has
shown. It raises nothing where it stands, inside of a simulated process whose code would catch it, but notes violations;
the simulation stops at the first.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, assert_never

import msgspec

from pledger.engine.blocks import CLAIMS_MAX
from pledger.engine.loading import SUSPECT_AGAIN_MS
from pledger.engine.port.answers import Answer, Reply, Started
from pledger.engine.port.lanes import Claim
from pledger.engine.port.operations import (
    Append,
    Block,
    ConfirmClaim,
    ExpireTask,
    FinishTask,
    HandOut,
    Heartbeat,
    LogAttempts,
    Operation,
    Publish,
    PutTask,
    Release,
    ResetRun,
    Send,
    StartRun,
    Terminate,
)
from pledger.engine.port.records import OUTSIDE, RunRow, SessionRow, TaskRow
from pledger.history import events, transition
from pledger.testing.circuits import Circuits
from pledger.testing.findings import Findings
from pledger.testing.keys import Keys
from pledger.testing.records import Record, Records
from pledger.testing.setbacks import Setbacks
from pledger.testing.stillness import Stillness
from pledger.testing.tally import Tally
from pledger.testing.turnstile import Turnstile
from pledger.testing.views import StateView

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Mapping, Sequence

    from pledger.engine.attempt import Attempt
    from pledger.engine.port.records import Outlook
    from pledger.history.budget import RetryBudget
    from pledger.history.placement import LimitRule
    from pledger.store.memory.state import State
    from pledger.testing.process import Process
    from pledger.testing.views import View
    from pledger.testing.world import Activity


#: The verbs that give a session something to do.
CLAIMS: Final = frozenset({"claim_runs", "claim_tasks", "claim_queued", "claim_lifted_runs", "claim_lifted_tasks"})


@dataclass(frozen=True, slots=True)
class Sight:
    """An operation and what it concerned, as it was before. sessions: those of the process that asks. tasks: of an
    append only."""

    operation: Operation
    sessions: Collection[int]
    run_key: int
    before: RunRow | None
    tasks: Mapping[int, TaskRow]


class Auditor(Findings):
    """clock: the store's, in ms.

    may_block: the workflow types whose code is not right, or changes; any other one blocks only when it is parked.
    damaged: runs whose rows were changed behind the ledger's back. parked: those of them that are blocked for it.
    keep_ms: how long finished runs are kept. rules: the numbers of limits. budgets: by activity type. now_s: virtual
    time; None where there is none but the store's.
    """

    def __init__(
        self,
        clock: Callable[[], int],
        may_block: Container[str] = (),
        keep_ms: int = 0,
        rules: Mapping[str, LimitRule] | None = None,
        *,
        budgets: Mapping[str, RetryBudget] | None = None,
        now_s: Callable[[], float] | None = None,
    ) -> None:
        super().__init__()
        self._keep_ms = keep_ms
        self.damaged: set[int] = set()
        self.parked: set[int] = set()
        self._clock = clock
        self._may_block = may_block
        self._latest_ms = 0
        self._went_back_ms = 0
        self.records = Records(self, lambda: self._latest_ms)
        self.setbacks = Setbacks(self.records, self, self._begin_anew)
        self.stillness = Stillness(self)
        self.keys = Keys(self)
        #: How often each activity began that may once, by its run and input.
        self._once: Counter[tuple[str, str, bytes]] = Counter()
        self.tally = Tally()
        self.turnstile = Turnstile(rules or {}, self)
        self.circuits = Circuits(self, budgets or {}, now_s=now_s or (lambda: clock() / 1000), store_ms=clock)

    def owner_looked(self, process: Process, session_key: int, outlook: Outlook) -> None:
        """A session has got the answer to a look."""
        self.stillness.told(process, session_key, outlook)

    def _begin_anew(self, state: State) -> None:
        self.tally.is_void = True
        self.stillness = Stillness(self)
        self.keys = Keys(self)  # what is lost may be done otherwise now, at the same place
        self.read_clock()
        self.check_all_wakers(StateView(state))

    # Around each operation --------------------------------------------------------------------------------------------

    def judge(self, operation: Operation, sessions: Collection[int], apply: Callable[[], Answer], view: View) -> Answer:
        """Apply the operation and look at what it did, where that is one step."""
        sight = self.look(operation, sessions, view)
        answer = apply()
        self.conclude(sight, answer, view)
        self.check_waker(sight.run_key, view)
        return answer

    def look(self, operation: Operation, sessions: Collection[int], view: View) -> Sight:
        """Before the operation is written."""
        self.read_clock()  # whatever becomes of it, it may turn up after a crash
        run_key = _run_key(operation)
        tasks = dict(view.tasks(run_key)) if isinstance(operation, Append) else {}
        return Sight(operation, sessions, run_key, view.run(run_key), tasks)

    def conclude(self, sight: Sight, answer: Answer, view: View) -> None:
        """The operation is written, for good. view: just after it."""
        self.setbacks.is_durable()
        self.read_clock()
        if answer is Reply.WON:
            self._won(sight, view)
            self._look_at_late_outcomes(sight)
        elif isinstance(answer, Started) and isinstance(sight.operation, StartRun):
            self._born(sight.operation, answer, view)
        elif isinstance(answer, Started) and isinstance(sight.operation, ResetRun):
            self.records.reset(sight.operation, answer.run_key, view)

    def read_clock(self) -> None:
        """Timers are measured by the latest time that the store's clock has shown, or would have without its last jump
        back: whoever asked for the time before that carries it on as it was."""
        self._latest_ms = max(self._latest_ms, self._clock() + self._went_back_ms)

    def clock_goes_back(self, by_ms: int) -> None:
        self.read_clock()
        self._went_back_ms += by_ms

    def clock_is_known(self, by_ms: int) -> None:
        """Everybody has asked for the time since it went back so far. What was decided before may yet be written: while
        nothing could be, nobody has looked at the clock here."""
        self.read_clock()
        self._went_back_ms -= by_ms

    def _won(self, sight: Sight, view: View) -> None:
        self.checks("no run blocks")  # whatever was written: this is where a block would be seen
        operation, before = sight.operation, sight.before
        match operation:
            case Append() if before is not None and before.head == operation.transition.checksum:
                # Repeated, since the answer was lost: it is there, and nothing changes.
                self.checks("facts are immutable")
                if view.run(before.run_key) != before:
                    self.violated("facts are immutable", f"a repeated append changed run {before.run_key}")
            case Append():
                self.parked.discard(operation.run_key)  # it goes on: the damage was written over
                self._check_owner(sight, operation.fence)
                self._check_place(operation, before)
                self.records.extend(operation.run_key, operation.transition, operation.last_event)
                self.records.check_status(operation.run_key, view)
                self._note_cancelled(operation, view)
                self._note_successor(operation, view)
                self._note_children(operation, view)
                self.stillness.look_at_append(operation, before)
            case Terminate():
                self._check_place(operation, before)
                self.records.extend(operation.run_key, operation.transition, operation.last_event)
                self.records.check_status(operation.run_key, view)
            case Release() | ConfirmClaim() | PutTask():
                self._check_owner(sight, operation.fence)
            case Block():
                self._check_owner(sight, operation.fence)
                reason = msgspec.json.decode(operation.reason)
                expected = before is not None and before.workflow_type in self._may_block
                if operation.run_key in self.damaged and reason["reason"] == "corrupt":
                    self.parked.add(operation.run_key)
                elif reason["reason"] != "poison" and not expected:
                    self.violated(
                        "no run blocks", f"run {operation.run_key}: {reason['message']}\n{reason['traceback']}"
                    )
            case _:
                pass

    def _note_successor(self, operation: Append, view: View) -> None:
        """The run that goes on for one that has ended is there with the end."""
        if operation.successor is None:
            return
        self.checks("a chain goes on")
        run_id, there = operation.successor.run_id, view.current(operation.run_key)
        if there is None or (there.run_id, there.status) != (run_id, "running"):
            self.violated("a chain goes on", f"of the successor {run_id} of run {operation.run_key} there is {there}")
        else:
            self.records.by_run[there.run_key] = Record(run_id)

    def _note_cancelled(self, operation: Append, view: View) -> None:
        record, rows = self.records.by_run[operation.run_key], view.tasks(operation.run_key)
        for event_id in operation.cancelled:
            row = rows.get(event_id)
            # Without a row it is the eager one, which may be about to begin.
            last = 1 if row is None else row.attempt if row.state == "started" else row.attempt - 1
            record.last_attempts.setdefault(event_id, last)

    def _born(self, start: StartRun, answer: Started, view: View) -> None:
        self.checks("one start, one run")
        known = {run_key for run_key, each in self.records.by_run.items() if each.run_id == start.run_id}
        if known == {answer.run_key}:
            return  # it is told again, to one who has lost the answer
        if known:
            self.violated("one start, one run", f"{start.workflow_id} ({start.run_id}) was created twice")
        self.records.by_run[answer.run_key] = Record(start.run_id)
        if start.first is not None and start.owner is not None:
            self.records.extend(answer.run_key, start.first.transition, start.first.last_event)
            self.records.check_status(answer.run_key, view)
            self._note_successor(start.first, view)
            self._note_children(start.first, view)

    def _note_children(self, operation: Append, view: View) -> None:
        """Those that this transition has started are runs from now on."""
        if operation.posts:
            for run_key, run_id in view.children(operation.run_key):
                self.records.by_run.setdefault(run_key, Record(run_id))

    def _check_owner(self, sight: Sight, fence: int) -> None:
        before, sessions = sight.before, sight.sessions
        what = f"{type(sight.operation).__name__} of run {before.run_key if before else '?'}"
        self.checks("terminal states absorb", "no write with an old fence", "one writer per run")
        if before is None or before.status != "running":
            self.violated("terminal states absorb", f"{what} after {before.status if before else 'nothing'}")
        elif before.fence != fence:
            self.violated("no write with an old fence", f"{what} carries fence {fence}, the run's is {before.fence}")
        elif before.owner not in sessions:
            self.violated("one writer per run", f"{what} by one of {sessions}, the owner is {before.owner}")

    def _check_place(self, operation: Append | Terminate, before: RunRow | None) -> None:
        self.checks("terminal states absorb", "compare-and-set")
        if before is None or before.status != "running":
            self.violated(
                "terminal states absorb", f"{type(operation).__name__} after the end of run {operation.run_key}"
            )
        elif before.last_event != operation.expected_event:
            self.violated(
                "compare-and-set",
                f"{type(operation).__name__} expects event {operation.expected_event} of run {operation.run_key}, "
                f"which is at {before.last_event}",
            )
        elif isinstance(operation, Terminate) and before.head != operation.expected_head:
            self.violated(
                "compare-and-set", f"Terminate is chained to another history of run {operation.run_key} than it has"
            )

    def look_at_claim(self, session: SessionRow, found: Sequence[RunRow | TaskRow] | Claim, view: View) -> None:
        """What a session has just taken."""
        if isinstance(found, Claim):
            self.turnstile.look_at_claim(found, view)
        for row in found.tasks if isinstance(found, Claim) else found:
            self.stillness.look_at_claim(row, view)
            self.checks("namespaces and queues are apart")
            if (row.namespace, row.task_queue) != (session.namespace, session.task_queue):
                self.violated(
                    "namespaces and queues are apart",
                    f"a worker of queue {session.task_queue} in {session.namespace} takes {row.workflow_id}, which is "
                    f"of queue {row.task_queue} in {row.namespace}",
                )

    def look_at_forgotten(self, view: View) -> None:
        """After retention was there: it took what had ended long enough ago, and nothing else."""
        self.read_clock()  # nothing may have been written since that came true
        for run_key, record in self.records.by_run.items():
            row = view.run(run_key)
            if run_key in self.records.forgotten or (row is not None and row.last_event == record.state.last_event):
                continue
            self.records.forgotten.add(run_key)
            self.checks("ids outlive retention", "retention takes what is finished")
            state = record.state
            if row is None or not row.is_forgotten or (row.run_id, row.head) != (record.run_id, record.head):
                self.violated("ids outlive retention", f"of run {run_key} ({record.run_id}) there is {row}")
            elif state.status == "running":
                self.violated("retention takes what is finished", f"run {run_key} is open, and was forgotten")
            elif self._latest_ms <= state.last_ms + self._keep_ms:
                self.violated(
                    "retention takes what is finished",
                    f"run {run_key} ended at {state.last_ms} and was forgotten by {self._latest_ms}",
                )

    def _look_at_late_outcomes(self, sight: Sight) -> None:
        """Whose attempt was counted as lost has no outcome any more."""
        operation = sight.operation
        if not isinstance(operation, Append):
            return
        for event in transition.decode(operation.transition.body).inputs:
            if isinstance(event, events.ActivityCompleted | events.ActivityFailed):
                self.checks("late outcomes are refused")
                row = sight.tasks.get(event.scheduled_event_id)
                if row is not None and row.attempt > event.attempt:
                    self.violated(
                        "late outcomes are refused",
                        f"run {operation.run_key} takes that of attempt {event.attempt} of event {row.event_id}, "
                        f"which is at attempt {row.attempt}",
                    )

    # Wakers -----------------------------------------------------------------------------------------------------------

    def check_waker(self, run_key: int, view: View) -> None:
        """An open run without an owner must be due in time for whatever is to happen to it by itself."""
        run = view.run(run_key)
        if run is None or run.status != "running" or run.owner is not None or run.blocked is not None:
            return
        record = self.records.by_run.get(run_key)
        if record is None:
            return
        self.checks("every open run has a waker")
        tasks = view.tasks(run_key)
        due: list[tuple[int, str]] = [(timer.fire_at_ms, "a timer") for timer in record.state.timers.values()]
        if record.state.deadline_ms is not None:
            due.append((record.state.deadline_ms, "its deadline"))
        if view.has_mail(run.chain_key):
            due.append((self._latest_ms, "a message"))
        due += [(self._latest_ms, "an outcome") for task in tasks.values() if task.state == "done"]
        due += [(self._latest_ms, "a lost attempt") for event_id in record.state.activities if event_id not in tasks]
        # One that may be what ends its workers is due again a little later, so that it is alone then.
        at_least_ms = self._latest_ms + SUSPECT_AGAIN_MS if run.claims >= CLAIMS_MAX else 0
        for at_ms, what in due:
            if run.due_ms is None or run.due_ms > max(at_ms, at_least_ms):
                self.violated("every open run has a waker", f"{run.workflow_id} has {what}, and is due at {run.due_ms}")
                return

    def check_all_wakers(self, view: View) -> None:
        """After the end of a session: nothing may be left in its name."""
        sessions = view.sessions()
        for run_key in view.open_runs():
            self.check_waker(run_key, view)
            run = view.run(run_key)
            owners = {run and run.owner, *(task.owner for task in view.tasks(run_key).values())} - {None, OUTSIDE}
            if not owners <= set(sessions):
                self.violated(
                    "every open run has a waker", f"run {run_key} is held by {owners}, gone sessions among them"
                )

    # Attempts ---------------------------------------------------------------------------------------------------------

    def attempt_began(self, attempt: Attempt, activity: Activity) -> None:
        """Called by the world as an attempt begins, before its code, and after it has counted those of its worker."""
        self.checks("limits are kept")
        what = f"attempt {attempt.number} of {activity.activity_type} in {attempt.identity.workflow_id}"
        if activity.maximum == 1:
            place = (attempt.identity.run_id, activity.activity_type, attempt.command.args)
            self._once[place] += 1
            self.checks("what may run once runs once")
            if self._once[place] > 1:
                self.violated("what may run once runs once", f"{what} began once more")
        if self.setbacks.is_stale(attempt):
            return
        self.keys.attempt_began(attempt, self.records.by_run.get(attempt.run_key), what)
        self.stillness.attempt_began(attempt, what)
        self.turnstile.attempt_began(attempt, what)
        self._look_at_attempt(attempt, activity, what)

    def _look_at_attempt(self, attempt: Attempt, activity: Activity, what: str) -> None:
        self.checks("intent before effect", "attempts are counted", "one idempotency key over all attempts")
        record = self.records.by_run.get(attempt.run_key)
        if record is not None and attempt.event_id in record.last_attempts:
            self.checks("what is cancelled is not tried again")
        if activity.maximum:
            self.checks("never more than maximum_attempts")
        if record is None or attempt.event_id not in record.scheduled:
            self.violated("intent before effect", f"{what} began, and its schedule is not durable")
        elif attempt.number > record.last_attempts.get(attempt.event_id, attempt.number):
            self.violated("what is cancelled is not tried again", f"{what} began")
        if [each.number for each in activity.attempts].count(attempt.number) > 1:
            self.violated("attempts are counted", f"{what} began a second time")
        if 0 < activity.maximum < max(attempt.number, len(activity.attempts)):
            self.violated("never more than maximum_attempts", f"{what}, which may have {activity.maximum}")
        if len(activity.keys) > 1:
            self.violated("one idempotency key over all attempts", f"{what}: {sorted(activity.keys)}")


def _run_key(operation: Operation) -> int:
    match operation:
        case PutTask():
            return operation.task.run_key
        case StartRun() | ResetRun() | LogAttempts():
            return 0
        case (
            Append()
            | Release()
            | Block()
            | ConfirmClaim()
            | FinishTask()
            | HandOut()
            | ExpireTask()
            | Heartbeat()
            | Publish()
            | Send()
            | Terminate()
        ):
            return operation.run_key
        case _:
            assert_never(operation)
