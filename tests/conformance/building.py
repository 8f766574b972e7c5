"""From a step of a script to the operation for a store: what it concerns is read from that store just before."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import msgspec

from pledger.engine.port.filters import PhaseRow
from pledger.engine.port.lane_text import lane_of
from pledger.engine.port.operations import (
    Append,
    Block,
    ConfirmClaim,
    ExpireTask,
    FinishTask,
    FirstMessage,
    HandOut,
    Heartbeat,
    LogAttempts,
    Operation,
    Publish,
    PutTask,
    Release,
    Send,
    StartRun,
    Successor,
    Terminate,
)
from pledger.engine.port.records import AttemptRecord, RunRow, TaskRow
from pledger.engine.port.streams import Publication
from pledger.history import chains
from pledger.history.transition import StoredTransition
from tests.conformance.harness import NOW, Ledger, reset


class Builder:
    """A store, and what a script has made on it. runs, chains, sessions: their keys, in the order in which they came to
    be; places: namespace and queue of each session."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.store = ledger.open()
        self.runs: list[int] = []
        self.chains: list[int] = []
        self.sessions: list[int] = []
        self.places: list[tuple[str, str]] = []
        self._serial = 0

    @property
    def now_ms(self) -> int:
        return self.ledger.clock.now_ms

    async def _row(self, seen: list[Any], number: int) -> RunRow | None:
        if not self.runs:
            return None
        row = await self.store.read_run(self.runs[number % len(self.runs)])
        seen.append(row)
        return row

    def _transition(self, first_event: int) -> StoredTransition:
        """Another checksum each time, the same ones on each side."""
        self._serial += 1
        return StoredTransition(first_event, b"body", hashlib.sha256(f"{self._serial}".encode()).digest()[:8])

    def _task(self, row: RunRow, drawn: Any) -> TaskRow:
        event_id, state, attempt, activity_type, task_queue, due_in, expires_in, body, place = drawn
        if state == "started" and row.owner is None:
            state = "queued"
        return TaskRow(
            run_key=row.run_key,
            event_id=event_id,
            namespace=row.namespace,
            workflow_id=row.workflow_id,
            run_id=row.run_id,
            workflow_type=row.workflow_type,
            task_queue=task_queue,
            activity_type=activity_type,
            state=state,
            attempt=attempt,
            due_ms=self.now_ms + due_in,
            command=body,
            scheduled_ms=NOW,
            started_ms=self.now_ms if state == "started" else None,
            expires_ms=None if expires_in is None else self.now_ms + expires_in,
            owner=row.owner if state == "started" else None,
            outcome=body if state == "done" else None,
            lane=lane_of(place),
            weight=1.0 if place is None else place.fairness_weight,
        )

    def _task_rows(self, row: RunRow, drawn: Any) -> list[TaskRow]:
        return list({each[0]: self._task(row, each) for each in drawn}.values())

    def _records(self, run_key: int, drawn: Any) -> list[AttemptRecord]:
        return [
            AttemptRecord(run_key, event_id, number, outcome, None, self.now_ms, "it's me")
            for number, (event_id, outcome) in enumerate(drawn, 1)
        ]

    def _in_ms(self, due_in: int | None) -> int | None:
        return None if due_in is None else 0 if due_in < 0 else self.now_ms + due_in

    async def _start(self, _: list[Any], *drawn: Any) -> Callable[[], Operation]:
        workflow_id, workflow_type, task_queue, namespace, digest, reuse, conflict, born, tasks, labels, beside = drawn
        owner = None
        if born is not None and self.sessions:
            at = born % len(self.sessions)
            owner, (namespace, _) = self.sessions[at], self.places[at]  # a session serves no other one
        transition = self._transition(1)
        run_id = f"run '{self._serial}'"
        now_ms = self.now_ms

        def make() -> StartRun:
            first = None
            if owner is not None:
                row = RunRow(
                    0, 0, namespace, workflow_id, run_id, workflow_type, task_queue, "running", digest, now_ms,
                    None, 0, b"", 1, owner, None, 0, None, None,
                )  # fmt: skip
                first = Append(0, 0, 0, transition, 2, None, now_ms, tasks=self._task_rows(row, tasks))
            return StartRun(
                namespace, workflow_id, run_id, workflow_type, task_queue, digest, b"started", now_ms, reuse,
                conflict, owner, first, beside=None if beside is None else FirstMessage(*beside),
                attributes=labels[0], memo=labels[1],
            )  # fmt: skip

        return make

    async def _append(self, seen: list[Any], number: int, fence: int, event: int, *rest: Any) -> Any:
        due_in, consumed, tasks, dropped, cancelled, unwritten, attempts, closed, labels, phases, published = rest
        row = await self._row(seen, number)
        if row is None:
            return None
        inbox = await self.store.read_inbox(row.chain_key)
        # A run that goes on as another one has begun.
        messages = [*inbox[:consumed], *(each for each in inbox[consumed:] if closed and each.kind == "start")]
        seen.append(messages)
        successor = None
        if closed == "continued_as_new":
            run_id = chains.run_id_of(row.chain_id, row.segment + 1)
            successor = Successor(
                run_id, row.workflow_type, row.task_queue, b"started again", deadline_ms=self._in_ms(due_in)
            )
        operation = Append(
            row.run_key,
            row.fence + fence,
            max(0, row.last_event + event),
            self._transition(row.last_event + 1),
            row.last_event + 2,
            self._in_ms(due_in),
            self.now_ms,
            closed,
            [(message.message_key, row.last_event + 1) for message in messages],
            self._task_rows(row, tasks),
            dropped,
            cancelled,
            self._task_rows(row, [each for each in unwritten if each[0] not in {task[0] for task in tasks}]),
            self._records(row.run_key, attempts),
            successor,
            attributes=labels[0],
            memo=labels[1],
            phases=[
                PhaseRow(row.last_event + 1 + n, "phase", f"it's {n}", (None, "ada")[n % 2], NOW + by)
                for n, by in enumerate(phases[0])
            ],
            phases_over=phases[1],
            terms=phases[2],
            published=_publications(published),
        )
        return lambda: operation

    async def _rows_left(self, row: RunRow, drawn: Any) -> list[TaskRow]:
        """Who lets go of a run writes no attempt over an outcome."""
        done = {task.event_id for task in await self.store.read_tasks(row.run_key) if task.state == "done"}
        return [each for each in self._task_rows(row, drawn) if each.state == "done" or each.event_id not in done]

    async def _release(self, seen: list[Any], number: int, fence: int, due_in: int | None, tasks: Any) -> Any:
        row = await self._row(seen, number)
        if row is None:
            return None
        left = await self._rows_left(row, tasks)
        return _always(Release(row.run_key, row.fence + fence, self._in_ms(due_in), left))

    async def _block(self, seen: list[Any], number: int, fence: int, code: str, tasks: Any) -> Any:
        row = await self._row(seen, number)
        if row is None:
            return None
        left = await self._rows_left(row, tasks)
        return _always(Block(row.run_key, row.fence + fence, b'{"reason": "bug"}', code, left))

    async def _confirm(self, seen: list[Any], number: int, fence: int) -> Any:
        row = await self._row(seen, number)
        return row and _always(ConfirmClaim(row.run_key, row.fence + fence))

    async def _terminate(self, seen: list[Any], number: int, event: int, is_other: bool) -> Any:
        row = await self._row(seen, number)
        if row is None:
            return None
        transition = self._transition(row.last_event + 1)
        expected = max(0, row.last_event + event)
        head = b"another!" if is_other else row.head
        return _always(Terminate(row.run_key, expected, head, transition, row.last_event + 1, self.now_ms))

    async def _reset(self, seen: list[Any], number: int, newest: int, *rest: Any) -> Any:
        event, kept, revive, tasks = rest
        base = await self._row(seen, number)
        if base is None:
            return None
        of_chain = [key for key, chain in zip(self.runs, self.chains, strict=True) if chain == base.chain_key]
        last = await self.store.read_run(of_chain[-1 - newest if newest < len(of_chain) else -1])
        history = [each for each in await self.store.read_history(base.run_key) if each.first_event_id <= kept]
        seen += [last, history]
        run_id = f"reset '{self._serial}' of {number}"
        queued = self._task_rows(base, [each for each in tasks if each[1] == "queued"])
        operation = reset(
            base,
            last,
            base_event=max(0, base.last_event + event),
            closing=self._transition(last.last_event + 1) if last.status == "running" else None,
            run_id=run_id,
            kept=2 * len(history),
            head=history[-1].checksum if history else bytes(8),
            tasks=[msgspec.structs.replace(each, run_id=run_id) for each in queued],
            revive=revive,
            time_ms=self.now_ms,
        )
        return lambda: msgspec.structs.replace(operation)

    async def _put(self, seen: list[Any], number: int, fence: int, task: Any, attempts: Any) -> Any:
        row = await self._row(seen, number)
        return row and _always(PutTask(row.fence + fence, self._task(row, task), self._records(row.run_key, attempts)))

    async def _task_of(self, seen: list[Any], number: int, task: int, state: str) -> TaskRow | None:
        """One in this state, if there is one."""
        row = await self._row(seen, number)
        rows = [] if row is None else await self.store.read_tasks(row.run_key)
        seen.append(rows)
        rows = [each for each in rows if each.state == state] or rows
        return rows[task % len(rows)] if rows else None

    async def _finish(self, seen: list[Any], number: int, task: int, attempt: int, *rest: Any) -> Any:
        is_over, again, attempts = rest
        there = await self._task_of(seen, number, task, "started")
        if there is None:
            return None
        requeue = None
        if not is_over:
            row = await self.store.read_run(there.run_key)
            requeue = msgspec.structs.replace(
                self._task(row, again),
                event_id=there.event_id,
                state="queued",
                owner=None,
                outcome=None,
                started_ms=None,
            )
        owner = self._runner_of(there)
        records = self._records(there.run_key, attempts)
        outcome = b"done" if is_over else None
        return _always(
            FinishTask(there.run_key, there.event_id, there.attempt + attempt, owner, outcome, requeue, records)
        )

    async def _expire(self, seen: list[Any], number: int, task: int, attempt: int, off_ms: int, attempts: Any) -> Any:
        there = await self._task_of(seen, number, task, "queued")
        return there and _always(
            ExpireTask(
                there.run_key,
                there.event_id,
                there.attempt + attempt,
                (there.expires_ms or 0) + off_ms,
                b"expired",
                self._records(there.run_key, attempts),
            )
        )

    async def _heartbeat(self, seen: list[Any], number: int, task: int, attempt: int, details: bytes | None) -> Any:
        there = await self._task_of(seen, number, task, "started")
        if there is None:
            return None
        owner = self._runner_of(there)
        return _always(Heartbeat(there.run_key, there.event_id, there.attempt + attempt, owner, details))

    async def _publish(self, seen: list[Any], number: int, event_id: int, attempt: int, *rest: Any) -> Any:
        session, fence, before, values = rest
        row = await self._row(seen, number)
        if row is None:
            return None
        owner = None if session is None else self.sessions[session % len(self.sessions)] if self.sessions else 10**9
        place = (row.run_key, event_id, attempt, owner, row.fence + fence, before)
        return _always(Publish(*place, _publications(values), self.now_ms))

    async def _hand_out(
        self, seen: list[Any], number: int, task: int, attempt: int, in_ms: int | None, details: bytes | None
    ) -> Any:
        there = await self._task_of(seen, number, task, "started")
        if there is None:
            return None
        owner = self._runner_of(there)
        expires_ms = None if in_ms is None else self.now_ms + in_ms
        return _always(HandOut(there.run_key, there.event_id, there.attempt + attempt, owner, expires_ms, details))

    def _runner_of(self, there: TaskRow) -> int:
        """Who says that it runs the attempt: for a row that nobody runs, some session, or none that is there."""
        if there.owner is not None:
            return there.owner
        return self.sessions[0] if self.sessions else 10**9

    async def _log(self, seen: list[Any], number: int, attempts: Any) -> Any:
        row = await self._row(seen, number)
        return row and _always(LogAttempts(self._records(row.run_key, attempts)))

    async def _send(self, _: list[Any], number: int, kind: str, *rest: Any) -> Any:
        message_id, name, body, keep_id, local, room = rest
        run_key = self.runs[number % len(self.runs)] if self.runs else 10**9
        here = [self.sessions[each] for each in local if each < len(self.sessions)]
        return _always(Send(run_key, kind, message_id, name, body, self.now_ms, keep_id, here, room))


def _publications(drawn: Any) -> list[Publication]:
    return [Publication(topic, body) for topic, body in drawn]


def _always(operation: Operation) -> Callable[[], Operation]:
    return lambda: operation
