"""Opens the store under test, tells it the time, and builds operations with the dull fields filled in."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pledger.engine.port.answers import Answer, Reply, Started
from pledger.engine.port.filters import Attribute, PhaseRow
from pledger.engine.port.lane_text import lane_of
from pledger.engine.port.lanes import Bounds, Claim, Served
from pledger.engine.port.operations import Append, FinishTask, Operation, ResetRun, Send, StartRun, Terminate
from pledger.engine.port.records import Outlook, Request, RunRow, TaskRow
from pledger.engine.port.verbs import Store
from pledger.history.placement import LimitRule, Placement
from pledger.history.transition import StoredTransition
from pledger.store.memory import MemoryStore, State
from pledger.store.postgres import PostgresStore
from pledger.store.postgres.address import Address, parse_url
from pledger.store.postgres.handle import PATIENCE_S
from pledger.store.sqlite import SqliteStore, open_sqlite
from pledger.store.sqlite.lane import Lane
from tests import servers

NOW = 1_700_000_000_000
LEASE_MS = 10_000
TABLES = (
    "chain",
    "run",
    "history",
    "message",
    "child",
    "parting",
    "task",
    "attempt",
    "session",
    "wake",
    "request",
    "mark",
    "pause",
    "leftover",
    "duty",
    "loss",
    *("slot", "bucket", "turn", "limit_rule"),
    "dependency",
    *("piece", "piece_use"),
    "reset",
    *("attribute", "memo", "phase"),
    *("stream", "published"),
)


@dataclass
class Clock:
    """The store's clock, set by the test."""

    now_ms: int = NOW

    def __call__(self) -> int:
        return self.now_ms


@dataclass
class Ledger:
    """One ledger and a way to open it: `open()` is what another process would do, as near as one process can."""

    clock: Clock
    connect: Callable[[], Store]
    handles: list[Store] = field(default_factory=list)

    def open(self) -> Store:
        self.handles.append(self.connect())
        return self.handles[-1]

    async def close(self) -> None:
        for handle in self.handles:
            await handle.close()


def memory_ledger(_: Path, __: pytest.MonkeyPatch) -> Ledger:
    clock = Clock()
    state = State(clock)
    return Ledger(clock, lambda: MemoryStore(state))


def sqlite_ledger(directory: Path, __: pytest.MonkeyPatch) -> Ledger:
    clock = Clock()
    return Ledger(clock, lambda: open_sqlite(directory / "ledger.db", clock=clock))


def slow_sqlite_ledger(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    """Every disk is slow: all transactions go through the writer's thread."""
    monkeypatch.setattr(Lane, "_may_run_inline", lambda self, durable: False)
    return sqlite_ledger(directory, monkeypatch)


def postgres_ledger(_: Path, __: pytest.MonkeyPatch) -> Ledger:
    clock = Clock()
    address = asyncio.run(empty_schema("conformance"))

    def opened() -> PostgresStore:
        store = PostgresStore(address, clock=clock)
        store.patience_s = PATIENCE_S  # as everybody has it: another test may end the sessions of all
        return store

    return Ledger(clock, opened)


async def empty_schema(name: str) -> Address:
    """A ledger in a schema of this process, with nothing in it."""
    address = parse_url(servers.changed(servers.url(), schema=f"{name}_{os.getpid()}"))
    store = PostgresStore(address)
    try:
        await store.migrate()
        await emptied(store)
    finally:
        await store.close()
    return address


async def emptied(store: PostgresStore) -> None:
    """Of all rows."""
    tables = ", ".join(f"{store.address.quoted}.{table}" for table in TABLES)
    async with store._writer.use() as connection:
        await connection.execute(f"TRUNCATE {tables} CASCADE")


async def with_statistics(store: Store) -> None:
    """As after a minute: until then a server that was filled at once sorts what an index would give in order."""
    if isinstance(store, PostgresStore):
        async with store._writer.use() as connection:
            await connection.execute(f"ANALYZE {store.address.quoted}.task")


LEDGERS = {
    "memory": memory_ledger,
    "sqlite": sqlite_ledger,
    "sqlite-slow-disk": slow_sqlite_ledger,
    "postgres": postgres_ledger,
}


def run_async_test(pyfuncitem: pytest.Function) -> bool | None:
    """For `pytest_pyfunc_call`: an `async def` test runs in a fresh event loop."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    ledger = pyfuncitem.funcargs.get("ledger")

    async def run() -> None:
        try:
            await pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names})
        finally:
            if isinstance(ledger, Ledger):
                await ledger.close()  # in the loop that its connections are of

    asyncio.run(run())
    return True


# Operations -----------------------------------------------------------------------------------------------------------


def step(first_event: int, body: bytes = b"body") -> StoredTransition:
    return StoredTransition(first_event, body, first_event.to_bytes(8, "big"))


def start(workflow_id: str = "order-1", **changes: Any) -> StartRun:
    fields: dict[str, Any] = {
        "namespace": "default",
        "workflow_id": workflow_id,
        "run_id": f"run-of-{workflow_id}",
        "workflow_type": "fulfil",
        "task_queue": "default",
        "input_digest": b"digest",
        "started": b"started",
        "started_ms": NOW,
    }
    return StartRun(**fields | changes)


def append(run: RunRow, **changes: Any) -> Append:
    """The next two events of a run by its owner, as `run` shows it."""
    fields: dict[str, Any] = {
        "run_key": run.run_key,
        "fence": run.fence,
        "expected_event": run.last_event,
        "transition": step(run.last_event + 1),
        "last_event": run.last_event + 2,
        "due_ms": None,
        "time_ms": NOW,
    }
    return Append(**fields | changes)


def terminate(run: RunRow, **changes: Any) -> Terminate:
    fields: dict[str, Any] = {
        "run_key": run.run_key,
        "expected_event": run.last_event,
        "expected_head": run.head,
        "transition": step(run.last_event + 1, b"terminated"),
        "last_event": run.last_event + 1,
        "time_ms": NOW,
    }
    return Terminate(**fields | changes)


def reset(base: RunRow, newest: RunRow | None = None, **changes: Any) -> ResetRun:
    """All of the history of `base`, which is the newest run of its workflow id if no other one is."""
    newest = newest or base
    is_open = newest.status == "running"
    fields: dict[str, Any] = {
        "namespace": base.namespace,
        "workflow_id": base.workflow_id,
        "base_key": base.run_key,
        "base_event": base.last_event,
        "base_head": base.head,
        "newest_key": newest.run_key,
        "newest_event": newest.last_event,
        "newest_head": newest.head,
        "closing": step(newest.last_event + 1, b"reset") if is_open else None,
        "run_id": f"after-{newest.run_id}",
        "kept": base.last_event,
        "head": base.head,
        "inputs": b"inputs",
        "tasks": (),
        "revive": True,
        "time_ms": NOW,
        "base_run_id": base.run_id,
        "event_id": max(1, base.last_event),
        "how": "reset",
        "reason": "it's wrong",
        "by": "me",
        "attributes": [Attribute("amount", "int", (7,)), Attribute("tags", "keyword_list", ("a", "o'clock"))],
        "memo": b'{"a":1}',
        "answers_for": "ada",
        "deadline_ms": NOW + 60_000,
        "phases": [PhaseRow(1, "phase", "it's late", "ada", NOW + 5)],
    }
    return ResetRun(**fields | changes)


def signal(run: RunRow, message_id: str = "m-1", **changes: Any) -> Send:
    fields: dict[str, Any] = {"kind": "signal", "name": "approve", "body": b"[1]", "sent_ms": NOW}
    return Send(run.run_key, message_id=message_id, **fields | changes)


def task(run: RunRow, event_id: int = 1, **changes: Any) -> TaskRow:
    fields: dict[str, Any] = {
        "run_key": run.run_key,
        "event_id": event_id,
        "namespace": run.namespace,
        "workflow_id": run.workflow_id,
        "run_id": run.run_id,
        "workflow_type": run.workflow_type,
        "task_queue": "default",
        "activity_type": "charge",
        "state": "queued",
        "attempt": 1,
        "due_ms": NOW,
        "command": b"command",
        "scheduled_ms": NOW,
    }
    return TaskRow(**fields | changes)


def finish(row: TaskRow, **changes: Any) -> FinishTask:
    assert row.owner is not None
    return FinishTask(row.run_key, row.event_id, row.attempt, row.owner, **{"outcome": b"result"} | changes)


# Short ways to a situation --------------------------------------------------------------------------------------------


async def write(store: Store, operation: Operation) -> Answer:
    """The answer to one operation."""
    [answer] = await store.commit([operation])
    return answer


async def open_session(
    store: Store, identity: str = "host:1", code: str = "code-1", *, namespace: str = "default"
) -> int:
    session = await store.open_session(identity, namespace, "default", code, LEASE_MS)
    return session.session_key


async def owned_run(store: Store, session_key: int, workflow_id: str = "order-1", **changes: Any) -> RunRow:
    """A run that was born owned, with two events."""
    first = Append(0, 0, 0, step(1), 2, None, NOW)
    operation = start(workflow_id, owner=session_key, first=first, **changes)
    answer = await write(store, operation)
    assert isinstance(answer, Started), answer
    return await store.read_run(answer.run_key)


async def run_with_tasks(store: Store, session: int, *tasks: dict[str, Any], workflow_id: str = "order-1") -> RunRow:
    run = await owned_run(store, session, workflow_id)
    rows = [task(run, n, **changes) for n, changes in enumerate(tasks, 3)]
    assert await write(store, append(run, tasks=rows)) is Reply.WON
    return await store.read_run(run.run_key)


async def ownerless_run(store: Store, workflow_id: str = "order-1", **changes: Any) -> RunRow:
    """A run that waits for its first worker."""
    answer = await write(store, start(workflow_id, **changes))
    assert isinstance(answer, Started), answer
    return await store.read_run(answer.run_key)


async def claim(store: Store, session_key: int, now_ms: int = NOW, **changes: Any) -> list[RunRow]:
    fields: dict[str, Any] = {
        "namespace": "default",
        "task_queue": "default",
        "codes": {"fulfil": "code-1"},
        "limit": 100,
    }
    return await store.claim_runs(session_key, now_ms, **fields | changes)


async def claim_tasks(
    store: Store, session_key: int, now_ms: int = NOW, limit: int = 100, **changes: Any
) -> list[TaskRow]:
    served = {"namespace": "default", "task_queue": "default", "activity_types": ["charge"]} | changes
    return await store.claim_tasks(session_key, now_ms, Served(**served), limit)


async def claim_queued(
    store: Store, session_key: int, now_ms: int = NOW, limit: int = 100, ahead: int = 0, **rules: LimitRule
) -> Claim:
    """With the rules of these limits; `everything` is one of the whole queue, `every_charge` one of the activity."""
    standing = {"charge": (("every_charge", ""),)} if "every_charge" in rules else {}
    queue = (("everything", ""),) if "everything" in rules else ()
    served = Served("default", "default", ["charge", "refund"], ahead=ahead)
    return await store.claim_queued(session_key, now_ms, served, limit, Bounds(rules, standing, queue))


def placed(priority: int = 3, key: str = "", weight: float = 1.0, *limits: tuple[str, str]) -> dict[str, Any]:
    """What a task row says of its place."""
    return {"lane": lane_of(Placement(priority, key, weight, limits)), "weight": weight}


#: Of an activity under the limit `api`.
API = placed(3, "", 1.0, ("api", ""))


def ids(rows: list[TaskRow]) -> list[int]:
    """The events of activities, in the order of their rows."""
    return [row.event_id for row in rows]


async def look(store: Store, session_key: int, now_ms: int = NOW, **changes: Any) -> Outlook:
    fields: dict[str, Any] = {
        "namespace": "default",
        "task_queue": "default",
        "codes": {"fulfil": "code-1"},
        "held": [],
    }
    return await store.look(session_key, now_ms, **fields | changes)


async def open_requests(store: Store, run_key: int) -> list[Request]:
    return [request for mail in await store.read_mail([run_key]) for request in mail.requests]


async def next_due_ms(store: Store, namespace: str, task_queue: str) -> int | None:
    return (await look(store, 0, namespace=namespace, task_queue=task_queue)).due_ms


def sqlite_of(store: Store) -> SqliteStore:
    assert isinstance(store, SqliteStore)
    return store


async def rows_of(store: Store, table: str) -> int:
    """How many rows a table of the store has."""
    if isinstance(store, MemoryStore):
        queues = store.state.queues["default"]
        match table:
            case "slot":
                return len(queues.slots)
            case "bucket":
                return len(queues.full_ms)
            case "turn":
                return len(queues.passes) + len(queues.clocks)
            case _:
                raise AssertionError(table)
    if isinstance(store, PostgresStore):
        sql = f"SELECT count(*) FROM {store.address.quoted}.{table}"
        [(count,)] = await store._read_sql(store._reader, sql, [])
    else:
        [(count,)] = sqlite_of(store)._rows(f"SELECT count(*) FROM pledger_{table}")
    return int(count)


async def without_weights(store: Store) -> None:
    """All task rows as code leaves them that knows nothing of lanes; in memory there is none."""
    if isinstance(store, PostgresStore):
        async with store._writer.use() as connection:
            await connection.execute(f"UPDATE {store.address.quoted}.task SET weight = NULL")
    elif not isinstance(store, MemoryStore):
        sql = "UPDATE pledger_task SET weight = NULL"
        await sqlite_of(store)._submit(lambda cursor: cursor.execute(sql, ()))
