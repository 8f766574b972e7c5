"""Dispatch of activities: starting attempts, ending them in time, and what becomes of their outcome.

Two kinds of attempt. An *eager* one runs beside its run, in the worker that owns it: the transition that scheduled it
is its record, and its outcome goes straight into the run's next transition. A *claimed* one comes from a task row,
which is its record; when the run is owned elsewhere its outcome goes back into that row. Retries always go through a
row: it is written before the attempt starts (intent before effect) and any worker may take it.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from pledger import errors
from pledger.engine import task_rows
from pledger.engine.attempt import Attempt
from pledger.engine.bounds import bounds_of
from pledger.engine.deadlines import Deadlines
from pledger.engine.executors import Executors
from pledger.engine.heartbeats import Heartbeats
from pledger.engine.port.answers import Reply
from pledger.engine.port.operations import FinishTask, PutTask
from pledger.engine.port.records import AttemptRecord, TaskRow
from pledger.engine.slots import Slots
from pledger.engine.steps import Recorded, Steps, Unkept
from pledger.engine.task_rows import TaskRows, decode_command, decode_failure, encode_record, queued_row
from pledger.engine.verdicts import GiveUp, Retry, after_failure, cancelled, timed_out, worker_lost
from pledger.history import failures, payloads
from pledger.history.events import ActivityCompleted, ActivityFailed, ScheduleActivity
from pledger.history.failures import Failure
from pledger.history.secret import found_in
from pledger.history.secret import known as known_secrets

if TYPE_CHECKING:
    from pledger.engine.budgets import Budgets
    from pledger.engine.committer import Committer
    from pledger.engine.port.verbs import Store
    from pledger.engine.secrets import Secrets
    from pledger.engine.session import LedgerClock
    from pledger.history.placement import Limit
    from pledger.machine.context import RunIdentity
    from pledger.machine.definitions import ActivityDefinition

logger = logging.getLogger("pledger.engine")

#: How long the code of an attempt may clean up once its time is over, before the attempt ends without it.
CLEANUP_S = 5.0
#: The type of the failure of an attempt that a shutdown cut short.
SHUTDOWN: Final = "WorkerShutdown"


class Runs(task_rows.Runs, Protocol):
    """What activities tell the runs of this worker."""

    def outcome(
        self, attempt: Attempt, outcome: ActivityCompleted | ActivityFailed, *, fence: int | None, row: bool
    ) -> bool:
        """Hand an outcome to a run that this worker owns; False when it does not own it, or not under this fence.
        row: it has a task row."""
        ...


class Activities:
    """The attempts of one worker.

    slots: how many more may start. rows: those of its attempts. leaving: the worker is going, and no activity is placed
    here any more. bounds: its limits that hold over all workers. queue_waits: there is more in the queue than there is
    room for here. budgets: of what its activities depend on, None where none states any.
    """

    def __init__(
        self,
        *,
        definitions: dict[str, ActivityDefinition[Any, Any]],
        committer: Committer,
        clock: LedgerClock,
        loop: asyncio.AbstractEventLoop,
        randomness: random.Random,
        worker: str,
        session_key: Callable[[], int],
        runs: Runs,
        concurrent_max: int,
        threads_max: int,
        payload_bytes_max: int,
        transactions_max: int,
        store: Store,
        transactions: Mapping[str, str | None],
        secrets: Secrets,
        queue_limits: Sequence[Limit] = (),
    ) -> None:
        self.definitions = definitions
        self.bounds = bounds_of(definitions.values(), queue_limits)
        self.queue_waits = False
        self._is_limited = self.bounds.has_standing or bool(self.bounds.rules)
        self.budgets: Budgets | None = None
        self.slots = Slots(
            definitions, attempts_max=concurrent_max, threads_max=threads_max, transactions_max=transactions_max
        )
        self.leaving = False
        self._committer = committer
        self._clock = clock
        self._loop = loop
        self._random = randomness
        self._session_key = session_key
        self._runs = runs
        self._payload_bytes_max = payload_bytes_max
        self._executors = Executors(loop, threads_max)
        self._deadlines = Deadlines(loop, clock, self._check_deadline)
        self._attempts: dict[tuple[int, int], Attempt] = {}
        self._idle: list[asyncio.Future[None]] = []
        self.rows = TaskRows(
            committer=committer,
            clock=clock,
            loop=loop,
            randomness=randomness,
            worker=worker,
            session_key=session_key,
            runs=runs,
        )
        self._heartbeats = Heartbeats(committer, clock, self.rows, self._stop)
        self._secrets = secrets
        self._steps = Steps(store, transactions, clock, self._encode)
        # Bound once, not for every attempt.
        self._on_heartbeat, self._on_done, self._now_ms = self._heartbeats.beat, self._done, clock.now_ms

    # Starting ---------------------------------------------------------------------------------------------------------

    def reserve(self, command: ScheduleActivity) -> bool:
        """Take a slot for an eager attempt, before the transition that schedules it is written; False when this worker
        may not run the activity now, next to its run."""
        if self.leaving or ((self._is_limited or command.placement is not None) and self._must_queue(command)):
            return False
        return self.slots.try_take(command.activity_type)

    def _must_queue(self, command: ScheduleActivity) -> bool:
        """What is limited takes its slots as it leaves the queue; and what has a place in it does not pass by those who
        wait."""
        bounds, placement = self.bounds, command.placement
        if bounds.queue or command.activity_type in bounds.standing:
            return True
        if self.budgets is not None and not self.budgets.may_start(command.activity_type):
            return True
        return placement is not None and (bool(placement.limits) or self.queue_waits)

    def unreserve(self, eager: Iterable[tuple[int, ScheduleActivity]]) -> None:
        """Give back what was reserved for a transition that was not written."""
        for _, command in eager:
            self.slots.give(command.activity_type)

    def start_eager(
        self,
        run_key: int,
        fence: int,
        identity: RunIdentity,
        event_id: int,
        command: ScheduleActivity,
        now_ms: int,
        run_deadline_ms: int | None = None,
    ) -> None:
        """Start attempt 1; its slot is reserved and the transition that scheduled it is durable."""
        definition = self.definitions[command.activity_type]
        place = (definition, identity, run_key, event_id, command)
        self._start(Attempt(*place, 1, fence, now_ms, now_ms, None, self._loop, None, run_deadline_ms))

    def start_claimed(self, row: TaskRow, identity: RunIdentity) -> None:
        """Start the attempt of a row that this session has just claimed, or settle what was left open of it."""
        attempt = self._claimed(row, identity)
        if row.lost:
            # The attempt of this number died with its worker: it counts, and the next one is written before it starts.
            self._end(attempt, worker_lost(row.attempt))
        elif row.cancel_requested:
            self._end(attempt, cancelled("the activity was cancelled before it started"))
        elif attempt.deadline_ms is not None and self._clock.now_ms() >= attempt.deadline_ms:
            self._end(attempt, _out_of_time(attempt))  # it waited for a worker until its time was over
        else:
            self._start(attempt)

    def settle_lost(self, row: TaskRow, identity: RunIdentity) -> None:
        """A row says that this session runs an attempt, and it does not: it counts as lost."""
        self._end(self._claimed(row, identity), worker_lost(row.attempt))

    def knows(self, row: TaskRow) -> bool:
        """Whether the attempt of a started row runs here, or what became of it is being written."""
        attempt = self._attempts.get((row.run_key, row.event_id))
        return (attempt is not None and attempt.number >= row.attempt) or self.rows.is_overtaking(row)

    def _claimed(self, row: TaskRow, identity: RunIdentity) -> Attempt:
        """The attempt of a row that this session owns; it takes a slot."""
        self.slots.take(row.activity_type)
        command = decode_command(row.command)
        started_ms = row.started_ms or self._clock.now_ms()
        attempt = Attempt(
            self.definitions[row.activity_type],
            identity,
            row.run_key,
            row.event_id,
            command,
            row.attempt,
            0,
            row.scheduled_ms,
            started_ms,
            row,
            self._loop,
            None if row.last_failure is None else decode_failure(row.last_failure),
        )
        attempt.cancel_requested = row.cancel_requested
        return attempt

    def _start(self, attempt: Attempt) -> None:
        self._attempts[attempt.run_key, attempt.event_id] = attempt
        attempt.on_heartbeat, attempt.now_ms = self._on_heartbeat, self._now_ms
        try:
            args = attempt.definition.signature.decode_args(attempt.command.args)
            definition = attempt.definition
            if definition.transaction is None and not definition.secrets:
                self._executors.start(attempt, args, self._on_done)
            else:
                self._start_wrapped(attempt, args)
        except Exception as error:  # noqa: BLE001 - it did not start, and never will
            failure = failures.from_exception(error)
            self._end(attempt, msgspec.structs.replace(failure, non_retryable=True))
            return
        if self.budgets is not None:
            self.budgets.began(attempt)
        self._arm(attempt)

    def _start_wrapped(self, attempt: Attempt, args: list[Any]) -> None:
        """One with a transaction around its code, with secrets, or with both."""
        definition, done = attempt.definition, self._on_done
        code: Callable[..., Any] = definition.fn
        if definition.transaction is not None:
            code, done = self._steps.code_of(attempt), self._step_done
        if definition.secrets:
            code = self._secrets.around(code, definition.secrets, definition.name, definition.executor)
            attempt.resolve = functools.partial(self._secrets.resolve, definition.secrets, definition.name)
        self._executors.start(attempt, args, done, code)

    # Ending -----------------------------------------------------------------------------------------------------------

    def _done(self, attempt: Attempt, result: Any, error: BaseException | None) -> None:
        """The code ended, by itself or because it was told to stop."""
        # The task's context holds the attempt: without this they would keep each other until a garbage collection.
        attempt.task = attempt.stop = None
        if attempt.finished:
            self._late(attempt, error)
            return
        ending = attempt.ending
        if ending is not None and (ending.kind == "timeout" or isinstance(error, asyncio.CancelledError)):
            # A time-out came first: whatever the code says now is late. Asked to stop for another reason it may still
            # finish, and what is finished is never dropped.
            self._end(attempt, ending)
            return
        if error is not None:
            self._end(attempt, failures.from_exception(error))
            return
        try:
            encoded = self._encode(attempt, result)
        except Exception as refused:  # noqa: BLE001 - user code may run in it: properties, serializers
            self._refuse(attempt, refused)
            return
        if attempt.opened is not None:
            self._note_end(attempt, None)
        self._release(attempt)
        self._deliver(attempt, ActivityCompleted(attempt.event_id, encoded, attempt.number), ())

    def _encode(self, attempt: Attempt, result: Any) -> bytes:
        encoded = attempt.definition.signature.encode_result(result)
        if known_secrets.forms and (reference := found_in(encoded)) is not None:
            raise errors.SecretError(
                f"the result of activity {attempt.definition.name!r} in {attempt.identity} holds the value of "
                f"{reference}, and is not recorded. Give back the Secret itself, or nothing of it",
                name=reference.rpartition("/")[2],
                non_retryable=True,
            )
        if len(encoded) > self._payload_bytes_max:
            what = f"the result of activity {attempt.definition.name!r} in {attempt.identity}"
            payloads.check_size(encoded, what, self._payload_bytes_max)
        return encoded

    def _refuse(self, attempt: Attempt, error: Exception) -> None:
        """Its result cannot be kept. Trying again would do the effect again and end the same way."""
        failure = failures.from_exception(error)
        self._end(attempt, msgspec.structs.replace(failure, non_retryable=True))

    def _step_done(self, attempt: Attempt, result: Any, error: BaseException | None) -> None:
        """The code of an attempt with a transaction ended, and the transaction with it."""
        if isinstance(result, Unkept) and not attempt.finished and attempt.ending is None:
            attempt.task = attempt.stop = None
            self._refuse(attempt, result.error)
        elif isinstance(result, Recorded):
            # Whatever was to end it meanwhile has come too late, or has come before and left its mark in the row.
            attempt.task = attempt.stop = None
            if attempt.finished:
                self.slots.give(attempt.definition.name)
                self._signal_idle()
            else:
                if attempt.opened is not None:
                    self._note_end(attempt, None)
                self._release(attempt)
            if result.reply is Reply.WON:
                self._runs.recorded(attempt, result.outcome)
            else:
                self.rows.log(self.rows.record(attempt, "late", None))
        else:
            self._done(attempt, None, result.error if isinstance(result, Unkept) else error)

    def _late(self, attempt: Attempt, error: BaseException | None) -> None:
        self.slots.give(attempt.definition.name)
        if not isinstance(error, asyncio.CancelledError):
            # An abandoned thread came back: its result no longer counts, but nothing is hidden.
            failure = None if error is None else failures.from_exception(error)
            self.rows.log(self.rows.record(attempt, "late", failure))
        self._signal_idle()

    def _end(self, attempt: Attempt, failure: Failure) -> None:
        if attempt.opened is not None:
            self._note_end(attempt, failure)
        self._release(attempt)
        self._settle_failure(attempt, failure)

    def _note_end(self, attempt: Attempt, failure: Failure | None) -> None:
        """For the budget of what it depends on."""
        assert self.budgets is not None
        self.budgets.ended(attempt, failure)

    def _release(self, attempt: Attempt) -> None:
        """The attempt is over; its slot is free, unless its thread still runs."""
        attempt.finished = True
        if attempt.timer is not None:
            attempt.timer.cancel()
        if self._attempts.get((attempt.run_key, attempt.event_id)) is attempt:
            del self._attempts[attempt.run_key, attempt.event_id]
        if attempt.task is None:
            self.slots.give(attempt.definition.name)
        if self._idle:
            self._signal_idle()

    def _settle_failure(self, attempt: Attempt, failure: Failure) -> None:
        now_ms = self._clock.now_ms()
        verdict = after_failure(
            attempt.command,
            attempt=attempt.number,
            failure=failure,
            scheduled_ms=attempt.scheduled_ms,
            now_ms=now_ms,
            last_failure=attempt.last_failure,
            draw=self._random.random(),
            cancel_requested=attempt.cancel_requested,
        )
        outcome = {"timeout": "timed_out", "cancelled": "cancelled", "worker_lost": "lost"}.get(failure.kind, "failed")
        records = (self.rows.record(attempt, outcome, failure),)
        _log_failure(attempt, failure, verdict, now_ms)
        match verdict:
            case GiveUp():
                failed = ActivityFailed(attempt.event_id, verdict.failure, verdict.retry_state, attempt.number)
                self._deliver(attempt, failed, records)
            case Retry():
                self._requeue(attempt, verdict.due_ms, attempt.number + 1, verdict.failure, records)

    def _deliver(
        self, attempt: Attempt, outcome: ActivityCompleted | ActivityFailed, records: tuple[AttemptRecord, ...]
    ) -> None:
        """Bring the outcome to the run: directly when it is ours, through the task row when it is not."""
        row = attempt.row
        # The row of an attempt with a transaction decides, in the same commit as the transaction: nothing goes past it.
        in_row = attempt.definition.transaction is not None
        # What began under an earlier lease has been counted as lost; the run may be ours again, the attempt is not.
        ours = row is None or row.owner == self._session_key()
        fence = attempt.fence if row is None else None
        has_row = row is not None or attempt.row_sent
        if ours and not in_row and self._runs.outcome(attempt, outcome, fence=fence, row=has_row):
            if records:
                self.rows.log(*records)
            return
        if row is None or row.owner is None:
            return  # the run was taken over meanwhile: its new owner has counted this attempt as lost
        finish = FinishTask(
            attempt.run_key, attempt.event_id, attempt.number, row.owner, encode_record(outcome), None, records
        )
        self.rows.finish(attempt, finish)

    def _requeue(
        self,
        attempt: Attempt,
        due_ms: int,
        number: int,
        failure: Failure,
        records: tuple[AttemptRecord, ...],
    ) -> None:
        task = queued_row(
            attempt.identity,
            attempt.run_key,
            attempt.event_id,
            attempt.command,
            number=number,
            due_ms=due_ms,
            scheduled_ms=attempt.scheduled_ms,
            heartbeat=attempt.heartbeat,
            last_failure=failure,
            run_deadline_ms=attempt.run_deadline_ms,
        )
        if attempt.row is not None and attempt.row.owner is not None:
            finish = FinishTask(
                attempt.run_key, attempt.event_id, attempt.number, attempt.row.owner, None, task, records
            )
            self.rows.finish(attempt, finish)
        else:
            self.rows.put(PutTask(attempt.fence, task, records))

    def leave_behind(
        self, run_key: int, outcomes: Sequence[tuple[Attempt, ActivityCompleted | ActivityFailed]]
    ) -> list[TaskRow]:
        """The rows that a run needs which is let go by a block: of the outcomes that no transition took, and of the
        attempts that run beside it and go on without it. What becomes of those waits until `left`."""
        rows = []
        for attempt, outcome in outcomes:
            row = attempt.row or self.rows.started(attempt)
            rows.append(msgspec.structs.replace(row, state="done", owner=None, outcome=encode_record(outcome)))
        for attempt in self._attempts.values():
            if attempt.run_key == run_key and attempt.row is None and attempt.ending is None:
                attempt.row = self.rows.started(attempt)
                rows.append(attempt.row)
        if rows:
            self.rows.hold(run_key)
        return rows

    # Time-outs, heartbeats, cancellation ------------------------------------------------------------------------------

    def _arm(self, attempt: Attempt) -> None:
        """Have the attempt looked at when its deadline passes, or the end of its heartbeat's silence."""
        beat_ms = attempt.command.options.heartbeat_ms
        if beat_ms is None:
            if attempt.deadline_ms is not None:
                self._deadlines.set(attempt, attempt.deadline_ms)
            return
        silence = attempt.beat_at + beat_ms
        at_ms = silence if attempt.deadline_ms is None else min(silence, attempt.deadline_ms)
        delay = max(0, at_ms - self._clock.now_ms()) / 1000
        attempt.timer = self._loop.call_later(delay, self._check_deadline, attempt)

    def _check_deadline(self, attempt: Attempt) -> None:
        if attempt.finished:
            return
        now_ms = self._clock.now_ms()
        options = attempt.command.options
        if attempt.deadline_ms is not None and now_ms >= attempt.deadline_ms:
            self._stop(attempt, _out_of_time(attempt))
        elif options.heartbeat_ms is not None and now_ms >= attempt.beat_at + options.heartbeat_ms:
            self._stop(attempt, timed_out("heartbeat", options.heartbeat_ms, heartbeat=attempt.heartbeat))
        else:
            self._arm(attempt)

    def _stop(self, attempt: Attempt, ending: Failure) -> None:
        """End the attempt from outside. Async code gets to run its clean-up; a thread is left to its flag."""
        attempt.ending = ending
        if ending.kind == "cancelled":
            attempt.cancel_requested = True
        attempt.stop_code()
        if ending.kind != "timeout":
            return
        if attempt.definition.executor == "thread":
            self._end(attempt, ending)
        else:
            attempt.timer = self._loop.call_later(CLEANUP_S, self._give_up, attempt, ending)

    def _give_up(self, attempt: Attempt, ending: Failure) -> None:
        """The code does not end though its time is over: what becomes of the activity does not wait for it."""
        if not attempt.finished:
            self._end(attempt, ending)

    def cancel(self, run_key: int, event_id: int, reason: str) -> bool:
        """Ask a running attempt to stop, and have no further one; whether it runs here."""
        attempt = self._attempts.get((run_key, event_id))
        if attempt is None:
            return False
        attempt.cancel_requested = True
        if attempt.ending is None:
            self._stop(attempt, cancelled(reason))
        return True

    def unwritten_row(self, run_key: int, fence: int, event_id: int) -> TaskRow | None:
        """For a transition that cancels the activity: the row that it is to have, if the store may have none of it yet.

        In a row the request outlives this worker, and holds for whatever is written over it: the row of a next attempt
        may be on its way already.
        """
        attempt = self._eager(run_key, fence, event_id)
        if attempt is not None:
            attempt.row_sent = True
            return self.rows.started(attempt)
        write = self.rows.unwritten.get((run_key, event_id))
        return write.task if isinstance(write, PutTask) else None

    def row_written(self, fence: int, row: TaskRow) -> None:
        """That transition is durable."""
        attempt = self._eager(row.run_key, fence, row.event_id)
        if attempt is not None:
            attempt.row = row

    def _eager(self, run_key: int, fence: int, event_id: int) -> Attempt | None:
        """The attempt that runs here without a row, unless it began under an earlier lease: that one is lost."""
        attempt = self._attempts.get((run_key, event_id))
        return attempt if attempt is not None and attempt.row is None and attempt.fence == fence else None

    def abandon(self, run_key: int, event_ids: Iterable[int], reason: str) -> None:
        """The run closed, or is no longer ours: its eager attempts stop and nobody wants their outcome."""
        for event_id in event_ids:
            attempt = self._attempts.get((run_key, event_id))
            if attempt is not None and attempt.row is None:
                self.cancel(run_key, event_id, reason)

    def stop_claimed(self, reason: str) -> None:
        """The rows of these attempts are somebody else's now: their outcome no longer counts, so they stop."""
        for attempt in self.attempts():
            if attempt.row is not None and attempt.ending is None:
                self._stop(attempt, cancelled(reason))

    def has_eager(self, run_key: int, event_ids: Iterable[int]) -> bool:
        """Whether one of the run's pending activities is known here alone, which ties the run to this worker: it runs
        eagerly, or the row of its next attempt is not written yet."""
        attempts, unwritten = self._attempts, self.rows.unwritten
        for event_id in event_ids:
            attempt = attempts.get((run_key, event_id))
            if (attempt is not None and attempt.row is None) or (run_key, event_id) in unwritten:
                return True
        return False

    # Shutdown ---------------------------------------------------------------------------------------------------------

    @property
    def running(self) -> int:
        """How many attempts run."""
        return len(self._attempts)

    def attempts(self) -> list[Attempt]:
        return list(self._attempts.values())

    async def wait_idle(self, timeout_s: float) -> bool:
        """Wait until no attempt runs, at most so long; whether that came true."""
        if not self._attempts:
            return True
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._idle.append(waiter)
        await asyncio.wait([waiter], timeout=timeout_s)
        return not self._attempts

    def _signal_idle(self) -> None:
        if not self._attempts:
            idle, self._idle = self._idle, []
            for waiter in idle:
                if not waiter.done():
                    waiter.set_result(None)

    def interrupt(self) -> None:
        """The worker goes: stop what still runs and queue it for another one, as an attempt that failed here."""
        for attempt in self.attempts():
            failure = Failure("worker_lost", SHUTDOWN, "the worker shut down before the attempt ended")
            attempt.ending = failure
            attempt.stop_code()
            if attempt.definition.executor != "async":
                self._end(attempt, failure)

    def close(self) -> None:
        self._deadlines.stop()
        self._executors.close()


def _out_of_time(attempt: Attempt) -> Failure:
    """The failure of an attempt whose deadline has passed."""
    options = attempt.command.options
    bounds = {
        "start_to_close": options.start_to_close_ms,
        "schedule_to_close": options.schedule_to_close_ms,
        "run": (attempt.run_deadline_ms or 0) - attempt.scheduled_ms,
    }
    return timed_out(attempt.deadline_kind, bounds[attempt.deadline_kind] or 0, heartbeat=attempt.heartbeat)


def _log_failure(attempt: Attempt, failure: Failure, verdict: GiveUp | Retry, now_ms: int) -> None:
    """One line for the people who watch the worker; the ledger's attempt log has the rest."""
    who, name = attempt.identity, attempt.command.activity_type
    if isinstance(verdict, Retry):
        then = f"attempt {attempt.number + 1} in {max(0, verdict.due_ms - now_ms) / 1000:g} s"
    else:
        then = f"given up ({verdict.retry_state})"
    # A shutdown says in one line how many attempts it cut short; which ones is for those who look closely.
    level = logging.INFO if failure.type == SHUTDOWN else logging.WARNING
    logger.log(
        level,
        "activity %s of %s: attempt %d: %s: %s; %s",
        name,
        who,
        attempt.number,
        failure.type,
        failure.message,
        then,
        extra={"workflow_id": who.workflow_id, "run_id": who.run_id, "activity": name, "attempt": attempt.number},
    )
