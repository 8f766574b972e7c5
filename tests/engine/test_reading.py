"""Looking at runs: descriptions, histories, lists and their filters."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pledger import RetryPolicy, activity, workflow
from pledger.client import History, IdReusePolicy
from pledger.errors import ApplicationError, InvalidFilterError, WorkflowFailedError, WorkflowNotFoundError
from pledger.testing import replay
from tests.engine.harness import Ledger, until


@activity.defn(retry_policy=RetryPolicy(initial_interval=timedelta(hours=1), jitter=0.0))
async def flaky() -> None:
    raise ApplicationError("later", type="Busy")


@workflow.defn
async def greet(name: str) -> str:
    return f"hello {name}"


@workflow.defn
async def fails() -> None:
    raise ApplicationError("no", type="No")


@workflow.defn
class Waits:
    @workflow.run
    async def run(self) -> None:
        await asyncio.gather(flaky(), asyncio.sleep(3_600), workflow.wait_condition(lambda: False))

    @workflow.signal
    def note(self, text: str) -> None: ...


@workflow.defn
async def breaks() -> None:
    raise ValueError("a bug")


ALL = (greet, fails, Waits, breaks, flaky)


async def test_a_description_says_what_a_run_waits_for(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, *ALL, identity="box-1"):
        handle = await client.start_workflow(Waits, id="order-1")

        async def retrying() -> Any:
            described = await handle.describe()
            return described if described.pending and described.attempts else None

        described = await until(retrying)
        assert described.owner == "box-1"
        summary = described.summary
        assert (summary.workflow_id, summary.run_id, summary.workflow_type) == ("order-1", handle.run_id, "Waits")
        assert (summary.status, summary.closed, summary.blocked) == ("running", None, None)
        assert summary.started.tzinfo is UTC
        assert abs(datetime.now(UTC) - summary.started) < timedelta(minutes=1)
        state = described.state
        assert [each.command.activity_type for each in state.activities.values()] == ["flaky"]
        (timer,) = state.timers.values()
        assert timer.fire_at_ms - timer.started_ms == 3_600_000
        (pending,) = described.pending
        assert (pending.activity_type, pending.attempt, pending.state) == ("flaky", 2, "queued")
        (attempt,) = described.attempts
        assert (attempt.attempt, attempt.outcome, attempt.worker) == (1, "failed", "box-1")
        await handle.terminate()


async def test_a_description_shows_the_mail_of_a_run_that_nobody_has_taken(ledger: Ledger) -> None:
    async with ledger.connect() as client:
        handle = await client.start_workflow(Waits, id="order-1")
        await handle.signal(Waits.note, "a")
        await handle.cancel("stop")
        described = await handle.describe()
        assert [each.kind for each in described.inbox] == ["start", "signal", "cancel"]
        assert (described.owner, described.last_event) == (None, 0)
        await handle.terminate()
        assert [each.kind for each in (await handle.describe()).inbox] == []


async def test_a_history_is_told_event_by_event(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, *ALL):
        handle = await client.start_workflow(greet, "Ada", id="order-1")
        await handle.result()
        history = await handle.history()
        assert history.identity.workflow_id == "order-1"
        assert [(each.event_id, each.type) for each in history.events] == [(1, "RunStarted"), (2, "RunCompleted")]
        assert history.events[0].attributes["args"] == ["Ada"]
        assert history.events[1].attributes == {"result": "hello Ada"}
        assert history.events[0].time.tzinfo is UTC
        # It names the code that made it, and replays from its text.
        assert history.transitions[0].code
        exported = history.export()
        assert History.read(exported).transitions == history.transitions
        assert replay(exported, greet) == 2


async def test_a_history_longer_than_a_page_is_whole(ledger: Ledger) -> None:
    @workflow.defn
    async def ticks() -> int:
        for _ in range(600):
            await asyncio.sleep(0.000_001)
        return 600

    @activity.defn
    async def step(number: int) -> int:
        return number

    @workflow.defn
    async def steps() -> int:
        for number in range(600):
            await step(number)
        return 600

    async with ledger.connect() as client, ledger.worker(client, steps, step):
        handle = await client.start_workflow(steps, id="order-1")
        assert await handle.result() == 600
        history = await handle.history()
        assert len(history.transitions) == 601
        assert [each.event_id for each in history.events] == list(range(1, 1203))


async def test_runs_are_listed_newest_first_and_filtered(ledger: Ledger) -> None:
    ledger.replay_at_end = False
    async with ledger.connect() as client, ledger.worker(client, *ALL):
        for n in range(3):
            await client.execute_workflow(greet, f"{n}", id=f"greet-{n}")
        failing = await client.start_workflow(fails, id="fails-1")
        with pytest.raises(WorkflowFailedError):
            await failing.result()
        waiting = await client.start_workflow(Waits, id="waits-1")
        await client.start_workflow(breaks, id="breaks-1")
        await until(lambda: _count(client, "blocked = true"))

        async def listed(filter_: str = "", **options: Any) -> list[str]:
            return [each.workflow_id async for each in client.list(filter_, **options)]

        everything = ["breaks-1", "waits-1", "fails-1", "greet-2", "greet-1", "greet-0"]
        assert await listed() == everything
        assert await listed(limit=2) == everything[:2]
        assert await listed("status = 'completed'") == ["greet-2", "greet-1", "greet-0"]
        assert await listed("status = 'completed'", limit=1) == ["greet-2"]
        assert await listed("status in ('failed', 'completed')") == everything[2:]
        assert await listed("status != 'completed' and type != 'Waits'") == ["breaks-1", "fails-1"]
        assert await listed("type = 'Waits'") == ["waits-1"]
        assert await listed("workflow_id >= 'greet-1' and workflow_id < 'waits'") == ["greet-2", "greet-1"]
        assert await listed("blocked = true") == ["breaks-1"]
        assert await listed("blocked = false and status = 'running'") == ["waits-1"]
        assert await listed(f"run_id = '{waiting.run_id}'") == ["waits-1"]
        assert await listed("task_queue = 'elsewhere'") == []
        assert await listed("started > '2020-01-01T00:00:00Z'") == everything
        assert await listed("closed > '2020-01-01T00:00:00+01:00'") == everything[2:]
        assert await client.count() == 6
        assert await client.count("status = 'failed'") == 1
        (blocked,) = [each async for each in client.list("blocked = true")]
        assert blocked.blocked == "ValueError: a bug"
        await waiting.terminate()


async def _count(client: Any, filter_: str) -> int:
    return int(await client.count(filter_))


async def test_a_list_is_read_in_pages(ledger: Ledger) -> None:
    async with ledger.connect() as client:
        for n in range(450):
            await client.start_workflow(greet, "Ada", id=f"greet-{n}")
        everything = [each.workflow_id async for each in client.list()]
        assert everything == [f"greet-{n}" for n in reversed(range(450))]
        assert [each.workflow_id async for each in client.list(limit=300)] == everything[:300]


@pytest.mark.parametrize(
    ("filter_", "message"),
    [
        ("status = 'nope'", "there is no status 'nope'; they are"),
        ("nope = 'x'", "there is no field 'nope'; the fields are workflow_id"),
        ("status", "status is not compared with anything"),
        ("status = completed", "a text has single quotes: 'completed'"),
        ("started > 'yesterday'", "is not a time; write it like"),
        ("blocked = 'yes'", "blocked is compared with true or false"),
        ("status = 'completed' and", "does not parse"),
        ("status = 'x'; DROP TABLE pledger_run", ""),
    ],
)
async def test_a_filter_that_cannot_be_says_why(file_ledger: Ledger, filter_: str, message: str) -> None:
    async with file_ledger.connect() as client:
        with pytest.raises(InvalidFilterError) as caught:
            await client.count(filter_)
        assert message in str(caught.value)
        assert await client.count() == 0


async def test_what_is_in_a_filter_is_never_sql(ledger: Ledger) -> None:
    async with ledger.connect() as client:
        odd = "o'clock \"; --"
        await client.start_workflow(greet, "Ada", id=odd)
        quoted = odd.replace("'", "''")
        assert [each.workflow_id async for each in client.list(f"workflow_id = '{quoted}'")] == [odd]
        await client.handle(odd).terminate()


async def test_runs_of_one_id_are_told_apart_by_their_run_id(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, *ALL):
        first = await client.start_workflow(greet, "Ada", id="order-1")
        await first.result()
        second = await client.start_workflow(greet, "Bob", id="order-1", id_reuse_policy=IdReusePolicy.ALLOW_DUPLICATE)
        await second.result()
        for handle, name in ((first, "Ada"), (second, "Bob")):
            again = client.handle("order-1", run_id=handle.run_id, workflow=greet)
            assert await again.result() == f"hello {name}"
        with pytest.raises(WorkflowNotFoundError, match="no workflow 'order-1' with run id nope"):
            await client.handle("order-1", run_id="nope").describe()


async def test_what_nobody_started_is_not_found(ledger: Ledger) -> None:
    async with ledger.connect() as client:
        handle = client.handle("nobody")
        for call in (handle.result(), handle.describe(), handle.history(), handle.query("x"), handle.terminate()):
            with pytest.raises(WorkflowNotFoundError, match="`pledger list` shows what there is"):
                await call
