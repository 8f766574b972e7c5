"""Runs for tests: transitions in the order of their writing, and the description that a client would give of them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from pledger.client import Description, History, RunSummary, WorkerSummary
from pledger.engine.port.records import AttemptRecord, RunStatus, TaskRow
from pledger.history import events, failures
from pledger.history.events import ActivityOptions, Command, Input
from pledger.history.failures import Failure
from pledger.history.state import fold
from pledger.history.transition import FORMAT, Transition, encode_event
from pledger.machine.identity import RunIdentity

#: When every run of a test begins, in ms.
BEGIN_MS = round(datetime(2026, 11, 29, 18, 40, tzinfo=UTC).timestamp() * 1000)

TIMEOUT = Failure("application", "CardTimeout", "gateway did not answer")
START = events.RunStarted("fulfil", b'[{"id":3544790567247868102}]', b"seed")


def schedule(name: str = "charge_card", *, cancellation: str = "try", task_queue: str | None = None) -> Command:
    return events.ScheduleActivity(name, b'["order"]', ActivityOptions(cancellation=cancellation), task_queue)


def timer(seconds: int, *, at_s: float = 0) -> Command:
    return events.StartTimer(seconds * 1000, BEGIN_MS + round(at_s * 1000) + seconds * 1000)


class Run:
    """Grows by `then`; `describe` looks at it at a time."""

    def __init__(self, *, workflow_id: str = "order-7421", task_queue: str = "default") -> None:
        self.identity = RunIdentity(
            namespace="default",
            workflow_id=workflow_id,
            run_id="01J9X000000000000000000000",
            workflow_type="fulfil",
            task_queue=task_queue,
        )
        self.transitions: list[Transition] = []
        self.pending: list[TaskRow] = []
        self.attempts: list[AttemptRecord] = []

    def then(self, at_s: float, *happened: Input | Command, code: str | None = None) -> Run:
        """A transition. Inputs are what commands are not."""
        commands = tuple(one for one in happened if isinstance(one, events.Command))
        inputs = tuple(one for one in happened if isinstance(one, events.Input))
        self.transitions.append(Transition(FORMAT, BEGIN_MS + round(at_s * 1000), code, inputs, commands))
        return self

    def task(self, event_id: int, **fields: Any) -> Run:
        """A pending activity in the store. Times in it are seconds, as `due_s` and `started_s`."""
        for name in ("due", "started"):
            if f"{name}_s" in fields:
                fields[f"{name}_ms"] = BEGIN_MS + round(fields.pop(f"{name}_s") * 1000)
        row = TaskRow(
            run_key=1,
            event_id=event_id,
            namespace=self.identity.namespace,
            workflow_id=self.identity.workflow_id,
            run_id=self.identity.run_id,
            workflow_type=self.identity.workflow_type,
            task_queue=self.identity.task_queue,
            activity_type="charge_card",
            state="queued",
            attempt=1,
            due_ms=BEGIN_MS,
            command=encode_event(schedule()),
            scheduled_ms=BEGIN_MS,
        )
        self.pending.append(msgspec.structs.replace(row, **fields))
        return self

    def attempt(self, event_id: int, number: int, outcome: str = "failed", failure: Failure | None = TIMEOUT) -> Run:
        encoded = None if failure is None else msgspec.msgpack.encode(failure)
        began = BEGIN_MS + number * 1000
        record = AttemptRecord(1, event_id, number, outcome, began, began + 250, "4242@host", encoded)
        self.attempts.append(record)
        return self

    def describe(self, at_s: float, *, workers: tuple[WorkerSummary, ...] = (), **fields: Any) -> Description:
        """fields: those of the description that the history does not tell."""
        state = fold(self.transitions)
        status: RunStatus = state.status
        description = Description(
            summary=RunSummary(
                self.identity.workflow_id,
                self.identity.run_id,
                self.identity.workflow_type,
                self.identity.task_queue,
                status,
                at(0),
                None if state.closed_ms is None else at((state.closed_ms - BEGIN_MS) / 1000),
                None,
                first_run_id=self.identity.chain_id,
                segment=self.identity.segment,
            ),
            history=History(self.identity, tuple(self.transitions)),
            state=state,
            last_event=state.last_event,
            owner=None,
            due=None,
            pending=self.pending,
            attempts=self.attempts,
            inbox=[],
            undelivered=[],
            blocked=None,
            workers=workers,
            now=at(at_s),
        )
        names = {name: getattr(description, name) for name in Description.__slots__}
        return Description(**{**names, **fields})


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(BEGIN_MS / 1000 + seconds, UTC)


def worker(
    identity: str = "4242@host", *, session_key: int = 7, task_queue: str = "default", live: bool = True
) -> WorkerSummary:
    return WorkerSummary(session_key, identity, task_queue, "c0de", at(-60), at(60), live)


def encoded(failure: Failure) -> bytes:
    data = msgspec.msgpack.encode(failure)
    assert failures.decode(data) == failure
    return data
