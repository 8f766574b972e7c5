"""Processes on a PostgreSQL server, each killed just before or just after it has written something of one kind.

A life starts a run, works on it, sends it signals, and hands it back; it ends at its point, by SIGKILL. Lives are
forked from a process that has no ledger open, and work beside each other, each on queues of its own. Then one process
more comes, asks for the same once more (the same ids), finishes what they have left, and looks at it: what was
acknowledged is there, once.

    python -m tests.crashes.fleet 'postgresql://...?schema=...' FOLDER

With `unconsumed` behind, lives leave delivered messages in their inbox: that has to be found.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Literal

import psycopg
from psycopg import sql

import pledger
from pledger import Client, Limit, RetryBudget, RetryPolicy, Worker, activity, workflow
from pledger.engine.port.lanes import took_nothing
from pledger.engine.port.operations import Append, Operation
from pledger.history.events import ActivityCompleted
from pledger.store.postgres import PostgresStore
from pledger.store.postgres.address import parse_url
from pledger.store.postgres.commit import Committer
from pledger.store.postgres.writes import Writes
from pledger.testing import replay
from tests.engine.harness import until
from tests.reference import shop

#: Of lives, and of the last process, whose many workers must not lose theirs on a busy machine.
LEASE: Final = timedelta(milliseconds=600)
LONG_LEASE: Final = timedelta(seconds=10)
PATIENCE_S: Final = 60.0
#: Lives at a time: most of what they do is wait.
BESIDE: Final = 6
QUICK: Final = RetryPolicy(initial_interval=timedelta(milliseconds=1))

#: Batches are told by what is in them; a Close is an append that ends the run. Of appends, the first ones in turn.
IN_BATCHES: Final = ("StartRun", "Send", "Append", "FinishTask", "Heartbeat", "Release", "Close")
VERBS: Final = (
    *("open_session", "renew_session", "claim_runs", "claim_tasks", "claim_queued", "close_session"),
    *("state_dependencies", "report_calls"),
)
APPENDS: Final = 3
#: All steps are done and recorded by then.
_LATE: Final = frozenset({"Release", "close_session", "Close"})


@dataclass(frozen=True)
class Point:
    """number: of the occurrences, from 1."""

    phase: Literal["before", "after"]
    kind: str
    number: int = 1

    def __str__(self) -> str:
        return f"{self.phase}-{self.kind}-{self.number}"


def points() -> list[Point]:
    phases: tuple[Literal["before", "after"], ...] = ("before", "after")
    return [
        Point(phase, kind, number)
        for phase in phases
        for kind in (*IN_BATCHES, *VERBS)
        for number in range(1, 1 + (APPENDS if kind == "Append" else 1))
    ]


@dataclass
class Fate:
    """Where this process dies, if anywhere."""

    point: Point | None = None
    passed: Counter[tuple[str, str]] = field(default_factory=Counter)

    def passes(self, phase: Literal["before", "after"], kind: str) -> None:
        self.passed[phase, kind] += 1
        if self.point == Point(phase, kind, self.passed[phase, kind]):
            os.kill(os.getpid(), signal.SIGKILL)


fate = Fate()
folder = Path()


def watch() -> None:
    """From now on this process meets its fate in whatever it writes."""
    written: list[set[str]] = [set()]
    commit, tell, renew = PostgresStore.commit, Committer._tell, PostgresStore.renew_session

    def commit_watched(self: PostgresStore, batch: Sequence[Operation]) -> Any:
        written[0] = {"Close" if isinstance(each, Append) and each.closed else type(each).__name__ for each in batch}
        return commit(self, batch)

    def tell_watched(self: Committer, phase: Literal["before", "after"]) -> None:
        tell(self, phase)
        for kind in sorted(written[0]):
            fate.passes(phase, kind)

    def renew_watched(self: PostgresStore, session_key: int, lease_ms: int) -> int | None:
        fate.passes("before", "renew_session")
        renewed = renew(self, session_key, lease_ms)
        fate.passes("after", "renew_session")
        return renewed

    PostgresStore.commit = commit_watched  # type: ignore[method-assign]
    Committer._tell = tell_watched  # type: ignore[method-assign]
    setattr(PostgresStore, "renew_session", renew_watched)  # noqa: B010 - it is declared further up
    for name in VERBS:
        if name != "renew_session":
            setattr(PostgresStore, name, _watched(name, getattr(PostgresStore, name)))


def _watched(name: str, verb: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    async def watched(self: PostgresStore, *args: Any) -> Any:
        fate.passes("before", name)
        answer = await verb(self, *args)
        if not took_nothing(answer):
            fate.passes("after", name)
        return answer

    return watched


def leave_messages() -> None:
    """A planted bug: what was delivered stays in the inbox."""
    statements = Writes.statements

    def without(self: Writes) -> Iterator[tuple[str, Sequence[Any]]]:
        return (each for each in statements(self) if each[0] != "deliver_messages")

    Writes.statements = without  # type: ignore[method-assign]


# What they do ---------------------------------------------------------------------------------------------------------


def note(*values: str) -> None:
    """What no kill takes back: a line, written whole by one call."""
    with (folder / "diary").open("ab", buffering=0) as diary:
        diary.write(json.dumps(values).encode() + b"\n")


def read_diary() -> list[list[str]]:
    return [json.loads(line) for line in (folder / "diary").read_bytes().splitlines()]


@activity.defn(retry_policy=QUICK)
async def charge(trial: str) -> str:
    note(trial, "charge")
    return "charged"


@activity.defn(retry_policy=QUICK, heartbeat_timeout=timedelta(seconds=10), secrets=[shop.KEY])
async def ship(trial: str) -> str:
    activity.heartbeat(f"on its way, with {activity.secret(shop.KEY)}")
    await asyncio.sleep(0.05)
    note(trial, "ship")
    return "shipped"


@activity.defn(
    retry_policy=QUICK,
    limits=[Limit("doorbell", concurrency=1, key=lambda trial: trial)],
    retry_budget=RetryBudget("door", minimum_per_second=1_000.0),
)
async def hand_over(trial: str) -> str:
    note(trial, "hand over")
    return "handed over"


@workflow.defn
class Order:
    def __init__(self) -> None:
        self.notes: list[str] = []

    @workflow.run
    async def run(self, trial: str) -> list[Any]:
        charged = await charge(trial)
        shipped = await workflow.execute_activity(ship, trial, task_queue=f"{trial} far")
        handed = await workflow.execute_activity(hand_over, trial, task_queue=f"{trial} door")
        await workflow.wait_condition(lambda: len(self.notes) >= 2)
        await asyncio.sleep(0.01)
        return [charged, shipped, handed, self.notes]

    @workflow.signal
    def remark(self, text: str) -> None:
        self.notes.append(text)


@contextlib.asynccontextmanager
async def working(client: Client, trial: str, lease: timedelta) -> Any:
    """One worker for the run, and one for each activity that has a queue of its own. The last one is limited, and
    depends on something that all lives share."""
    async with (
        Worker(client, workflows=[Order], activities=[charge], task_queue=trial, lease=lease),
        Worker(client, activities=[ship], task_queue=f"{trial} far", lease=lease, secrets=[shop.Vault()]),
        Worker(client, activities=[hand_over], task_queue=f"{trial} door", lease=lease),
    ):
        yield


async def ask(client: Client, trial: str) -> Any:
    handle = await client.start_workflow(Order, trial, id=trial, task_queue=trial)
    note(trial, "run", handle.run_id or "")
    return handle


async def remark(handle: Any, trial: str, text: str) -> None:
    await handle.signal(Order.remark, text, message_id=text)
    note(trial, "signal", text)


async def steps_done(handle: Any, count: int) -> bool:
    done: bool = (await handle.describe()).state.activities_done >= count
    return done


async def live(trial: str) -> None:
    async with pledger.connect(str(url)) as client:
        handle = await ask(client, trial)
        async with working(client, trial, LEASE):
            await remark(handle, trial, "one")
            await until(lambda: steps_done(handle, 3))
            if fate.point is not None and fate.point.kind == "renew_session":
                await asyncio.sleep(PATIENCE_S)
        await remark(handle, trial, "two")
        async with working(client, trial, LEASE):
            await handle.result()


async def judge() -> None:
    """Ask for the same again, finish it, and look at what has become of it."""
    lines = read_diary()
    before = Counter((trial, what) for trial, what, *_ in lines)
    look_for_secrets()
    async with pledger.connect(str(url)) as client, contextlib.AsyncExitStack() as stack:
        for point in points():
            await stack.enter_async_context(working(client, str(point), LONG_LEASE))
        for point in points():
            trial = str(point)
            handle = await ask(client, trial)
            for text in ("one", "two"):
                await remark(handle, trial, text)
            result = await handle.result()
            assert result == ["charged", "shipped", "handed over", ["one", "two"]], f"{trial}: {result}"
            acknowledged = {line[2] for line in lines if line[:2] == [trial, "run"]}
            assert acknowledged <= {handle.run_id}, f"{trial}: {acknowledged} were started, there is {handle.run_id}"
            assert await client.count(f"workflow_id = '{trial}'") == 1, trial
            history = await handle.history()
            assert replay(history, Order) == len(history.events), trial
            done = [each.event for each in history.events if isinstance(each.event, ActivityCompleted)]
            assert len(done) == 3, f"{trial}: {done}"
            after = Counter((trial, what) for trial, what, *_ in read_diary())
            for step in ("charge", "ship", "hand over"):
                assert before[trial, step] <= 1, f"{trial}: one life has done {step} {before[trial, step]} times"
                # Once more only where the outcome was not written yet, or nobody could tell.
                again = 0 if point.kind in _LATE or str(point) == "after-FinishTask-1" else 1
                assert 1 <= after[trial, step] <= 1 + again, f"{trial}: {step} was done {after[trial, step]} times"


def look_for_secrets() -> None:
    """In all that is there: the last heartbeats of the dead are."""
    forms = [text for form in shop.FORMS for text in (form, form.encode().hex())]
    address = parse_url(str(url))
    with psycopg.connect(address.conninfo) as connection:
        tables = connection.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = %s", [address.schema]
        ).fetchall()
        beats = connection.execute(
            sql.SQL("SELECT count(heartbeat) FROM {}").format(sql.Identifier(address.schema, "task"))
        ).fetchone()
        assert beats is not None
        assert beats[0] > 0, "nobody died after a heartbeat"
        for (table,) in tables:
            query = sql.SQL("SELECT t::text FROM {} AS t").format(sql.Identifier(address.schema, table))
            found = [row for (row,) in connection.execute(query) if any(form in row for form in forms)]
            assert not found, f"no secret is in a table: {table} has {found}"


# Lives ----------------------------------------------------------------------------------------------------------------


def in_child(act: Callable[[], Awaitable[None]], point: Point | None) -> int:
    """Its process id; the child does not come back from here."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            fate.point = point
            if point is not None:
                watch()
            asyncio.run(asyncio.wait_for(act(), PATIENCE_S))
            status = 0
        except BaseException:  # noqa: BLE001 - the parent knows by the status
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    return child


def sweep() -> dict[str, int]:
    """How many kills before and after. Raises AssertionError for a life that ends in another way."""
    waiting = points()
    alive: dict[int, Point] = {}
    while waiting or alive:
        while waiting and len(alive) < BESIDE:
            point = waiting.pop(0)
            alive[in_child(lambda point=point: live(str(point)), point)] = point  # type: ignore[misc]
        child, how = os.wait()
        ended = alive.pop(child)
        killed = os.WIFSIGNALED(how) and os.WTERMSIG(how) == signal.SIGKILL
        assert killed, f"the life that was to die {ended} ended with wait status {how}"
    _, how = os.waitpid(in_child(judge, None), 0)
    assert how == 0, "what the lives have left is not what it must be: see above"
    return dict(Counter(point.phase for point in points()))


url: str = ""

if __name__ == "__main__":
    if sys.argv[-1] == "unconsumed":
        sys.argv.pop()
        leave_messages()
    url, folder = sys.argv[1], Path(sys.argv[2])
    print(json.dumps(sweep()))  # noqa: T201 - what it is for
