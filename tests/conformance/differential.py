"""One script of verbs, carried out on several stores, whose answers and rows must be the same.

A script is a list of steps that a seed draws: what to do, with numbers for "the third run", "the second session" or
"a fence that is one too low". Each store has keys of its own; a `Side` knows which run is which, carries the script
out on its store, and tells every answer with names in place of keys. What a step is built from (the row of a run, its
mail, its tasks) is read from the side's own store just before, and compared as well.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec

from pledger.engine.port.circuit import Tally
from pledger.engine.port.dependencies import Ask, Stated
from pledger.engine.port.lane_text import lane_of
from pledger.engine.port.lanes import Bounds, Served
from pledger.engine.port.operations import (
    Append,
    Block,
    ConfirmClaim,
    ExpireTask,
    FinishTask,
    Heartbeat,
    LogAttempts,
    Operation,
    PutTask,
    Release,
    Send,
    StartRun,
    Terminate,
)
from pledger.engine.port.pauses import Scope
from pledger.engine.port.records import AttemptRecord, Condition, RunRow, TaskRow
from pledger.engine.port.retention import FROM_THE_START
from pledger.errors import PledgerError
from pledger.history.budget import BudgetRule
from pledger.history.placement import LimitRule
from pledger.history.transition import StoredTransition
from tests.conformance.harness import LEASE_MS, NOW, Ledger
from tests.conformance.scripts import ACTIVITIES, CODES, IDS, NAMESPACES, QUEUES, TYPES, Step

#: Of what is due at the same moment any part may be taken first: so claims take all.
MANY: Final = 100


class Side:
    """A store with a script on it. runs, sessions, requests: their keys, in the order in which they came to be."""

    def __init__(self, name: str, ledger: Ledger) -> None:
        self.name = name
        self.ledger = ledger
        self.store = ledger.open()
        self.runs: list[int] = []
        self.chains: list[int] = []
        self.sessions: list[int] = []
        self.places: list[tuple[str, str]] = []
        self.requests: list[int] = []
        self._last: list[Callable[[], Operation]] = []
        self._serial = 0

    async def do(self, step: Step) -> Any:
        """Carry the step out; the answer, with names in place of keys."""
        kind, *rest = step
        verb: Callable[..., Awaitable[Any]] = getattr(self, kind)
        return self.named(await verb(*rest))

    async def rows(self) -> Any:
        """All that the verbs show of the ledger."""
        store = self.store
        # Their order is nobody's promise.
        shown: dict[str, Any] = {"mail": sorted(await store.read_mail(self.runs), key=lambda mail: mail.run_key)}
        statuses = await store.read_statuses(self.runs)
        shown["statuses"] = [statuses.get(run_key) for run_key in self.runs]
        for number, run_key in enumerate(self.runs):
            shown[f"run {number}"] = [
                await store.read_run(run_key),
                await store.read_history(run_key),
                await store.read_last_transitions(run_key),
                await store.read_tasks(run_key),
                await store.read_places(run_key),
                await store.read_attempts(run_key),
                await store.read_inbox(self.chains[number]),
                await store.read_undelivered(self.chains[number]),
                [await store.read_message(self.chains[number], each) for each in IDS],
            ]
        shown["sessions"] = [[await store.owned_runs(key), await store.owned_tasks(key)] for key in self.sessions]
        for namespace in NAMESPACES:
            shown[namespace] = [
                await store.read_sessions(namespace),
                await store.read_pauses(namespace),
                await store.read_dependencies(namespace),
                await store.read_limits(namespace),
                await store.read_queues(namespace, self.now_ms),
                await store.expired_tasks(namespace, self.now_ms, 10),
                await store.finished_types(namespace),
                [await store.finished_chains(namespace, each, 0, FROM_THE_START, 10) for each in TYPES],
                [await store.find_run(namespace, each) for each in IDS],
                *[
                    [await store.list_runs(namespace, each, 5), await store.count_runs(namespace, each)]
                    for each in LISTS
                ],
            ]
        return self.named(shown)

    @property
    def now_ms(self) -> int:
        return self.ledger.clock.now_ms

    # Names in place of keys -------------------------------------------------------------------------------------------

    def named(self, value: Any, field: str = "") -> Any:
        match value:
            case PledgerError():
                return type(value).__name__
            case msgspec.Struct():
                fields = {name: self.named(getattr(value, name), name) for name in value.__struct_fields__}
                return type(value).__name__, {name: each for name, each in fields.items() if name not in _PRIVATE}
            case dict():
                return {key: self.named(each) for key, each in value.items()}
            case list() | tuple():
                return [self.named(each, field) for each in value]
            case int() if field in _RUN_FIELDS:
                return _name("run", self.runs, value)
            case int() if field == "chain_key":
                return _name("chain", self.chains, value)
            case int() if field in {"owner", "session_key"}:
                return _name("session", self.sessions, value)
        return value

    # Operations -------------------------------------------------------------------------------------------------------

    async def commit(self, batch: Sequence[Step]) -> Any:
        """All of them are built before any is written. What a start finds of its workflow id may be as of before the
        batch or after it: beside others it gets an id of its own."""
        seen: list[Any] = []
        if any(kind != "start" for kind, *_ in batch):
            batch = [
                (kind, f"{rest[0]} {len(self.runs)}", *rest[1:]) if kind == "start" else (kind, *rest)
                for kind, *rest in batch
            ]
        made = [each for kind, *rest in batch if (each := await getattr(self, f"_{kind}")(seen, *rest)) is not None]
        self._last = made
        return [seen, await self._write(made)]

    async def repeat(self) -> Any:
        """The newest batch once more: its answer was lost."""
        return await self._write(self._last)

    async def _write(self, made: list[Callable[[], Operation]]) -> Any:
        operations = [make() for make in made]
        answers = await self.store.commit(operations) if operations else []
        for operation, answer in zip(operations, answers, strict=True):
            if type(answer).__name__ == "Started" and isinstance(operation, StartRun):
                self.runs.append(answer.run_key)  # type: ignore[union-attr]
                self.chains.append(answer.chain_key)  # type: ignore[union-attr]
        return answers

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
        workflow_id, workflow_type, task_queue, namespace, digest, reuse, conflict, born, tasks = drawn
        owner = None if born is None or not self.sessions else self.sessions[born % len(self.sessions)]
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
                conflict, owner, first,
            )  # fmt: skip

        return make

    async def _append(self, seen: list[Any], number: int, fence: int, event: int, *rest: Any) -> Any:
        due_in, consumed, tasks, dropped, cancelled, unwritten, attempts, closed = rest
        row = await self._row(seen, number)
        if row is None:
            return None
        messages = (await self.store.read_inbox(row.chain_key))[:consumed]
        seen.append(messages)
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

    async def _terminate(self, seen: list[Any], number: int, event: int) -> Any:
        row = await self._row(seen, number)
        if row is None:
            return None
        transition = self._transition(row.last_event + 1)
        expected = max(0, row.last_event + event)
        return _always(Terminate(row.run_key, expected, transition, row.last_event + 1, self.now_ms))

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
        owner = there.owner or (self.sessions[0] if self.sessions else 10**9)
        records = self._records(there.run_key, attempts)
        outcome = b"done" if is_over else None
        return _always(
            FinishTask(there.run_key, there.event_id, there.attempt + attempt, owner, outcome, requeue, records)
        )

    async def _expire(self, seen: list[Any], number: int, task: int, attempt: int, attempts: Any) -> Any:
        there = await self._task_of(seen, number, task, "queued")
        return there and _always(
            ExpireTask(
                there.run_key,
                there.event_id,
                there.attempt + attempt,
                b"expired",
                self._records(there.run_key, attempts),
            )
        )

    async def _heartbeat(self, seen: list[Any], number: int, task: int, attempt: int, details: bytes | None) -> Any:
        there = await self._task_of(seen, number, task, "started")
        if there is None:
            return None
        owner = there.owner or (self.sessions[0] if self.sessions else 10**9)
        return _always(Heartbeat(there.run_key, there.event_id, there.attempt + attempt, owner, details))

    async def _log(self, seen: list[Any], number: int, attempts: Any) -> Any:
        row = await self._row(seen, number)
        return row and _always(LogAttempts(self._records(row.run_key, attempts)))

    async def _send(self, _: list[Any], number: int, kind: str, *rest: Any) -> Any:
        message_id, name, body, keep_id, local, room = rest
        run_key = self.runs[number % len(self.runs)] if self.runs else 10**9
        here = [self.sessions[each] for each in local if each < len(self.sessions)]
        return _always(Send(run_key, kind, message_id, name, body, self.now_ms, keep_id, here, room))

    # Verbs ------------------------------------------------------------------------------------------------------------

    def _session(self, number: int) -> tuple[int, str, str]:
        """With its place."""
        if not self.sessions:
            return 10**9, NAMESPACES[0], QUEUES[0]
        at = number % len(self.sessions)
        return (self.sessions[at], *self.places[at])

    async def open_session(self, namespace: str, task_queue: str) -> Any:
        row = await self.store.open_session("host:1 'é'", namespace, task_queue, CODES[0], LEASE_MS)
        self.sessions.append(row.session_key)
        self.places.append((namespace, task_queue))
        return row

    async def renew_session(self, number: int) -> Any:
        return self.store.renew_session(self._session(number)[0], LEASE_MS)

    async def close_session(self, number: int) -> Any:
        return await self.store.close_session(self._session(number)[0])

    async def bury_sessions(self, namespace: str) -> Any:
        buried = await self.store.bury_sessions(namespace)
        return sorted(buried, key=lambda row: row.session_key)  # its order is nobody's promise

    async def time_passes(self, by_ms: int) -> None:
        self.ledger.clock.now_ms += by_ms

    async def claim_runs(self, number: int, code: str, lifted: bool) -> Any:
        session_key, namespace, task_queue = self._session(number)
        claim = self.store.claim_lifted_runs if lifted else self.store.claim_runs
        return await claim(session_key, self.now_ms, namespace, task_queue, dict.fromkeys(TYPES, code), MANY)

    async def claim_tasks(self, number: int, how: str, most: int | None, depends: bool) -> Any:
        """most: attempts at a time of the limit `api`, and of the whole queue; None: no limits."""
        session_key, namespace, task_queue = self._session(number)
        if how == "plain":
            return await self.store.claim_tasks(session_key, self.now_ms, namespace, task_queue, ACTIVITIES, MANY)
        rules = {} if most is None else {"api": LimitRule(most), "all": LimitRule(2 * most)}
        dependency = ({ACTIVITIES[0]: BANK}, {BANK: _budget(0.0)}) if depends else ({}, {})
        bounds = Bounds(rules, {}, () if most is None else (("all", ""),), *dependency)
        claim = self.store.claim_lifted_tasks if how == "lifted" else self.store.claim_queued
        found = await claim(session_key, self.now_ms, Served(namespace, task_queue, ACTIVITIES), MANY, bounds)
        return [found.tasks, found.due_ms, found.waits, found.dependencies, found.has_moved]

    async def state_dependency(self, namespace: str, ratio: float) -> Any:
        return await self.store.state_dependencies(namespace, {BANK: Stated(_budget(ratio), (ACTIVITIES[0],))})

    async def report_calls(self, namespace: str, behind: int, *counts: int) -> Any:
        there = (await self.store.read_dependencies(namespace)).get(BANK)
        opened = 0 if there is None else max(0, there.opened - behind)
        return await self.store.report_calls(namespace, {BANK: [Tally(opened, *counts, "it's down")]})

    async def ask_dependency(self, namespace: str, is_pause: bool, at_once: bool) -> Any:
        return await self.store.ask_dependency(namespace, BANK, Ask(is_pause, IDS[2], "it's me", at_once))

    async def woken_runs(self, number: int) -> Any:
        return [_name("run", self.runs, each) for each in await self.store.woken_runs(self._session(number)[0])]

    async def look(self, number: int, code: str) -> Any:
        session_key, namespace, task_queue = self._session(number)
        codes = dict.fromkeys(TYPES[:2], code)
        return await self.store.look(session_key, self.now_ms, namespace, task_queue, codes, self.runs)

    async def ask(self, number: int, name: str, body: bytes) -> Any:
        if self.runs:
            run_key = self.runs[number % len(self.runs)]
            self.requests.append(await self.store.ask(run_key, "query", name, body, self.now_ms + 10))

    async def answer_request(self, number: int, answer: bytes | None) -> Any:
        if self.requests:
            failure = b"failed" if answer is None else None
            await self.store.answer_request(self.requests[number % len(self.requests)], answer, failure)

    async def take_answer(self, number: int) -> Any:
        return await self.store.take_answer(self.requests[number % len(self.requests)]) if self.requests else None

    async def drop_requests(self) -> Any:
        await self.store.drop_requests(self.now_ms)

    async def _scope(self, kind: Any, number: int) -> Scope | None:
        namespace = NAMESPACES[number % 2]
        match kind:
            case "run":
                if not self.runs:
                    return None
                row = await self.store.read_run(self.runs[number % len(self.runs)])
                if row.status != "running":  # its pause may be forgotten at any time
                    return None
                return Scope(row.namespace, kind, row.run_id, row.run_key, row.workflow_id)
            case "type":
                return Scope(namespace, kind, TYPES[number % len(TYPES)])
            case "queue":
                return Scope(namespace, kind, QUEUES[number % len(QUEUES)])
            case _:
                return Scope(namespace, kind, namespace)

    async def pause(self, kind: Any, number: int, reason: str) -> Any:
        scope = await self._scope(kind, number)
        return scope and await self.store.pause(scope, reason, "it's me")

    async def resume(self, kind: Any, number: int, rate: float | None) -> Any:
        scope = await self._scope(kind, number)
        return scope and await self.store.resume(scope, None if kind == "run" else rate)  # one run has no rate

    async def take_duty(self, number: int, name: str) -> Any:
        session_key, namespace, _ = self._session(number)
        return await self.store.take_duty(namespace, name, session_key, 10)

    async def leave_duty(self, number: int, name: str) -> Any:
        session_key, namespace, _ = self._session(number)
        return await self.store.leave_duty(namespace, name, session_key, 10)

    async def forget_chains(self, numbers: Sequence[int], keep_ms: int) -> Any:
        chains = sorted({self.chains[each] for each in numbers if each < len(self.chains)})
        return [await self.store.chain_runs(chains), await self.store.forget_chains(chains, keep_ms)]


LISTS: Final[tuple[tuple[Condition, ...], ...]] = (
    (),
    (Condition("status", "!=", "running"),),
    (Condition("workflow_id", "in", IDS[:2]), Condition("blocked", "=", False)),
    (Condition("workflow_id", ">", "order"),),
    (Condition("closed_ms", ">=", NOW + 5),),
)

BANK: Final = "the 'bank'"


def _budget(ratio: float) -> BudgetRule:
    """Everything about it happens within a few steps."""
    return BudgetRule(ratio, 100.0, 1_000, 0.5, 3, 5, 20)


_RUN_FIELDS: Final = frozenset({"run_key", "ended", "paused"})
#: Numbers that a store gives to what is known by something else.
_PRIVATE: Final = frozenset({"message_key", "pause_key", "request_key"})


def _always(operation: Operation) -> Callable[[], Operation]:
    return lambda: operation


def _name(what: str, keys: Sequence[int], key: int) -> str:
    return f"{what} {keys.index(key)}" if key in keys else f"{what} ?{key}"
