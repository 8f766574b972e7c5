"""Dispatch of activities: starting attempts, and what their code comes to.

Two kinds of attempt. An *eager* one runs beside its run, in the worker that owns it: the transition that scheduled it
is its record, and its outcome goes straight into the run's next transition. A *claimed* one comes from a task row,
which is its record; when the run is owned elsewhere its outcome goes back into that row. Retries always go through a
row: it is written before the attempt starts (intent before effect) and any worker may take it.
"""

from __future__ import annotations

import asyncio
import functools
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from pledger import errors
from pledger.engine import interception
from pledger.engine.admission import Admission
from pledger.engine.attempt import Attempt, CompleteAsync
from pledger.engine.executors import Executors
from pledger.engine.handing_out import HandingOut
from pledger.engine.heartbeats import Heartbeats
from pledger.engine.held import Held
from pledger.engine.meter import ending_of
from pledger.engine.outcomes import SHUTDOWN, Outcomes, Runs
from pledger.engine.port.answers import Reply
from pledger.engine.port.operations import PutTask
from pledger.engine.port.records import TaskRow
from pledger.engine.publishing import Publishing
from pledger.engine.slots import Slots
from pledger.engine.steps import Recorded, Steps, Unkept
from pledger.engine.task_rows import TaskRows, decode_command, decode_failure, encode_record, identity_of
from pledger.engine.time_outs import TimeOuts, out_of_time
from pledger.engine.under_way import UnderWay
from pledger.engine.verdicts import cancelled, cancelled_unstarted, damaged, worker_lost
from pledger.history import failures, payloads
from pledger.history.events import ActivityCompleted, ActivityFailed, ActivityOptions, ScheduleActivity
from pledger.history.failures import Failure
from pledger.history.secret import found_in
from pledger.history.secret import known as known_secrets

if TYPE_CHECKING:
    from pledger.engine.budgets import Budgets
    from pledger.engine.committer import Committer
    from pledger.engine.interception import ActivityInboundInterceptor
    from pledger.engine.keyring import Keyring
    from pledger.engine.meter import Ending, WorkerMeter
    from pledger.engine.port.lanes import Bounds
    from pledger.engine.port.verbs import Store
    from pledger.engine.secrets import Secrets
    from pledger.engine.session import LedgerClock
    from pledger.machine.definitions import ActivityDefinition
    from pledger.machine.identity import RunIdentity


class Activities:
    """The attempts of one worker.

    definitions: what it knows, which a test may add to. rows: those of its attempts. admission: which may start beside
    their runs. under_way: those that run. held: rows that wait for a slot here. meter: told what they come to; None
    costs nothing.
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
        bounds: Bounds,
        budgets: Budgets | None,
        keyring: Keyring,
        inbound: ActivityInboundInterceptor | None = None,
        meter: WorkerMeter | None = None,
    ) -> None:
        self.definitions = definitions
        self._meter = meter
        self._inbound = inbound
        self.rows = TaskRows(
            committer=committer,
            clock=clock,
            loop=loop,
            randomness=randomness,
            worker=worker,
            session_key=session_key,
            runs=runs,
        )
        self._slots = Slots(
            definitions, attempts_max=concurrent_max, threads_max=threads_max, transactions_max=transactions_max
        )
        self.admission = Admission(bounds, self._slots, budgets)
        self.under_way = UnderWay(loop, self.rows)
        self.held = Held(self._slots, loop, begin=self._begin_held, give_back=self.rows.give_back)
        self._session_key = session_key
        self._budgets = budgets
        self._clock = clock
        self._loop = loop
        self._runs = runs
        self._payload_bytes_max = payload_bytes_max
        self._secrets = secrets
        self.executors = Executors(loop, threads_max)
        self._outcomes = Outcomes(
            rows=self.rows, runs=runs, clock=clock, randomness=randomness, session_key=session_key
        )
        self._time_outs = TimeOuts(loop, clock, self._end)
        heartbeats = Heartbeats(committer, clock, self.rows, self._time_outs.stop)
        self._publishing = Publishing(committer, clock, loop, self.rows, runs.published)
        self._handing_out = HandingOut(rows=self.rows, clock=clock, loop=loop, keyring=keyring, session_key=session_key)
        self._steps = Steps(store, transactions, clock, self._encode)
        # Bound once, not for every attempt.
        self._on_heartbeat, self._on_done, self._now_ms = heartbeats.beat, self._done, clock.now_ms
        self._key, self._on_publish = self._handing_out.key, self._publishing.publish
        self._attempts, self._deliver = self.under_way.attempts, self._outcomes.deliver

    # Starting ---------------------------------------------------------------------------------------------------------

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
        """Start the attempt of a row that this session has claimed, or settle what was left open of it.

        Its clocks start now: its row says when the claim began, and that may have waited for others in the store.
        """
        attempt, damage = self._claimed(row, identity, row.started_ms if row.lost else None)
        if damage is not None:
            self._end(attempt, damage)
        elif row.lost:
            # The attempt of this number died with its worker: it counts, and the next one is written before it starts.
            self._end(attempt, worker_lost(row.attempt))
        elif row.cancel_requested:
            self._end(attempt, cancelled_unstarted())
        elif attempt.deadline_ms is not None and self._clock.now_ms() >= attempt.deadline_ms:
            self._end(attempt, out_of_time(attempt))  # it waited for a worker until its time was over
        else:
            self._start(attempt)

    def take_claimed(self, row: TaskRow) -> None:
        """The same as far as there is a slot; a row that was claimed ahead waits for one."""
        if row.owner != self._session_key():
            return  # the answer came when the lease was lost, and the row with it
        judged = row.lost or row.cancel_requested  # takes none
        if judged or self._slots.has_room(row.activity_type):
            self.start_claimed(row, identity_of(row))
        else:
            self.held.keep(row)

    def _begin_held(self, row: TaskRow) -> None:
        if row.owner != self._session_key():
            return  # the lease is lost, and the row with it
        if row.expires_ms is not None and row.expires_ms <= self._clock.now_ms():
            self.rows.give_back(row)  # where it has waited too long, as it would have there
        else:
            self.start_claimed(row, identity_of(row))

    def settle_lost(self, row: TaskRow, identity: RunIdentity) -> None:
        """A row says that this session runs an attempt, and it does not: it counts as lost."""
        attempt, damage = self._claimed(row, identity, row.started_ms)
        self._end(attempt, damage or worker_lost(row.attempt))

    def knows(self, row: TaskRow) -> bool:
        """Whether the attempt of a started row runs here, or what became of it is being written."""
        attempt = self._attempts.get((row.run_key, row.event_id))
        if attempt is not None and attempt.number >= row.attempt:
            return True
        return self.rows.is_overtaking(row) or self.held.knows(row)

    def _claimed(
        self, row: TaskRow, identity: RunIdentity, started_ms: int | None = None
    ) -> tuple[Attempt, Failure | None]:
        """The attempt of a row that this session owns; it takes a slot. And what it fails with, where the row cannot be
        read: one such row must not stand in the way of all others. started_ms: None for now."""
        self._slots.take(row.activity_type)
        damage = last_failure = None
        try:
            command = decode_command(row.command)
            if row.last_failure is not None:
                last_failure = decode_failure(row.last_failure)
        except msgspec.MsgspecError as error:
            command, damage = ScheduleActivity(row.activity_type, b"[]", ActivityOptions()), damaged(row.attempt, error)
        attempt = Attempt(
            self.definitions[row.activity_type],
            identity,
            row.run_key,
            row.event_id,
            command,
            row.attempt,
            0,
            row.scheduled_ms,
            self._clock.now_ms() if started_ms is None else started_ms,
            row,
            self._loop,
            last_failure,
        )
        attempt.cancel_requested = row.cancel_requested
        return attempt, damage

    def _start(self, attempt: Attempt) -> None:
        self._attempts[attempt.run_key, attempt.event_id] = attempt
        attempt.on_heartbeat, attempt.now_ms, attempt.key = self._on_heartbeat, self._now_ms, self._key
        attempt.on_publish, attempt.payload_bytes_max = self._on_publish, self._payload_bytes_max
        try:
            args = attempt.definition.signature.decode_args(attempt.command.args)
            definition = attempt.definition
            if definition.transaction is None and not definition.secrets and self._inbound is None:
                self.executors.start(attempt, args, self._on_done)
            else:
                self._start_wrapped(attempt, args)
        except Exception as error:  # noqa: BLE001 - it did not start, and never will
            failure = failures.from_exception(error)
            self._end(attempt, msgspec.structs.replace(failure, non_retryable=True))
            return
        if self._budgets is not None:
            self._budgets.began(attempt)
        if self._meter is not None:
            self._note_begin(self._meter, attempt)
        self._time_outs.arm(attempt)

    def _start_wrapped(self, attempt: Attempt, args: list[Any]) -> None:
        """One with a transaction around its code, with secrets, with interceptors, or with several of them."""
        definition, done = attempt.definition, self._on_done
        code: Callable[..., Any] = definition.fn
        if definition.transaction is not None:
            code, done = self._steps.code_of(attempt), self._step_done
        if definition.secrets:
            code = self._secrets.around(code, definition.secrets, definition.name, definition.executor)
            attempt.resolve = functools.partial(self._secrets.resolve, definition.secrets, definition.name)
        if self._inbound is not None:
            interception.start(self._inbound, self.executors, attempt, args, done, code)
        else:
            self.executors.start(attempt, args, done, code)

    # Ending -----------------------------------------------------------------------------------------------------------

    def _done(self, attempt: Attempt, result: Any, error: BaseException | None) -> None:
        """The code ended, by itself or because it was told to stop."""
        outbox = attempt.outbox
        if outbox is not None and outbox.is_pending and not attempt.finished:
            # Who reads the outcome finds all that was published before it.
            outbox.waiters.append(functools.partial(self._done, attempt, result, error))
            return
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
            if isinstance(error, CompleteAsync):
                self._hand_out(attempt)
            else:
                self._end(attempt, failures.from_exception(error))
            return
        try:
            encoded = self._encode(attempt, result)
        except Exception as refused:  # noqa: BLE001 - user code may run in it: properties, serializers
            self._refuse(attempt, refused)
            return
        if attempt.opened is not None:
            self._note_end(attempt, None)
        if self._meter is not None:
            self._measure(self._meter, attempt, "completed")
        self._release(attempt)
        self._deliver(attempt, ActivityCompleted(attempt.event_id, encoded, attempt.number), ())

    def _hand_out(self, attempt: Attempt) -> None:
        """The code has ended, and the attempt goes on outside: nothing here is held for it. Of what it depends on no
        more is known than that the call went out."""
        if attempt.opened is not None:
            self._note_end(attempt, None)
        if self._meter is not None:
            self._measure(self._meter, attempt, "outside")
        self._release(attempt)
        self._handing_out.hand_out(attempt)

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
                self._slots.give(attempt.definition.name)
                self.under_way.signal_idle()
            else:
                if attempt.opened is not None:
                    self._note_end(attempt, None)
                if self._meter is not None:
                    self._measure(self._meter, attempt, "completed")
                self._release(attempt)
            if result.reply is Reply.WON:
                self._runs.recorded(attempt, result.outcome)
            else:
                self.rows.log(self.rows.record(attempt, "late", None))
        else:
            self._done(attempt, None, result.error if isinstance(result, Unkept) else error)

    def _late(self, attempt: Attempt, error: BaseException | None) -> None:
        self._slots.give(attempt.definition.name)
        if not isinstance(error, asyncio.CancelledError | CompleteAsync):
            # An abandoned thread came back: its result no longer counts, but nothing is hidden.
            failure = None if error is None else failures.from_exception(error)
            self.rows.log(self.rows.record(attempt, "late", failure))
        self.under_way.signal_idle()

    def _end(self, attempt: Attempt, failure: Failure) -> None:
        if attempt.opened is not None:
            self._note_end(attempt, failure)
        if self._meter is not None:
            self._measure(self._meter, attempt, ending_of(failure))
        self._release(attempt)
        self._outcomes.failed(attempt, failure)

    def _note_end(self, attempt: Attempt, failure: Failure | None) -> None:
        """For the budget of what it depends on."""
        assert self._budgets is not None
        self._budgets.ended(attempt, failure)

    def _note_begin(self, meter: WorkerMeter, attempt: Attempt) -> None:
        attempt.began_s = self._loop.time()
        due_ms = attempt.scheduled_ms if attempt.row is None else attempt.row.due_ms
        meter.attempt_begun(attempt.definition.name, max(0, self._clock.now_ms() - due_ms) / 1000)

    def _measure(self, meter: WorkerMeter, attempt: Attempt, ending: Ending) -> None:
        name, began_s = attempt.definition.name, attempt.began_s
        meter.attempt_ended(name, ending, None if began_s is None else self._loop.time() - began_s)
        if ending == "completed":
            meter.activity_completed(name, max(0, self._clock.now_ms() - attempt.scheduled_ms) / 1000)

    def _release(self, attempt: Attempt) -> None:
        """The attempt is over; its slot is free, unless its thread still runs."""
        attempt.finished = True
        if attempt.timer is not None:
            attempt.timer.cancel()
        if self._attempts.get((attempt.run_key, attempt.event_id)) is attempt:
            del self._attempts[attempt.run_key, attempt.event_id]
        if attempt.row is not None:
            self.held.ended(attempt.definition.name)
        if attempt.task is None:
            self._slots.give(attempt.definition.name)
        if self.under_way.waiters:
            self.under_way.signal_idle()

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

    # Cancellation and shutdown ----------------------------------------------------------------------------------------

    def cancel(self, run_key: int, event_id: int, reason: str) -> bool:
        """Ask a running attempt to stop, and have no further one; whether it runs here."""
        attempt = self._attempts.get((run_key, event_id))
        if attempt is None:
            self.held.cancel(run_key, event_id)
            return False
        attempt.cancel_requested = True
        if attempt.ending is None:
            self._time_outs.stop(attempt, cancelled(reason))
        return True

    def unwritten_row(self, run_key: int, fence: int, event_id: int) -> TaskRow | None:
        """For a transition that cancels the activity: the row that it is to have, if the store may have none of it yet.

        In a row the request outlives this worker, and holds for whatever is written over it: the row of a next attempt
        may be on its way already.
        """
        attempt = self.under_way.eager(run_key, fence, event_id)
        if attempt is not None:
            attempt.row_sent = True
            return self.rows.started(attempt)
        write = self.rows.unwritten.get((run_key, event_id))
        return write.task if isinstance(write, PutTask) else None

    def row_written(self, fence: int, row: TaskRow) -> None:
        """That transition is durable."""
        attempt = self.under_way.eager(row.run_key, fence, row.event_id)
        if attempt is not None:
            attempt.row = row

    def abandon(self, run_key: int, event_ids: Iterable[int], reason: str) -> None:
        """The run closed, or is no longer ours: its eager attempts stop and nobody wants their outcome."""
        for event_id in event_ids:
            attempt = self._attempts.get((run_key, event_id))
            if attempt is not None and attempt.row is None:
                self.cancel(run_key, event_id, reason)

    def stop_claimed(self, reason: str) -> None:
        """The rows of these attempts are somebody else's now: their outcome no longer counts, so they stop."""
        self.held.forget()
        for attempt in self.under_way.all():
            if attempt.row is not None and attempt.ending is None:
                self._time_outs.stop(attempt, cancelled(reason))

    def leave(self) -> None:
        """The worker goes: nothing more is placed here, and what has not begun goes back."""
        self.admission.leaving = True
        self.held.leave()

    def interrupt(self) -> None:
        """The worker goes: stop what still runs and queue it for another one, as an attempt that failed here."""
        for attempt in self.under_way.all():
            failure = Failure("worker_lost", SHUTDOWN, "the worker shut down before the attempt ended")
            attempt.ending = failure
            attempt.stop_code()
            if attempt.definition.executor != "async":
                self._end(attempt, failure)

    def close(self) -> None:
        self.held.stop()
        self._handing_out.close()
        self._time_outs.close()
        self.executors.close()
