"""The audit finds the open runs that nothing carries on, wakes them, and lets the others alone; on every store."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from pledger import Client, Worker, workflow
from pledger.client import WorkflowHandle
from pledger.engine import auditor
from pledger.engine.port.answers import Reply
from pledger.engine.port.operations import Release
from pledger.ops.audit import audit
from tests.engine.harness import Ledger, until

AT_ONCE = timedelta(milliseconds=20)


@workflow.defn(owner="ada", deadline=timedelta(days=1))
async def sleeper() -> str:
    workflow.set_phase("dozing", deadline=timedelta(milliseconds=1))
    await workflow.sleep(1.5)  # longer than a worker takes to end
    return "rested"


@workflow.defn
class Waits:
    done = False

    @workflow.run
    async def run(self) -> str:
        await workflow.wait_condition(lambda: self.done)
        return "told"

    @workflow.signal
    def tell(self) -> None:
        self.done = True


async def lose_its_timer(client: Client, handle: WorkflowHandle[Any], type_: str) -> None:
    """Somebody lets go of the run, and does not say when it is due."""
    store = client.internals.store
    session = await store.open_session("clumsy", "default", "default", "code", 60_000)
    later_ms = await store.now_ms() + 100_000
    [row] = await store.claim_runs(session.session_key, later_ms, "default", "default", {type_: "code"}, 10)
    assert row.workflow_id == handle.workflow_id
    assert await store.commit([Release(row.run_key, row.fence, None)]) == [Reply.WON]
    await store.close_session(session.session_key)


async def begun(client: Client, worker: Any, *handles: WorkflowHandle[Any]) -> None:
    """A worker has begun the runs, and has ended."""
    async with worker:
        for handle in handles:

            async def has_begun(handle: WorkflowHandle[Any] = handle) -> bool:
                return bool((await handle.describe()).last_event)

            await until(has_begun)


async def test_a_run_whose_timer_was_lost_is_found_and_woken(ledger: Ledger) -> None:
    async with ledger.connect() as client:
        handle = await client.start_workflow(sleeper, id="sleeper")
        healthy = await client.start_workflow(Waits, id="waits")
        worker = Worker(client, workflows=[sleeper, Waits], activities=[])
        await begun(client, worker, handle, healthy)
        await lose_its_timer(client, handle, "sleeper")
        found = await audit(client, repair=False, again_after=AT_ONCE)
        assert [(each.workflow_id, each.done) for each in found.problems] == [("sleeper", "found")]
        assert found.problems[0].problem == "its timer, or its deadline, is not what it is due by"
        assert (found.runs, found.wakers) == (2, {"timer": 1, "message": 1})
        assert (found.no_owner, found.no_deadline) == (1, 1)
        assert found.overdue == [("sleeper", "dozing")]
        again = await audit(client, repair=False, again_after=AT_ONCE)
        assert again.problems == found.problems, "nothing was changed"
        mended = await audit(client, again_after=AT_ONCE)
        assert [each.done for each in mended.problems] == ["woken"]
        assert (await audit(client, again_after=AT_ONCE)).problems == []
        async with Worker(client, workflows=[sleeper, Waits], activities=[]):
            assert await handle.result() == "rested"
            await healthy.signal(Waits.tell)
            assert await healthy.result() == "told"


async def test_workers_look_by_themselves(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auditor, "EVERY_S", 0.05)
    async with ledger.connect() as client:
        handle = await client.start_workflow(sleeper, id="sleeper")
        await begun(client, Worker(client, workflows=[sleeper], activities=[]), handle)
        await lose_its_timer(client, handle, "sleeper")
        async with Worker(client, workflows=[Waits], activities=[]), Worker(client, workflows=[sleeper], activities=[]):
            assert await asyncio.wait_for(handle.result(), 20) == "rested"


async def test_a_run_that_is_as_before_however_often_it_is_woken_is_paused(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wakes that have no effect stand for what nobody has thought of."""
    monkeypatch.setattr(auditor, "EVERY_S", 0.02)

    async def in_vain(store: Any, looked: Any) -> None: ...

    monkeypatch.setattr(auditor, "wake", in_vain)
    async with ledger.connect() as client:
        handle = await client.start_workflow(sleeper, id="sleeper")
        await begun(client, Worker(client, workflows=[sleeper], activities=[]), handle)
        await lose_its_timer(client, handle, "sleeper")
        async with Worker(client, workflows=[sleeper], activities=[]):

            async def is_paused() -> bool:
                return bool((await handle.describe()).pauses)

            await until(is_paused)
            waiting = (await handle.describe()).waiting_for
            assert waiting is not None
            assert waiting.what.startswith(
                "a person: it is paused by the audit (it was woken 3 times, and is as before"
            )
            await handle.resume()
            monkeypatch.undo()
            await audit(client, again_after=AT_ONCE)
            assert await handle.result() == "rested"


async def test_healthy_runs_are_not_disturbed(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auditor, "EVERY_S", 0.01)
    woken: list[str] = []

    async def noted(store: Any, looked: Any) -> None:
        woken.append(looked.row.workflow_id)

    monkeypatch.setattr(auditor, "wake", noted)
    async with ledger.connect() as client, Worker(client, workflows=[sleeper, Waits], activities=[], max_cached_runs=2):
        handles = [await client.start_workflow(sleeper, id=f"sleeper-{n}") for n in range(10)]
        waiting = [await client.start_workflow(Waits, id=f"waits-{n}") for n in range(10)]
        for each in waiting:
            await each.signal(Waits.tell)
        assert [await each.result() for each in [*handles, *waiting]] == ["rested"] * 10 + ["told"] * 10
    assert woken == []
