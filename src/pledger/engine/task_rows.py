"""The task rows of a worker's attempts: what is in them, and writing them as often as it takes.

What a row says nobody else knows until it is written: a run may not leave memory while a row of it is on its way.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from pledger import errors
from pledger.engine.port.answers import Reply
from pledger.engine.port.lane_text import lane_of
from pledger.engine.port.operations import FinishTask, HandOut, LogAttempts, PutTask
from pledger.engine.port.records import OUTSIDE, AttemptRecord, TaskRow
from pledger.history.events import ActivityCompleted, ActivityFailed, ScheduleActivity
from pledger.history.failures import Failure
from pledger.machine.identity import RunIdentity

if TYPE_CHECKING:
    import asyncio
    import random

    from pledger.engine.active_run import ActiveRun
    from pledger.engine.attempt import Attempt
    from pledger.engine.committer import Committer
    from pledger.engine.port.answers import Answer
    from pledger.engine.session import LedgerClock

logger = logging.getLogger("pledger.engine")

#: How a command, a failure or an outcome stands in a row, and how it is read again.
encode_record: Final = msgspec.msgpack.Encoder().encode
decode_command: Final = msgspec.msgpack.Decoder(ScheduleActivity).decode
decode_failure: Final = msgspec.msgpack.Decoder(Failure).decode
decode_outcome: Final = msgspec.msgpack.Decoder(ActivityCompleted | ActivityFailed).decode


def record_of(
    attempt: tuple[int, int, int],
    outcome: str,
    started_ms: int | None,
    ended_ms: int,
    worker: str,
    failure: Failure | None,
) -> AttemptRecord:
    """A line of the attempt log. attempt: (run_key, event_id, number)."""
    told = None if failure is None else encode_record(failure)
    return AttemptRecord(*attempt, outcome, started_ms, ended_ms, worker, told)


def first_row(run: ActiveRun, event_id: int, command: ScheduleActivity, now_ms: int) -> TaskRow:
    """A queued row for the activity's first attempt, by the run that schedules it now."""
    return queued_row(
        run.identity,
        run.run_key,
        event_id,
        command,
        number=1,
        due_ms=now_ms,
        scheduled_ms=now_ms,
        run_deadline_ms=run.deadline_ms,
    )


def queued_row(
    identity: RunIdentity,
    run_key: int,
    event_id: int,
    command: ScheduleActivity,
    *,
    number: int,
    due_ms: int,
    scheduled_ms: int,
    heartbeat: bytes | None = None,
    last_failure: Failure | None = None,
    run_deadline_ms: int | None = None,
) -> TaskRow:
    """A queued row for the activity. run_deadline_ms: when its run times out, or None."""
    options, placement = command.options, command.placement
    if run_deadline_ms is not None:
        options = msgspec.structs.replace(options, run_deadline_ms=run_deadline_ms)
        command = msgspec.structs.replace(command, options=options)
    waits_until = [
        start + bound
        for start, bound in (
            (due_ms, options.schedule_to_start_ms),
            (scheduled_ms, options.schedule_to_close_ms),
        )
        if bound is not None
    ]
    return TaskRow(
        run_key=run_key,
        event_id=event_id,
        namespace=identity.namespace,
        workflow_id=identity.workflow_id,
        run_id=identity.run_id,
        workflow_type=identity.workflow_type,
        task_queue=command.task_queue or identity.task_queue,
        activity_type=command.activity_type,
        state="queued",
        attempt=number,
        due_ms=due_ms,
        command=encode_record(command),
        scheduled_ms=scheduled_ms,
        expires_ms=min(waits_until, default=None),
        heartbeat=heartbeat,
        last_failure=None if last_failure is None else encode_record(last_failure),
        lane=lane_of(placement),
        weight=1.0 if placement is None else placement.fairness_weight,
    )


def identity_of(task: TaskRow) -> RunIdentity:
    return RunIdentity(
        namespace=task.namespace,
        workflow_id=task.workflow_id,
        run_id=task.run_id,
        workflow_type=task.workflow_type,
        task_queue=task.task_queue,
    )


class Runs(Protocol):
    """What rows ask of the runs of this worker, and tell them."""

    def awaits(self, run_key: int, fence: int, event_id: int) -> bool:
        """Whether the run is owned and still waits for the activity."""
        ...

    def requeued(self, task: TaskRow) -> None:
        """A task row waits for its next attempt."""
        ...

    def recorded(self, attempt: Attempt, outcome: ActivityCompleted | ActivityFailed) -> None:
        """The outcome is in the row of the attempt: for its run, should that be here."""
        ...

    def attempts_ended(self) -> None:
        """An attempt that had a row is over, and so are its slots."""
        ...

    def in_doubt(self) -> None:
        """A row may be this session's, and nobody here knows of it."""
        ...


#: What is no answer for good: the store comes back, and so does a key.
NOT_NOW: Final = (errors.StoreUnavailableError, errors.CodecError)


class TaskRows:
    """unwritten: the activities, by (run_key, event_id), of which a row is on its way: of a next attempt, or the end of
    one that has a row."""

    def __init__(
        self,
        *,
        committer: Committer,
        clock: LedgerClock,
        loop: asyncio.AbstractEventLoop,
        randomness: random.Random,
        worker: str,
        session_key: Callable[[], int],
        runs: Runs,
    ) -> None:
        self.unwritten: dict[tuple[int, int], PutTask | FinishTask | HandOut] = {}
        self._committer = committer
        self._clock = clock
        self._loop = loop
        self._random = randomness
        self._worker = worker
        self._session_key = session_key
        self._runs = runs
        self._held: dict[int, list[tuple[Attempt, FinishTask | HandOut]]] = {}

    def started(self, attempt: Attempt) -> TaskRow:
        """The row of an attempt that began without one."""
        row = queued_row(
            attempt.identity,
            attempt.run_key,
            attempt.event_id,
            attempt.command,
            number=attempt.number,
            due_ms=attempt.started_ms,
            scheduled_ms=attempt.scheduled_ms,
            heartbeat=attempt.heartbeat,
            run_deadline_ms=attempt.run_deadline_ms,
        )
        return msgspec.structs.replace(
            row, state="started", started_ms=attempt.started_ms, owner=self._session_key(), expires_ms=None
        )

    def record(self, attempt: Attempt, outcome: str, failure: Failure | None) -> AttemptRecord:
        """A line of the attempt log."""
        place = (attempt.run_key, attempt.event_id, attempt.number)
        return record_of(place, outcome, attempt.started_ms, self._clock.now_ms(), self._worker, failure)

    def log(self, *records: AttemptRecord) -> None:
        """Write lines of the attempt log. They prove nothing, and are not written twice."""
        self._committer.submit(LogAttempts(records), lambda _: None)

    def is_overtaking(self, row: TaskRow) -> bool:
        """Whether what is on its way ends the attempt of the row, or comes after it. What is of an earlier attempt, or
        put the row there that has been claimed since, is only being repeated: its answer was lost."""
        match self.unwritten.get((row.run_key, row.event_id)):
            case FinishTask(attempt=attempt) | HandOut(attempt=attempt):
                return attempt >= row.attempt
            case PutTask(task=task):
                return task.attempt > row.attempt or (task.attempt == row.attempt and task.state == "started")
            case _:
                return False

    def put(self, put: PutTask) -> None:
        """Write the row of a run's next attempt. Until it is there the run may not leave: nobody else knows of it."""
        self.unwritten[put.task.run_key, put.task.event_id] = put
        self._committer.submit(put, lambda answer: self._put(put, answer))

    def has_unwritten_put(self, run_key: int) -> bool:
        """Whether the row of a next attempt of the run is on its way."""
        return any(key == run_key and isinstance(write, PutTask) for (key, _), write in self.unwritten.items())

    def hold(self, run_key: int) -> None:
        """Until `left`, the ends of the run's attempts wait: the rows that they end are on their way."""
        self._held[run_key] = []

    def is_on_hold(self, run_key: int) -> bool:
        """Whether it is so: what the store says of such a row is of a time before it."""
        return run_key in self._held

    def left(self, run_key: int) -> None:
        """Those rows are written, or never will be."""
        for attempt, finish in self._held.pop(run_key, ()):
            self.finish(attempt, finish)

    def finish(self, attempt: Attempt, finish: FinishTask | HandOut) -> None:
        """Write what became of an attempt that has a row."""
        self.unwritten[attempt.run_key, attempt.event_id] = finish
        held = self._held.get(attempt.run_key)
        if held is not None:
            held.append((attempt, finish))
            return
        self._committer.submit(finish, lambda answer: self._finished(attempt, finish, answer))

    def give_back(self, row: TaskRow) -> None:
        """Put a claimed row whose attempt has not begun into the queue again, as it was. Once: see `held`."""
        queued = msgspec.structs.replace(row, state="queued", owner=None, started_ms=None)
        assert row.owner is not None
        finish = FinishTask(row.run_key, row.event_id, row.attempt, row.owner, None, queued)
        self._committer.submit(finish, lambda answer: self._given_back(queued, answer))

    def _given_back(self, row: TaskRow, answer: Answer) -> None:
        if answer is Reply.WON:
            self._runs.requeued(row)
        elif isinstance(answer, Exception):
            self._runs.in_doubt()

    def _finished(self, attempt: Attempt, finish: FinishTask | HandOut, answer: Answer) -> None:
        if isinstance(answer, NOT_NOW):
            self._later(lambda: self._committer.submit(finish, lambda again: self._finished(attempt, finish, again)))
            return
        self._written(attempt.run_key, attempt.event_id, finish)
        if isinstance(finish, HandOut) and answer in {Reply.WON, Reply.DUPLICATE, Reply.LOST}:
            if answer is Reply.LOST and attempt.row is None:
                # The row that its heartbeat was to give it has not arrived: write it whole.
                out = msgspec.structs.replace(self.started(attempt), owner=OUTSIDE, expires_ms=finish.expires_ms)
                self.put(PutTask(attempt.fence, out))
        elif answer is Reply.WON:
            self._runs.attempts_ended()
            assert isinstance(finish, FinishTask)
            if finish.requeue is not None:
                self._runs.requeued(finish.requeue)
            elif finish.outcome is not None:
                self._runs.recorded(attempt, decode_outcome(finish.outcome))
        elif answer is Reply.LOST:
            self.log(self.record(attempt, "late", None))
        elif isinstance(answer, Exception):
            logger.error("the outcome of %s could not be recorded: %s", attempt.identity, answer)

    def _put(self, put: PutTask, answer: Answer) -> None:
        if isinstance(answer, NOT_NOW):
            self._later(lambda: self._put_again(put))
            return
        self._written(put.task.run_key, put.task.event_id, put)
        if answer is Reply.WON and put.task.state == "queued":
            self._runs.requeued(put.task)
        elif isinstance(answer, Exception):
            logger.error("a retry could not be recorded: %s", answer)

    def _put_again(self, put: PutTask) -> None:
        if self._runs.awaits(put.task.run_key, put.fence, put.task.event_id):
            self._committer.submit(put, lambda answer: self._put(put, answer))
        else:
            # The run is gone, or has its outcome: the row was there after all, was taken, and has done its duty.
            self._written(put.task.run_key, put.task.event_id, put)

    def _written(self, run_key: int, event_id: int, write: PutTask | FinishTask | HandOut) -> None:
        """Unless another one of the activity has set out meanwhile."""
        if self.unwritten.get((run_key, event_id)) is write:
            del self.unwritten[run_key, event_id]

    def _later(self, again: Callable[[], None]) -> None:
        self._loop.call_later(0.1 + self._random.random() * 0.4, again)
